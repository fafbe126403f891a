#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mkey_conformance::fuzz::fuzz_raw_records(data));
