//! The judge of packets, [`wire::headers::parse`], before packets of every shape: built ones,
//! broken ones, any bytes, the committed fuzz corpus, and beside another library.

#[path = "../../../../fuzz/src/headers.rs"]
#[expect(unreachable_pub, reason = "public in the fuzz crate, where the module lives")]
mod examination;
#[path = "../../../../fuzz/src/headers_seeds.rs"]
#[expect(unreachable_pub, reason = "public in the fuzz crate, where the module lives")]
mod seeds;

mod corpus;
mod fields;
mod oracle;
mod packets;
mod properties;
