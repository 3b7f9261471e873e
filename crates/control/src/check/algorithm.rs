//! The algorithms and keys of an SA.

use api::{Authentication, Encryption, StateSpec, may_be_key, shown};
use esp::{
    AEAD_NAMES, Cipher, ENCRYPTION_NAMES, INTEGRITY_NAMES, Integrity, KeyMaterial,
    LINUX_TRUNCATION, LinuxName,
};

use super::Fault;
use crate::config::nearest;

/// The keys of an SA, of the algorithms that its names mean.
pub(super) fn keys(spec: &StateSpec) -> Result<KeyMaterial, Fault> {
    match (&spec.aead, &spec.encryption, &spec.authentication) {
        (Some(aead), None, None) => {
            let known = supported(AEAD_NAMES, "aead", &aead.name)?;
            let icv_bits = known.variants.first().map_or(0, |variant| 8 * variant.icv_length());
            if usize::try_from(aead.icv_bits) != Ok(icv_bits) {
                let message = format!(
                    "{} with an ICV of {} bits is not supported",
                    known.name, aead.icv_bits
                );
                return Err(Fault::unsupported("aead", message).hint(format!("{icv_bits} bits")));
            }
            KeyMaterial::aead(known, aead.key.bytes())
                .map_err(|why| wrong_length("aead", why, aead.key.bytes()))
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
        .hint(format!("{} with an empty key encrypts nothing", no_encryption()))),
        (None, None, None) => {
            Err(Fault::invalid("encryption", "an SA needs its algorithms and keys")
                .hint("either aead, or encryption with authentication"))
        }
    }
}

/// Linux's full name of an encryption algorithm.
pub(crate) fn encryption_name(name: &str) -> Option<&'static str> {
    LinuxName::find(ENCRYPTION_NAMES, name).map(|known| known.name)
}

/// Linux's full name of an integrity algorithm.
pub(crate) fn integrity_name(name: &str) -> Option<&'static str> {
    LinuxName::find(INTEGRITY_NAMES, name).map(|known| known.name)
}

/// Whether this is the name of an algorithm of any kind.
pub(crate) fn is_algorithm(name: &str) -> bool {
    let is_aead = LinuxName::find(AEAD_NAMES, name).is_some();
    is_aead || encryption_name(name).is_some() || integrity_name(name).is_some()
}

/// Length in bits that Linux cuts the integrity check value to unless told otherwise; `None` for
/// what is not supported.
pub(crate) fn default_truncation(name: &str) -> Option<u32> {
    let known = LinuxName::find(INTEGRITY_NAMES, name)?;
    known.variants.first().map(|integrity| integrity.map_or(0, |_| LINUX_TRUNCATION))
}

fn separate(
    encryption: &Encryption,
    authentication: Option<&Authentication>,
) -> Result<KeyMaterial, Fault> {
    if LinuxName::find(AEAD_NAMES, &encryption.name).is_some() {
        return Err(Fault::invalid(
            "encryption",
            format!("{} encrypts and authenticates: it is an aead algorithm", encryption.name),
        )
        .hint("give it as aead, with its ICV length in bits"));
    }
    let cipher = supported(ENCRYPTION_NAMES, "encryption", &encryption.name)?;
    let integrity = authentication.map(integrity).transpose()?.flatten();
    // Encryption alone can be undone by whoever alters packets.
    if integrity.is_none() && cipher.variants != [Cipher::Null] {
        return Err(Fault::unsupported(
            "authentication",
            format!("{} without authentication is refused (RFC 8221 section 4)", cipher.name),
        )
        .hint(any_integrity()));
    }
    KeyMaterial::separate(cipher, encryption.key.bytes(), integrity).map_err(|why| {
        let (part, key) = match (&why, integrity) {
            (esp::KeyError::IntegrityLength { .. }, Some((_, key))) => ("authentication", key),
            _ => ("encryption", encryption.key.bytes()),
        };
        wrong_length(part, why, key)
    })
}

/// A key of a wrong length, which was perhaps meant to be hexadecimal.
fn wrong_length(part: &'static str, why: esp::KeyError, key: &[u8]) -> Fault {
    let fault = Fault::invalid(part, why.to_string());
    match !key.is_empty() && key.iter().all(u8::is_ascii_hexdigit) {
        true => fault.hint("in hexadecimal, with 0x in front"),
        false => fault,
    }
}

