//! Packets travel in batches.

use arrayvec::ArrayVec;

use crate::slab::Packet;

/// The most packets a stage handles at once.
pub const BATCH: usize = 256;

/// Up to [`BATCH`] packets, held in place.
pub type Batch = ArrayVec<Packet, BATCH>;
