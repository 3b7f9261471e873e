//! The algorithms that an SA may use: the one table of their names, lengths and formats.
//!
//! Whatever else depends on an algorithm is derived from what stands here: which keys fit, how
//! packets are framed, what commands and configuration accept, and what errors suggest. The engines
//! alone know how one is computed. `docs/adding.md` lists what a new algorithm needs.

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
    /// AES-GCM with a 128-bit key and a 16-byte ICV (RFC 4106).
    AesGcm128,
    /// AES-GCM with a 256-bit key and a 16-byte ICV (RFC 4106).
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
    /// AES-CBC with a 128-bit key (RFC 3602).
    AesCbc128,
    /// AES-CBC with a 192-bit key (RFC 3602).
    AesCbc192,
    /// AES-CBC with a 256-bit key (RFC 3602).
    AesCbc256,
    /// Nothing is hidden (RFC 2410).
    Null,
}

/// What makes the ICV where integrity is a separate algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Integrity {
    /// HMAC-SHA-1 cut to 96 bits (RFC 2404).
    HmacSha1_96,
    /// HMAC-SHA-256 cut to 128 bits (RFC 4868).
    HmacSha256_128,
}

/// What is fixed about an algorithm. Lengths are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Format {
    name: &'static str,
    /// Length of the key, salt included.
    key: usize,
    /// How much of the key is salt; it is the last part.
    salt: usize,
    iv: Iv,
    /// What payload, padding and trailer together must be a multiple of: the cipher's block, and 4
    /// at least (RFC 4303 section 2.4).
    block: usize,
    icv: usize,
}

/// The IV in each packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Iv {
    /// None.
    None,
    /// 8 bytes that never repeat under one key.
    Counter,
    /// 16 bytes that nobody can predict.
    Random,
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

    #[inline]
    const fn format(self) -> Format {
        // RFC 4106 section 3 (IV), 4 (salt), 6 (ICV), 8.1 (salt behind the key).
        const GCM: Format =
            Format { name: "", key: 0, salt: 4, iv: Iv::Counter, block: 4, icv: 16 };
        match self {
            Self::AesGcm128 => Format { name: "aes-gcm-128", key: 16 + 4, ..GCM },
            Self::AesGcm256 => Format { name: "aes-gcm-256", key: 32 + 4, ..GCM },
            Self::Separate { cipher, integrity } => {
                Format { icv: integrity.icv_length(), ..cipher.format() }
            }
            Self::NullWithoutIntegrity => {
                Format { name: "null without integrity", ..Cipher::Null.format() }
            }
        }
    }
}

impl Cipher {
    #[inline]
    const fn format(self) -> Format {
        // RFC 3602 section 3.
        const CBC: Format = Format { name: "", key: 0, salt: 0, iv: Iv::Random, block: 16, icv: 0 };
        match self {
            Self::AesCbc128 => Format { name: "aes-cbc-128", key: 16, ..CBC },
            Self::AesCbc192 => Format { name: "aes-cbc-192", key: 24, ..CBC },
            Self::AesCbc256 => Format { name: "aes-cbc-256", key: 32, ..CBC },
            Self::Null => Format { name: "null", iv: Iv::None, block: 4, ..CBC },
        }
    }
}

impl Integrity {
    /// Name, length of the ICV in bytes, length of the key that the RFC asks for and that IKE makes
    /// in bytes, and the RFC.
    #[inline]
    const fn format(self) -> (&'static str, usize, usize, &'static str) {
        match self {
            Self::HmacSha1_96 => ("hmac-sha1-96", 12, 20, "RFC 2404"),
            Self::HmacSha256_128 => ("hmac-sha256-128", 16, 32, "RFC 4868"),
        }
    }
}

/// What Linux, and so users, call an algorithm (net/xfrm/xfrm_algo.c), and what we have of it.
#[derive(Clone, Copy, Debug)]
pub struct LinuxName<T: 'static> {
    /// Linux's name.
    pub name: &'static str,
    /// A shorter name that Linux finds it by too.
    pub short: Option<&'static str>,
    /// What it may stand for, by the length of the key; nothing if it is not supported yet.
    pub variants: &'static [T],
}

const fn linux<T>(name: &'static str, short: &'static str, variants: &'static [T]) -> LinuxName<T> {
    LinuxName { name, short: if short.is_empty() { None } else { Some(short) }, variants }
}

pub(crate) const AES_GCM: LinuxName<Algorithm> =
    linux("rfc4106(gcm(aes))", "", &[Algorithm::AesGcm128, Algorithm::AesGcm256]);

pub(crate) const AES_CBC: LinuxName<Cipher> =
    linux("cbc(aes)", "aes", &[Cipher::AesCbc128, Cipher::AesCbc192, Cipher::AesCbc256]);

/// Encryption with integrity, iproute2's `aead`.
pub const AEAD_NAMES: &[LinuxName<Algorithm>] = &[
    AES_GCM,
    linux("rfc4309(ccm(aes))", "", &[]),
    linux("rfc4543(gcm(aes))", "", &[]),
    linux("rfc7539esp(chacha20,poly1305)", "", &[]),
];

