//! What workers tell the control thread, and what it asks of them.

use std::net::IpAddr;

use wire::{Mac, PortId};

/// Told by a worker to the control thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A station on `port` said that it has `address` at `mac`, in an ARP or ND message.
    NeighbourSeen {
        /// Where it was heard.
        port: PortId,
        /// The station's IP address.
        address: IpAddr,
        /// Its Ethernet address.
        mac: Mac,
        /// It answers a question of ours; otherwise it only asked us or announced itself.
        solicited: bool,
    },
    /// The worker asked for `address` on `port` and gave up.
    NeighbourSilent {
        /// Where it was sought.
        port: PortId,
        /// The IP address that did not answer.
        address: IpAddr,
    },
}

/// Asked of a worker by the control thread: send one ARP request or neighbour solicitation to see
/// whether a known neighbour is still there (RFC 4861 section 7.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The port to ask on.
    pub port: PortId,
    /// Who is asked.
    pub address: IpAddr,
    /// Where it was last known, which the question is sent to.
    pub mac: Mac,
}
