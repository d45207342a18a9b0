//! The question that is asked of a registry with Confluent's API: `GET /schemas/ids/{id}`, and, where the answer does not
//! tell whether the schema is not there or the registry is none, `GET /schemas/types`.

use crate::config::Registry as Keys;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use runtime::config::Secret;
use schemas::command::{SchemaFault, WriterSchema};
use serde::Deserialize;
use std::sync::Arc;
use ureq::tls::{RootCerts, TlsConfig, TlsProvider};

/// Longest answer that is read. Of the schema itself the parser takes 256 KiB.
const MAX_ANSWER_BYTES: u64 = 1 << 20;
/// `error_code` of a schema that is not there. Without it a 404 may be a wrong path, and says nothing of the schema.
const SCHEMA_NOT_FOUND: u32 = 40_403;
/// Highest id: registries count in 32 bits with a sign, and some answer a higher one as they answer a wrong path.
const MAX_ID: u32 = i32::MAX as u32;
/// Shown of an answer that is not understood.
const SHOWN_CHARS: usize = 120;

/// A client of one registry.
#[derive(Clone)]
pub(super) struct Client {
    agent: ureq::Agent,
    url: String,
    authorization: Option<Secret>,
}

/// What the registry says of an id.
#[derive(Debug)]
pub(super) enum Answer {
    /// A schema of commands.
    Schema(Arc<WriterSchema>),
    /// There is none.
    Missing,
    /// There is one, and it is not of commands.
    Unusable(SchemaFault),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Registered {
    schema: String,
    /// Left out: AVRO.
    schema_type: Option<String>,
    #[serde(default)]
    references: Vec<serde_json::Value>,
}

#[derive(Deserialize)]
struct Refused {
    error_code: u32,
}

impl Client {
    /// `None`: no registry is configured.
    pub(super) fn new(keys: &Keys) -> Option<Client> {
        if keys.url.is_empty() {
            return None;
        }
        // The certificates that the system trusts, as for MySQL.
        let tls =
            TlsConfig::builder().provider(TlsProvider::NativeTls).root_certs(RootCerts::PlatformVerifier);
        let agent = ureq::Agent::config_builder()
            .timeout_global(Some(keys.timeout.get()))
            .http_status_as_error(false)
            .tls_config(tls.build())
            .user_agent("duestream-ingest")
            .build()
            .new_agent();
        let credentials = format!("{}:{}", keys.user, keys.password.expose());
        let authorization =
            (!keys.user.is_empty()).then(|| Secret::new(format!("Basic {}", BASE64.encode(credentials))));
        Some(Client { agent, url: keys.url.trim_end_matches('/').to_owned(), authorization })
    }

    /// Asks. `Err`: no answer, or none that says anything of the schema; ask again later.
    pub(super) async fn get(&self, id: u32) -> Result<Answer, String> {
        let client = self.clone();
        let asked = tokio::task::spawn_blocking(move || client.ask(id)).await;
        asked.unwrap_or_else(|error| Err(error.to_string()))
    }

    fn ask(&self, id: u32) -> Result<Answer, String> {
        if id > MAX_ID {
            return Ok(Answer::Missing);
        }
        let (status, body) = match self.call(&format!("schemas/ids/{id}"))? {
            (status, Some(body)) => (status, body),
            (200, None) => {
                let problem = format!("is longer than {MAX_ANSWER_BYTES} bytes");
                return Ok(Answer::Unusable(SchemaFault::new(problem)));
            }
            (status, None) => return Err(format!("it answers {status} at length")),
        };
        match answer(status, &body) {
            // A refusal of this very question, or of every one? Whoever knows its types of schemas is a registry.
            Err(refused) if (400..500).contains(&status) => match self.call("schemas/types")? {
                (200, Some(types)) if is_list(&types) => Ok(Answer::Missing),
                _ => Err(refused),
            },
            answered => answered,
        }
    }

