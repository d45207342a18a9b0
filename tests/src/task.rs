//! A schedule command in the headers form, as a producer would write it.

use rdkafka::message::{Header, OwnedHeaders};

/// One command. Fields are what will stand on the record, valid or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// Key of the record, and so of the callback.
    pub key: Option<Vec<u8>>,
    /// The payload.
    pub value: Option<Vec<u8>>,
    /// All headers, `duestream-*` and the user's own.
    pub headers: Vec<(String, Option<Vec<u8>>)>,
    /// Partition of `tasks` to write to; `None`: by key.
    pub partition: Option<i32>,
}

impl Task {
    /// A task for `topic`, due at `due_at`, known as `id`; its value is its id.
    pub fn new(id: &str, topic: &str, due_at: i64) -> Task {
        let task = Task {
            key: Some(id.as_bytes().to_vec()),
            value: Some(id.as_bytes().to_vec()),
            headers: Vec::new(),
            partition: None,
        };
        task.with("duestream-task-id", id)
            .with("duestream-topic", topic)
            .with("duestream-due-at", &due_at.to_string())
    }

    /// A record with a value and nothing else.
    pub fn bare(value: &[u8]) -> Task {
        Task { key: None, value: Some(value.to_vec()), headers: Vec::new(), partition: None }
    }

    /// Adds a header.
    #[must_use]
    pub fn with(self, name: &str, value: &str) -> Task {
        self.with_bytes(name, Some(value.as_bytes()))
    }

    /// Adds a header that may be null.
    #[must_use]
    pub fn with_bytes(mut self, name: &str, value: Option<&[u8]>) -> Task {
        self.headers.push((name.to_owned(), value.map(<[u8]>::to_vec)));
        self
    }

    /// Replaces the key.
    #[must_use]
    pub fn key(mut self, key: Option<&[u8]>) -> Task {
        self.key = key.map(<[u8]>::to_vec);
        self
    }

    /// Replaces the value.
    #[must_use]
    pub fn value(mut self, value: Option<&[u8]>) -> Task {
        self.value = value.map(<[u8]>::to_vec);
        self
    }

    /// Writes to this partition of `tasks`.
    #[must_use]
    pub fn on_partition(mut self, partition: i32) -> Task {
        self.partition = Some(partition);
        self
    }

    /// Its headers for librdkafka.
    pub fn owned_headers(&self) -> OwnedHeaders {
        self.headers
            .iter()
            .fold(OwnedHeaders::new_with_capacity(self.headers.len()), |headers, (key, value)| {
                headers.insert(Header { key, value: value.as_deref() })
            })
    }
}
