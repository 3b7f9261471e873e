//! SAs.

use api::{MAIN_VRF, StateSpec};
use esp::{KeyMaterial, WindowSize};
use tables::{TunnelError, check_tunnel};
use types::Spi;

use super::{Fault, algorithm};

/// What there is to an SA besides its names.
#[derive(Debug)]
pub(crate) struct CheckedState {
    pub(crate) keys: KeyMaterial,
    pub(crate) window: WindowSize,
}

/// What is said of an SA of which no end is an address of the gateway.
pub(crate) fn idle_sa(spec: &StateSpec) -> String {
    let StateSpec { vrf, source, destination, .. } = spec;
    format!(
        "neither {source} nor {destination} is an address of a port{}, so this SA neither sends nor \
         receives",
        in_vrf(vrf)
    )
}

/// ` in VRF red`; nothing of main.
pub(crate) fn in_vrf(vrf: &str) -> String {
    if vrf == MAIN_VRF { String::new() } else { format!(" in VRF {vrf}") }
}

/// Checks an SA.
pub(crate) fn state(spec: &StateSpec) -> Result<CheckedState, Fault> {
    check_tunnel(spec.source, spec.destination, Some(Spi(spec.spi))).map_err(|why| {
        let (part, hint) = match why {
            TunnelError::End { address, .. } if address == spec.source => {
                ("source", "the address of one end of the tunnel")
            }
            TunnelError::End { .. } => ("destination", "the address of one end of the tunnel"),
            TunnelError::Families { .. } => {
                ("source", "both IPv4 or both IPv6; what the tunnel carries may be either")
            }
            TunnelError::SpiZero => ("spi", "1 to 4294967295"),
        };
        Fault::invalid(part, why.to_string()).hint(hint)
    })?;
    if let (Some(inner), 1..) = (&spec.inner_vrf, spec.if_id) {
        let message = format!(
            "what an SA with an if_id decrypts is in the VRF of its xfrm link, and not in {inner}"
        );
        return Err(Fault::invalid("inner-vrf", message)
            .hint("no VRF for the packets inside; link set LINK master VRF"));
    }
    let window = WindowSize::new(spec.replay_window)
        .map_err(|why| Fault::invalid("replay-window", why.to_string()))?;
    Ok(CheckedState { keys: algorithm::keys(spec)?, window })
}

#[cfg(test)]
mod tests {
    use api::{Aead, Authentication, Encryption, Key, MAIN_VRF, SaMode};
    use esp::Algorithm;

    use super::*;

    fn spec() -> StateSpec {
        StateSpec {
            if_id: 0,
            vrf: MAIN_VRF.to_owned(),
            source: "192.0.2.1".parse().unwrap(),
            destination: "192.0.2.2".parse().unwrap(),
            spi: 1,
            reqid: 0,
            mode: SaMode::Tunnel,
            aead: None,
            encryption: None,
            authentication: None,
            replay_window: 0,
            flags: Vec::new(),
            sent_sequence: 0,
            received_sequence: 0,
            inner_vrf: None,
        }
    }

    fn separate(
        cipher: &str,
        key: usize,
        hash: Option<(&str, usize, Option<u32>)>,
    ) -> Result<Algorithm, Fault> {
        let spec = StateSpec {
            encryption: Some(Encryption { name: cipher.to_owned(), key: Key::new(vec![1; key]) }),
            authentication: hash.map(|(name, key, truncate_bits)| Authentication {
                name: name.to_owned(),
                key: Key::new(vec![2; key]),
                truncate_bits,
            }),
            ..spec()
        };
        state(&spec).map(|checked| checked.keys.algorithm())
    }

    fn aead(name: &str, key: usize, icv_bits: u32) -> Result<Algorithm, Fault> {
        let spec = StateSpec {
            aead: Some(Aead { name: name.to_owned(), key: Key::new(vec![1; key]), icv_bits }),
            ..spec()
        };
        state(&spec).map(|checked| checked.keys.algorithm())
    }

