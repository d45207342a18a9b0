//! Target `writer_schema` of `./dev fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::command::writer_schema(data));
