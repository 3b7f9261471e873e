//! The tests that hold a target's committed corpus to its promises, for the crate that is examined.

/// Tests of the corpus of the target `$name`, whose body is `$body` and whose seeds are `$seeds`.
macro_rules! corpus_tests {
    ($name:literal, $body:ident, $seeds:ident) => {
        fn folder() -> std::path::PathBuf {
            std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
                .join(concat!("../../fuzz/corpus/", $name))
        }

        #[test]
        fn every_file_keeps_the_promises() {
            let mut examined = 0;
            for entry in std::fs::read_dir(folder()).unwrap() {
                let _ = $body::examine(&std::fs::read(entry.unwrap().path()).unwrap());
                examined += 1;
            }
            assert!(examined >= $seeds::all().len(), "{examined} files");
        }

        #[test]
        fn every_seed_is_judged_as_it_deserves() {
            for seed in $seeds::all() {
                assert_eq!($body::examine(&seed.bytes), seed.verdict, "{}", seed.name);
            }
        }

        #[test]
        fn every_seed_is_a_file() {
            for seed in $seeds::all() {
                let stored = std::fs::read(folder().join(seed.name)).unwrap_or_default();
                let name = seed.name;
                assert_eq!(stored, seed.bytes, "{name}: run `cargo run --example seeds` in fuzz/");
            }
        }
    };
}
