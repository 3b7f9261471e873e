//! What the crypto libraries cost without ESP, for comparison with what ESP costs with them.
//!
//! No clock is read here. Whoever measures seals a batch with an [`OutboundSa`](crate::OutboundSa)
//! and protects the same bytes with a [`Raw`] in turn, A B A B in one run, and times both.

use crate::algorithm::Algorithm;
use crate::engine::Engine;
use crate::keys::KeyMaterial;

/// The library calls that an SA of the same keys makes, one packet at a time, with nothing around
/// them: no header is written, nothing is padded, numbered or looked up, and nothing is done for
/// several packets at once.
///
/// It works on whole ESP packets, so that the bytes are the same ones. **It protects nothing**: IVs
/// are whatever the packet holds.
pub struct Raw {
    engine: Engine,
    shortest: usize,
    alignment: usize,
}

impl Raw {
    /// The library calls for `keys`.
    pub fn new(keys: &KeyMaterial) -> Self {
        let algorithm: Algorithm = keys.algorithm();
        let shortest = algorithm.sealed_length(0);
        Self { engine: Engine::new(keys), shortest, alignment: algorithm.alignment() }
    }

    /// Encrypts what lies between IV and ICV, and writes the ICV.
    ///
    /// # Panics
    /// Where the packet is not one of [`Algorithm::sealed_length`] for some payload.
    #[inline]
    pub fn protect(&self, packet: &mut [u8]) {
        self.check(packet);
        self.engine.seal_alone(packet);
    }

    /// Verifies the ICV and decrypts what lies between IV and ICV. Returns whether the packet is
    /// authentic.
    ///
    /// # Panics
    /// Where the packet is not one of [`Algorithm::sealed_length`] for some payload.
    #[inline]
    pub fn unprotect(&self, packet: &mut [u8]) -> bool {
        self.check(packet);
        self.engine.open_alone(packet)
    }

    fn check(&self, packet: &[u8]) {
        let whole =
            packet.len().checked_sub(self.shortest).is_some_and(|more| more % self.alignment == 0);
        assert!(whole, "{} bytes are no whole ESP packet of this algorithm", packet.len());
    }
}
