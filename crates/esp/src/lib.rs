//! The ESP transform (RFC 4303) for batches of packets.
#![forbid(unsafe_code)]

mod algorithm;
pub mod bench;
mod engine;
mod inbound;
mod job;
mod keys;
mod outbound;
mod replay;

pub use algorithm::{Algorithm, Cipher, HEADER_LENGTH, Integrity, TRAILER_LENGTH};
pub use inbound::InboundSa;
pub use job::{OpenError, OpenJob, SealError, SealJob};
pub use keys::{KeyError, KeyMaterial};
pub use outbound::OutboundSa;
pub use replay::{WindowError, WindowSize};
#[cfg(test)]
mod vectors;
