//! Which dead letters are meant.

use crate::cli::FilterArgs;
use crate::exit::Failure;
use runtime::clock::now_ms;
use runtime::config::HumanDuration;
use schemas::delivery::{DeadReason, Letter};

/// The filters of a command. All that is given must be true of a letter.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filter {
    topics: Vec<String>,
    reasons: Vec<String>,
    task_ids: Vec<String>,
    shard_key: Option<String>,
    /// Epoch ms.
    pub(crate) since: Option<i64>,
    until: Option<i64>,
}

impl Filter {
    pub(crate) fn of(args: FilterArgs) -> Result<Filter, Failure> {
        let now = now_ms();
        let time = |option: &str, text: Option<String>| {
            text.map(|text| time(&text, now).ok_or_else(|| not_a_time(option, &text))).transpose()
        };
        let filter = Filter {
            since: time("--since", args.since)?,
            until: time("--until", args.until)?,
            topics: args.topics,
            reasons: args.reasons,
            task_ids: args.task_ids,
            shard_key: args.shard_key,
        };
        for reason in filter.reasons.iter().filter(|reason| DeadReason::from_code(reason).is_none()) {
            let known: Vec<&str> = DeadReason::ALL.iter().map(|reason| reason.as_str()).collect();
            eprintln!("note: {reason} is none of Duestream's own reasons ({})", known.join(", "));
        }
        Ok(filter)
    }

    /// The letters of one task.
    pub(crate) fn of_task(task_id: &str, shard_key: Option<&str>) -> Filter {
        Filter {
            task_ids: vec![task_id.to_owned()],
            shard_key: shard_key.map(str::to_owned),
            ..Filter::default()
        }
    }

    /// Whether nothing is asked for in particular.
    pub(crate) fn is_open(&self) -> bool {
        self.topics.is_empty()
            && self.reasons.is_empty()
            && self.shard_key.is_none()
            && (self.since, self.until) == (None, None)
            && !self.names_tasks()
    }

    /// Whether particular tasks are asked for: then it is a failure that there are none.
    pub(crate) fn names_tasks(&self) -> bool {
        !self.task_ids.is_empty()
    }

    pub(crate) fn takes(&self, letter: &Letter) -> bool {
        let among = |names: &[String], name: &str| names.is_empty() || names.iter().any(|n| n == name);
        among(&self.topics, &letter.topic)
            && among(&self.reasons, &letter.reason)
            && among(&self.task_ids, &letter.task_id)
            && self.shard_key.as_ref().is_none_or(|key| *key == letter.shard_key)
            && self.since.is_none_or(|since| letter.dead_at >= since)
            && self.until.is_none_or(|until| letter.dead_at < until)
    }
}

/// RFC 3339, epoch milliseconds, or so long ago.
fn time(text: &str, now: i64) -> Option<i64> {
    if let Ok(at) = text.parse::<i64>() {
        return Some(at);
    }
    if let Ok(ago) = text.parse::<HumanDuration>() {
        return Some(now.saturating_sub(ago.as_ms()));
    }
    text.parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_millisecond)
}

fn not_a_time(option: &str, text: &str) -> Failure {
    Failure::Usage(format!(
        "{option} {text}: must be RFC 3339 with offset, epoch milliseconds, or a duration such as 2h (ago)"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dead::letters::tests::letter;

    #[test]
    fn all_that_is_given_must_be_true() {
        let letter = letter("t", 1_000);
        let takes = |change: &dyn Fn(&mut FilterArgs)| {
            let mut args = FilterArgs::default();
            change(&mut args);
            Filter::of(args).unwrap().takes(&letter)
        };
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        assert!(takes(&|_| {}));
        assert!(takes(&|args| args.topics = texts(&["other", "callbacks"])));
        assert!(!takes(&|args| args.topics = texts(&["other"])));
        assert!(takes(&|args| args.reasons = texts(&["failed"])));
        assert!(!takes(&|args| args.reasons = texts(&["expired"])));
        assert!(!takes(&|args| {
            args.topics = texts(&["callbacks"]);
            args.task_ids = texts(&["u"]);
        }));
        assert!(takes(&|args| args.shard_key = Some("t".into())));
        assert!(!takes(&|args| args.shard_key = Some("s".into())));
        // From the first time on, up to and without the second.
        assert!(takes(&|args| args.since = Some("1000".into())));
        assert!(!takes(&|args| args.since = Some("1001".into())));
        assert!(!takes(&|args| args.until = Some("1000".into())));
        assert!(takes(&|args| args.until = Some("1001".into())));
    }

    #[test]
    fn a_time_may_be_a_duration_ago() {
        assert_eq!(time("2h", 10_000_000), Some(2_800_000));
        assert_eq!(time("17", 0), Some(17));
        assert_eq!(time("1970-01-01T00:00:01Z", 0), Some(1_000));
        assert_eq!(time("yesterday", 0), None);
    }

    #[test]
    fn only_a_filter_that_says_nothing_is_open() {
        assert!(Filter::of(FilterArgs::default()).unwrap().is_open());
        assert!(!Filter::of_task("t", None).is_open());
        let since = FilterArgs { since: Some("1h".into()), ..FilterArgs::default() };
        assert!(!Filter::of(since).unwrap().is_open());
    }
}
