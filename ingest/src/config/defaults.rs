//! `[[callback.defaults]]`: what tasks are where their commands do not say.

use super::Config;
use runtime::config::Violations;
use schemas::command::TopicPattern;
use schemas::due::Completion;
use schemas::options::{
    BadOption, TaskOptions, parse_ack_timeout, parse_completion, parse_max_attempts, parse_max_stalls,
};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt::Display;

/// One of `[[callback.defaults]]`, as it is written.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallbackDefaults {
    /// Pattern of callback topics; empty: none.
    pub topic: String,
    /// Topic of commands; empty: all.
    pub source: String,
    /// Empty: not said.
    pub completion: String,
    /// 0: not said.
    pub max_attempts: i64,
    /// Empty: not said.
    pub backoff: String,
    /// Empty: not said.
    pub ack_timeout: String,
    /// −1: not said.
    pub max_stalls: i64,
    /// Empty: not said.
    pub spread: String,
    /// Empty: not said.
    pub window: String,
}

/// Collects what is wrong with the options of a block, or passes it over.
type Wrong<'w> = &'w mut dyn FnMut(&str, &dyn Display, &BadOption);

impl CallbackDefaults {
    /// The options; what is none goes to `wrong`.
    fn options(&self, wrong: Wrong<'_>) -> TaskOptions {
        let number = |number: i64, none: i64| if number == none { String::new() } else { number.to_string() };
        TaskOptions {
            completion: option("completion", &self.completion, parse_completion, wrong),
            max_attempts: option("max_attempts", &number(self.max_attempts, 0), parse_max_attempts, wrong),
            backoff: option("backoff", &self.backoff, str::parse, wrong),
            ack_timeout_ms: option("ack_timeout", &self.ack_timeout, parse_ack_timeout, wrong),
            max_stalls: option("max_stalls", &number(self.max_stalls, -1), parse_max_stalls, wrong),
            spread: option("spread", &self.spread, str::parse, wrong),
            window: option("window", &self.window, str::parse, wrong),
        }
    }
}

fn option<T>(
    name: &str,
    text: &str,
    parse: impl FnOnce(&str) -> Result<T, BadOption>,
    wrong: Wrong<'_>,
) -> Option<T> {
    if text.is_empty() {
        return None;
    }
    parse(text).map_err(|bad| wrong(name, &text, &bad)).ok()
}

impl Config {
    /// The defaults for commands of a source. Of a valid configuration: what is no option would be left out.
    pub(super) fn defaults_of(&self, source: &str) -> Vec<(TopicPattern, TaskOptions)> {
        let blocks = self.callback.defaults.iter();
        let of_source = blocks.filter(|block| block.source.is_empty() || block.source == source);
        of_source
            .filter_map(|block| Some((TopicPattern::parse(&block.topic)?, block.options(&mut |_, _, _| {}))))
            .collect()
    }