    #[test]
    fn names_mean_what_they_mean_to_linux() {
        use esp::{Cipher, Integrity};
        let sha1 = Some(("sha1", 16, None));
        assert_eq!(
            separate("cbc(aes)", 16, sha1),
            Ok(Algorithm::separate(Cipher::AesCbc128, Integrity::HmacSha1_96))
        );
        assert_eq!(
            separate("aes", 32, sha1),
            Ok(Algorithm::separate(Cipher::AesCbc256, Integrity::HmacSha1_96))
        );
        assert_eq!(
            separate("cipher_null", 0, Some(("hmac(sha256)", 32, Some(128)))),
            Ok(Algorithm::separate(Cipher::Null, Integrity::HmacSha256_128))
        );
        assert_eq!(separate("ecb(cipher_null)", 0, None), Ok(Algorithm::NullWithoutIntegrity));
        assert_eq!(
            separate("ecb(cipher_null)", 0, Some(("digest_null", 0, None))),
            Ok(Algorithm::NullWithoutIntegrity)
        );
        assert_eq!(aead("rfc4106(gcm(aes))", 20, 128), Ok(Algorithm::AesGcm128));
        assert_eq!(aead("rfc4106(gcm(aes))", 36, 128), Ok(Algorithm::AesGcm256));
    }

    #[test]
    fn what_is_not_supported_is_refused_by_name() {
        let refused = |result: Result<Algorithm, Fault>, word: &str| {
            let fault = result.unwrap_err();
            let text = format!("{} ({})", fault.message, fault.hint.unwrap_or_default());
            assert!(text.contains(word), "'{word}' is not in: {text}");
        };
        refused(aead("rfc4106(gcm(aes))", 20, 96), "96 bits");
        refused(aead("rfc4106(gcm(aes))", 16, 128), "20 or 36 bytes");
        refused(
            aead("rfc7539esp(chacha20,poly1305)", 36, 128),
            "rfc7539esp(chacha20,poly1305) is not supported",
        );
        refused(aead("gcm", 36, 128), "no algorithm 'gcm'");
        refused(aead("open-sesame-open", 36, 128), "no algorithm of that name");
        refused(aead("rfc4106(gcm(aes)", 36, 128), "no algorithm 'rfc4106(gcm(aes)' (did you mean");
        refused(separate("rfc4106(gcm(aes))", 20, None), "aead");
        refused(separate("cbc(aes)", 16, None), "RFC 8221");
        refused(separate("cbc(aes)", 16, Some(("digest_null", 0, None))), "RFC 8221");
        refused(separate("cbc(aes)", 15, Some(("sha1", 20, None))), "16, 24 or 32");
        refused(separate("cbc(aes)", 16, Some(("sha1", 0, None))), "1 to 64");
        refused(
            separate("cbc(aes)", 16, Some(("sha256", 32, None))),
            "auth-trunc 'hmac(sha256)' KEY 128",
        );
        refused(separate("cbc(aes)", 16, Some(("hmac(sha1)", 20, Some(160)))), "160 bits");
        refused(separate("cbc(aes)", 16, Some(("md5", 16, None))), "hmac(md5) is not supported");
        refused(separate("des", 8, Some(("sha1", 20, None))), "cbc(des) is not supported");
    }

    #[test]
    fn ends_and_spi_are_checked() {
        let fault = |spec: StateSpec| state(&spec).unwrap_err().part;
        let good = || StateSpec {
            aead: Some(Aead {
                name: "rfc4106(gcm(aes))".into(),
                key: Key::new(vec![1; 20]),
                icv_bits: 128,
            }),
            ..spec()
        };
        assert!(state(&good()).is_ok());
        assert_eq!(fault(StateSpec { spi: 0, ..good() }), "spi");
        assert_eq!(fault(StateSpec { source: "::1".parse().unwrap(), ..good() }), "source");
        assert_eq!(fault(StateSpec { source: "0.0.0.0".parse().unwrap(), ..good() }), "source");
        assert_eq!(
            fault(StateSpec { destination: "224.0.0.1".parse().unwrap(), ..good() }),
            "destination"
        );
        assert_eq!(fault(StateSpec { replay_window: 4097, ..good() }), "replay-window");
    }
}
