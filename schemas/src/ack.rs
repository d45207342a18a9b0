//! What a consumer reports of an `on_ack` task on `acks`.

use crate::delivery::DeliveryId;

/// A report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ack {
    /// The delivery that is reported on.
    pub delivery_id: DeliveryId,
    /// What is reported.
    pub outcome: AckOutcome,
    /// How far the consumer got, in its own words; `None`: what was reported before stays.
    pub progress: Option<Vec<u8>>,
}

/// What a consumer reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AckOutcome {
    /// It is still at work.
    Progress,
    /// It is done.
    Succeeded,
    /// It is not, and will not be in this attempt.
    Failed {
        /// Why, for people.
        reason: Option<String>,
        /// No further attempt.
        permanent: bool,
    },
}
