//! The algorithms an SA may use, and the lengths that follow from each.

use core::fmt;

/// Length of the ESP header: SPI and sequence number (RFC 4303 section 2).
pub const HEADER_LENGTH: usize = 8;

/// Length of the trailer behind the padding: pad length and next header (RFC 4303 section 2).
pub const TRAILER_LENGTH: usize = 2;

/// How an SA protects its packets.
///
/// What cannot be said is not supported: there is no encryption without integrity (RFC 4303 section
/// 1 allows it, and RFC 8221 section 4 forbids it), and sending in clear without integrity has a
/// name of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// AES-GCM with a 128-bit key and a 16-byte ICV (RFC 4106). Linux: `rfc4106(gcm(aes))`, 160 key
    /// bits with the salt.
    AesGcm128,
    /// AES-GCM with a 256-bit key and a 16-byte ICV (RFC 4106). Linux: `rfc4106(gcm(aes))`, 288 key
    /// bits with the salt.
    AesGcm256,
    /// A cipher, and a keyed hash over what it made.
    Separate {
        /// What hides the payload.
        cipher: Cipher,
        /// What makes the ICV.
        integrity: Integrity,
    },
    /// ESP framing and no protection whatsoever: nothing hidden, nothing authenticated (Linux
    /// `ecb(cipher_null)` with `digest_null`). Good for measuring what framing costs, and for
    /// nothing else.
    NullWithoutIntegrity,
}

/// What hides the payload where integrity is a separate algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cipher {
    /// AES-CBC with a 128-bit key (RFC 3602). Linux: `cbc(aes)`.
    AesCbc128,
    /// AES-CBC with a 192-bit key (RFC 3602). Linux: `cbc(aes)`.
    AesCbc192,
    /// AES-CBC with a 256-bit key (RFC 3602). Linux: `cbc(aes)`.
    AesCbc256,
    /// Nothing is hidden (RFC 2410). Linux: `ecb(cipher_null)`.
    Null,
}

/// What makes the ICV where integrity is a separate algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Integrity {
    /// HMAC-SHA-1 cut to 96 bits (RFC 2404). Linux: `hmac(sha1)`.
    HmacSha1_96,
    /// HMAC-SHA-256 cut to 128 bits (RFC 4868). Linux: `hmac(sha256)` with truncation to 128 bits,
    /// which must be asked for there: Linux's own default of 96 bits is not RFC 4868's.
    HmacSha256_128,
}

impl Algorithm {
    /// Every algorithm.
    pub const ALL: [Self; 11] = {
        use Cipher::{AesCbc128, AesCbc192, AesCbc256, Null};
        use Integrity::{HmacSha1_96, HmacSha256_128};
        [
            Self::AesGcm128,
            Self::AesGcm256,
            Self::separate(AesCbc128, HmacSha1_96),
            Self::separate(AesCbc192, HmacSha1_96),
            Self::separate(AesCbc256, HmacSha1_96),
            Self::separate(AesCbc128, HmacSha256_128),
            Self::separate(AesCbc192, HmacSha256_128),
            Self::separate(AesCbc256, HmacSha256_128),
            Self::separate(Null, HmacSha1_96),
            Self::separate(Null, HmacSha256_128),
            Self::NullWithoutIntegrity,
        ]
    };

    /// A cipher with a keyed hash.
    pub const fn separate(cipher: Cipher, integrity: Integrity) -> Self {
        Self::Separate { cipher, integrity }
    }

    /// Length of the encryption key in bytes; for AES-GCM with the 4 bytes of salt at its end (RFC
    /// 4106 section 8.1).
    pub const fn encryption_key_length(self) -> usize {
        match self {
            Self::AesGcm128 => 16 + 4,
            Self::AesGcm256 => 32 + 4,
            Self::Separate { cipher, .. } => cipher.key_length(),
            Self::NullWithoutIntegrity => 0,
        }
    }

    /// Length of the IV in each packet, in bytes.
    pub const fn iv_length(self) -> usize {
        match self {
            Self::AesGcm128 | Self::AesGcm256 => 8,
            Self::Separate { cipher: Cipher::Null, .. } | Self::NullWithoutIntegrity => 0,
            Self::Separate { .. } => 16,
        }
    }

