#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hitpath_fuzz::headers::examine(bytes));
