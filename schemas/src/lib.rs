//! The contracts: records that cross topics, their Avro schemas, and the forms in which a command may be submitted.

pub mod due;
pub mod ids;
pub mod journal;
pub mod record;
pub mod row;
pub mod topics;
