//! The committed corpus of the fuzz target `grammar`, through the target's own body.

#[path = "../../../fuzz/src/grammar.rs"]
#[expect(unreachable_pub, reason = "public in the fuzz crate, where the module lives")]
mod examination;
#[path = "../../../fuzz/src/grammar_seeds.rs"]
#[expect(unreachable_pub, reason = "public in the fuzz crate, where the module lives")]
mod seeds;

use std::fs;
use std::path::PathBuf;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/grammar")
}

#[test]
fn every_file_keeps_the_promises() {
    let mut examined = 0;
    for entry in fs::read_dir(folder()).unwrap() {
        let _ = examination::examine(&fs::read(entry.unwrap().path()).unwrap());
        examined += 1;
    }
    assert!(examined >= seeds::all().len(), "{examined} files");
}

#[test]
fn every_seed_is_judged_as_it_deserves() {
    for seed in seeds::all() {
        assert_eq!(examination::examine(&seed.bytes), seed.verdict, "{}", seed.name);
    }
}

#[test]
fn every_seed_is_a_file() {
    for seed in seeds::all() {
        let stored = fs::read(folder().join(seed.name)).unwrap_or_default();
        assert_eq!(stored, seed.bytes, "{}: run `cargo run --example seeds` in fuzz/", seed.name);
    }
}
