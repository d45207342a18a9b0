//! Target `command_headers` of `./dev fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::command::headers(data));
