//! Keys: checked when they come in, wiped when they go, shown to nobody.

use core::fmt;

use thiserror::Error;
use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::algorithm::{Algorithm, Cipher, Integrity};

/// The longest key that any cipher takes: AES-256 with the salt of RFC 4106.
const ENCRYPTION_MAX: usize = 36;

/// The longest HMAC key taken: one block of SHA-1 and SHA-256. A longer one would only be hashed
/// down (RFC 2104 section 2).
const INTEGRITY_MAX: usize = 64;

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
    /// The key is for AES-CBC and has none of AES's lengths.
    #[error("aes-cbc takes a key of 16, 24 or 32 bytes, not of {given}")]
    CbcLength {
        /// Length given, in bytes.
        given: usize,
    },
    /// The key is for AES-GCM and has none of its lengths.
    #[error(
        "aes-gcm takes a key of 20 bytes (AES-128) or 36 bytes (AES-256), the last 4 of them the \
        salt, not of {given}"
    )]
    GcmLength {
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
    /// The AES-GCM key has its 4 bytes of salt at the end (RFC 4106 section 8.1). An HMAC key may
    /// have any length from 1 to 64 bytes, as with Linux; RFC 2404 asks for 20 and RFC 4868 for 32.
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
        match algorithm {
            Algorithm::Separate { integrity: hash, .. }
                if integrity.is_empty() || integrity.len() > INTEGRITY_MAX =>
            {
                Err(KeyError::IntegrityLength { integrity: hash, given: integrity.len() })
            }
            Algorithm::AesGcm128 | Algorithm::AesGcm256 | Algorithm::NullWithoutIntegrity
                if !integrity.is_empty() =>
            {
                Err(KeyError::IntegrityUnused { algorithm })
            }
            _ => Ok(Self {
                algorithm,
                encryption: Key::new(encryption),
                integrity: Key::new(integrity),
            }),
        }
    }

    /// AES-GCM with a 16-byte ICV, of the strength that the key's length says: 20 bytes or 36, salt
    /// included (Linux `aead 'rfc4106(gcm(aes))' KEY 128`).
    ///
    /// # Errors
    /// The key has another length.
    pub fn gcm(key_and_salt: &[u8]) -> Result<Self, KeyError> {
        match key_and_salt.len() {
            20 => Self::new(Algorithm::AesGcm128, key_and_salt, &[]),
            36 => Self::new(Algorithm::AesGcm256, key_and_salt, &[]),
            given => Err(KeyError::GcmLength { given }),
        }
    }

    /// AES-CBC, of the strength that the key's length says: 16, 24 or 32 bytes (Linux `enc
    /// 'cbc(aes)' KEY auth ...`).
    ///
    /// # Errors
    /// A key has another length.
    pub fn cbc(key: &[u8], integrity: Integrity, integrity_key: &[u8]) -> Result<Self, KeyError> {
        let cipher = match key.len() {
            16 => Cipher::AesCbc128,
            24 => Cipher::AesCbc192,
            32 => Cipher::AesCbc256,
            given => return Err(KeyError::CbcLength { given }),
        };
        Self::new(Algorithm::separate(cipher, integrity), key, integrity_key)
    }

    /// Whose keys they are.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
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

fn salt_note(algorithm: Algorithm) -> &'static str {
    match algorithm {
        Algorithm::AesGcm128 | Algorithm::AesGcm256 => " (the last 4 are the salt)",
        _ => "",
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
        assert_eq!(odd.to_string(), "aes-cbc takes a key of 16, 24 or 32 bytes, not of 17");
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