    /// Length of the ICV in each packet, in bytes.
    pub const fn icv_length(self) -> usize {
        match self {
            Self::AesGcm128 | Self::AesGcm256 => 16,
            Self::Separate { integrity, .. } => integrity.icv_length(),
            Self::NullWithoutIntegrity => 0,
        }
    }

    /// What payload, padding and trailer together must be a multiple of, in bytes: the cipher's
    /// block, and 4 at least (RFC 4303 section 2.4).
    pub const fn alignment(self) -> usize {
        match self {
            Self::Separate {
                cipher: Cipher::AesCbc128 | Cipher::AesCbc192 | Cipher::AesCbc256,
                ..
            } => 16,
            _ => 4,
        }
    }

    /// What a sealed packet has in front of its payload, in bytes: ESP header and IV.
    pub const fn overhead_front(self) -> usize {
        HEADER_LENGTH + self.iv_length()
    }

    /// The most that a sealed packet has behind its payload, in bytes: padding, trailer and ICV.
    pub const fn overhead_back_max(self) -> usize {
        self.alignment() - 1 + TRAILER_LENGTH + self.icv_length()
    }

    /// Length of the ESP packet, header to ICV, that holds `payload` bytes.
    pub const fn sealed_length(self, payload: usize) -> usize {
        self.overhead_front()
            + (payload + TRAILER_LENGTH).next_multiple_of(self.alignment())
            + self.icv_length()
    }

    /// The longest payload whose ESP packet fits in `room` bytes (a path MTU less the outer IP
    /// header). Zero where even an empty one does not.
    ///
    /// Exact: one byte more would no longer fit.
    pub const fn max_payload(self, room: usize) -> usize {
        let between = room.saturating_sub(self.overhead_front() + self.icv_length());
        (between - between % self.alignment()).saturating_sub(TRAILER_LENGTH)
    }
}

impl Cipher {
    /// Length of the key in bytes.
    pub const fn key_length(self) -> usize {
        match self {
            Self::AesCbc128 => 16,
            Self::AesCbc192 => 24,
            Self::AesCbc256 => 32,
            Self::Null => 0,
        }
    }
}

impl Integrity {
    /// Length of the truncated ICV in bytes.
    pub const fn icv_length(self) -> usize {
        match self {
            Self::HmacSha1_96 => 12,
            Self::HmacSha256_128 => 16,
        }
    }

    /// Length in bytes of the key that the RFC asks for and that IKE makes (RFC 2404 section 3, RFC
    /// 4868 section 2.1.1).
    pub const fn usual_key_length(self) -> usize {
        match self {
            Self::HmacSha1_96 => 20,
            Self::HmacSha256_128 => 32,
        }
    }
}

/// As in `aes-gcm-128` and `aes-cbc-256 hmac-sha1-96`.
impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AesGcm128 => f.write_str("aes-gcm-128"),
            Self::AesGcm256 => f.write_str("aes-gcm-256"),
            Self::Separate { cipher, integrity } => write!(f, "{cipher} {integrity}"),
            Self::NullWithoutIntegrity => f.write_str("null without integrity"),
        }
    }
}

impl fmt::Display for Cipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AesCbc128 => "aes-cbc-128",
            Self::AesCbc192 => "aes-cbc-192",
            Self::AesCbc256 => "aes-cbc-256",
            Self::Null => "null",
        })
    }
}

impl fmt::Display for Integrity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::HmacSha1_96 => "hmac-sha1-96",
            Self::HmacSha256_128 => "hmac-sha256-128",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn max_payload_is_the_inverse_of_sealed_length() {
        for algorithm in Algorithm::ALL {
            for room in 0..2100 {
                let payload = algorithm.max_payload(room);
                assert!(
                    payload == 0 || algorithm.sealed_length(payload) <= room,
                    "{algorithm}, {room}"
                );
                assert!(algorithm.sealed_length(payload + 1) > room, "{algorithm}, {room}");
            }
        }
    }

    #[test]
    fn a_tunnel_in_ethernet_carries_what_linux_says_it_does() {
        // 1500 less 20 of outer IPv4. Linux reports these MTUs for the same tunnels
        // (xfrm_state_mtu).
        let cbc_sha1 = Algorithm::separate(Cipher::AesCbc128, Integrity::HmacSha1_96);
        assert_eq!(cbc_sha1.max_payload(1480), 1438);
        assert_eq!(Algorithm::AesGcm128.max_payload(1480), 1446);
    }
}
