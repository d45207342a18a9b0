//! Setting a pipeline up on real servers.

use runtime::init::{Finding, Mode, Pipeline, Report, Servers, Source, Verdict, run};
use runtime::kafka::{Admin, Cluster, TopicSpec};
use runtime::store::Options;
use runtime::store::testing::{server_url, with_database};
use schemas::topics::Names;
use sqlx::{Connection, Executor};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};

static COUNTER: AtomicU32 = AtomicU32::new(0);

/// A pipeline that is not set up, under names of its own.
struct World {
    servers: Servers,
    names: Names,
    name: String,
}

impl World {
    fn new() -> World {
        let bootstrap = std::env::var("KAFKA_BOOTSTRAP")
            .expect("KAFKA_BOOTSTRAP names a broker: `./dev test` starts one");
        let name = format!("init_{}_{}", std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed));
        let cluster = Cluster::new(bootstrap, BTreeMap::new(), "init-test");
        let mut mysql = Options::new(with_database(&server_url(), &name));
        mysql.pool_max = 2;
        let servers = Servers { admin: Admin::new(&cluster).unwrap(), mysql, redis: None };
        World { servers, names: Names::new(format!("{name}.")), name }
    }

    fn pipeline(&self) -> Pipeline {
        Pipeline {
            names: self.names.clone(),
            shards: Some(4),
            slots: Some(2),
            task_partitions: 2,
            replication: 1,
            sources: Vec::new(),
        }
    }

    async fn run(&self, mode: Mode) -> Report {
        run(&self.servers, &self.pipeline(), mode).await.unwrap()
    }

    async fn end(self) {
        let topics = self.servers.admin.topics().await.unwrap();
        let own: Vec<&str> =
            topics.keys().filter(|t| t.starts_with(self.names.prefix())).map(String::as_str).collect();
        self.servers.admin.delete_topics(&own).await.unwrap();
        let mut server = sqlx::MySqlConnection::connect(&server_url()).await.unwrap();
        let drop_database = format!("DROP DATABASE IF EXISTS `{}`", self.name);
        server.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(drop_database))).await.unwrap();
    }
}

fn with(report: &Report, verdict: Verdict) -> Vec<String> {
    report.findings.iter().filter(|f| f.verdict == verdict).map(|f: &Finding| f.subject.clone()).collect()
}

#[tokio::test]
async fn init_makes_everything_once_and_a_check_changes_nothing() {
    let world = World::new();
    let before = world.run(Mode::Check).await;
    assert!(!before.is_good());
    assert_eq!(with(&before, Verdict::Made), Vec::<String>::new());
    let again = world.run(Mode::Check).await;
    assert_eq!(again.findings, before.findings);

    let made = world.run(Mode::Apply).await;
    assert!(made.is_good(), "{:#?}", made.findings);
    let expected = ["database", "schema", "setting shards", "setting slots"];
    assert_eq!(with(&made, Verdict::Made)[..4], expected);
    assert_eq!(with(&made, Verdict::Made).len(), 4 + 9 + 2 + 3);

    for mode in [Mode::Check, Mode::Apply] {
        let report = world.run(mode).await;
        assert!(report.is_good(), "{:#?}", report.findings);
        assert_eq!(with(&report, Verdict::Made), Vec::<String>::new());
    }
    world.end().await;
}

#[tokio::test]
async fn further_sources_are_made_as_ingest_demands_them_and_registered() {
    let world = World::new();
    assert!(world.run(Mode::Apply).await.is_good());
    let tenant = format!("{}tasks-tenant", world.names.prefix());
    let source = |topic: &str| Source { topic: topic.to_owned(), partitions: 3 };
    let with_sources = |sources: &[&str]| Pipeline {
        sources: sources.iter().map(|t| source(t)).collect(),
        ..world.pipeline()
    };
    let made = run(&world.servers, &with_sources(&[&tenant]), Mode::Apply).await.unwrap();
    assert!(made.is_good(), "{:#?}", made.findings);
    assert_eq!(with(&made, Verdict::Made), [format!("topic {tenant}"), format!("source {tenant}")]);
    let config = world.servers.admin.topic_config(&tenant).await.unwrap().unwrap();
    assert_eq!(config["message.timestamp.type"], "LogAppendTime");
    let journal = world.names.journal();
    for (sources, problem) in [
        (&[journal.as_str()][..], "must be a legal topic name, and none of"),
        (&["a b"], "must be a legal topic name, and none of"),
        (&["t", "t"], "is named twice"),
    ] {
        let error = run(&world.servers, &with_sources(sources), Mode::Apply).await.unwrap_err();
        assert!(error.to_string().contains(problem), "{error}");
    }
    world.end().await;
}

