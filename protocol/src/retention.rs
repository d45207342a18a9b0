//! Which final rows have outlived the retention time, which is the de-duplication window (PROTOCOL §1, §3).

use crate::state::TaskState;
use schemas::ids::{RowId, SourceId};

/// A row of `task` as the purge sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The row.
    pub id: RowId,
    /// `None`: a code of a newer version, which is left alone.
    pub state: Option<TaskState>,
    /// When it was accepted.
    pub created_at: i64,
    /// When it became final.
    pub finished_at: Option<i64>,
    /// A row of `change` speaks of it: an answer is owed, an intent is open, an ack is parked.
    pub spoken_of: bool,
}

/// The rows of one input partition whose commands have had their effects acked: from the first id to the one after
/// the last. Others are not purged, for their command would be taken for a new one when it is read again.
pub fn confirmed_rows(source: SourceId, partition: i32, confirmed: i64) -> Option<(RowId, RowId)> {
    let first = RowId::pack(source, partition, 0)?;
    let end = RowId::pack(source, partition, confirmed.clamp(0, RowId::MAX_OFFSET))?;
    (first < end).then_some((first, end))
}

/// Whether a row may be forgotten.
pub fn is_over(row: &Kept, now: i64, retention_ms: i64) -> bool {
    let is_final = row.state.is_some_and(TaskState::is_final);
    let finished_at = row.finished_at.filter(|_| is_final && !row.spoken_of);
    finished_at.is_some_and(|at| at <= now.saturating_sub(retention_ms))
}

/// Whether a sweep in id order may end behind these rows: all of them came so late that neither they nor what came
/// after them can be over. A whole chunk decides, for one clock may have been wrong.
pub fn is_young(chunk: &[Kept], now: i64, retention_ms: i64) -> bool {
    chunk.iter().all(|row| row.created_at > now.saturating_sub(retention_ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_000_000;
    const WEEK: i64 = 1_000;

    fn row(state: TaskState, finished_at: Option<i64>) -> Kept {
        Kept { id: RowId(1), state: Some(state), created_at: 0, finished_at, spoken_of: false }
    }

    #[test]
    fn only_final_rows_past_the_retention_are_over() {
        for state in TaskState::ALL {
            assert_eq!(is_over(&row(state, Some(NOW - WEEK)), NOW, WEEK), state.is_final(), "{state:?}");
            assert!(!is_over(&row(state, Some(NOW - WEEK + 1)), NOW, WEEK));
            assert!(!is_over(&row(state, None), NOW, WEEK));
        }
        assert!(!is_over(&Kept { state: None, ..row(TaskState::Done, Some(0)) }, NOW, WEEK));
    }

    #[test]
    fn a_row_that_a_change_speaks_of_is_kept() {
        assert!(!is_over(&Kept { spoken_of: true, ..row(TaskState::Done, Some(0)) }, NOW, WEEK));
    }

    #[test]
    fn only_commands_below_confirmed_are_looked_at() {
        let at = |offset| RowId::pack(SourceId(3), 2, offset).unwrap();
        assert_eq!(confirmed_rows(SourceId(3), 2, 17), Some((at(0), at(17))));
        assert_eq!(confirmed_rows(SourceId(3), 2, 0), None);
    }

    #[test]
    fn a_sweep_ends_where_a_whole_chunk_is_young() {
        let young = Kept { created_at: NOW - WEEK + 1, ..row(TaskState::Scheduled, None) };
        let old = Kept { created_at: NOW - WEEK, ..young };
        assert!(is_young(&[young, young], NOW, WEEK));
        assert!(!is_young(&[young, old], NOW, WEEK));
    }
}
