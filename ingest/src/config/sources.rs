//! `[[sources]]`: the topics of commands, and what the commands of each may say.

use super::{Config, MAX_BODY_BYTES, UnknownTopic, patterns};
use runtime::config::Violations;
use schemas::command::{Rules, is_topic_name};
use schemas::topics::Names;
use serde::Deserialize;
use std::collections::BTreeMap;

/// One of `[[sources]]`, as it is written.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// Topic; empty: `tasks`.
    pub topic: String,
    /// `callback.*`.
    pub callback: SourceCallback,
    /// `limits.*`.
    pub limits: SourceLimits,
}

/// `callback.*` of a source.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceCallback {
    /// Patterns, separated by commas; empty: those of `[callback]`.
    pub allow: String,
    /// Whether a missing topic is refused.
    pub unknown_topic: SourceUnknownTopic,
}

/// `callback.unknown_topic` of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SourceUnknownTopic {
    /// As `[callback]` says.
    #[serde(rename = "")]
    Inherit,
    /// The task is refused.
    Refuse,
    /// The task is accepted.
    Accept,
}

/// `limits.*` of a source.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceLimits {
    /// Bytes of key, value and headers; 0: as `[limits]` says.
    pub body: usize,
}

/// A source with everything that it inherits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceRules {
    /// Topic.
    pub topic: String,
    /// What its commands may say.
    pub rules: Rules,
    /// What becomes of a task whose callback topic does not exist.
    pub unknown_topic: UnknownTopic,
}

impl Config {
    /// The sources, complete. Of a valid configuration: what is no pattern would be left out.
    pub fn sources(&self) -> Vec<SourceRules> {
        let names = self.topics.names();
        let topics: Vec<String> = self.sources.iter().map(|source| topic_of(source, &names)).collect();
        self.sources.iter().map(|source| self.complete(source, &names, &topics)).collect()
    }

    fn complete(&self, source: &Source, names: &Names, topics: &[String]) -> SourceRules {
        let allow =
            Some(&source.callback.allow).filter(|own| !own.is_empty()).unwrap_or(&self.callback.allow);
        SourceRules {
            topic: topic_of(source, names),
            rules: Rules {
                internal_prefix: names.prefix().to_owned(),
                // Else a tenant's task could be delivered to where another tenant submits.
                internal_topics: topics.to_vec(),
                allowed_topics: patterns(allow).unwrap_or_default(),
                max_body_bytes: match source.limits.body {
                    0 => self.limits.body,
                    own => own,
                },
            },
            unknown_topic: match source.callback.unknown_topic {
                SourceUnknownTopic::Inherit => self.callback.unknown_topic,
                SourceUnknownTopic::Refuse => UnknownTopic::Refuse,
                SourceUnknownTopic::Accept => UnknownTopic::Accept,
            },
        }
    }

    pub(super) fn check_sources(&self, v: &mut Violations) {
        let names = self.topics.names();
        let mut seen = BTreeMap::new();
        for (index, source) in self.sources.iter().enumerate() {
            let key = |name: &str| format!("sources.{index}.{name}");
            let topic = topic_of(source, &names);
            v.rule(
                &key("topic"),
                &topic,
                is_topic_name(&topic),
                "is no legal topic name",
                "use 1 to 249 of the characters a-z A-Z 0-9 . _ -",
            );
            v.rule(
                &key("topic"),
                &topic,
                !is_topic_name(&topic) || names.may_be_source(&topic),
                "is a topic of Kafka itself, or of the pipeline itself",
                &format!("name another, such as {}-tenant", names.tasks()),
            );
            if let Some(first) = seen.insert(topic.clone(), index) {
                v.broken(
                    &key("topic"),
                    &topic,
                    &format!("is the topic of sources.{first} too"),
                    "name each topic once",
                );
            }
            let allow = &source.callback.allow;
            let legal = allow.is_empty() || patterns(allow).is_ok_and(|patterns| !patterns.is_empty());
            v.rule(&key("callback.allow"), allow, legal, ALLOW_RULE, "empty: as callback.allow says");
            v.rule(
                &key("limits.body"),
                &source.limits.body,
                source.limits.body <= MAX_BODY_BYTES,
                &format!("must be at most {MAX_BODY_BYTES}"),
                "0: as limits.body says",
            );
        }
    }
}

