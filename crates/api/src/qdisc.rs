//! Queueing disciplines.

use serde::{Deserialize, Serialize};
use types::qdisc::QdiscHandle;

use crate::object::Origin;

/// A queueing discipline to put on a port, or on a VRF for all of its ports together. Parameters
/// that its kind does not have are refused; those that are absent have their usual values, or stay
/// as they are if the discipline is changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QdiscSpec {
    /// The port or VRF.
    pub dev: String,
    /// The token bucket that it is to stand under; the device itself if it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<QdiscHandle>,
    /// Its name on the device, which others call it by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handle: Option<QdiscHandle>,
    /// `tbf`, `fq_codel` or `pfifo`.
    pub kind: String,
    /// tbf: bytes in a second, with link headers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<u64>,
    /// tbf: bytes that may go at once after a pause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<u64>,
    /// What may wait: packets; of tbf, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// tbf: microseconds that a packet may wait, instead of a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<u64>,
    /// fq_codel: queues that flows are hashed to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flows: Option<u64>,
    /// fq_codel: microseconds that packets of a flow may wait all the time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<u64>,
    /// fq_codel: microseconds that they may wait longer before one is dropped or marked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<u64>,
    /// fq_codel: bytes that a flow may send before it is another one's turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quantum: Option<u64>,
    /// fq_codel: whether packets are marked instead of dropped if their sender understands it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ecn: Option<bool>,
    /// fq_codel: microseconds from which on every such packet is marked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ce_threshold: Option<u64>,
    /// fq_codel: bytes of buffers that may wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_limit: Option<u64>,
}

/// Names a queueing discipline: that of the device itself, or the one under `parent`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QdiscId {
    /// The port or VRF.
    pub dev: String,
    /// What it stands under.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<QdiscHandle>,
    /// Its name, if it is to be that one and no other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handle: Option<QdiscHandle>,
}

/// Which queueing disciplines are meant. What is absent is not looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QdiscFilter {
    /// Those on one port or VRF.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dev: Option<String>,
    /// Those to which packets come first.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub root: bool,
    /// Those before routing, as tc's `ingress` and `clsact`: there are none.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub ingress: bool,
    /// Those of this name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handle: Option<QdiscHandle>,
    /// Those that stand under this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<QdiscHandle>,
}

/// A queueing discipline as it is, with the members that tc's JSON has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QdiscView {
    /// `tbf`, `fq_codel` or `pfifo`.
    pub kind: String,
    /// Its name on the device.
    pub handle: QdiscHandle,
    /// The port or VRF.
    pub dev: String,
    /// Whether `dev` is a VRF.
    #[serde(default)]
    pub is_vrf: bool,
    /// Whether packets come to it first.
    #[serde(default)]
    pub root: bool,
    /// The class that it stands under, as in `1:1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Its parameters.
    pub options: QdiscOptions,
    /// Bytes sent.
    pub bytes: u64,
    /// Packets sent.
    pub packets: u64,
    /// Packets dropped.
    pub drops: u64,
    /// How often it had to wait for its rate.
    pub overlimits: u64,
    /// Always 0: no packet that a link refused is put back.
    pub requeues: u64,
    /// Bytes that wait.
    pub backlog: u64,
    /// Packets that wait.
    pub qlen: u64,
    /// What fq_codel counts beside.
    #[serde(default, flatten, skip_serializing_if = "Option::is_none")]
    pub flows: Option<FlowQueueStatistics>,
    /// Packets that a worker dropped as it could not hand them to the discipline's own; not among
    /// `drops`.
    #[serde(default)]
    pub not_handed_over: u64,
    /// Whether packets wait in it for their time. Without a token bucket, the port takes all
    /// packets at once, and nothing waits here.
    #[serde(default)]
    pub back_pressure: bool,
    /// Who asked for it.
    pub origin: Origin,
}

/// What fq_codel counts beside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowQueueStatistics {
    /// The longest packet so far.
    pub maxpacket: u64,
    /// Packets dropped as there was no room.
    pub drop_overlimit: u64,
    /// How often a queue became one of a new flow.
    pub new_flow_count: u64,
    /// Packets marked instead of dropped.
    pub ecn_mark: u64,
    /// Packets marked for their waiting alone.
    pub ce_mark: u64,
    /// Memory of what waits, in bytes.
    pub memory_used: u64,
    /// Packets dropped as their memory was too much.
    pub drop_overmemory: u64,
    /// Queues of new flows now.
    pub new_flows_len: u64,
    /// Queues of old flows now.
    pub old_flows_len: u64,
}

/// Parameters, by tc's names and in its units.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum QdiscOptions {
    /// Of tbf.
    Tbf {
        /// Bytes in a second.
        rate: u64,
        /// Bytes that may go at once after a pause.
        burst: u32,
        /// Microseconds that a packet may wait, from the limit.
        lat: u64,
        /// Bytes that may wait, where nothing else stands under it.
        limit: u32,
    },
    /// Of fq_codel.
    FqCodel {
        /// Packets that may wait.
        limit: u32,
        /// Queues that flows are hashed to.
        flows: u32,
        /// Bytes that a flow may send before it is another one's turn.
        quantum: u32,
        /// Microseconds that packets of a flow may wait all the time.
        target: u32,
        /// Microseconds from which on packets are marked.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ce_threshold: Option<u32>,
        /// Microseconds that they may wait longer before one is dropped or marked.
        interval: u32,
        /// Bytes of buffers that may wait.
        memory_limit: u32,
        /// Whether packets are marked.
        ecn: bool,
        /// The most packets that are dropped at once where there is no room.
        drop_batch: u32,
    },
    /// Of pfifo.
    Pfifo {
        /// Packets that may wait.
        limit: u32,
    },
}
