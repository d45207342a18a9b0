//! Connections, and what to check when there is none.

use crate::cli::ServerArgs;
use crate::exit::Failure;
use runtime::config::{Redis, Secret, redact_url};
use runtime::kafka::{Admin, Cluster, Disposition, KafkaFault};
use runtime::store::{self, Db, Options, StoreError};
use schemas::topics::Names;
use std::collections::BTreeMap;
use std::time::Duration;

/// Where the pipeline is, checked as far as that is possible without asking.
pub(crate) struct Servers {
    args: ServerArgs,
    pub(crate) cluster: Cluster,
    pub(crate) names: Names,
}

impl Servers {
    pub(crate) fn new(args: ServerArgs) -> Result<Servers, Failure> {
        let mut properties = BTreeMap::new();
        for pair in args.kafka_properties.iter().filter(|pair| !pair.is_empty()) {
            let (key, value) = pair
                .split_once('=')
                .ok_or_else(|| Failure::Usage(format!("--kafka-property {pair}: must be name=value")))?;
            properties.insert(key.trim().to_owned(), value.to_owned());
        }
        // What librdkafka would say every second while a broker is away goes nowhere: duectl says it once, itself.
        let cluster = Cluster::new(&args.bootstrap, properties, "duectl");
        let names = Names::new(&args.prefix);
        Ok(Servers { args, cluster, names })
    }

    pub(crate) fn admin(&self) -> Result<Admin, Failure> {
        Ok(Admin::new(&self.cluster).map_err(|e| self.kafka_failed(&e))?.within(Duration::from_secs(10)))
    }

    pub(crate) fn kafka_failed(&self, fault: &KafkaFault) -> Failure {
        match fault.disposition() {
            Disposition::Retry => Failure::Unreachable(format!(
                "Kafka at {} does not answer: {fault}; is it up, and is --bootstrap / KAFKA_BOOTSTRAP right?",
                self.args.bootstrap
            )),
            Disposition::Poison(_) | Disposition::Fenced | Disposition::Fatal => {
                Failure::Failed(anyhow::anyhow!("Kafka at {}: {fault}", self.args.bootstrap))
            }
        }
    }

    /// Options of the pipeline's database.
    pub(crate) fn mysql(&self) -> Result<Options, Failure> {
        let missing = "this needs the database of the pipeline: --mysql-url / MYSQL_URL = mysql://user:password@host:port/database";
        let url = self.args.mysql_url.as_deref().filter(|url| !url.is_empty());
        let mut options = Options::new(url.ok_or_else(|| Failure::Usage(missing.into()))?);
        options.pool_max = 2;
        Ok(options)
    }

    pub(crate) async fn db(&self) -> Result<Db, Failure> {
        Db::connect(&self.mysql()?).await.map_err(|e| self.mysql_failed(&e))
    }

    pub(crate) fn mysql_failed(&self, error: &StoreError) -> Failure {
        let url = redact_url(self.args.mysql_url.as_deref().unwrap_or_default());
        match error.disposition() {
            store::Disposition::Retry { .. } => Failure::Unreachable(format!(
                "MySQL at {url} does not answer: {error}; is it up, and is --mysql-url / MYSQL_URL right?"
            )),
            store::Disposition::Poison | store::Disposition::Fenced | store::Disposition::Fatal => {
                let text = error.to_string();
                let hint = if text.contains("1049") || text.contains("1146") {
                    "; run `duectl init` first"
                } else {
                    ""
                };
                Failure::Failed(anyhow::anyhow!("MySQL at {url}: {text}{hint}"))
            }
        }
    }

    /// Redis, if it was given.
    pub(crate) fn redis(&self) -> Option<Redis> {
        let url = self.args.redis_url.as_deref().filter(|url| !url.is_empty())?;
        let of = |text: &str| text.parse().expect("a duration");
        Some(Redis {
            url: Secret::new(url),
            prefix: self.args.redis_prefix.clone(),
            connect_timeout: of("2s"),
            response_timeout: of("3s"),
            retries: 1,
            retry_min: of("100ms"),
            retry_max: of("500ms"),
        })
    }

    /// Partition count of a topic that must be there.
    pub(crate) async fn partitions(&self, admin: &Admin, topic: &str, remedy: &str) -> Result<i32, Failure> {
        let found = admin.topic(topic).await.map_err(|e| self.kafka_failed(&e))?;
        found.map(|info| info.partition_count()).ok_or_else(|| {
            Failure::NotFound(format!("topic {topic} does not exist on {}; {remedy}", self.args.bootstrap))
        })
    }
}
