//! The committed corpus of the fuzz target `grammar`, through the target's own body.

#[path = "../../../fuzz/src/corpus.rs"]
#[macro_use]
mod corpus;
#[path = "../../../fuzz/src/grammar.rs"]
#[expect(unreachable_pub, reason = "public in the fuzz crate, where the module lives")]
mod examination;
#[path = "../../../fuzz/src/grammar_seeds.rs"]
#[expect(unreachable_pub, reason = "public in the fuzz crate, where the module lives")]
mod seeds;

corpus_tests!("grammar", examination, seeds);
