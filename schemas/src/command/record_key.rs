//! The Kafka key of a command.

/// The key that every command of one task carries, so that they stay in order: the callback key where the task has one
/// (then the first command needs no `duestream-key`), else its shard key, else its task id. Every tool of ours keys by
/// this rule; who submits with another key must give the same to what follows.
pub fn record_key<'a>(
    callback_key: Option<&'a [u8]>,
    shard_key: Option<&'a str>,
    task_id: Option<&'a str>,
) -> Option<&'a [u8]> {
    callback_key.or_else(|| shard_key.or(task_id).map(str::as_bytes))
}

#[cfg(test)]
mod tests {
    use super::record_key;

    #[test]
    fn the_callback_key_goes_before_the_shard_key_and_that_before_the_task_id() {
        assert_eq!(record_key(Some(b"k"), Some("s"), Some("t")), Some(&b"k"[..]));
        assert_eq!(record_key(None, Some("s"), Some("t")), Some(&b"s"[..]));
        assert_eq!(record_key(None, None, Some("t")), Some(&b"t"[..]));
        assert_eq!(record_key(None, None, None), None);
    }
}
