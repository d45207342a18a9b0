//! How much memory a piece of work takes at its peak.

use peak_alloc::PeakAlloc;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// A decoder may believe a length up to 16 MiB before it finds the bytes missing (`schemas::avro`); the rest is slack for
/// what is built once per process.
const ALWAYS: usize = 24 << 20;
/// Bytes per byte of input. An empty header is 2 bytes on the wire and 48 in memory, and properties hold several copies.
const PER_BYTE: usize = 400;

/// Runs `work` on an input of `length` bytes and panics when it took more than such an input may take.
pub(crate) fn bounded(length: usize, work: impl FnOnce()) {
    MEMORY.reset_peak_usage();
    let before = MEMORY.current_usage();
    work();
    let taken = MEMORY.peak_usage().saturating_sub(before);
    assert!(taken <= ALWAYS + PER_BYTE * length, "{length} bytes of input took {taken} bytes of memory");
}
