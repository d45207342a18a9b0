//! Texts that must not reach a log.

use serde::Deserialize;
use std::fmt;

/// A text such as a URL with a password in it. Debug and Display hide what is secret; [`Secret::expose`] does not.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Wraps a text.
    pub fn new(text: impl Into<String>) -> Secret {
        Secret(text.into())
    }

    /// The text itself: for connecting, never for printing.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&redact_url(&self.0))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", redact_url(&self.0))
    }
}

const HIDDEN: &str = "***";

/// Hides the password in `scheme://user:password@host` and in query parameters that carry one. What is no URL is hidden whole.
pub fn redact_url(url: &str) -> String {
    if url.is_empty() {
        return String::new();
    }
    let Some((scheme, rest)) = url.split_once("://") else { return HIDDEN.into() };
    let (base, query) = rest.split_once('?').map_or((rest, None), |(base, query)| (base, Some(query)));
    // A password may hold a raw `@` or `/`: the host begins after the last `@`.
    let base = match base.rsplit_once('@') {
        None => base.to_owned(),
        Some((user, host)) => match user.split_once(':') {
            None => format!("{user}@{host}"),
            Some((name, _)) => format!("{name}:{HIDDEN}@{host}"),
        },
    };
    let query = query.map_or(String::new(), |query| {
        let shown = query.split('&').map(|pair| match pair.split_once('=') {
            Some((name, _)) if is_secret_name(name) => format!("{name}={HIDDEN}"),
            _ => pair.to_owned(),
        });
        format!("?{}", shown.collect::<Vec<_>>().join("&"))
    });
    format!("{scheme}://{base}{query}")
}

fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["password", "passwd", "secret", "token", "jaas", "key.pem", "key_pem", "pass"]
        .iter()
        .any(|word| name.contains(word))
}

/// The value of a configuration key as it may be shown.
pub fn redact(key: &str, value: &str) -> String {
    if value.is_empty() {
        String::new()
    } else if is_secret_name(key) {
        HIDDEN.into()
    } else if key.ends_with("url") || key.ends_with("urls") {
        redact_url(value)
    } else {
        value.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_hidden_and_the_rest_is_shown() {
        for (url, shown) in [
            ("mysql://root:s3cret@db:3306/duestream", "mysql://root:***@db:3306/duestream"),
            ("mysql://root:a@b/c@db/duestream", "mysql://root:***@db/duestream"),
            (
                "mysql://root@db/x?password=s&ssl-mode=REQUIRED",
                "mysql://root@db/x?password=***&ssl-mode=REQUIRED",
            ),
            ("redis://:s3cret@cache:6379", "redis://:***@cache:6379"),
            ("redis://127.0.0.1:6379/2", "redis://127.0.0.1:6379/2"),
            ("s3cret", "***"),
            ("", ""),
        ] {
            let secret = Secret::new(url);
            assert_eq!(secret.to_string(), shown);
            assert_eq!(format!("{secret:?}"), format!("{shown:?}"));
            assert_eq!(secret.expose(), url);
        }
    }

    #[test]
    fn a_key_that_names_a_secret_hides_its_value() {
        assert_eq!(redact("kafka.properties.sasl.password", "s3cret"), "***");
        assert_eq!(redact("kafka.properties.ssl.ca.location", "/etc/ca.pem"), "/etc/ca.pem");
        assert_eq!(redact("mysql.url", "mysql://a:b@c/d"), "mysql://a:***@c/d");
    }
}
