//! Keys: checked when they come in, wiped when they go, shown to nobody.

use core::fmt;

use thiserror::Error;
use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::algorithm::{Algorithm, Cipher, Integrity, LinuxName};

/// The longest key that any cipher takes, salt included.
const ENCRYPTION_MAX: usize = 36;

/// The longest HMAC key taken: one block of SHA-1 and SHA-256. A longer one would only be hashed
/// down (RFC 2104 section 2).
const INTEGRITY_MAX: usize = 64;

/// Length of [`KeyMaterial::digest`] in bytes.
pub const DIGEST_LENGTH: usize = 16;

/// An SA's keys, of the right lengths for its algorithm. Zeroized on drop.
#[derive(Clone)]
pub struct KeyMaterial {
    algorithm: Algorithm,
    encryption: Key<ENCRYPTION_MAX>,
    integrity: Key<INTEGRITY_MAX>,
}

/// Why bytes are not the keys of an algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum KeyError {
    /// The cipher's key has a wrong length.
    #[error("{algorithm} takes an encryption key of {} bytes{}, not of {given}",
        .algorithm.encryption_key_length(), salt_note(*.algorithm))]
    EncryptionLength {
        /// Whose key it should be.
        algorithm: Algorithm,
        /// Length given, in bytes.
        given: usize,
    },
    /// The key has none of the lengths that the algorithm takes.
    #[error("{name} takes a key of {lengths}, not of {given}")]
    Length {
        /// Linux's name of the algorithm.
        name: &'static str,
        /// The lengths that it takes.
        lengths: KeyLengths,
        /// Length given, in bytes.
        given: usize,
    },
    /// The integrity key is empty or longer than the hash's block.
    #[error("{integrity} takes a key of 1 to 64 bytes (usually {}), not of {given}", .integrity.usual_key_length())]
    IntegrityLength {
        /// Whose key it should be.
        integrity: Integrity,
        /// Length given, in bytes.
        given: usize,
    },
    /// An integrity key was given to an algorithm that has no use for one.
    #[error("{algorithm} takes no integrity key")]
    IntegrityUnused {
        /// Whose keys they should be.
        algorithm: Algorithm,
    },
}

impl KeyMaterial {
    /// The keys of `algorithm`. What it has no use for is given empty.
    ///
    /// A key with salt has it at its end. The key of a keyed hash may have any length from 1 to 64
    /// bytes, as with Linux; [`Integrity::usual_key_length`] is what its RFC asks for.
    ///
    /// # Errors
    /// A key has a length that the algorithm does not take.
    pub fn new(
        algorithm: Algorithm,
        encryption: &[u8],
        integrity: &[u8],
    ) -> Result<Self, KeyError> {
        if encryption.len() != algorithm.encryption_key_length() {
            return Err(KeyError::EncryptionLength { algorithm, given: encryption.len() });
        }
        match algorithm.integrity() {
            Some(hash) if integrity.is_empty() || integrity.len() > INTEGRITY_MAX => {
                Err(KeyError::IntegrityLength { integrity: hash, given: integrity.len() })
            }
            None if !integrity.is_empty() => Err(KeyError::IntegrityUnused { algorithm }),
            _ => Ok(Self {
                algorithm,
                encryption: Key::new(encryption),
                integrity: Key::new(integrity),
            }),
        }
    }

    /// The keys of an algorithm that encrypts and authenticates: of its variants, the one that
    /// takes a key of this length.
    ///
    /// # Errors
    /// None of them does.
    pub fn aead(known: &LinuxName<Algorithm>, key: &[u8]) -> Result<Self, KeyError> {
        match known.variants.iter().find(|variant| variant.encryption_key_length() == key.len()) {
            Some(variant) => Self::new(*variant, key, &[]),
            None => {
                let lengths = known.variants.iter().map(|v| v.encryption_key_length());
                let salt = known.variants.first().map_or(0, |variant| variant.salt_length());
                Err(KeyError::length(known.name, KeyLengths::new(lengths, salt), key))
            }
        }
    }