    /// Rules of the blocks. `sources`: the topics of commands.
    pub(super) fn check_defaults(&self, sources: &[String], v: &mut Violations) {
        let mut seen = BTreeMap::new();
        for (index, block) in self.callback.defaults.iter().enumerate() {
            let key = |name: &str| format!("callback.defaults.{index}.{name}");
            let options = block.options(&mut |name, value, bad| {
                let BadOption { part, problem, example } = bad;
                let value = value.to_string();
                let rule =
                    if *part == value { problem.clone() } else { format!("has {part:?}, which {problem}") };
                v.broken(&key(name), &value, &rule, &format!("write {example}"));
            });
            if block.topic.is_empty() {
                v.rule(
                    &key("topic"),
                    &block.topic,
                    options == TaskOptions::default() && block.source.is_empty(),
                    "is for no topic, and the block says something all the same",
                    "name a topic; * is for all",
                );
                continue;
            }
            let legal = TopicPattern::parse(&block.topic).is_some();
            v.rule(
                &key("topic"),
                &block.topic,
                legal,
                "must be the name of a topic, which may end in *",
                "one block is for one name",
            );
            v.rule(
                &key("source"),
                &block.source,
                block.source.is_empty() || sources.contains(&block.source),
                "is no topic of [[sources]]",
                &format!("the sources are {}; empty: all of them", sources.join(", ")),
            );
            if let Some(first) = seen.insert((&block.topic, &block.source), index) {
                let rule = format!("is the topic of callback.defaults.{first} too, for the same commands");
                v.broken(&key("topic"), &block.topic, &rule, "the first one counts; join them");
            }
            let of_acks = options.max_attempts.is_some()
                || options.backoff.is_some()
                || options.ack_timeout_ms.is_some()
                || options.max_stalls.is_some();
            v.rule(
                &key("completion"),
                &block.completion,
                options.completion != Some(Completion::OnDelivery) || !of_acks,
                "leaves nothing to do for max_attempts, backoff, ack_timeout and max_stalls",
                "say on_ack, or nothing, or leave those out",
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use runtime::config::load_from;

    fn load(file: &str, env: &[(&str, &str)]) -> Result<Config, Vec<String>> {
        let env = env.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let loaded = load_from::<Config>(Some(file), env);
        loaded.map(|loaded| loaded.config).map_err(|report| report.lines)
    }

    #[test]
    fn the_first_block_for_topic_and_source_counts() {
        let cfg = load(
            "[[sources]]\ntopic = \"a\"\n[[sources]]\ntopic = \"b\"\n\
             [[callback.defaults]]\ntopic = \"orders.*\"\nsource = \"b\"\nwindow = \"1m\"\n\
             [[callback.defaults]]\ntopic = \"orders.*\"\ncompletion = \"on_ack\"\nmax_attempts = 5\nmax_stalls = 0\n\
             backoff = \"exponential:1s,cap=1h\"\nack_timeout = \"10m\"\n\
             [[callback.defaults]]\ntopic = \"*\"\nspread = \"10x10s+5s\"\n",
            &[],
        )
        .unwrap();
        let [a, b] = cfg.sources().try_into().unwrap();
        let orders = a.rules.defaults_of("orders.new");
        assert_eq!((orders.completion, orders.max_attempts), (Some(Completion::OnAck), Some(5)));
        assert_eq!((orders.max_stalls, orders.ack_timeout_ms), (Some(0), Some(600_000)));
        assert_eq!((orders.backoff, orders.spread), ("exponential:1s,cap=1h".parse().ok(), None));
        let window = TaskOptions { window: "1m".parse().ok(), ..TaskOptions::default() };
        assert_eq!(b.rules.defaults_of("orders.new"), window);
        let all = TaskOptions { spread: "10x10s+5s".parse().ok(), ..TaskOptions::default() };
        assert_eq!((a.rules.defaults_of("other"), b.rules.defaults_of("other")), (all, all));
    }

    #[test]
    fn blocks_are_set_by_the_environment_one_by_one() {
        let cfg = load(
            "",
            &[
                ("DUESTREAM_INGEST__CALLBACK__DEFAULTS__0__TOPIC", "a"),
                ("DUESTREAM_INGEST__CALLBACK__DEFAULTS__0__WINDOW", "5m"),
                ("DUESTREAM_INGEST__CALLBACK__DEFAULTS__1__TOPIC", "b"),
                ("DUESTREAM_INGEST__CALLBACK__DEFAULTS__1__MAX_ATTEMPTS", "3"),
            ],
        )
        .unwrap();
        let [source] = cfg.sources().try_into().unwrap();
        assert_eq!(source.rules.defaults_of("a").window, "5m".parse().ok());
        assert_eq!(source.rules.defaults_of("b").max_attempts, Some(3));
        let [none] = load("", &[]).unwrap().sources().try_into().unwrap();
        assert!(none.rules.defaults.is_empty());
    }

    #[test]
    fn everything_that_is_wrong_is_named_at_once() {
        let wrong = load(
            "[[callback.defaults]]\nwindow = \"1m\"\n\
             [[callback.defaults]]\ntopic = \"a b\"\nspread = \"10\"\nmax_attempts = -3\nbackoff = \"linear:2m,top=3m\"\n\
             [[callback.defaults]]\ntopic = \"a\"\nsource = \"elsewhere\"\ncompletion = \"on_delivery\"\nmax_stalls = 2\n\
             [[callback.defaults]]\ntopic = \"b\"\ncompletion = \"later\"\n[[callback.defaults]]\ntopic = \"b\"\n",
            &[],
        );
        assert_eq!(
            wrong.unwrap_err(),
            [
                "callback.defaults.0.topic = \"\": is for no topic, and the block says something all the same; name a topic; * is \
                 for all",
                "callback.defaults.1.max_attempts = -3: is no number of attempts; write a whole number from 1 to 65535",
                "callback.defaults.1.backoff = linear:2m,top=3m: has \"top=3m\", which is none of cap=, jitter=; write standard, or \
                 one like linear:2m,cap=20m,jitter=30s (fixed, linear or exponential)",
                "callback.defaults.1.spread = 10: is no spread; write one like 10x10s+5s (parts x offset + jitter)",
                "callback.defaults.1.topic = a b: must be the name of a topic, which may end in *; one block is for one name",
                "callback.defaults.2.source = elsewhere: is no topic of [[sources]]; the sources are duestream.tasks; empty: all \
                 of them",
                "callback.defaults.2.completion = on_delivery: leaves nothing to do for max_attempts, backoff, ack_timeout and \
                 max_stalls; say on_ack, or nothing, or leave those out",
                "callback.defaults.3.completion = later: is no completion; write on_delivery or on_ack",
                "callback.defaults.4.topic = b: is the topic of callback.defaults.3 too, for the same commands; the first one \
                 counts; join them",
            ]
        );
    }
}