/// The hash and its key; `None` for no integrity at all.
fn integrity(spec: &Authentication) -> Result<Option<(Integrity, &[u8])>, Fault> {
    let known = supported(INTEGRITY_NAMES, "authentication", &spec.name)?;
    let bits = spec.truncate_bits.unwrap_or(LINUX_TRUNCATION);
    let key = spec.key.bytes();
    let mut hashes = known.variants.iter().flatten();
    let Some(hash) = hashes.next() else {
        return match key {
            [] => Ok(None),
            _ => Err(Fault::invalid("authentication", format!("{} takes no key", known.name))
                .hint("an empty key")),
        };
    };
    // A name may stand for one hash cut to several lengths.
    if let Some(fits) = known.variants.iter().flatten().find(|hash| icv_bits(**hash) == bits) {
        return Ok(Some((*fits, key)));
    }
    let (name, right, rfc) = (known.name, icv_bits(*hash), hash.rfc());
    Err(if spec.truncate_bits.is_none() {
        Fault::unsupported(
            "authentication",
            format!(
                "{name} without a length means {bits} bits, as it does to Linux, which no RFC knows"
            ),
        )
        .hint(format!(
            "{rfc} cuts it to {right} bits: auth-trunc '{name}' KEY {right}, or truncate-bits = \
            {right}"
        ))
    } else {
        Fault::unsupported("authentication", format!("{name} cut to {bits} bits is not supported"))
            .hint(format!("{right} bits ({rfc})"))
    })
}

/// The algorithm that `name` means, if it is supported.
fn supported<T>(
    names: &'static [LinuxName<T>],
    part: &'static str,
    name: &str,
) -> Result<&'static LinuxName<T>, Fault> {
    let hint = || listed(LinuxName::supported(names).map(|known| known.name.to_owned()));
    match LinuxName::find(names, name) {
        Some(known) if !known.variants.is_empty() => Ok(known),
        Some(known) => {
            Err(Fault::unsupported(part, format!("algorithm {} is not supported yet", known.name))
                .hint(hint()))
        }
        // A word that is like none may be the key.
        None => Err(match nearest(name, names.iter().map(|known| known.name)) {
            Some(near) => Fault::invalid(part, format!("there is no algorithm '{}'", shown(name)))
                .hint(format!("did you mean {near}?")),
            None => {
                let name = if may_be_key(name) {
                    "of that name".to_owned()
                } else {
                    format!("'{}'", shown(name))
                };
                Fault::invalid(part, format!("there is no algorithm {name}")).hint(hint())
            }
        }),
    }
}

fn icv_bits(integrity: Integrity) -> u32 {
    u32::try_from(8 * integrity.icv_length()).unwrap_or(u32::MAX)
}

/// The name of the cipher that encrypts nothing.
fn no_encryption() -> &'static str {
    let null = ENCRYPTION_NAMES.iter().find(|known| known.variants == [Cipher::Null]);
    null.map_or("", |known| known.name)
}

/// Every hash with the length that it is cut to.
fn any_integrity() -> String {
    let hashes = INTEGRITY_NAMES
        .iter()
        .flat_map(|known| known.variants.iter().flatten().map(|hash| (known.name, *hash)));
    listed(hashes.map(|(name, hash)| match icv_bits(hash) {
        LINUX_TRUNCATION => name.to_owned(),
        bits => format!("{name} cut to {bits} bits"),
    }))
}

/// `a, b or c`.
fn listed(words: impl Iterator<Item = String>) -> String {
    let words: Vec<_> = words.collect();
    match words.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => words.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of algorithms in docs/iproute2.md, made from the table in `esp`.
    fn documentation() -> String {
        let names = |known: &str, word: &str, short: Option<&str>| {
            let short = short.map(|short| format!(", `{word} {short}`")).unwrap_or_default();
            format!("`{word} {known}`{short}")
        };
        let lengths = |lengths: Vec<usize>| match lengths[..] {
            [0] => "empty".to_owned(),
            _ => format!("{} bytes", listed(lengths.iter().map(ToString::to_string))),
        };
        let mut table = String::from("| names | key | ICV |\n| --- | --- | --- |\n");
        for known in LinuxName::supported(AEAD_NAMES) {
            let all = known.variants.iter().map(|variant| variant.encryption_key_length());
            let first = known.variants[0];
            table += &format!(
                "| {} | {}, the last {} the salt | {} bits |\n",
                names(known.name, "aead", known.short),
                lengths(all.collect()),
                first.salt_length(),
                8 * first.icv_length()
            );
        }
        for known in LinuxName::supported(ENCRYPTION_NAMES) {
            let all = known.variants.iter().map(|cipher| cipher.key_length());
            let names = names(known.name, "enc", known.short);
            table += &format!("| {names} | {} | |\n", lengths(all.collect()));
        }
        for known in LinuxName::supported(INTEGRITY_NAMES) {
            for hash in known.variants {
                let word = match hash.map(icv_bits) {
                    None | Some(LINUX_TRUNCATION) => "auth",
                    Some(_) => "auth-trunc",
                };
                let names = names(known.name, word, known.short);
                table += &match hash {
                    None => format!("| {names} | empty | |\n"),
                    Some(hash) => format!(
                        "| {names} | 1 to 64 bytes; {} asks for {} | {} bits |\n",
                        hash.rfc(),
                        hash.usual_key_length(),
                        icv_bits(*hash)
                    ),
                };
            }
        }
        table
    }

    #[test]
    fn the_documentation_has_every_algorithm_and_no_other() {
        let page = include_str!("../../../../docs/iproute2.md");
        let table = documentation();
        assert!(page.contains(&table), "docs/iproute2.md should have this table:\n{table}");
    }
}
