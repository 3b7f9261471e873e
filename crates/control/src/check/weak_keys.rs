//! Keys that are taken, and that somebody should know about.

use std::collections::BTreeMap;
use std::hash::Hasher;

use api::StateSpec;
use siphasher::sip::SipHasher13;

/// What is doubtful about the keys of an SA by itself, in words.
pub(crate) fn doubts(spec: &StateSpec) -> Vec<String> {
    let mut doubts = Vec::new();
    let is_zero = |key: &[u8]| !key.is_empty() && key.iter().all(|&byte| byte == 0);
    let secret =
        |key: &api::Key, salt: usize| is_zero(&key.bytes()[..key.bytes().len().max(salt) - salt]);
    // The salt of an AEAD is not secret.
    let zero = spec.aead.as_ref().is_some_and(|aead| secret(&aead.key, SALT))
        || spec.encryption.as_ref().is_some_and(|found| secret(&found.key, 0))
        || spec.authentication.as_ref().is_some_and(|found| secret(&found.key, 0));
    if zero {
        doubts.push("a key is all zeroes, which anybody can guess".to_owned());
    }
    if let (Some(authentication), Ok(checked)) = (&spec.authentication, super::state(spec))
        && let Some(hash) = checked.keys.algorithm().integrity()
    {
        let (has, usual) = (authentication.key.bytes().len(), hash.usual_key_length());
        if has < usual {
            doubts.push(format!(
                "the key of {} has {has} bytes, and should have {usual} (RFC 8221)",
                authentication.name
            ));
        }
    }
    doubts
}

/// What is said of keys that several SAs have.
pub(crate) const SHARED: &str = "another SA has the same key: each should have keys of its own, and \
    with AES-GCM, one sequence number that both use discloses what they protect (RFC 4106 section 3)";

/// Bytes of salt at the end of the key of an AEAD.
const SALT: usize = 4;

/// How many SAs have each key, by keyed digests. Keys themselves are not kept here.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeyUses {
    secret: [u8; 16],
    uses: BTreeMap<u64, u32>,
}

impl KeyUses {
    /// `secret` keys the digests.
    pub(crate) fn new(secret: [u8; 16]) -> Self {
        Self { secret, uses: BTreeMap::new() }
    }

    /// Adds the keys of an SA. Returns whether another SA has one of them.
    pub(crate) fn add(&mut self, spec: &StateSpec) -> bool {
        let mut is_shared = false;
        for digest in self.digests(spec) {
            let uses = self.uses.entry(digest).or_default();
            is_shared |= *uses > 0;
            *uses += 1;
        }
        is_shared
    }

    /// Takes the keys of an SA away, which were added before.
    pub(crate) fn remove(&mut self, spec: &StateSpec) {
        for digest in self.digests(spec) {
            match self.uses.get_mut(&digest) {
                Some(uses) if *uses > 1 => *uses -= 1,
                _ => _ = self.uses.remove(&digest),
            }
        }
    }

    /// Of each different key.
    fn digests(&self, spec: &StateSpec) -> impl Iterator<Item = u64> + use<> {
        let keys = [
            spec.aead.as_ref().map(|found| &found.key),
            spec.encryption.as_ref().map(|found| &found.key),
            spec.authentication.as_ref().map(|found| &found.key),
        ];
        let digest = |key: &api::Key| {
            let mut hasher = SipHasher13::new_with_key(&self.secret);
            hasher.write(key.bytes());
            hasher.finish()
        };
        let mut digests = keys.map(|key| key.filter(|key| !key.bytes().is_empty()).map(digest));
        if digests[1] == digests[2] {
            digests[2] = None;
        }
        digests.into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use api::{Aead, Authentication, Encryption, Key, MAIN_VRF, SaMode};

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

    fn aead(key: Vec<u8>) -> StateSpec {
        let name = "rfc4106(gcm(aes))".to_owned();
        StateSpec { aead: Some(Aead { name, key: Key::new(key), icv_bits: 128 }), ..spec() }
    }

    fn separate(encryption: u8, authentication: Vec<u8>) -> StateSpec {
        let key = Key::new(vec![encryption; 16]);
        StateSpec {
            encryption: Some(Encryption { name: "cbc(aes)".to_owned(), key }),
            authentication: Some(Authentication {
                name: "sha1".to_owned(),
                key: Key::new(authentication),
                truncate_bits: None,
            }),
            ..spec()
        }
    }

    #[test]
    fn zeroes_and_short_keys_are_doubtful() {
        assert_eq!(doubts(&aead(vec![1; 20])), [""; 0]);
        assert_eq!(doubts(&separate(1, vec![2; 20])), [""; 0]);
        let salted = [vec![0; 16], vec![1; 4]].concat();
        assert!(doubts(&aead(salted))[0].contains("all zeroes"));
        let unsalted = [vec![1; 16], vec![0; 4]].concat();
        assert_eq!(doubts(&aead(unsalted)), [""; 0]);
        let both = doubts(&separate(0, vec![1; 16]));
        assert!(both[0].contains("all zeroes") && both[1].contains("16 bytes, and should have 20"));
    }

    #[test]
    fn a_key_of_several_sas_is_found() {
        let mut uses = KeyUses::new([7; 16]);
        let one = separate(1, vec![1; 16]);
        assert!(!uses.add(&one), "both keys of one SA may be the same");
        assert!(!uses.add(&separate(2, vec![3; 20])));
        assert!(uses.add(&separate(4, vec![3; 20])));
        uses.remove(&separate(4, vec![3; 20]));
        uses.remove(&separate(2, vec![3; 20]));
        assert!(!uses.add(&separate(4, vec![3; 20])));
        uses.remove(&one);
        uses.remove(&separate(4, vec![3; 20]));
        assert!(uses.uses.is_empty());
    }
}
