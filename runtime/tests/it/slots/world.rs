//! One slot in a real Redis, seen from outside.

use protocol::slot_store::model::{Damage, Meta, Sizes, SlotStoreModel, ZSet};
use protocol::slot_store::{Body, Positions, Topic};
use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, AsyncConnectionConfig, Value, cmd, from_redis_value};
use runtime::config::{HumanDuration, Redis, Secret};
use runtime::slots::{SlotClient, SlotKeys, SlotStore};
use schemas::ids::{Generation, RowGen, RowId, Slot};
use schemas::journal::OwnerToken;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

pub(super) const SLOT: Slot = Slot(3);

/// Keys with what DUMP gives of them.
pub(super) type Dumps = Vec<(String, Vec<u8>)>;

/// Keys of one slot under a prefix of its own.
pub(super) struct World {
    pub(super) config: Redis,
    pub(super) keys: SlotKeys,
    pub(super) raw: MultiplexedConnection,
}

pub(super) fn url() -> String {
    std::env::var("REDIS_URL").expect("REDIS_URL names the Redis to test with: ./dev test sets it")
}

pub(super) fn config(url: &str) -> Redis {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let unique = COUNT.fetch_add(1, Ordering::Relaxed);
    Redis {
        url: Secret::new(url),
        prefix: format!("t{:08x}-{}-{unique}", rand::random::<u32>(), std::process::id()),
        connect_timeout: HumanDuration(Duration::from_secs(30)),
        response_timeout: HumanDuration(Duration::from_secs(30)),
        retries: 3,
        retry_min: HumanDuration(Duration::from_millis(20)),
        retry_max: HumanDuration(Duration::from_millis(200)),
    }
}

pub(super) fn token(n: u64) -> OwnerToken {
    // Above 64 bits too, so that a cut token would show.
    OwnerToken(u128::from(n) << 70 | u128::from(n))
}

pub(super) fn member(id: u64, generation: u32) -> RowGen {
    RowGen { id: RowId(id), generation: Generation(generation) }
}

impl World {
    pub(super) async fn new() -> World {
        World::at(&url()).await
    }