    /// The keys of a cipher and a keyed hash: of the cipher's variants, the one that takes a key of
    /// this length. Without a hash, the cipher must be one that encrypts nothing.
    ///
    /// # Errors
    /// No variant takes a key of this length, or the hash takes no such key.
    pub fn separate(
        known: &LinuxName<Cipher>,
        key: &[u8],
        integrity: Option<(Integrity, &[u8])>,
    ) -> Result<Self, KeyError> {
        let Some(cipher) = known.variants.iter().find(|cipher| cipher.key_length() == key.len())
        else {
            let lengths = KeyLengths::new(known.variants.iter().map(|c| c.key_length()), 0);
            return Err(KeyError::length(known.name, lengths, key));
        };
        match integrity {
            Some((hash, hash_key)) => Self::new(Algorithm::separate(*cipher, hash), key, hash_key),
            None => Self::new(Algorithm::NullWithoutIntegrity, key, &[]),
        }
    }

    /// Whose keys they are.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// What these keys are recognized by where they are not to be kept: HMAC-SHA-256 under `secret`
    /// over algorithm, keys and `context`, cut to 128 bits. Who does not know `secret` learns
    /// nothing from it, not even by guessing.
    pub fn digest(&self, secret: &[u8], context: &[u8]) -> [u8; DIGEST_LENGTH] {
        use aws_lc_rs::hmac;
        let mut hash = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, secret));
        let algorithm = self.algorithm.to_string();
        // Each part with its length, so that no two lists of parts are the same bytes.
        for part in [algorithm.as_bytes(), self.encryption(), self.integrity(), context] {
            hash.update(&(part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        let mut digest = [0; DIGEST_LENGTH];
        digest.copy_from_slice(&hash.sign().as_ref()[..DIGEST_LENGTH]);
        digest
    }

    pub(crate) fn encryption(&self) -> &[u8] {
        self.encryption.bytes()
    }

    pub(crate) fn integrity(&self) -> &[u8] {
        self.integrity.bytes()
    }
}

/// Says which algorithm, and nothing of the keys.
impl fmt::Debug for KeyMaterial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyMaterial").field("algorithm", &self.algorithm).finish_non_exhaustive()
    }
}

/// In time that does not depend on where the keys differ.
impl PartialEq for KeyMaterial {
    fn eq(&self, other: &Self) -> bool {
        use subtle::ConstantTimeEq;
        self.algorithm == other.algorithm
            && bool::from(
                self.encryption().ct_eq(other.encryption())
                    & self.integrity().ct_eq(other.integrity()),
            )
    }
}

impl Eq for KeyMaterial {}

/// Up to `MAX` bytes, kept in place so that no stale copy stays behind on the heap.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
struct Key<const MAX: usize> {
    bytes: [u8; MAX],
    length: usize,
}

impl<const MAX: usize> Key<MAX> {
    /// The caller has checked the length.
    fn new(key: &[u8]) -> Self {
        let mut bytes = [0; MAX];
        bytes[..key.len()].copy_from_slice(key);
        Self { bytes, length: key.len() }
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// The lengths of key that the variants of an algorithm take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyLengths {
    /// In bytes, salt included; zero behind the last.
    lengths: [usize; Self::MAX],
    count: usize,
    salt: usize,
}

impl KeyLengths {
    /// The most variants of one algorithm.
    const MAX: usize = 4;

    fn new(all: impl Iterator<Item = usize>, salt: usize) -> Self {
        let (mut lengths, mut count) = ([0; Self::MAX], 0);
        for (place, length) in lengths.iter_mut().zip(all) {
            *place = length;
            count += 1;
        }
        Self { lengths, count, salt }
    }
}

/// `16, 24 or 32 bytes`, with a word on the salt.
impl fmt::Display for KeyLengths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, length) in self.lengths[..self.count].iter().enumerate() {
            let before = match at {
                0 => "",
                _ if at + 1 == self.count => " or ",
                _ => ", ",
            };
            write!(f, "{before}{length}")?;
        }
        f.write_str(" bytes")?;
        if self.salt > 0 {
            write!(f, " with the {} bytes of salt at its end", self.salt)
        } else {
            Ok(())
        }
    }
}

