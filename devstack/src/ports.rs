//! Free loopback ports.

use anyhow::{Result, bail};
use std::collections::HashSet;
use std::net::TcpListener;
use std::sync::{LazyLock, Mutex};

/// Below the range from which the kernel gives ports to outgoing connections: a port found free stays free for us.
const RANGE: std::ops::Range<u16> = 15_000..32_000;

static GIVEN: LazyLock<Mutex<HashSet<u16>>> = LazyLock::new(Mutex::default);

/// A port on which nobody listens, never given twice by this process.
///
/// Starts at a random place, so that several processes that look at the same time rarely meet; whoever loses that
/// race sees its server die at once with "address in use" in the log tail, and starts it again on another.
pub fn free_port() -> Result<u16> {
    for _ in 0..500 {
        let port = rand::random_range(RANGE);
        if TcpListener::bind(("127.0.0.1", port)).is_ok()
            && GIVEN.lock().expect("no panic while holding the lock").insert(port)
        {
            return Ok(port);
        }
    }
    bail!("found no free port between {} and {} on 127.0.0.1", RANGE.start, RANGE.end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_never_given_twice_nor_one_from_the_range_of_outgoing_connections() {
        let ports: HashSet<u16> = (0..100).map(|_| free_port().unwrap()).collect();
        assert_eq!(ports.len(), 100);
        assert!(ports.iter().all(|port| RANGE.contains(port)));
    }
}
