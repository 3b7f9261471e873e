//! AES-GCM (RFC 4106) by aws-lc-rs.

use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use zeroize::Zeroizing;

use super::{BatchEngine, to_seal};
use crate::algorithm::{AES_GCM, HEADER_LENGTH};
use crate::job::{OpenError, OpenJob, SealJob};
use crate::keys::{KeyError, KeyMaterial};

const IV_LENGTH: usize = 8;
const TAG_LENGTH: usize = 16;
const SALT_LENGTH: usize = 4;

impl KeyMaterial {
    /// AES-GCM with a 16-byte ICV, of the strength that the key's length says: 20 bytes or 36, salt
    /// included.
    ///
    /// # Errors
    /// The key has another length.
    pub fn gcm(key_and_salt: &[u8]) -> Result<Self, KeyError> {
        Self::aead(&AES_GCM, key_and_salt)
    }
}

pub(crate) struct Gcm {
    key: LessSafeKey,
    salt: Zeroizing<[u8; SALT_LENGTH]>,
}

impl Gcm {
    pub(crate) fn new(keys: &KeyMaterial) -> Self {
        let (key, salt) = keys.encryption().split_at(keys.encryption().len() - SALT_LENGTH);
        let algorithm = if key.len() == 16 { &AES_128_GCM } else { &AES_256_GCM };
        let key = UnboundKey::new(algorithm, key).expect("KeyMaterial has checked the length");
        let mut salt_copy = Zeroizing::new([0; SALT_LENGTH]);
        salt_copy.copy_from_slice(salt);
        Self { key: LessSafeKey::new(key), salt: salt_copy }
    }

    /// Encrypts `text`, all but its last 16 bytes, which become the tag.
    #[inline]
    pub(crate) fn encrypt(&self, aad: &[u8], iv: &[u8; IV_LENGTH], text: &mut [u8]) {
        let (text, tag) = text.split_at_mut(text.len() - TAG_LENGTH);
        self.key
            .seal_in_place_scatter(self.nonce(iv), Aad::from(aad), text, &[], tag)
            .expect("a packet is far below GCM's 64 GiB, and the tag has its 16 bytes");
    }

    /// Verifies the tag in the last 16 bytes of `text` and decrypts the rest. Returns whether it is
    /// authentic.
    #[inline]
    pub(crate) fn decrypt(&self, aad: &[u8], iv: &[u8; IV_LENGTH], text: &mut [u8]) -> bool {
        self.key.open_in_place(self.nonce(iv), Aad::from(aad), text).is_ok()
    }

    #[inline]
    pub(crate) fn seal_alone(&self, packet: &mut [u8]) {
        let (header, iv, text) = split(packet);
        self.encrypt(header, iv, text);
    }

    #[inline]
    pub(crate) fn open_alone(&self, packet: &mut [u8]) -> bool {
        let (header, iv, text) = split(packet);
        self.decrypt(header, iv, text)
    }

    /// Salt and IV (RFC 4106 section 4).
    #[inline]
    fn nonce(&self, iv: &[u8; IV_LENGTH]) -> Nonce {
        let mut nonce = [0; SALT_LENGTH + IV_LENGTH];
        nonce[..SALT_LENGTH].copy_from_slice(&*self.salt);
        nonce[SALT_LENGTH..].copy_from_slice(iv);
        Nonce::assume_unique_for_key(nonce)
    }
}

impl BatchEngine for Gcm {
    fn seal_batch(&self, jobs: &mut [SealJob<'_>]) {
        to_seal(jobs).for_each(|packet| self.seal_alone(packet));
    }

    fn open_batch(&self, jobs: &mut [OpenJob<'_>]) {
        for job in jobs.iter_mut().filter(|job| job.result.is_ok()) {
            if !self.open_alone(&mut job.buffer[job.start..job.start + job.length]) {
                job.result = Err(OpenError::BadIcv);
            }
        }
    }
}

/// The ESP header, which is the additional data (RFC 4106 section 5), the IV, and the rest.
#[inline]
fn split(packet: &mut [u8]) -> (&[u8], &[u8; IV_LENGTH], &mut [u8]) {
    let (header, rest) = packet.split_at_mut(HEADER_LENGTH);
    let (iv, text) = rest.split_first_chunk_mut().expect("the packet's length is checked");
    (header, iv, text)
}