impl KeyError {
    fn length(name: &'static str, lengths: KeyLengths, key: &[u8]) -> Self {
        Self::Length { name, lengths, given: key.len() }
    }
}

fn salt_note(algorithm: Algorithm) -> String {
    match algorithm.salt_length() {
        0 => String::new(),
        salt => format!(" (the last {salt} are the salt)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_algorithm_takes_its_own_lengths_only() {
        for algorithm in Algorithm::ALL {
            let right = algorithm.encryption_key_length();
            let hash: &[u8] =
                if matches!(algorithm, Algorithm::Separate { .. }) { &[7; 20] } else { &[] };
            for length in 0..80 {
                let keys = KeyMaterial::new(algorithm, &vec![1; length], hash);
                assert_eq!(keys.is_ok(), length == right, "{algorithm}, {length} bytes");
            }
        }
    }

    #[test]
    fn errors_say_what_would_be_right() {
        let short = KeyMaterial::new(Algorithm::AesGcm128, &[0; 16], &[]).unwrap_err();
        assert_eq!(
            short.to_string(),
            "aes-gcm-128 takes an encryption key of 20 bytes (the last 4 are the salt), not of 16"
        );
        let long = KeyMaterial::cbc(&[0; 16], Integrity::HmacSha256_128, &[0; 65]).unwrap_err();
        assert_eq!(
            long.to_string(),
            "hmac-sha256-128 takes a key of 1 to 64 bytes (usually 32), not of 65"
        );
        let odd = KeyMaterial::cbc(&[0; 17], Integrity::HmacSha1_96, &[0; 20]).unwrap_err();
        assert_eq!(odd.to_string(), "cbc(aes) takes a key of 16, 24 or 32 bytes, not of 17");
        let gcm = KeyMaterial::gcm(&[0; 16]).unwrap_err();
        assert_eq!(
            gcm.to_string(),
            "rfc4106(gcm(aes)) takes a key of 20 or 36 bytes with the 4 bytes of salt at its end, \
            not of 16"
        );
        let idle = KeyMaterial::new(Algorithm::NullWithoutIntegrity, &[], &[0; 20]).unwrap_err();
        assert_eq!(idle.to_string(), "null without integrity takes no integrity key");
    }

    #[test]
    fn debug_shows_no_key() {
        let keys = KeyMaterial::cbc(&[0xab; 16], Integrity::HmacSha1_96, &[0xcd; 20]).unwrap();
        let shown = format!("{keys:?}");
        assert!(
            !shown.contains("171") && !shown.contains("205") && !shown.contains("ab, "),
            "{shown}"
        );
        assert!(shown.contains("AesCbc128"));
    }

    #[test]
    fn digests_tell_keys_algorithms_contexts_and_secrets_apart() {
        let cbc = |key: &[u8], hash: &[u8]| {
            KeyMaterial::cbc(key, Integrity::HmacSha256_128, hash).unwrap()
        };
        let keys = cbc(&[1; 16], &[2; 32]);
        let own = keys.digest(b"secret", b"context");
        assert_eq!(own, keys.clone().digest(b"secret", b"context"));
        let others = [
            cbc(&[1; 16], &[2; 31]).digest(b"secret", b"context"),
            cbc(&[3; 16], &[2; 32]).digest(b"secret", b"context"),
            cbc(&[1; 24], &[2; 32]).digest(b"secret", b"context"),
            KeyMaterial::cbc(&[1; 16], Integrity::HmacSha1_96, &[2; 32])
                .unwrap()
                .digest(b"secret", b"context"),
            keys.digest(b"other", b"context"),
            keys.digest(b"secret", b""),
        ];
        assert!(others.iter().all(|other| *other != own));
    }

    #[test]
    fn keys_equal_only_themselves() {
        let keys = |last| {
            let mut key = [1; 20];
            key[19] = last;
            KeyMaterial::gcm(&key).unwrap()
        };
        assert_eq!(keys(1), keys(1));
        assert_ne!(keys(1), keys(2));
    }
}
