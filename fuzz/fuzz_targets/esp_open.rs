#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hitpath_fuzz::esp_open::examine(bytes));
