//! Queueing disciplines: which stand where, and what they have done. What waits in them the
//! workers have.

use std::collections::BTreeMap;
use std::sync::Arc;

use packet::Counter;
pub use types::qdisc::{Qdisc, QdiscHandle};
use wire::{PortId, VrfId};

use crate::counters::FlowCounters;

/// Where a queueing discipline stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QdiscDevice {
    /// Before a port: what leaves by it, and by its VLANs, passes.
    Port(PortId),
    /// Before all ports of a VRF together.
    Vrf(VrfId),
}

macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// What a discipline has done. Written by the worker that it belongs to, at the end of its
        /// rounds, and read by anyone.
        #[derive(Debug, Default)]
        #[repr(align(64))]
        pub struct QdiscCounters {
            $($(#[doc = $doc])+ pub $name: Counter,)+
        }
    };
}

counters! {
    /// Packets sent.
    packets,
    /// Their bytes, link header included.
    bytes,
    /// Packets dropped.
    drops,
    /// How often it had to wait for its rate.
    overlimits,
    /// Bytes that wait.
    backlog,
    /// Packets that wait.
    queued,
    /// fq_codel: the longest packet so far.
    maxpacket,
    /// fq_codel: packets dropped as there was no room.
    drop_overlimit,
    /// fq_codel: packets marked instead of dropped.
    ecn_mark,
    /// fq_codel: how often a queue became one of a new flow.
    new_flow_count,
    /// fq_codel: queues of new flows now.
    new_flows_len,
    /// fq_codel: queues of old flows now.
    old_flows_len,
    /// fq_codel: packets marked for their waiting alone.
    ce_mark,
    /// fq_codel: memory of what waits, in bytes.
    memory_used,
    /// fq_codel: packets dropped as their memory was too much.
    drop_overmemory,
}

/// One discipline.
#[derive(Clone, Debug)]
pub struct QdiscNode {
    /// Its name on its device.
    pub handle: QdiscHandle,
    /// What it is.
    pub qdisc: Qdisc,
    /// What it has done since it came.
    pub counters: Arc<QdiscCounters>,
}

/// What stands on a device.
#[derive(Clone, Debug)]
pub struct PlacedQdisc {
    /// What packets come to first.
    pub root: QdiscNode,
    /// What stands under a token bucket.
    pub child: Option<QdiscNode>,
    /// The number of the worker that it belongs to.
    pub worker: usize,
    /// Whether the device may send. While it may not, nothing waits.
    pub up: bool,
    /// Packets that a worker dropped as it could not hand them to the discipline's own.
    pub not_handed_over: FlowCounters,
}

/// Every queueing discipline, by where it stands.
#[derive(Clone, Debug, Default)]
pub struct Qdiscs(pub(crate) BTreeMap<QdiscDevice, PlacedQdisc>);

impl Qdiscs {
    /// What stands on a device.
    pub fn on(&self, device: QdiscDevice) -> Option<&PlacedQdisc> {
        self.0.get(&device)
    }

    /// All of them.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (QdiscDevice, &PlacedQdisc)> {
        self.0.iter().map(|(device, placed)| (*device, placed))
    }
}

impl QdiscNode {
    /// One that has done nothing, or goes on with what `old` has counted if it is still that one.
    pub(crate) fn new(handle: QdiscHandle, qdisc: Qdisc, old: Option<&Self>) -> Self {
        let same = |old: &&Self| old.handle == handle && old.qdisc.kind() == qdisc.kind();
        let counters = old.filter(same).map(|old| Arc::clone(&old.counters)).unwrap_or_default();
        Self { handle, qdisc, counters }
    }
}
