//! Linux's names of algorithms, long and short, and what of them there is.

use api::{Authentication, Encryption, StateSpec};
use esp::{Algorithm, Cipher, Integrity, KeyMaterial};

use super::{Fault, shown};

/// Encryption algorithms of Linux (net/xfrm/xfrm_algo.c): the name, and the short one that it is
/// found by too.
const ENCRYPTION: &[(&str, &str)] = &[
    ("ecb(cipher_null)", "cipher_null"),
    ("cbc(aes)", "aes"),
    ("cbc(des)", "des"),
    ("cbc(des3_ede)", "des3_ede"),
    ("cbc(cast5)", "cast5"),
    ("cbc(blowfish)", "blowfish"),
    ("cbc(serpent)", "serpent"),
    ("cbc(camellia)", "camellia"),
    ("cbc(twofish)", "twofish"),
    ("rfc3686(ctr(aes))", ""),
    ("cbc(sm4)", "sm4"),
];

/// Integrity algorithms of Linux.
const INTEGRITY: &[(&str, &str)] = &[
    ("digest_null", ""),
    ("hmac(sha1)", "sha1"),
    ("hmac(sha256)", "sha256"),
    ("hmac(md5)", "md5"),
    ("hmac(sha384)", ""),
    ("hmac(sha512)", ""),
    ("hmac(rmd160)", "rmd160"),
    ("xcbc(aes)", ""),
    ("cmac(aes)", ""),
    ("hmac(sm3)", "sm3"),
];

/// AEAD algorithms of Linux.
const AEAD: &[&str] = &[
    "rfc4106(gcm(aes))",
    "rfc4309(ccm(aes))",
    "rfc4543(gcm(aes))",
    "rfc7539esp(chacha20,poly1305)",
];

const AEAD_HINT: &str = "rfc4106(gcm(aes))";
const ENCRYPTION_HINT: &str = "cbc(aes) or ecb(cipher_null)";
const INTEGRITY_HINT: &str = "hmac(sha1), hmac(sha256), or digest_null";

/// The keys of an SA, of the algorithms that its names mean.
pub(super) fn keys(spec: &StateSpec) -> Result<KeyMaterial, Fault> {
    match (&spec.aead, &spec.encryption, &spec.authentication) {
        (Some(aead), None, None) => {
            if !AEAD.contains(&aead.name.as_str()) {
                return Err(unknown("aead", &aead.name, AEAD_HINT));
            }
            if aead.name != AEAD_HINT {
                return Err(unsupported("aead", &aead.name, AEAD_HINT));
            }
            if aead.icv_bits != 128 {
                return Err(Fault::unsupported(
                    "aead",
                    format!("{} with an ICV of {} bits is not supported", aead.name, aead.icv_bits),
                )
                .hint("128 bits"));
            }
            KeyMaterial::gcm(aead.key.bytes())
                .map_err(|why| Fault::invalid("aead", why.to_string()))
        }
        (Some(_), _, _) => Err(Fault::invalid(
            "aead",
            "aead encrypts and authenticates, so neither can be given besides",
        )
        .hint("either aead, or encryption with authentication")),
        (None, Some(encryption), authentication) => separate(encryption, authentication.as_ref()),
        (None, None, Some(_)) => Err(Fault::invalid(
            "encryption",
            "ESP needs an encryption algorithm, and there is authentication only",
        )
        .hint("ecb(cipher_null) with an empty key encrypts nothing")),
        (None, None, None) => {
            Err(Fault::invalid("encryption", "an SA needs its algorithms and keys")
                .hint("either aead, or encryption with authentication"))
        }
    }
}

/// Linux's full name of an encryption algorithm.
pub(crate) fn encryption_name(name: &str) -> Option<&'static str> {
    resolve(ENCRYPTION, name)
}

/// Linux's full name of an integrity algorithm.
pub(crate) fn integrity_name(name: &str) -> Option<&'static str> {
    resolve(INTEGRITY, name)
}

/// Length in bits that Linux cuts the integrity check value to unless told otherwise.
pub(crate) fn default_truncation(name: &str) -> Option<u32> {
    match integrity_name(name)? {
        "digest_null" => Some(0),
        "hmac(sha1)" | "hmac(sha256)" => Some(96),
        _ => None,
    }
}

