//! Target `texts` of `./dev fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::texts::all(data));
