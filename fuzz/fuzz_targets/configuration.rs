#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = hitpath_fuzz::configuration::examine(bytes);
});
