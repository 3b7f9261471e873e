//! Taps: copies of packets.

use serde::{Deserialize, Serialize};

/// Whose packets a tap copies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TapTarget {
    /// Those that come or leave by a port.
    Port(String),
    /// Those that are routed in a VRF.
    Vrf(String),
}

/// When a tap copies a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TapPoint {
    /// As it was received or decrypted.
    In,
    /// As it leaves.
    Out,
    /// If it is dropped.
    Drop,
}

/// What a tap is to be. Posted to [`crate::TAP_PATH`], it is answered with a pcapng file, which goes
/// on until either side ends it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TapSpec {
    /// Its number. Who asks has none to give.
    #[serde(skip)]
    pub id: u64,
    /// Whose packets.
    pub target: TapTarget,
    /// When; as they come and as they leave, if there is none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub points: Vec<TapPoint>,
    /// At most so many bytes of each packet, 65,535 if it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snaplen: Option<u32>,
    /// At most so many packets a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<u32>,
    /// So many packets are wanted: who asks ends the tap then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// A filter in the words in which it was written, to be shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    /// The same as a classic BPF program for packets without a link header (DLT_RAW): code, jump if
    /// true, jump if false, constant.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub program: Vec<(u16, u8, u8, u32)>,
}

/// Whether a tap or a trace runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunState {
    /// It does.
    #[default]
    Running,
    /// It has ended.
    Ended,
}

/// A tap and what it has done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TapView {
    /// Its number.
    pub id: u64,
    /// Whether it runs.
    pub state: RunState,
    /// As it was asked for, without its program.
    pub tap: TapSpec,
    /// Packets that were copied to the client.
    pub copied: u64,
    /// Packets that were left out because of the rate.
    pub limited: u64,
    /// Packets that were lost because the client, or the thread in between, was too slow.
    pub lost: u64,
    /// Why it has ended, if it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
}
