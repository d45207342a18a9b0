//! Target `command_json` of `./dev fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::command::json(data));
