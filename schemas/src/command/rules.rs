//! The rules of one pipeline that a command must keep: limits and callback topics.

use super::reason::{ReasonCode, Refusal};

/// Most bytes of key, value and headers together: the emitted due record then fits 1 MiB.
pub const DEFAULT_MAX_BODY_BYTES: usize = 900 << 10;
/// Longest task id or shard key, in bytes.
pub const MAX_ID_BYTES: usize = 255;
/// Most headers to deliver: librdkafka reads no record with more than 100,000, and a delivery adds a few.
pub const MAX_HEADERS: usize = 99_900;
/// Longest name of a Kafka topic.
const MAX_TOPIC_CHARS: usize = 249;

/// What the configuration of a pipeline says about commands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Prefix of the pipeline's own topics, to which nothing is delivered. Empty: no such prefix.
    pub internal_prefix: String,
    /// The pipeline's own topics that do not begin so: topics of commands.
    pub internal_topics: Vec<String>,
    /// Callback topics must match one of these.
    pub allowed_topics: Vec<TopicPattern>,
    /// Most bytes of key, value and headers together, see [`body_bytes`](super::body_bytes).
    pub max_body_bytes: usize,
}

impl Rules {
    /// The defaults: any topic but those of Kafka and of the pipeline itself; 900 KiB.
    pub fn new(internal_prefix: impl Into<String>) -> Rules {
        Rules {
            internal_prefix: internal_prefix.into(),
            internal_topics: Vec::new(),
            allowed_topics: vec![TopicPattern::Prefix(String::new())],
            max_body_bytes: DEFAULT_MAX_BODY_BYTES,
        }
    }

    /// Checks a callback topic. `field`: how the producer named it.
    pub fn check_topic(&self, field: &str, topic: &str) -> Result<(), Refusal> {
        let bytes = topic.as_bytes();
        if !is_topic_name(topic) {
            return Err(Refusal::of_value(ReasonCode::InvalidTopic, field, bytes, "is no legal topic name"));
        }
        let denied = |why: &str| Err(Refusal::of_value(ReasonCode::TopicNotAllowed, field, bytes, why));
        if topic.starts_with("__") {
            return denied("is a topic of Kafka itself");
        }
        let internal = !self.internal_prefix.is_empty() && topic.starts_with(&self.internal_prefix);
        if internal || self.internal_topics.iter().any(|own| own == topic) {
            return denied("is a topic of Duestream itself");
        }
        if !self.allowed_topics.iter().any(|pattern| pattern.matches(topic)) {
            return denied("is not on the allow-list");
        }
        Ok(())
    }
}

/// One entry of the allow-list of callback topics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TopicPattern {
    /// This topic.
    Exact(String),
    /// Every topic whose name begins so; written with a trailing `*`.
    Prefix(String),
}

impl TopicPattern {
    /// Reads `orders`, `orders.*` or `*`. `None`: nothing could ever match it.
    pub fn parse(text: &str) -> Option<TopicPattern> {
        match text.strip_suffix('*') {
            Some(prefix) => {
                let legal = prefix.len() <= MAX_TOPIC_CHARS && prefix.chars().all(is_topic_char);
                legal.then(|| TopicPattern::Prefix(prefix.to_owned()))
            }
            None => is_topic_name(text).then(|| TopicPattern::Exact(text.to_owned())),
        }
    }

    /// Whether a topic is meant.
    pub fn matches(&self, topic: &str) -> bool {
        match self {
            TopicPattern::Exact(name) => name == topic,
            TopicPattern::Prefix(prefix) => topic.starts_with(prefix),
        }
    }
}

/// Whether Kafka takes this as the name of a topic.
pub fn is_topic_name(name: &str) -> bool {
    (1..=MAX_TOPIC_CHARS).contains(&name.len())
        && name != "."
        && name != ".."
        && name.chars().all(is_topic_char)
}

fn is_topic_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code_for(rules: &Rules, topic: &str) -> Option<ReasonCode> {
        rules.check_topic("topic", topic).err().map(|refusal| refusal.code)
    }

    #[test]
    fn illegal_topic_names_are_refused() {
        let rules = Rules::new("duestream.");
        for topic in ["", ".", "..", "a b", "ä", "a/b", "a\0", &"x".repeat(250)] {
            assert_eq!(code_for(&rules, topic), Some(ReasonCode::InvalidTopic), "{topic:?}");
        }
        for topic in ["a", "A.b_c-9", "...", &"x".repeat(249), "duestream"] {
            assert_eq!(code_for(&rules, topic), None, "{topic:?}");
        }
    }

    #[test]
    fn internal_topics_are_refused_whatever_the_allow_list_says() {
        let rules = Rules::new("duestream.");
        for topic in ["__consumer_offsets", "duestream.tasks", "duestream."] {
            assert_eq!(code_for(&rules, topic), Some(ReasonCode::TopicNotAllowed), "{topic:?}");
        }
        let rules = Rules { internal_topics: vec!["tenant.tasks".into()], ..rules };
        assert_eq!(code_for(&rules, "tenant.tasks"), Some(ReasonCode::TopicNotAllowed));
        assert_eq!(code_for(&rules, "tenant.tasks2"), None);
    }

    #[test]
    fn the_allow_list_takes_names_and_prefixes() {
        let mut rules = Rules::new("duestream.");
        rules.allowed_topics =
            ["orders", "mail.*"].iter().map(|text| TopicPattern::parse(text).unwrap()).collect();
        for topic in ["orders", "mail.", "mail.out"] {
            assert_eq!(code_for(&rules, topic), None, "{topic:?}");
        }
        for topic in ["orders2", "mail", "other"] {
            assert_eq!(code_for(&rules, topic), Some(ReasonCode::TopicNotAllowed), "{topic:?}");
        }
        rules.allowed_topics.clear();
        assert_eq!(code_for(&rules, "orders"), Some(ReasonCode::TopicNotAllowed));
    }

    #[test]
    fn a_pattern_that_could_never_match_is_no_pattern() {
        for text in ["", "a*b", "a b", "**", ".."] {
            assert_eq!(TopicPattern::parse(text), None, "{text:?}");
        }
    }
}