/// Encryption, iproute2's `enc`.
pub const ENCRYPTION_NAMES: &[LinuxName<Cipher>] = &[
    AES_CBC,
    linux("ecb(cipher_null)", "cipher_null", &[Cipher::Null]),
    linux("cbc(des)", "des", &[]),
    linux("cbc(des3_ede)", "des3_ede", &[]),
    linux("cbc(cast5)", "cast5", &[]),
    linux("cbc(blowfish)", "blowfish", &[]),
    linux("cbc(serpent)", "serpent", &[]),
    linux("cbc(camellia)", "camellia", &[]),
    linux("cbc(twofish)", "twofish", &[]),
    linux("rfc3686(ctr(aes))", "", &[]),
    linux("cbc(sm4)", "sm4", &[]),
];

/// Integrity, iproute2's `auth` and `auth-trunc`. `None` is no integrity.
pub const INTEGRITY_NAMES: &[LinuxName<Option<Integrity>>] = &[
    linux("hmac(sha1)", "sha1", &[Some(Integrity::HmacSha1_96)]),
    linux("hmac(sha256)", "sha256", &[Some(Integrity::HmacSha256_128)]),
    linux("digest_null", "", &[None]),
    linux("hmac(md5)", "md5", &[]),
    linux("hmac(sha384)", "", &[]),
    linux("hmac(sha512)", "", &[]),
    linux("hmac(rmd160)", "rmd160", &[]),
    linux("xcbc(aes)", "", &[]),
    linux("cmac(aes)", "", &[]),
    linux("hmac(sm3)", "sm3", &[]),
];

/// Length in bits that Linux cuts every ICV to that we know of, unless told otherwise. For some it
/// is not what their RFC says.
pub const LINUX_TRUNCATION: u32 = 96;

impl<T> LinuxName<T> {
    /// The algorithm that `name` means to Linux.
    pub fn find(names: &'static [Self], name: &str) -> Option<&'static Self> {
        names.iter().find(|known| known.name == name || known.short == Some(name))
    }

    /// Those that are supported.
    pub fn supported(names: &'static [Self]) -> impl Iterator<Item = &'static Self> {
        names.iter().filter(|known| !known.variants.is_empty())
    }
}

impl Algorithm {
    /// A cipher with a keyed hash.
    pub const fn separate(cipher: Cipher, integrity: Integrity) -> Self {
        Self::Separate { cipher, integrity }
    }

    /// Length of the encryption key in bytes, with the salt at its end.
    pub const fn encryption_key_length(self) -> usize {
        self.format().key
    }

    /// How many bytes at the end of the encryption key are salt.
    pub const fn salt_length(self) -> usize {
        self.format().salt
    }

    /// The keyed hash, if it is an algorithm of its own.
    pub const fn integrity(self) -> Option<Integrity> {
        match self {
            Self::Separate { integrity, .. } => Some(integrity),
            _ => None,
        }
    }

    /// Whether an IV that comes again under one key gives the key stream away (RFC 4106 section 2),
    /// so that a key may never start its sequence numbers anew.
    pub const fn is_counter_mode(self) -> bool {
        matches!(self.iv(), Iv::Counter)
    }

    /// The IV in each packet.
    #[inline]
    pub(crate) const fn iv(self) -> Iv {
        self.format().iv
    }

    /// Length of the IV in each packet, in bytes.
    #[inline]
    pub const fn iv_length(self) -> usize {
        self.iv().length()
    }

    /// Length of the ICV in each packet, in bytes.
    #[inline]
    pub const fn icv_length(self) -> usize {
        self.format().icv
    }

    /// What payload, padding and trailer together must be a multiple of, in bytes: the cipher's
    /// block, and 4 at least (RFC 4303 section 2.4).
    #[inline]
    pub const fn alignment(self) -> usize {
        self.format().block
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

impl Iv {
    /// Its length in bytes.
    #[inline]
    pub(crate) const fn length(self) -> usize {
        match self {
            Self::None => 0,
            Self::Counter => 8,
            Self::Random => 16,
        }
    }
}

impl Cipher {
    /// Length of the key in bytes.
    pub const fn key_length(self) -> usize {
        self.format().key
    }
}

impl Integrity {
    /// Length of the truncated ICV in bytes.
    #[inline]
    pub const fn icv_length(self) -> usize {
        self.format().1
    }

    /// Length in bytes of the key that the RFC asks for and that IKE makes.
    pub const fn usual_key_length(self) -> usize {
        self.format().2
    }

    /// The RFC that says how it is used in ESP.
    pub const fn rfc(self) -> &'static str {
        self.format().3
    }
}

/// As in `aes-gcm-128` and `aes-cbc-256 hmac-sha1-96`.
impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.format().name)?;
        self.integrity().map_or(Ok(()), |integrity| write!(f, " {integrity}"))
    }
}

impl fmt::Display for Cipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.format().name)
    }
}

impl fmt::Display for Integrity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.format().0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_algorithm_has_a_name_that_users_can_say() {
        for algorithm in Algorithm::ALL {
            let said = match algorithm {
                Algorithm::Separate { cipher, integrity } => {
                    ENCRYPTION_NAMES.iter().any(|known| known.variants.contains(&cipher))
                        && INTEGRITY_NAMES
                            .iter()
                            .any(|known| known.variants.contains(&Some(integrity)))
                }
                Algorithm::NullWithoutIntegrity => true,
                aead => AEAD_NAMES.iter().any(|known| known.variants.contains(&aead)),
            };
            assert!(said, "{algorithm}");
        }
    }

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
