//! One connection to Redis, single server or cluster, in which no call outlasts its time-out.

use super::check::{self, ServerReport};
use super::error::SlotError;
use super::scripts::{ALL, SlotScript};
use crate::config;
use redis::aio::{ConnectionLike, ConnectionManager, ConnectionManagerConfig};
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{Route, RoutingInfo, SingleNodeRoutingInfo, SlotAddr};
use redis::{Client, Cmd, ErrorKind, RedisResult, ServerErrorKind, Value};
use std::borrow::Cow;
use std::time::Duration;

/// A connection for one slot: answers of a busy slot do not queue before another's. Not shared between tasks.
pub struct SlotClient {
    settings: Settings,
    cluster: bool,
    link: Option<Link>,
}

struct Settings {
    url: String,
    connect_timeout: Duration,
    response_timeout: Duration,
    retries: u32,
    retry_min: Duration,
    retry_max: Duration,
}

#[derive(Clone)]
enum Link {
    Single(ConnectionManager),
    Cluster(ClusterConnection),
}

/// Keys and arguments of one script call.
#[derive(Default)]
pub(super) struct Call<'a> {
    pub(super) keys: Vec<Cow<'a, [u8]>>,
    pub(super) args: Vec<Cow<'a, [u8]>>,
}

impl<'a> Call<'a> {
    pub(super) fn key(&mut self, key: String) -> &mut Self {
        self.keys.push(key.into_bytes().into());
        self
    }

    #[expect(clippy::needless_pass_by_value, reason = "numbers and borrowed texts")]
    pub(super) fn arg(&mut self, arg: impl ToString) -> &mut Self {
        self.args.push(arg.to_string().into_bytes().into());
        self
    }

    pub(super) fn bytes(&mut self, arg: impl Into<Cow<'a, [u8]>>) -> &mut Self {
        self.args.push(arg.into());
        self
    }

    fn command(&self, verb: &str, script: &str) -> Cmd {
        let mut cmd = redis::cmd(verb);
        cmd.arg(script).arg(self.keys.len());
        for part in self.keys.iter().chain(&self.args) {
            cmd.arg(&**part);
        }
        cmd
    }
}

impl SlotClient {
    /// Connects, finds out whether the server is a node of a cluster, and loads the scripts.
    pub async fn connect(redis: &config::Redis) -> Result<SlotClient, SlotError> {
        let settings = Settings {
            url: redis.url.expose().to_owned(),
            connect_timeout: *redis.connect_timeout,
            response_timeout: *redis.response_timeout,
            retries: redis.retries,
            retry_min: *redis.retry_min,
            retry_max: *redis.retry_max,
        };
        let mut client = SlotClient { settings, cluster: false, link: None };
        client.cluster = check::is_cluster(&client.info("").await?);
        if client.cluster {
            client.link = None;
        }
        for script in ALL {
            client
                .send("script load", redis::cmd("SCRIPT").arg("LOAD").arg(script.source).clone(), None)
                .await?;
        }
        Ok(client)
    }

    /// Whether this server (in a cluster: the node of `key`) can hold a slot: version 7, no eviction, primary.
    pub async fn check(&mut self, key: &str) -> Result<ServerReport, SlotError> {
        Ok(check::judge(&self.info(key).await?)?)
    }

    async fn info(&mut self, key: &str) -> Result<String, SlotError> {
        match self.send("info", redis::cmd("INFO"), Some(key)).await? {
            Value::BulkString(text) => Ok(String::from_utf8_lossy(&text).into_owned()),
            Value::VerbatimString { text, .. } => Ok(text),
            other => Err(SlotError::Script { script: "info", what: format!("answered {other:?}") }),
        }
    }

    /// Runs a script. A server that does not know it gets its source, and did nothing the first time.
    pub(super) async fn script(
        &mut self,
        script: &'static SlotScript,
        call: &Call<'_>,
    ) -> Result<Value, SlotError> {
        match self.send_raw(script.name, call.command("EVALSHA", script.sha()), None).await? {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                self.send(script.name, call.command("EVAL", script.source), None).await
            }
            Err(error) => Err(SlotError::from_redis(script.name, error)),
            Ok(value) => Ok(value),
        }
    }

    /// Sends a command; in a cluster to the node of `key`, or where its own first key says.
    pub(super) async fn send(
        &mut self,
        name: &'static str,
        cmd: Cmd,
        key: Option<&str>,
    ) -> Result<Value, SlotError> {
        self.send_raw(name, cmd, key).await?.map_err(|error| SlotError::from_redis(name, error))
    }

    /// The outer error: no answer in time. The connection is given up then, since a half-open one would stay silent for
    /// minutes; what was sent on it may still be carried out, which token and seq make harmless.
    async fn send_raw(
        &mut self,
        name: &'static str,
        cmd: Cmd,
        key: Option<&str>,
    ) -> Result<RedisResult<Value>, SlotError> {
        let limit = self.settings.response_timeout
            + if self.link.is_none() { self.settings.connect_timeout } else { Duration::ZERO };
        // Taken out, so that a call dropped half-way leaves no link whose state nobody knows.
        let link = self.link.take();
        let (settings, cluster) = (&self.settings, self.cluster);
        let sent = tokio::time::timeout(limit, async move {
            let mut link = match link {
                Some(link) => link,
                None => match Link::open(settings, cluster).await {
                    Ok(link) => link,
                    Err(error) => return (None, Err(error)),
                },
            };
            let answer = link.send(cmd, key).await;
            (Some(link), answer)
        });
        match sent.await {
            Ok((link, answer)) => {
                self.link = link;
                Ok(answer)
            }
            Err(_) => Err(SlotError::Timeout { script: name }),
        }
    }
}

impl Link {
    async fn open(settings: &Settings, cluster: bool) -> RedisResult<Link> {
        let millis = |d: Duration| u64::try_from(d.as_millis()).unwrap_or(u64::MAX);
        if cluster {
            let client = ClusterClient::builder([settings.url.as_str()])
                .connection_timeout(settings.connect_timeout)
                .response_timeout(settings.response_timeout)
                .retries(settings.retries)
                .min_retry_wait(millis(settings.retry_min))
                .max_retry_wait(millis(settings.retry_max))
                .build()?;
            return client.get_async_connection().await.map(Link::Cluster);
        }
        let config = ConnectionManagerConfig::new()
            .set_connection_timeout(Some(settings.connect_timeout))
            // Our own time-out is around everything.
            .set_response_timeout(None)
            .set_number_of_retries(settings.retries as usize)
            .set_min_delay(settings.retry_min)
            .set_max_delay(settings.retry_max);
        ConnectionManager::new_with_config(Client::open(settings.url.as_str())?, config)
            .await
            .map(Link::Single)
    }

    async fn send(&mut self, cmd: Cmd, key: Option<&str>) -> RedisResult<Value> {
        let answer = match (self, key) {
            (Link::Single(link), _) => link.req_packed_command(&cmd).await,
            (Link::Cluster(link), None) => link.req_packed_command(&cmd).await,
            (Link::Cluster(link), Some(key)) => {
                let route = SingleNodeRoutingInfo::SpecificNode(Route::with_key(key, SlotAddr::Master));
                link.route_command(cmd, RoutingInfo::SingleNode(route)).await
            }
        };
        // What the server refuses arrives as a value at this level of the library.
        answer.and_then(Value::extract_error)
    }
}
