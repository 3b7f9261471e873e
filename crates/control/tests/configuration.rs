//! The committed corpus of the fuzz target `configuration`, through the target's own body.

#[path = "../../../fuzz/src/corpus.rs"]
#[macro_use]
mod corpus;
#[path = "../../../fuzz/src/configuration.rs"]
#[expect(unreachable_pub, reason = "public in the fuzz crate, where the module lives")]
mod examination;
#[path = "../../../fuzz/src/configuration_seeds.rs"]
#[expect(unreachable_pub, reason = "public in the fuzz crate, where the module lives")]
mod seeds;

corpus_tests!("configuration", examination, seeds);
