//! The topics of a pipeline: how they should be (DESIGN §2), and how what is there differs.

use super::{Finding, Pipeline, Source, Verdict};
use crate::kafka::{MAX_LARGE_MESSAGE_BYTES, MAX_MESSAGE_BYTES, TopicInfo, TopicSpec};
use std::collections::BTreeMap;

/// What a setting of an existing topic must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    /// Exactly this.
    Exactly,
    /// At least this; −1 is without limit.
    AtLeast,
}

/// A topic as it should be, and what of it is a must.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) spec: TopicSpec,
    /// Partition = slot: another number breaks the pipeline.
    exact_partitions: bool,
    needs: Vec<(&'static str, Need)>,
}

const DAY_MS: i64 = 86_400_000;

/// All topics of a pipeline.
pub(super) fn wanted(pipeline: &Pipeline, slots: u16) -> Vec<Wanted> {
    let Pipeline { names, task_partitions, replication, sources, .. } = pipeline;
    let (task_partitions, replication, slots) = (*task_partitions, *replication, i32::from(slots));
    let topic = |name: String, partitions: i32, days: i64, large: bool, log_append: bool, exact: bool| {
        let max_bytes = if large { MAX_LARGE_MESSAGE_BYTES } else { MAX_MESSAGE_BYTES };
        let mut config = BTreeMap::from([
            ("cleanup.policy".to_owned(), "delete".to_owned()),
            ("retention.ms".to_owned(), (days * DAY_MS).to_string()),
            ("max.message.bytes".to_owned(), max_bytes.to_string()),
        ]);
        let mut needs = vec![
            ("cleanup.policy", Need::Exactly),
            ("retention.ms", Need::AtLeast),
            ("max.message.bytes", Need::AtLeast),
        ];
        if log_append {
            config.insert("message.timestamp.type".to_owned(), "LogAppendTime".to_owned());
            needs.push(("message.timestamp.type", Need::Exactly));
        }
        if replication >= 3 {
            config.insert("min.insync.replicas".to_owned(), "2".to_owned());
            config.insert("unclean.leader.election.enable".to_owned(), "false".to_owned());
            needs.push(("min.insync.replicas", Need::AtLeast));
            needs.push(("unclean.leader.election.enable", Need::Exactly));
        }
        Wanted { spec: TopicSpec { name, partitions, replication, config }, exact_partitions: exact, needs }
    };
    let mut control = topic(names.control(), 1, 1, false, false, true);
    control.spec.config.insert("cleanup.policy".to_owned(), "compact".to_owned());
    control.spec.config.remove("retention.ms");
    control.needs.retain(|(name, _)| *name != "retention.ms");
    let mut all = vec![
        topic(names.tasks(), task_partitions, 7, false, true, false),
        topic(names.due(), slots, 1, false, false, true),
        topic(names.slots(), slots, 1, false, false, true),
        topic(names.journal(), slots, 7, false, true, true),
        topic(names.acks(), task_partitions, 7, false, true, false),
        control,
        topic(names.replies(), task_partitions, 1, false, false, false),
        topic(names.rejected(), task_partitions, 14, true, false, false),
        topic(names.dead(), task_partitions, 30, true, false, false),
    ];
    let source = |source: &Source| topic(source.topic.clone(), source.partitions, 7, false, true, false);
    all.extend(sources.iter().map(source));
    all
}

