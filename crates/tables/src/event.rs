//! Events from workers to the control thread, and probes in the other direction.

use std::net::IpAddr;

use types::FilterVerdict;
use wire::{FlowKey, Mac, PortId};

use crate::filter::FilterPlace;

/// From a worker to the control thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A station on `port` said that it has `address` at `mac`, in an ARP or ND message.
    NeighbourSeen {
        /// The port that the message came by.
        port: PortId,
        /// The station's IP address.
        address: IpAddr,
        /// Its Ethernet address.
        mac: Mac,
        /// Whether the gateway had asked for it. Otherwise it is known, and has moved.
        solicited: bool,
    },
    /// The worker asked for `address` on `port` and gave up.
    NeighbourSilent {
        /// The port that it was asked for on.
        port: PortId,
        /// The IP address that did not answer.
        address: IpAddr,
    },
    /// An SA is about to run out of reserved sequence numbers, or its replay window comes near its
    /// edge.
    SequenceNumbers {
        /// What the key's numbers, or the window, are known by.
        place: u32,
    },
    /// A rule of a filter that logs has decided a packet.
    Filtered(FilteredPacket),
}

/// A packet that a rule of a filter has decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilteredPacket {
    /// In which filter the rule is.
    pub place: FilterPlace,
    /// Its preference.
    pub preference: u32,
    /// What it says.
    pub verdict: FilterVerdict,
    /// What is known of the packet.
    pub flow: FlowKey,
    /// Bytes of it, without link header.
    pub length: u16,
    /// How many packets of the rule were not told before, as they were too many.
    pub untold: u64,
}

/// From the control thread to a worker: send one ARP request or neighbour solicitation, to see
/// whether a known neighbour is still there (RFC 4861 section 7.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The port to ask on.
    pub port: PortId,
    /// The neighbour's IP address.
    pub address: IpAddr,
    /// Its last known Ethernet address, which the question is sent to.
    pub mac: Mac,
}
