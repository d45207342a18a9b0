//! Whether the brokers give what exactly-once delivery rests on (PROTOCOL §2 and §7). Checked at every start.

use super::admin::Admin;
use super::error::KafkaFault;
use std::collections::BTreeMap;

/// A broker setting that exists since Kafka 3.6 and, where true, makes partition leaders refuse records of
/// transactions that the coordinator does not know. librdkafka cannot ask for features or versions, so this is how
/// both "≥ 3.6" and "verification is on" are told.
const VERIFICATION: &str = "transaction.partition.verification.enable";

/// A rule that is not kept: what was found, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokenGuarantee {
    /// Where: a broker or a topic.
    pub subject: String,
    /// The setting.
    pub setting: &'static str,
    /// Its value; `None` = the broker does not know it.
    pub found: Option<String>,
    /// What must be, and why.
    pub rule: &'static str,
}

impl std::fmt::Display for BrokenGuarantee {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let found = self.found.as_deref().unwrap_or("unknown");
        write!(f, "{}: {} = {found}: {}", self.subject, self.setting, self.rule)
    }
}

/// What [`Admin::check_guarantees`] judges. Pure, so that every rule can be tested without three brokers.
#[derive(Clone, Debug, Default)]
pub struct BrokerFacts {
    /// Settings by broker.
    pub brokers: BTreeMap<i32, BTreeMap<String, String>>,
    /// Name, copies and settings of the journal.
    pub journal: (String, usize, BTreeMap<String, String>),
}

impl BrokerFacts {
    /// All rules that are not kept.
    pub fn broken(&self) -> Vec<BrokenGuarantee> {
        let mut broken = Vec::new();
        let several = self.brokers.len() > 1;
        for (broker, config) in &self.brokers {
            let mut rule = |setting: &'static str, kept: fn(&str) -> bool, rule: &'static str| {
                let found = config.get(setting);
                if !found.is_some_and(|value| kept(value)) {
                    let subject = format!("broker {broker}");
                    broken.push(BrokenGuarantee { subject, setting, found: found.cloned(), rule });
                }
            };
            rule(
                VERIFICATION,
                |v| v == "true",
                "must be true, and needs Kafka 3.6 or newer: without it a late record may join a later transaction",
            );
            if several {
                rule(
                    "transaction.state.log.replication.factor",
                    |v| number(v) >= 3,
                    "must be at least 3: the outcome of transactions must survive the loss of a broker",
                );
                rule(
                    "transaction.state.log.min.isr",
                    |v| number(v) >= 2,
                    "must be at least 2: what was acked must not be on one broker only",
                );
            }
        }
        let (journal, copies, config) = &self.journal;
        if several {
            let mut push = |setting, found: Option<String>, rule| {
                broken.push(BrokenGuarantee { subject: format!("topic {journal}"), setting, found, rule });
            };
            if *copies < 3 {
                let rule = "must be at least 3: the journal may lose nothing that was acked";
                push("replication factor", Some(copies.to_string()), rule);
            }
            let found = config.get("min.insync.replicas");
            if found.is_none_or(|v| number(v) < 2) {
                let rule = "must be at least 2: the journal may lose nothing that was acked";
                push("min.insync.replicas", found.cloned(), rule);
            }
            let found = config.get("unclean.leader.election.enable");
            if found.is_none_or(|v| v != "false") {
                let rule = "must be false: an unclean leader forgets what was acked";
                push("unclean.leader.election.enable", found.cloned(), rule);
            }
        }
        broken
    }
}

fn number(text: &str) -> i64 {
    text.parse().unwrap_or(-1)
}

impl Admin {
    /// Asks the brokers and the journal topic; empty = exactly-once delivery may be promised.
    pub async fn check_guarantees(&self, journal: &str) -> Result<Vec<BrokenGuarantee>, KafkaFault> {
        let mut facts = BrokerFacts::default();
        for broker in self.brokers().await? {
            facts.brokers.insert(broker, self.broker_config(broker).await?);
        }
        let copies = self
            .topic(journal)
            .await?
            .map_or(0, |topic| topic.partitions.iter().map(|p| p.replicas.len()).min().unwrap_or(0));
        let config = self.topic_config(journal).await?.unwrap_or_default();
        facts.journal = (journal.to_owned(), copies, config);
        Ok(facts.broken())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn a_broker_before_3_6_is_refused() {
        let facts = BrokerFacts { brokers: [(1, config(&[]))].into(), ..BrokerFacts::default() };
        let broken = facts.broken();
        assert_eq!(broken.len(), 1);
        assert!(
            broken[0]
                .to_string()
                .starts_with("broker 1: transaction.partition.verification.enable = unknown")
        );
    }

    #[test]
    fn one_broker_needs_no_copies_and_three_do() {
        let one = config(&[(VERIFICATION, "true")]);
        let mut facts = BrokerFacts { brokers: [(1, one.clone())].into(), ..BrokerFacts::default() };
        assert_eq!(facts.broken(), []);
        facts.brokers.insert(2, one);
        facts.journal = ("journal".into(), 1, config(&[("min.insync.replicas", "1")]));
        let settings: Vec<_> = facts.broken().iter().map(|b| b.setting).collect();
        assert_eq!(
            settings,
            [
                "transaction.state.log.replication.factor",
                "transaction.state.log.min.isr",
                "transaction.state.log.replication.factor",
                "transaction.state.log.min.isr",
                "replication factor",
                "min.insync.replicas",
                "unclean.leader.election.enable",
            ]
        );
    }
}
