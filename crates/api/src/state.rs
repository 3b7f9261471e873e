//! Security associations, which iproute2 calls states.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use types::{Family, SaFlag, SaMode};

use crate::key::Key;
use crate::object::Origin;
use crate::{is_zero, main_vrf};

/// An SA to add, or to change an existing one to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StateSpec {
    /// The VRF of the outer packets.
    #[serde(default = "main_vrf")]
    pub vrf: String,
    /// The VRF of the packets inside, and of the policies that they meet; that of the outer ones if
    /// none is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inner_vrf: Option<String>,
    /// The tunnel's source.
    pub source: IpAddr,
    /// The tunnel's destination.
    pub destination: IpAddr,
    /// The security parameters index.
    pub spi: u32,
    /// Links SAs and policies; 0 is none.
    #[serde(default)]
    pub reqid: u32,
    /// Links it with an xfrm link, by which the packets inside leave and enter; 0 is none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub if_id: u32,
    /// Tunnel, until there are others.
    #[serde(default)]
    pub mode: SaMode,
    /// Encryption and integrity in one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aead: Option<Aead>,
    /// Encryption.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encryption: Option<Encryption>,
    /// Integrity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authentication: Option<Authentication>,
    /// Size of the anti-replay window in packets; 0 switches the check off, as with Linux.
    #[serde(default)]
    pub replay_window: u32,
    /// Exceptions to the usual behaviour.
    #[serde(default)]
    pub flags: Vec<SaFlag>,
    /// The sequence number that counts as the last one sent: where an SA left off somewhere else.
    #[serde(default)]
    pub sent_sequence: u32,
    /// The sequence number up to which all count as received: where an SA left off somewhere else.
    #[serde(default)]
    pub received_sequence: u32,
}

impl StateSpec {
    /// The VRF of the packets inside, whose policies they meet.
    pub fn clear_vrf(&self) -> &str {
        self.inner_vrf.as_deref().unwrap_or(&self.vrf)
    }
}

/// Encryption with integrity, in Linux's words: `rfc4106(gcm(aes))`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Aead {
    /// Linux's name of the algorithm.
    pub name: String,
    /// The key, with the salt behind it.
    pub key: Key,
    /// Length of the integrity check value in bits.
    pub icv_bits: u32,
}

/// Encryption, in Linux's words: `cbc(aes)`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Encryption {
    /// Linux's name of the algorithm.
    pub name: String,
    /// The key.
    pub key: Key,
}

/// Integrity, in Linux's words: `hmac(sha1)`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Authentication {
    /// Linux's name of the algorithm.
    pub name: String,
    /// The key.
    pub key: Key,
    /// Length in bits that the integrity check value is cut to; Linux's default for the algorithm
    /// where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub truncate_bits: Option<u32>,
}

/// Names one SA.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StateId {
    /// The VRF of the outer packets.
    #[serde(default = "main_vrf")]
    pub vrf: String,
    /// The tunnel's source. Where given, it has to be the SA's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<IpAddr>,
    /// The tunnel's destination.
    pub destination: IpAddr,
    /// The security parameters index.
    pub spi: u32,
    /// Whether the answer to `state_get` shows keys.
    #[serde(default)]
    pub show_keys: bool,
}

/// Which SAs are meant. What is absent is not looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StateFilter {
    /// Those of one VRF.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vrf: Option<String>,
    /// Those with outer packets of one address family.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub family: Option<Family>,
    /// Those with one source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<IpAddr>,
    /// Those with one destination.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination: Option<IpAddr>,
    /// Those with one SPI.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spi: Option<u32>,
    /// Those with one reqid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reqid: Option<u32>,
}

/// Asks for SAs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StateList {
    /// Which.
    #[serde(default)]
    pub filter: StateFilter,
    /// Whether the answer shows keys.
    #[serde(default)]
    pub show_keys: bool,
}

/// Removes SAs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StateFlush {
    /// Which.
    #[serde(default)]
    pub filter: StateFilter,
}

/// Packets and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
}

/// An algorithm of an SA.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlgorithmView {
    /// Linux's name.
    pub name: String,
    /// The key, where it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Key>,
    /// Length of the key in bits.
    pub key_bits: u32,
    /// Length of the integrity check value in bits, where the algorithm makes one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub icv_bits: Option<u32>,
}

/// An SA as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateView {
    /// The VRF of the outer packets.
    pub vrf: String,
    /// The VRF of the packets inside, if it is another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inner_vrf: Option<String>,
    /// The tunnel's source.
    pub source: IpAddr,
    /// The tunnel's destination.
    pub destination: IpAddr,
    /// The security parameters index.
    pub spi: u32,
    /// Links SAs and policies.
    pub reqid: u32,
    /// Links it with an xfrm link; 0 is none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub if_id: u32,
    /// How packets are wrapped.
    pub mode: SaMode,
    /// Encryption and integrity in one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aead: Option<AlgorithmView>,
    /// Encryption.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encryption: Option<AlgorithmView>,
    /// Integrity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authentication: Option<AlgorithmView>,
    /// Size of the anti-replay window in packets; 0: no check.
    pub replay_window: u32,
    /// Exceptions to the usual behaviour.
    pub flags: Vec<SaFlag>,
    /// Sequence number of the last packet sent.
    pub sent_sequence: u32,
    /// Highest sequence number accepted.
    pub received_sequence: u32,
    /// The lowest number that it accepts, if the gateway was killed and no such packet has come
    /// since: those below may have been accepted before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub awaited_sequence: Option<u32>,
    /// Whether outbound packets of its tunnel use it now: it is the newest.
    pub newest: bool,
    /// For how many seconds the gateway has had it. Absent where changes are followed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_seconds: Option<u64>,
    /// Who asked for it.
    pub origin: Origin,
    /// Packets that it encrypted or decrypted, and the bytes of the inner packets.
    #[serde(flatten)]
    pub traffic: Counters,
    /// Packets that it refused: wrong integrity check values, replays and so on.
    pub errors: Counters,
}
