//! What the library costs without ESP, for comparison with what ESP costs with it.
//!
//! No clock is read here: whoever measures seals with an [`OutboundSa`](crate::OutboundSa) and protects the same bytes
//! with a [`Raw`] in turn, and times both.

use crate::engine::Engine;
use crate::keys::KeyMaterial;

/// The crypto library that an SA of the same keys would use, with nothing around it: no header, no padding, no sequence numbers, no
/// replay window.
pub struct Raw(Engine);