#[tokio::test]
async fn an_init_that_was_cut_off_is_finished_by_the_next() {
    let world = World::new();
    // A topic was made with the wrong settings, the database is empty, everything else is missing.
    let due = TopicSpec { name: world.names.due(), partitions: 2, replication: 1, config: BTreeMap::new() };
    let tasks = TopicSpec {
        name: world.names.tasks(),
        partitions: 3,
        replication: 1,
        config: BTreeMap::from([("retention.ms".to_owned(), "1000".to_owned())]),
    };
    for (_, created) in world.servers.admin.create_topics(&[due, tasks]).await.unwrap() {
        created.unwrap();
    }
    let report = world.run(Mode::Apply).await;
    let wrong: Vec<String> =
        report.findings.iter().filter(|f| f.verdict == Verdict::Wrong).map(ToString::to_string).collect();
    let name = world.names.tasks();
    let alter = format!("kafka-configs.sh --alter --entity-type topics --entity-name {name} --add-config");
    assert_eq!(
        wrong,
        [
            format!(
                "WRONG    topic {name}: retention.ms is 1000, must be at least 604800000; {alter} retention.ms=604800000"
            ),
            format!(
                "WRONG    topic {name}: message.timestamp.type is CreateTime, must be LogAppendTime; {alter} message.timestamp.type=LogAppendTime"
            ),
        ]
    );
    // All the rest was made, also the three positions of the topic that is wrong.
    assert_eq!(with(&report, Verdict::Missing), Vec::<String>::new());
    assert!(
        report
            .findings
            .iter()
            .any(|f| f.subject == format!("source {name}") && f.detail.contains("3 positions"))
    );
    world.end().await;
}

#[tokio::test]
async fn numbers_that_are_fixed_are_never_changed() {
    let world = World::new();
    assert!(world.run(Mode::Apply).await.is_good());
    let asked = Pipeline { shards: Some(8), ..world.pipeline() };
    let report = run(&world.servers, &asked, Mode::Apply).await.unwrap();
    assert_eq!(with(&report, Verdict::Wrong), ["setting shards"]);
    let silent = Pipeline { shards: None, slots: None, ..world.pipeline() };
    assert!(run(&world.servers, &silent, Mode::Apply).await.unwrap().is_good());
    for wrong in [
        Pipeline { shards: Some(6), ..world.pipeline() },
        Pipeline { task_partitions: 0, ..world.pipeline() },
    ] {
        let fresh = World::new();
        let error = run(&fresh.servers, &Pipeline { names: fresh.names.clone(), ..wrong }, Mode::Check)
            .await
            .unwrap_err();
        assert!(error.to_string().contains("must"), "{error}");
    }
    world.end().await;
}

#[tokio::test]
async fn a_journal_that_was_made_again_is_named_and_not_adopted() {
    let world = World::new();
    assert!(world.run(Mode::Apply).await.is_good());
    let journal = world.names.journal();
    world.servers.admin.delete_topics(&[&journal]).await.unwrap();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while world.servers.admin.topic_id(&journal).await.unwrap().is_some() {
        assert!(std::time::Instant::now() < deadline, "the topic does not go away");
        tokio::task::yield_now().await;
    }
    let report = world.run(Mode::Apply).await;
    assert_eq!(with(&report, Verdict::Wrong), [format!("source {journal}")]);
    assert!(!world.run(Mode::Apply).await.is_good(), "it is named again");
    world.end().await;
}
