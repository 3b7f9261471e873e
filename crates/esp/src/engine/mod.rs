//! What encrypts and authenticates: crypto libraries, each behind the same two functions.
//!
//! An engine is given a whole batch of framed packets of one SA, so that it may interleave them;
//! the ones that run packet by packet loop inside.

pub(crate) mod cbc;
pub(crate) mod gcm;
pub(crate) mod hmac;

use crate::algorithm::{Algorithm, Cipher};
use crate::job::{OpenJob, SealJob};
use crate::keys::KeyMaterial;

/// The most packets an engine is given at once.
pub(crate) const BATCH: usize = 64;

/// Works on the ESP packets in the jobs' ranges. Jobs that have failed already are passed over.
/// Their lengths have been checked: header, IV, at least one whole block, ICV.
trait BatchEngine {
    /// Encrypts what lies between IV and ICV, and writes the ICV.
    fn seal_batch(&self, jobs: &mut [SealJob<'_>]);

    /// Verifies the ICV and decrypts what lies between IV and ICV; says
    /// [`BadIcv`](crate::OpenError::BadIcv) of what is not authentic, and leaves no plaintext of
    /// it.
    fn open_batch(&self, jobs: &mut [OpenJob<'_>]);
}

/// An SA's engine with its keys expanded. The libraries' types wipe them on drop.
pub(crate) enum Engine {
    Gcm(gcm::Gcm),
    Cbc(cbc::CbcHmac),
    Null(hmac::NullHmac),
    /// Framing alone.
    Framing,
}

impl Engine {
    pub(crate) fn new(keys: &KeyMaterial) -> Self {
        match keys.algorithm() {
            Algorithm::AesGcm128 | Algorithm::AesGcm256 => Self::Gcm(gcm::Gcm::new(keys)),
            Algorithm::Separate { cipher: Cipher::Null, integrity } => {
                Self::Null(hmac::NullHmac::new(integrity, keys.integrity()))
            }
            Algorithm::Separate { cipher, integrity } => {
                Self::Cbc(cbc::CbcHmac::new(cipher, integrity, keys))
            }
            Algorithm::NullWithoutIntegrity => Self::Framing,
        }
    }

    pub(crate) fn seal_batch(&self, jobs: &mut [SealJob<'_>]) {
        match self {
            Self::Gcm(engine) => engine.seal_batch(jobs),
            Self::Cbc(engine) => engine.seal_batch(jobs),
            Self::Null(engine) => engine.seal_batch(jobs),
            Self::Framing => {}
        }
    }

    pub(crate) fn open_batch(&self, jobs: &mut [OpenJob<'_>]) {
        match self {
            Self::Gcm(engine) => engine.open_batch(jobs),
            Self::Cbc(engine) => engine.open_batch(jobs),
            Self::Null(engine) => engine.open_batch(jobs),
            Self::Framing => {}
        }
    }

    /// What the library does for one ESP packet, without a batch around it.
    pub(crate) fn seal_alone(&self, packet: &mut [u8]) {
        match self {
            Self::Gcm(engine) => engine.seal_alone(packet),
            Self::Cbc(engine) => engine.seal_alone(packet),
            Self::Null(engine) => engine.0.sign(packet),
            Self::Framing => {}
        }
    }

    /// What the library does for one ESP packet, without a batch around it. Returns whether it is
    /// authentic.
    pub(crate) fn open_alone(&self, packet: &mut [u8]) -> bool {
        match self {
            Self::Gcm(engine) => engine.open_alone(packet),
            Self::Cbc(engine) => engine.open_alone(packet),
            Self::Null(engine) => engine.0.verify(packet),
            Self::Framing => true,
        }
    }
}

/// The jobs' packets that are to be sealed.
fn to_seal<'j>(jobs: &'j mut [SealJob<'_>]) -> impl Iterator<Item = &'j mut [u8]> {
    jobs.iter_mut()
        .filter(|job| job.result.is_ok())
        .map(|job| &mut job.buffer[job.start..job.start + job.length])
}
