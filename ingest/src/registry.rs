//! Schemas with which producers write commands: those that are known here, and those of a schema registry.
//!
//! ```text
//! parse ──▶ needs schema 7 ──▶ Schemas::fetch ──▶ cache? ──▶ GET …/schemas/ids/7 ──▶ usable | none there | of another kind
//!   ▲                                               │                  │
//!   └───────────────── parse again ◀────────────────┘                  └─▶ no answer: the partition waits
//! ```
//!
//! An id never changes its meaning, so what was found is kept for good; that it is of no use, for a while: a registry may be
//! pointed elsewhere for a moment. That there is none is believed for one batch: the next may be from whoever registered it.

mod client;

use crate::config::Registry as RegistryKeys;
use crate::metrics::SCHEMAS;
use crate::turn::{Stop, Turn};
use client::{Answer, Client};
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use schemas::command::{KnownSchemas, Lookup, WriterSchema, WriterSchemas};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Ids that are kept at a time. A schema takes some ten KiB.
const MOST: usize = 1_000;
/// Ids that are asked for at a time, for one batch.
const MOST_AT_ONCE: usize = 32;
/// Least pause after a registry that gave no answer.
const LEAST_PAUSE: Duration = Duration::from_millis(200);

/// All schemas.
pub struct Schemas {
    known: KnownSchemas,
    registry: Option<Registry>,
}

struct Registry {
    client: Client,
    keep_unusable: Duration,
    found: Mutex<HashMap<u32, Found>>,
}

#[derive(Clone)]
struct Found {
    lookup: Lookup,
    /// `None`: for good.
    until: Option<Instant>,
}

/// The schemas of a batch: what was fetched for it stays, whatever becomes of the cache.
pub struct BatchSchemas<'s> {
    schemas: &'s Schemas,
    fetched: HashMap<u32, Lookup>,
}

impl Schemas {
    /// The shipped schemas, those of files, and those of the registry, if there is one.
    pub fn new(known: KnownSchemas, keys: &RegistryKeys) -> Schemas {
        let registry = Client::new(keys).map(|client| Registry {
            client,
            keep_unusable: keys.unusable_for.get(),
            found: Mutex::default(),
        });
        Schemas { known, registry }
    }

    /// What is known for a batch.
    pub fn for_batch(&self) -> BatchSchemas<'_> {
        BatchSchemas { schemas: self, fetched: HashMap::new() }
    }
}

impl BatchSchemas<'_> {
    /// Fetches these; waits for a registry that does not answer.
    pub async fn fetch(&mut self, ids: HashSet<u32>, turn: &Turn) -> Result<(), Stop> {
        let Some(registry) = &self.schemas.registry else { return Ok(()) };
        // Side by side: invented ids, however many, must not hold up for long what stands beside them.
        let mut fetching = FuturesUnordered::new();
        let mut ids = ids.into_iter();
        loop {
            while fetching.len() < MOST_AT_ONCE
                && let Some(id) = ids.next()
            {
                fetching.push(async move { (id, registry.fetch(id, turn).await) });
            }
            let Some((id, lookup)) = fetching.next().await else { return Ok(()) };
            self.fetched.insert(id, lookup?);
        }
    }
}

impl WriterSchemas for BatchSchemas<'_> {
    fn by_fingerprint(&self, fingerprint: u64) -> Option<Arc<WriterSchema>> {
        self.schemas.known.by_fingerprint(fingerprint)
    }

    fn by_id(&self, id: u32) -> Lookup {
        match (&self.schemas.registry, self.fetched.get(&id)) {
            (None, _) => Lookup::NoRegistry,
            (Some(_), Some(fetched)) => fetched.clone(),
            (Some(registry), None) => registry.cached(id).unwrap_or(Lookup::Unfetched),
        }
    }
}

impl Registry {
    fn cached(&self, id: u32) -> Option<Lookup> {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let found = found.get(&id).filter(|found| found.until.is_none_or(|until| Instant::now() < until));
        found.map(|found| found.lookup.clone())
    }

    fn keep(&self, id: u32, lookup: &Lookup) {
        let until = match lookup {
            Lookup::Known(_) => None,
            Lookup::Missing => return,
            _ => Some(Instant::now() + self.keep_unusable),
        };
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        if found.len() >= MOST {
            // Ids come from producers: a flood of invented ones must cost neither memory nor the schemas in use.
            found.retain(|_, found| found.until.is_none());
        }
        if found.len() >= MOST {
            found.clear();
        }
        found.insert(id, Found { lookup: lookup.clone(), until });
    }

    async fn fetch(&self, id: u32, turn: &Turn) -> Result<Lookup, Stop> {
        let mut tries = 0u32;
        loop {
            if let Some(lookup) = self.cached(id) {
                turn.registry.well();
                return Ok(lookup);
            }
            let answer = tokio::select! {
                () = turn.gone.cancelled() => return Err(Stop::Gone),
                () = turn.stop.cancelled() => return Err(Stop::Gone),
                answer = self.client.get(id) => answer,
            };
            let (label, outcome) = match answer {
                Ok(Answer::Schema(schema)) => ("found", Ok(Lookup::Known(schema))),
                Ok(Answer::Missing) => ("missing", Ok(Lookup::Missing)),
                Ok(Answer::Unusable(fault)) => ("unusable", Ok(Lookup::Unusable(fault))),
                Err(outage) => ("failed", Err(outage)),
            };
            SCHEMAS.with(&[label]).increment(1);
            let outage = match outcome {
                Ok(lookup) => {
                    self.keep(id, &lookup);
                    turn.registry.well();
                    return Ok(lookup);
                }
                Err(outage) => outage,
            };
            tries += 1;
            turn.registry.trouble(format!("waiting for the schema registry (schema {id}): {outage}"));
            if tries.is_power_of_two() {
                let source = &*turn.source;
                tracing::warn!(
                    source,
                    turn.partition,
                    schema = id,
                    tries,
                    "waiting for the schema registry: {outage}"
                );
            }
            tokio::select! {
                () = turn.stop.cancelled() => return Err(Stop::Gone),
                waited = turn.pause(turn.backoff(tries, LEAST_PAUSE)) => waited?,
            }
        }
    }
}