pub(super) const ALLOW_RULE: &str = "must be topic names separated by commas, each of which may end in *";

fn topic_of(source: &Source, names: &Names) -> String {
    if source.topic.is_empty() { names.tasks() } else { source.topic.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use runtime::config::load_from;

    fn load(file: &str) -> Result<Config, Vec<String>> {
        let loaded = load_from::<Config>(Some(file), std::iter::empty());
        loaded.map(|loaded| loaded.config).map_err(|report| report.lines)
    }

    #[test]
    fn without_a_word_there_is_one_source_with_the_rules_of_all() {
        let cfg =
            load("[callback]\nallow = \"orders\"\n[limits]\nbody = 7\n[topics]\nprefix = \"p.\"\n").unwrap();
        let [source] = cfg.sources().try_into().unwrap();
        assert_eq!(source.topic, "p.tasks");
        assert_eq!(source.rules.allowed_topics, patterns("orders").unwrap());
        assert_eq!((source.rules.max_body_bytes, source.unknown_topic), (7, UnknownTopic::Refuse));
    }

    #[test]
    fn each_source_may_have_rules_of_its_own() {
        let cfg = load(
            "[callback]\nunknown_topic = \"accept\"\n[[sources]]\ntopic = \"a\"\ncallback.allow = \"a.*\"\nlimits.body = 10\n\
             [[sources]]\ntopic = \"duestream.tasks-b\"\ncallback.unknown_topic = \"refuse\"\n",
        )
        .unwrap();
        let shown: Vec<_> = cfg
            .sources()
            .into_iter()
            .map(|s| (s.topic, s.rules.allowed_topics, s.rules.max_body_bytes, s.unknown_topic))
            .collect();
        assert_eq!(
            shown,
            [
                ("a".to_owned(), patterns("a.*").unwrap(), 10, UnknownTopic::Accept),
                ("duestream.tasks-b".to_owned(), patterns("*").unwrap(), 921_600, UnknownTopic::Refuse),
            ]
        );
    }

    #[test]
    fn internal_illegal_and_repeated_topics_and_bad_rules_are_all_named_at_once() {
        let wrong = load(
            "[[sources]]\ntopic = \"duestream.journal\"\n[[sources]]\ntopic = \"a b\"\ncallback.allow = \"*x\"\n\
             [[sources]]\ntopic = \"a\"\nlimits.body = 921601\n[[sources]]\ntopic = \"a\"\ncallback.unknown_topic = \"maybe\"\n\
             [[sources]]\ntopic = \"__consumer_offsets\"\n",
        );
        assert_eq!(
            wrong.unwrap_err(),
            [
                "sources.3.callback.unknown_topic = maybe: unknown variant `maybe`, expected one of ``, `refuse`, `accept`",
                "sources.0.topic = duestream.journal: is a topic of Kafka itself, or of the pipeline itself; name another, \
                 such as duestream.tasks-tenant",
                "sources.1.topic = a b: is no legal topic name; use 1 to 249 of the characters a-z A-Z 0-9 . _ -",
                "sources.1.callback.allow = *x: must be topic names separated by commas, each of which may end in *; empty: \
                 as callback.allow says",
                "sources.2.limits.body = 921601: must be at most 921600; 0: as limits.body says",
                "sources.3.topic = a: is the topic of sources.2 too; name each topic once",
                "sources.4.topic = __consumer_offsets: is a topic of Kafka itself, or of the pipeline itself; name another, \
                 such as duestream.tasks-tenant",
            ]
        );
    }
}