/// How an existing topic differs. Empty: it does not.
pub(super) fn differences(
    wanted: &Wanted,
    found: &TopicInfo,
    config: &BTreeMap<String, String>,
) -> Vec<Finding> {
    let name = &wanted.spec.name;
    let mut out = Vec::new();
    let (is, should) = (found.partition_count(), wanted.spec.partitions);
    if wanted.exact_partitions && is != should {
        out.push(Finding::new(
            format!("topic {name}"),
            Verdict::Wrong,
            format!(
                "has {is} partitions, must have {should}; choose another --prefix, or, while the pipeline holds no task, delete the topic and run init again"
            ),
        ));
    }
    for (setting, need) in &wanted.needs {
        let should = &wanted.spec.config[*setting];
        let is = config.get(*setting).map_or("", String::as_str);
        let kept = match need {
            Need::Exactly => is == should,
            Need::AtLeast => match (is.parse::<i64>(), should.parse::<i64>()) {
                (Ok(-1), _) => true,
                (Ok(is), Ok(should)) => is >= should,
                _ => false,
            },
        };
        if !kept {
            let how = if *need == Need::AtLeast { "at least " } else { "" };
            let is = if is.is_empty() { "not set" } else { is };
            out.push(Finding::new(
                format!("topic {name}"),
                Verdict::Wrong,
                format!(
                    "{setting} is {is}, must be {how}{should}; kafka-configs.sh --alter --entity-type topics --entity-name {name} --add-config {setting}={should}"
                ),
            ));
        }
    }
    let copies = found.partitions.iter().map(|p| p.replicas.len()).min().unwrap_or(0);
    if i32::try_from(copies).unwrap_or(i32::MAX) < wanted.spec.replication {
        out.push(Finding::new(
            format!("topic {name}"),
            Verdict::Wrong,
            format!(
                "has {copies} copies of a partition, asked for {}; kafka-reassign-partitions.sh, or a smaller --replication",
                wanted.spec.replication
            ),
        ));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kafka::PartitionInfo;
    use schemas::topics::Names;

    fn found(name: &str, partitions: i32) -> TopicInfo {
        let partitions = (0..partitions)
            .map(|partition| PartitionInfo {
                partition,
                leader: Some(1),
                replicas: vec![1],
                in_sync: vec![1],
            })
            .collect();
        TopicInfo { name: name.into(), partitions }
    }

    fn wanted(replication: i32) -> Vec<Wanted> {
        let pipeline = Pipeline {
            names: Names::new("p."),
            shards: None,
            slots: None,
            task_partitions: 4,
            replication,
            sources: vec![Source { topic: "tenant".into(), partitions: 3 }],
        };
        super::wanted(&pipeline, 8)
    }

    fn journal() -> Wanted {
        wanted(1).into_iter().find(|w| w.spec.name == "p.journal").unwrap()
    }

    fn lines(findings: &[Finding]) -> Vec<String> {
        findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn topics_are_as_the_design_lists_them() {
        let shown: Vec<String> = wanted(1)
            .iter()
            .map(|w| {
                let of = |key: &str| w.spec.config.get(key).map_or("-", String::as_str);
                let days =
                    of("retention.ms").parse::<i64>().map_or("-".into(), |ms| (ms / DAY_MS).to_string());
                format!(
                    "{} {} {} {days}d {} {}",
                    w.spec.name,
                    w.spec.partitions,
                    of("cleanup.policy"),
                    of("message.timestamp.type"),
                    of("max.message.bytes")
                )
            })
            .collect();
        assert_eq!(
            shown,
            [
                "p.tasks 4 delete 7d LogAppendTime 1048588",
                "p.due 8 delete 1d - 1048588",
                "p.slots 8 delete 1d - 1048588",
                "p.journal 8 delete 7d LogAppendTime 1048588",
                "p.acks 4 delete 7d LogAppendTime 1048588",
                "p.control 1 compact -d - 1048588",
                "p.replies 4 delete 1d - 1048588",
                "p.rejected 4 delete 14d - 1114124",
                "p.dead 4 delete 30d - 1114124",
                "tenant 3 delete 7d LogAppendTime 1048588",
            ]
        );
    }

    #[test]
    fn an_existing_topic_that_keeps_more_is_fine() {
        let wanted = journal();
        let mut config = wanted.spec.config.clone();
        config.insert("retention.ms".into(), "-1".into());
        config.insert("max.message.bytes".into(), "2000000".into());
        assert_eq!(lines(&differences(&wanted, &found("p.journal", 8), &config)), Vec::<String>::new());
    }

    #[test]
    fn each_wrong_setting_of_an_existing_topic_is_named_with_its_remedy() {
        let wanted = journal();
        let config = BTreeMap::from([
            ("cleanup.policy".to_owned(), "compact".to_owned()),
            ("retention.ms".to_owned(), "3600000".to_owned()),
            ("max.message.bytes".to_owned(), "1048588".to_owned()),
            ("message.timestamp.type".to_owned(), "CreateTime".to_owned()),
        ]);
        let alter = "kafka-configs.sh --alter --entity-type topics --entity-name p.journal --add-config";
        assert_eq!(
            lines(&differences(&wanted, &found("p.journal", 4), &config)),
            [
                "WRONG    topic p.journal: has 4 partitions, must have 8; choose another --prefix, or, while the pipeline holds no task, delete the topic and run init again".to_owned(),
                format!("WRONG    topic p.journal: cleanup.policy is compact, must be delete; {alter} cleanup.policy=delete"),
                format!("WRONG    topic p.journal: retention.ms is 3600000, must be at least 604800000; {alter} retention.ms=604800000"),
                format!("WRONG    topic p.journal: message.timestamp.type is CreateTime, must be LogAppendTime; {alter} message.timestamp.type=LogAppendTime"),
            ]
        );
    }

    #[test]
    fn three_copies_bring_the_settings_that_make_them_safe() {
        let wanted = wanted(3);
        assert!(wanted.iter().all(|w| w.spec.config["min.insync.replicas"] == "2"));
        let few = differences(&wanted[1], &found("p.due", 8), &wanted[1].spec.config);
        assert_eq!(
            lines(&few),
            [
                "WRONG    topic p.due: has 1 copies of a partition, asked for 3; kafka-reassign-partitions.sh, or a smaller --replication"
            ]
        );
    }
}