fn separate(
    encryption: &Encryption,
    authentication: Option<&Authentication>,
) -> Result<KeyMaterial, Fault> {
    let cipher = encryption_name(&encryption.name).ok_or_else(|| {
        match AEAD.contains(&encryption.name.as_str()) {
            true => Fault::invalid(
                "encryption",
                format!("{} encrypts and authenticates: it is an aead algorithm", encryption.name),
            )
            .hint("give it as aead, with its ICV length in bits"),
            false => unknown("encryption", &encryption.name, ENCRYPTION_HINT),
        }
    })?;
    if !matches!(cipher, "cbc(aes)" | "ecb(cipher_null)") {
        return Err(unsupported("encryption", cipher, ENCRYPTION_HINT));
    }
    let Some((integrity, key)) = authentication.map(integrity).transpose()?.flatten() else {
        if cipher == "ecb(cipher_null)" {
            return KeyMaterial::new(Algorithm::NullWithoutIntegrity, encryption.key.bytes(), &[])
                .map_err(|why| Fault::invalid("encryption", why.to_string()));
        }
        return Err(Fault::unsupported(
            "authentication",
            format!("{cipher} without authentication is refused (RFC 8221 section 4)"),
        )
        .hint("hmac(sha1), or hmac(sha256) cut to 128 bits"));
    };
    let keys = match cipher {
        "cbc(aes)" => KeyMaterial::cbc(encryption.key.bytes(), integrity, key),
        _ => KeyMaterial::new(
            Algorithm::separate(Cipher::Null, integrity),
            encryption.key.bytes(),
            key,
        ),
    };
    keys.map_err(|why| {
        let part = if matches!(why, esp::KeyError::IntegrityLength { .. }) {
            "authentication"
        } else {
            "encryption"
        };
        Fault::invalid(part, why.to_string())
    })
}

/// The hash and its key; `None` for no integrity at all.
fn integrity(spec: &Authentication) -> Result<Option<(Integrity, &[u8])>, Fault> {
    let name = integrity_name(&spec.name)
        .ok_or_else(|| unknown("authentication", &spec.name, INTEGRITY_HINT))?;
    let bits = spec.truncate_bits.or_else(|| default_truncation(name));
    match (name, bits) {
        ("digest_null", _) if !spec.key.bytes().is_empty() => {
            Err(Fault::invalid("authentication", "digest_null takes no key").hint("an empty key"))
        }
        ("digest_null", _) => Ok(None),
        ("hmac(sha1)", Some(96)) => Ok(Some((Integrity::HmacSha1_96, spec.key.bytes()))),
        ("hmac(sha256)", Some(128)) => Ok(Some((Integrity::HmacSha256_128, spec.key.bytes()))),
        ("hmac(sha256)", Some(96)) if spec.truncate_bits.is_none() => Err(Fault::unsupported(
            "authentication",
            "hmac(sha256) without a length means 96 bits, as it does to Linux, which no RFC knows",
        )
        .hint(
            "RFC 4868 cuts it to 128 bits: auth-trunc 'hmac(sha256)' KEY 128, or truncate-bits = \
            128",
        )),
        ("hmac(sha1)" | "hmac(sha256)", Some(bits)) => {
            let right =
                if name == "hmac(sha1)" { "96 bits (RFC 2404)" } else { "128 bits (RFC 4868)" };
            Err(Fault::unsupported(
                "authentication",
                format!(
                    "{name} cut to {bits} bits is not \
                supported"
                ),
            )
            .hint(right))
        }
        _ => Err(unsupported("authentication", name, INTEGRITY_HINT)),
    }
}

fn resolve(names: &[(&'static str, &'static str)], name: &str) -> Option<&'static str> {
    names
        .iter()
        .find(|(full, short)| *full == name || !short.is_empty() && *short == name)
        .map(|(full, _)| *full)
}

fn unknown(part: &'static str, name: &str, hint: &str) -> Fault {
    Fault::invalid(part, format!("there is no algorithm '{}'", shown(name))).hint(hint)
}

fn unsupported(part: &'static str, name: &str, hint: &str) -> Fault {
    Fault::unsupported(part, format!("algorithm {name} is not supported yet")).hint(hint)
}
