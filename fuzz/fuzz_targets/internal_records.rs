//! Target `internal_records` of `./dev fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::internal::records(data));
