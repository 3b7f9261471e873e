//! The committed corpus of the fuzz target `headers`, through the target's own body.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use wire::headers;

use crate::{examination, seeds};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/headers")
}

#[test]
fn every_file_keeps_the_promises() {
    let mut examined = 0;
    for entry in fs::read_dir(folder()).unwrap() {
        examination::examine(&fs::read(entry.unwrap().path()).unwrap());
        examined += 1;
    }
    assert!(examined >= seeds::all().len(), "{examined} files");
}

#[test]
fn every_seed_is_judged_as_it_deserves() {
    for seed in seeds::all() {
        let verdict = headers::parse(&seed.bytes).map(|_| ());
        assert_eq!(verdict, seed.verdict, "{}", seed.name);
    }
}

#[test]
fn every_seed_is_a_file() {
    let seeds = seeds::all();
    let names: BTreeSet<_> = seeds.iter().map(|seed| seed.name).collect();
    assert_eq!(names.len(), seeds.len(), "two seeds of one name");
    for seed in seeds {
        let stored = fs::read(folder().join(seed.name)).unwrap_or_default();
        assert_eq!(stored, seed.bytes, "{}: run `cargo run --example seeds` in fuzz/", seed.name);
    }
}

#[test]
fn every_kind_of_fault_has_a_seed() {
    let missing: Vec<_> = [
        headers::Malformed::Truncated,
        headers::Malformed::Version,
        headers::Malformed::HeaderLength,
        headers::Malformed::TotalLength,
        headers::Malformed::HeaderChecksum,
        headers::Malformed::Option,
        headers::Malformed::Source,
        headers::Malformed::Destination,
        headers::Malformed::ExtensionChain,
        headers::Malformed::ExtensionTruncated,
        headers::Malformed::Fragment,
        headers::Malformed::UpperTruncated,
    ]
    .into_iter()
    .filter(|why| !seeds::all().iter().any(|seed| seed.verdict == Err(*why)))
    .collect();
    assert_eq!(missing, []);
}
