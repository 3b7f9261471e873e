//! The committed corpus of the fuzz target `captures`, through the target's own body.

#[path = "../../../fuzz/src/corpus.rs"]
#[macro_use]
mod corpus;
#[path = "../../../fuzz/src/captures.rs"]
#[expect(unreachable_pub, reason = "public in the fuzz crate, where the module lives")]
mod examination;
#[path = "../../../fuzz/src/captures_seeds.rs"]
#[expect(unreachable_pub, reason = "public in the fuzz crate, where the module lives")]
mod seeds;

corpus_tests!("captures", examination, seeds);
