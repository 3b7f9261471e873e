//! The ESP transform (RFC 4303) for batches of packets.
//!
//! What is here turns a payload into an ESP packet and back: header, IV, padding, trailer and ICV.
//! The outer IP header is not: whoever forwards writes and strips that. So the same code serves
//! tunnel mode, whose payload is an IP packet, and transport mode, whose payload is what stood
//! behind the IP header.
//!
//! ```
//! use esp::{InboundSa, KeyMaterial, OpenJob, OutboundSa, SealJob, WindowSize};
//! use rand::SeedableRng;
//! use types::{Protocol, Spi};
//!
//! let keys = KeyMaterial::gcm(&[0x2b; 20])?;
//! # let mut randomness = rand_chacha::ChaCha20Rng::seed_from_u64(0);
//! let outbound = OutboundSa::new(Spi(0x1000), &keys, 0, &mut randomness);
//! let inbound = InboundSa::new(Spi(0x1000), &keys, WindowSize::new(64)?, 0);
//!
//! // A payload of 100 bytes, with room around it for what ESP adds.
//! let mut buffer = vec![0; 256];
//! let mut batch = [SealJob::new(&mut buffer, 64, 100, Protocol::IPV4)];
//! outbound.seal(&mut batch, &mut randomness);
//! let [sealed] = batch;
//! sealed.result?;
//! let (start, length) = (sealed.start, sealed.length);
//!
//! let mut batch = [OpenJob::new(&mut buffer, start, length)];
//! inbound.open(&mut batch);
//! let [opened] = batch;
//! opened.result?;
//! assert_eq!((opened.start, opened.length, opened.next_header, opened.sequence), (64, 100, Protocol::IPV4, 1));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Batches
//! [`OutboundSa::seal`] and [`InboundSa::open`] take all the packets that a batch has for one SA.
//! Each packet is a job with a result of its own: a packet that is refused disturbs no other.
//! Behind them stand engines that are given the whole batch and may work on its packets side by
//! side, as AES-CBC encryption does. Nothing is allocated, and nothing is locked: any number of
//! workers may use one SA at once.
//!
//! # What is refused
//! Before any cryptography: what has not the length of an ESP packet, and what the replay window
//! has seen or is past. Then what is not authentic; it is never released. A sequence number is
//! marked as seen only once its packet is known to be authentic. Last, wrong padding.
//!
//! # What is not here
//! Extended sequence numbers (RFC 4303 section 2.2.1): an SA ends with number 2^32 - 1. Lifetimes
//! and counters: the SAD keeps them. Cryptography: `docs/esp-engines.md` says which libraries do
//! it, and by which measurements they were chosen.
#![forbid(unsafe_code)]

mod algorithm;
pub mod bench;
mod engine;
mod inbound;
mod job;
mod keys;
mod numbers;
mod outbound;
mod replay;
#[cfg(test)]
mod vectors;

pub use algorithm::{
    AEAD_NAMES, Algorithm, Cipher, ENCRYPTION_NAMES, HEADER_LENGTH, INTEGRITY_NAMES, Integrity,
    LINUX_TRUNCATION, LinuxName, TRAILER_LENGTH,
};
pub use inbound::InboundSa;
pub use job::{OpenError, OpenJob, SealError, SealJob};
pub use keys::{DIGEST_LENGTH, KeyError, KeyLengths, KeyMaterial};
pub use numbers::Numbers;
pub use outbound::OutboundSa;
pub use replay::{ReplayWindow, WindowError, WindowSize};