    pub(super) async fn at(url: &str) -> World {
        // The library's half a second is too short for a machine that builds and tests at once.
        let patient = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(Duration::from_secs(30)))
            .set_response_timeout(Some(Duration::from_secs(30)));
        let client = redis::Client::open(url).unwrap();
        let raw = client.get_multiplexed_async_connection_with_config(&patient).await.unwrap();
        let config = config(url);
        World { keys: SlotKeys::new(&config.prefix, SLOT), config, raw }
    }

    /// One more process that works on this slot.
    pub(super) async fn store(&self) -> SlotStore {
        let client = SlotClient::connect(&self.config).await.unwrap();
        SlotStore::new(client, &self.config.prefix, SLOT)
    }

    pub(super) async fn all_keys(&mut self) -> Vec<String> {
        let mut keys: Vec<String> = self.raw.keys(self.keys.pattern()).await.unwrap();
        keys.sort();
        keys
    }

    pub(super) async fn snapshot(&mut self) -> Dumps {
        let mut dumps = Vec::new();
        for key in self.all_keys().await {
            let dump: Vec<u8> = cmd("DUMP").arg(&key).query_async(&mut self.raw).await.unwrap();
            dumps.push((key, dump));
        }
        dumps
    }

    pub(super) async fn restore(&mut self, snapshot: &[(String, Vec<u8>)]) {
        self.unlink_all().await;
        for (key, dump) in snapshot {
            () = cmd("RESTORE").arg(key).arg(0).arg(dump).query_async(&mut self.raw).await.unwrap();
        }
    }

    pub(super) async fn unlink_all(&mut self) {
        let keys = self.all_keys().await;
        if !keys.is_empty() {
            () = self.raw.unlink(keys).await.unwrap();
        }
    }

    /// The same to the real keys as [`SlotStoreModel::damage`] does to the model's.
    pub(super) async fn damage(&mut self, damage: &Damage) {
        let (raw, keys) = (&mut self.raw, &self.keys);
        match damage {
            Damage::All => self.unlink_all().await,
            Damage::Meta => raw.del(keys.meta()).await.unwrap(),
            Damage::Body => raw.del(keys.body()).await.unwrap(),
            Damage::Topics => raw.del(keys.topics()).await.unwrap(),
            Damage::Store(topic) => raw.del(keys.store(topic)).await.unwrap(),
            Damage::Prepare(topic) => raw.del(keys.prepare(topic)).await.unwrap(),
            Damage::StoreMember(topic, m) => raw.zrem(keys.store(topic), &m.member()[..]).await.unwrap(),
            Damage::PrepareMember(topic, m) => raw.zrem(keys.prepare(topic), &m.member()[..]).await.unwrap(),
            Damage::BodyOf(m) => raw.hdel(keys.body(), &m.member()[..]).await.unwrap(),
            Damage::BodyMoved(from, to) => {
                let body: Option<Vec<u8>> = raw.hget(keys.body(), &from.member()[..]).await.unwrap();
                if let Some(body) = body {
                    () = raw.hdel(keys.body(), &from.member()[..]).await.unwrap();
                    () = raw.hset(keys.body(), &to.member()[..], body).await.unwrap();
                }
            }
            Damage::StoreMemberSwapped(topic, from, to) => {
                let score: Option<i64> = raw.zscore(keys.store(topic), &from.member()[..]).await.unwrap();
                if let Some(score) = score {
                    () = raw.zrem(keys.store(topic), &from.member()[..]).await.unwrap();
                    () = raw.zadd(keys.store(topic), &to.member()[..], score).await.unwrap();
                }
            }
            Damage::Unanswered => {
                if raw.exists(keys.meta()).await.unwrap() {
                    () = raw.hincr(keys.meta(), "seq", 1).await.unwrap();
                }
            }
        }
    }

    /// All keys as the model sees them.
    pub(super) async fn read(&mut self) -> SlotStoreModel {
        let base = self.keys.store("").replace("store:", "");
        let keys = self.all_keys().await;
        let names: Vec<&str> = keys.iter().map(|key| key.strip_prefix(&base).unwrap()).collect();
        // One round trip for all: a property test reads thousands of times.
        let mut pipe = redis::pipe();
        for (key, name) in keys.iter().zip(&names) {
            match *name {
                "meta" | "body" => pipe.hgetall(key),
                _ => pipe.zrange_withscores(key, 0, -1),
            };
        }
        let mut values = Vec::new();
        if !keys.is_empty() {
            values = pipe.query_async::<Vec<Value>>(&mut self.raw).await.unwrap();
        }
        let mut model = SlotStoreModel::default();
        for (name, value) in names.iter().zip(values) {
            match name.split_once(':') {
                None if *name == "meta" => model.meta = Some(meta(&from_redis_value(value).unwrap())),
                None if *name == "body" => {
                    let bodies: Vec<(Vec<u8>, Vec<u8>)> = from_redis_value(value).unwrap();
                    let read = |(m, body): (Vec<u8>, _)| {
                        (RowGen::from_member(&m).unwrap(), Body::from_bytes(body).unwrap())
                    };
                    model.body = bodies.into_iter().map(read).collect();
                }
                None if *name == "topics" => {
                    let topics: Vec<(String, i64)> = from_redis_value(value).unwrap();
                    model.topics = topics.into_iter().map(|(topic, at)| (topic.into(), at)).collect();
                }
                Some(("store", topic)) => drop(model.store.insert(topic.into(), zset(value))),
                Some(("prepare", topic)) => drop(model.prepare.insert(topic.into(), zset(value))),
                _ => panic!("unknown key {name}"),
            }
        }
        model
    }
}

fn zset(value: Value) -> ZSet {
    let mut zset = ZSet::default();
    let members: Vec<(Vec<u8>, i64)> = from_redis_value(value).unwrap();
    for (m, score) in members {
        zset.add(score, RowGen::from_member(&m).unwrap());
    }
    zset
}

fn meta(fields: &BTreeMap<String, String>) -> Meta {
    let number = |name: &str| fields.get(name).map_or(0, |text| text.parse::<i64>().unwrap());
    let mut sizes: BTreeMap<Topic, Sizes> = BTreeMap::new();
    for (name, value) in fields {
        if let Some(topic) = name.strip_prefix("s:") {
            sizes.entry(topic.into()).or_default().store = value.parse().unwrap();
        } else if let Some(topic) = name.strip_prefix("p:") {
            sizes.entry(topic.into()).or_default().prepare = value.parse().unwrap();
        }
    }
    let meta = Meta {
        token: OwnerToken(u128::from_str_radix(&fields["token"], 16).unwrap()),
        seq: number("seq") as u64,
        cold: fields.contains_key("cold"),
        positions: Positions { due_pos: number("due_pos"), jpos: number("jpos"), fence: number("fence") },
        bodies: number("bodies") as usize,
        topics: number("topics") as usize,
        bytes: number("bytes") as u64,
        sizes,
    };
    assert_eq!(meta.members() as i64, number("members"), "meta's sum of members");
    meta
}
