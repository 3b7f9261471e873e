//! HMAC-SHA-1-96 (RFC 2404) and HMAC-SHA-256-128 (RFC 4868) by aws-lc-rs, which hashes the padded
//! key once and copies that state.

use aws_lc_rs::hmac;
use subtle::ConstantTimeEq;

use super::{BatchEngine, to_seal};
use crate::algorithm::Integrity;
use crate::job::{OpenError, OpenJob, SealJob};

pub(crate) struct Hmac {
    key: hmac::Key,
    icv_length: usize,
}

impl Hmac {
    pub(crate) fn new(integrity: Integrity, key: &[u8]) -> Self {
        let algorithm = match integrity {
            Integrity::HmacSha1_96 => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
            Integrity::HmacSha256_128 => hmac::HMAC_SHA256,
        };
        Self { key: hmac::Key::new(algorithm, key), icv_length: integrity.icv_length() }
    }

    pub(crate) fn icv_length(&self) -> usize {
        self.icv_length
    }

    /// Writes the ICV of everything before it into the packet's last bytes.
    #[inline]
    pub(crate) fn sign(&self, packet: &mut [u8]) {
        let (signed, icv) = packet.split_at_mut(packet.len() - self.icv_length);
        icv.copy_from_slice(&hmac::sign(&self.key, signed).as_ref()[..self.icv_length]);
    }

    /// Whether the packet's last bytes are the ICV of everything before them, in time that does not
    /// depend on where they differ.
    #[inline]
    pub(crate) fn verify(&self, packet: &[u8]) -> bool {
        let (signed, icv) = packet.split_at(packet.len() - self.icv_length);
        hmac::sign(&self.key, signed).as_ref()[..self.icv_length].ct_eq(icv).into()
    }

    /// Verifies each packet, and says of the others that they are not authentic.
    pub(crate) fn verify_batch(&self, jobs: &mut [OpenJob<'_>]) {
        for job in jobs.iter_mut().filter(|job| job.result.is_ok()) {
            if !self.verify(&job.buffer[job.start..job.start + job.length]) {
                job.result = Err(OpenError::BadIcv);
            }
        }
    }
}

/// Integrity without encryption (RFC 2410).
pub(crate) struct NullHmac(pub(crate) Hmac);

impl NullHmac {
    pub(crate) fn new(integrity: Integrity, key: &[u8]) -> Self {
        Self(Hmac::new(integrity, key))
    }
}

impl BatchEngine for NullHmac {
    fn seal_batch(&self, jobs: &mut [SealJob<'_>]) {
        to_seal(jobs).for_each(|packet| self.0.sign(packet));
    }

    fn open_batch(&self, jobs: &mut [OpenJob<'_>]) {
        self.0.verify_batch(jobs);
    }
}
