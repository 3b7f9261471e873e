//! Events from workers to the control thread, and probes in the other direction.

use std::net::IpAddr;

use pipeline::FlowId;
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
        /// The port's [`crate::Port::since`]: by the time that this is heard, its number may be
        /// another one's, or it may be in another VRF.
        since: u64,
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
        /// As in [`Event::NeighbourSeen`].
        since: u64,
        /// The IP address that did not answer.
        address: IpAddr,
    },
    /// Another station has an address of the port.
    AddressConflict {
        /// The port whose address it is.
        port: PortId,
        /// As in [`Event::NeighbourSeen`].
        since: u64,
        /// The address that both have.
        address: IpAddr,
        /// The Ethernet address of the other station.
        mac: Mac,
    },
    /// An SA is about to run out of reserved sequence numbers, or its replay window comes near its
    /// edge.
    SequenceNumbers {
        /// What the key's numbers, or the window, are known by.
        place: u32,
    },
    /// A rule or a flow that logs packets has met one.
    Logged(LoggedPacket),
}

/// What a packet is logged for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LoggedBy {
    /// A rule of a filter.
    Rule {
        /// In which filter it is.
        place: FilterPlace,
        /// Its preference.
        preference: u32,
    },
    /// A flow.
    Flow(FlowId),
}

/// A packet that is to be logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoggedPacket {
    /// For what.
    pub by: LoggedBy,
    /// What the rule says, or what became of the packet by the flows and behind them.
    pub verdict: FilterVerdict,
    /// What is known of the packet.
    pub flow: FlowKey,
    /// Bytes of it, without link header.
    pub length: u16,
    /// How many packets of the rule or flow were not told before, as they were too many.
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
