//! Parts of a Kafka record as the contracts see them.

/// One header of a Kafka record. Names may repeat; order is kept.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Header {
    /// Name.
    pub name: String,
    /// Value; `None` = null, which Kafka tells from empty.
    pub value: Option<Vec<u8>>,
}