    /// Status and body; without body where it is too long.
    fn call(&self, path: &str) -> Result<(u16, Option<Vec<u8>>), String> {
        let mut request = self
            .agent
            .get(format!("{}/{path}", self.url))
            .header("accept", "application/vnd.schemaregistry.v1+json, application/json");
        if let Some(authorization) = &self.authorization {
            request = request.header("authorization", authorization.expose());
        }
        let mut response = request.call().map_err(|error| error.to_string())?;
        let status = response.status().as_u16();
        match response.body_mut().with_config().limit(MAX_ANSWER_BYTES).read_to_vec() {
            Ok(body) => Ok((status, Some(body))),
            Err(ureq::Error::BodyExceedsLimit(_)) => Ok((status, None)),
            Err(error) => Err(error.to_string()),
        }
    }
}

fn is_list(body: &[u8]) -> bool {
    serde_json::from_slice::<Vec<String>>(body).is_ok()
}

/// What an answer says.
fn answer(status: u16, body: &[u8]) -> Result<Answer, String> {
    let shown = || String::from_utf8_lossy(body).chars().take(SHOWN_CHARS).collect::<String>();
    match status {
        200 => {
            let registered: Registered = serde_json::from_slice(body).map_err(|_| {
                format!("it answers, but not like a schema registry (is registry.url right?): {:?}", shown())
            })?;
            Ok(usable(&registered).map_or_else(Answer::Unusable, |schema| Answer::Schema(Arc::new(schema))))
        }
        404 if serde_json::from_slice(body)
            .is_ok_and(|refused: Refused| refused.error_code == SCHEMA_NOT_FOUND) =>
        {
            Ok(Answer::Missing)
        }
        404 => {
            Err(format!("it answers 404 without naming the schema (is registry.url right?): {:?}", shown()))
        }
        401 | 403 => Err(format!("it answers {status} (are registry.user and registry.password right?)")),
        _ => Err(format!("it answers {status}: {:?}", shown())),
    }
}

fn usable(registered: &Registered) -> Result<WriterSchema, SchemaFault> {
    match registered.schema_type.as_deref() {
        None | Some("AVRO") => {}
        Some(other) => {
            let other: String = other.chars().take(SHOWN_CHARS).collect();
            return Err(SchemaFault::new(format!("is of type {other}, not AVRO")));
        }
    }
    if !registered.references.is_empty() {
        return Err(SchemaFault::new("refers to other schemas of the registry, which are not followed"));
    }
    WriterSchema::parse(&registered.schema)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(status: u16, body: &str) -> String {
        match answer(status, body.as_bytes()) {
            Ok(Answer::Schema(_)) => "schema".to_owned(),
            Ok(Answer::Missing) => "missing".to_owned(),
            Ok(Answer::Unusable(fault)) => fault.to_string(),
            Err(outage) => format!("outage: {outage}"),
        }
    }

    #[test]
    fn a_schema_of_commands_is_read_whether_its_type_is_named_or_not() {
        let text = r#"{"type":"record","name":"TaskCommand","fields":[{"name":"topic","type":"string"}]}"#;
        for more in [serde_json::json!({}), serde_json::json!({"schemaType": "AVRO", "references": []})] {
            let mut body = serde_json::json!({"schema": text});
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            assert_eq!(said(200, &body.to_string()), "schema");
        }
    }

    #[test]
    fn what_is_no_schema_of_commands_is_told_apart_from_what_says_nothing() {
        let of_type = r#"{"schema":"{}","schemaType":"PROTOBUF"}"#;
        assert_eq!(said(200, of_type), "the schema is of type PROTOBUF, not AVRO");
        let referring = r#"{"schema":"{}","references":[{"name":"x","subject":"x","version":1}]}"#;
        assert_eq!(
            said(200, referring),
            "the schema refers to other schemas of the registry, which are not followed"
        );
        assert_eq!(said(200, r#"{"schema":"\"string\""}"#), "the schema is not that of a record");
        assert_eq!(said(404, r#"{"error_code":40403,"message":"Schema 7 not found"}"#), "missing");
        for (status, body) in [
            (404, "<html>not here</html>"),
            (404, r#"{"error_code":404,"message":"HTTP 404 Not Found"}"#),
            (200, "<html>welcome</html>"),
            (200, ""),
            (401, ""),
            (500, r#"{"error_code":50001}"#),
            (503, ""),
        ] {
            assert!(
                said(status, body).starts_with("outage: it answers"),
                "{status} {body}: {}",
                said(status, body)
            );
        }
    }
}
