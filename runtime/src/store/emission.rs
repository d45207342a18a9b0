//! From a row of `pending` to what is put on `due` for it.

use super::rows::PendingRow;
use schemas::avro::DecodeError;
use schemas::delivery::DeadReason;
use schemas::due::{Deliver, DueKind, DueRecord};
use schemas::row::{RowBody, RowHistory, RowOptions};

impl PendingRow {
    /// The record that asks for its delivery. `fence` was read before the row was read (or committed) as pending
    /// with this generation.
    pub fn due_record(self, fence: i64) -> Result<DueRecord, DecodeError> {
        let options = RowOptions::decode(&self.options)?;
        let history = RowHistory::decode(&self.history)?;
        let body = RowBody::decode(&self.body)?;
        let deliver = Deliver {
            attempt: self.attempt,
            task_id: self.task_id,
            shard_key: self.shard_key,
            partition: options.partition,
            key: body.key,
            headers: body.headers,
            value: body.value,
            expires_at: options.expires_at,
            asked_at: options.asked_at,
            completion: options.completion,
            progress: options.progress,
            history: history.attempts,
            bury: self.bury.map(burial),
        };
        Ok(DueRecord {
            id: self.id,
            generation: self.generation,
            shard: self.shard,
            due_at: self.due_at,
            fence,
            callback_topic: self.callback_topic,
            kind: DueKind::Deliver(Box::new(deliver)),
        })
    }

    /// The record that asks to take it back, under the same rule for `fence`.
    pub fn withdraw_record(&self, fence: i64) -> DueRecord {
        DueRecord {
            id: self.id,
            generation: self.generation,
            shard: self.shard,
            due_at: self.due_at,
            fence,
            callback_topic: self.callback_topic.clone(),
            kind: DueKind::Withdraw,
        }
    }
}

/// Column `bury` holds the place of a reason in [`DeadReason::ALL`]; a newer version may know more of them.
fn burial(code: u8) -> String {
    let reason = DeadReason::ALL.get(usize::from(code));
    reason.map_or_else(|| format!("reason_{code}"), |reason| reason.as_str().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use schemas::due::Completion;
    use schemas::ids::{Generation, RowId, Shard};
    use schemas::record::Header;

    fn row() -> PendingRow {
        let options = RowOptions {
            partition: Some(3),
            expires_at: Some(99),
            asked_at: None,
            completion: Completion::OnDelivery,
            ..RowOptions::default()
        };
        let headers = vec![Header { name: "h".into(), value: None }];
        let body = RowBody { key: Some(vec![]), headers, value: None };
        PendingRow {
            shard: Shard(1),
            due_at: 50,
            id: RowId(7),
            generation: Generation(2),
            attempt: 1,
            failures: 0,
            stalls: 0,
            task_id: "t".into(),
            shard_key: None,
            callback_topic: "c".into(),
            bury: None,
            options: options.encode(),
            history: RowHistory::default().encode(),
            body: body.encode(),
        }
    }

    #[test]
    fn a_due_record_carries_the_body_as_submitted() {
        let record = row().due_record(5).unwrap();
        assert_eq!((record.row_gen(), record.fence, record.due_at), (row().row_gen(), 5, 50));
        let DueKind::Deliver(deliver) = record.kind else { panic!("a delivery") };
        assert_eq!((deliver.key, deliver.value, deliver.partition), (Some(vec![]), None, Some(3)));
        assert_eq!(deliver.headers, [Header { name: "h".into(), value: None }]);
    }

    #[test]
    fn a_row_to_bury_says_why() {
        let record = PendingRow { bury: Some(0), ..row() }.due_record(5).unwrap();
        let DueKind::Deliver(deliver) = record.kind else { panic!("a delivery") };
        assert_eq!(deliver.bury.as_deref(), Some("expired"));
    }
}
