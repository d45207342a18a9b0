//! `/live`, `/ready`, `/metrics`.
//!
//! *Live* means that the process answers; orchestrators kill what is not. *Ready* means that it does its work now: each part
//! of a program holds a [`Gate`], which is closed with a reason while, say, MySQL is away.

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    response::IntoResponse,
    routing::get,
};
use metrics_exporter_prometheus::PrometheusHandle;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// What keeps a program from being ready.
#[derive(Clone, Debug, Default)]
pub struct Readiness {
    closed: Arc<Mutex<BTreeMap<String, String>>>,
}

/// One condition of readiness. Dropped: the condition is gone.
#[derive(Debug)]
pub struct Gate {
    name: String,
    readiness: Readiness,
}

impl Readiness {
    /// A new condition, not met yet because of `reason`.
    pub fn gate(&self, name: impl Into<String>, reason: impl Into<String>) -> Gate {
        let gate = Gate { name: name.into(), readiness: self.clone() };
        gate.close(reason);
        gate
    }

    /// Conditions that are not met, with their reasons. Empty: ready.
    pub fn reasons(&self) -> BTreeMap<String, String> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.closed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Gate {
    /// The condition is met.
    pub fn open(&self) {
        self.readiness.lock().remove(&self.name);
    }

    /// The condition is not met.
    pub fn close(&self, reason: impl Into<String>) {
        self.readiness.lock().insert(self.name.clone(), reason.into());
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.open();
    }
}

#[derive(Clone)]
struct Probes {
    readiness: Readiness,
    metrics: Option<PrometheusHandle>,
}

/// Serves the probes on `listener` until `stop`.
pub async fn serve(
    listener: TcpListener,
    readiness: Readiness,
    metrics: Option<PrometheusHandle>,
    stop: CancellationToken,
) -> std::io::Result<()> {
    let router = Router::new()
        .route("/live", get(|| async { "live\n" }))
        .route("/ready", get(ready))
        .route("/metrics", get(render))
        .with_state(Probes { readiness, metrics });
    axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned()).await
}

async fn ready(State(probes): State<Probes>) -> impl IntoResponse {
    let reasons = probes.readiness.reasons();
    let status = if reasons.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let body = serde_json::json!({ "ready": reasons.is_empty(), "reasons": reasons }).to_string() + "\n";
    (status, [(header::CONTENT_TYPE, "application/json")], body)
}

async fn render(State(probes): State<Probes>) -> impl IntoResponse {
    let text = probes.metrics.map_or(String::new(), |handle| handle.render());
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text)
}
