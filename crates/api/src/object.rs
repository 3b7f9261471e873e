//! Ports, addresses, neighbours, VRFs, workers.

use core::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use types::{
    Family, Ike, IpPrefix, Ipsec, LinkKind, Mac, MssClamp, ReversePath, Side, VlanProtocol,
};

use crate::is_zero;
use crate::policy::DefaultActionView;

/// Who asked for an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// The configuration file. A reload of a file without it removes it.
    Configuration,
    /// A command. It survives a reload, and ends with the gateway.
    Runtime,
    /// The gateway itself: it follows from something else.
    Gateway,
}

/// An address of a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AddressSpec {
    /// The port.
    pub port: String,
    /// The address, and the prefix of its link.
    pub address: IpPrefix,
}

/// Which address of a port is meant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AddressId {
    /// The port.
    pub port: String,
    /// The address, and the prefix of its link.
    pub address: IpPrefix,
    /// Whether the prefix may have any length, as where `addr delete` names an IPv4 address
    /// alone.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub any_length: bool,
}

/// Which addresses are meant. What is absent is not looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AddressFilter {
    /// Those of one port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// Those of ports in one VRF.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vrf: Option<String>,
    /// Those of one address family.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub family: Option<Family>,
    /// Those inside a prefix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<IpPrefix>,
}

/// An address as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressView {
    /// The port.
    pub port: String,
    /// The port's VRF.
    pub vrf: String,
    /// The address, and the prefix of its link.
    pub address: IpPrefix,
    /// Whether the port sends and receives.
    #[serde(default)]
    pub up: bool,
    /// Who asked for it.
    pub origin: Origin,
}

/// A VLAN of a port, or an xfrm link, to be a port itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkSpec {
    /// Its name.
    pub name: String,
    /// The port whose VLAN it is; of an xfrm link, the port that its outer packets are to leave by.
    pub parent: String,
    /// The number in its frames' tags: 1 to 4094. Of a VLAN alone.
    #[serde(default, skip_serializing_if = "is_no_vlan")]
    pub vlan: u16,
    /// The `if_id` of its SAs and policies. Of an xfrm link alone.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub if_id: u32,
    /// What kind of tag they have.
    #[serde(default, skip_serializing_if = "is_customer")]
    pub protocol: VlanProtocol,
    /// The largest IP packet in bytes; if it is absent, its parent's, and 1500 of an xfrm link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u16>,
    /// Its VRF; `main` if it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vrf: Option<String>,
    /// Whether it may send and receive from the beginning.
    #[serde(default)]
    pub up: bool,
}

fn is_no_vlan(vlan: &u16) -> bool {
    *vlan == 0
}

fn is_customer(protocol: &VlanProtocol) -> bool {
    *protocol == VlanProtocol::Customer
}

/// Names a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkName {
    /// Its name.
    pub port: String,
}

/// A change of a port. What is absent stays as it is.
#[derive(Clone, Default, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkChange {
    /// The port.
    pub port: String,
    /// Whether it may send and receive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up: Option<bool>,
    /// The largest IP packet in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u16>,
    /// The VRF to move it to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vrf: Option<String>,
    /// On which side of the IPsec boundary it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub side: Option<Side>,
    /// How the source of clear packets is held against the routes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rpf: Option<ReversePath>,
    /// How the MSS of TCP connections through it is lowered: "off", "pmtu", or a number of bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mss: Option<MssClamp>,
}

/// Which ports are meant. What is absent is not looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkFilter {
    /// The one with this name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// Those in one VRF.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vrf: Option<String>,
    /// Those that are up.
    #[serde(default)]
    pub up: bool,
    /// Those of one kind: `vrf`, or the `kind` of a port's configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
}

/// What the system's interface of a port is like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InterfaceState {
    /// It is up and has a carrier.
    #[default]
    Up,
    /// It is set down.
    Down,
    /// It is up and has no carrier: the cable is out, or the other end is down.
    NoCarrier,
    /// There is none of its name, or it cannot be opened.
    Gone,
}

/// A port as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortView {
    /// Its name.
    pub name: String,
    /// Its number.
    pub id: u16,
    /// What it is: the `kind` of its configuration.
    pub kind: String,
    /// The system's interface that it is on, where it is on one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// What that interface is like.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface_state: Option<InterfaceState>,
    /// The port whose VLAN it is, if it is one, or the `dev` of an xfrm link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// The `if_id` of its SAs and policies, if it is an xfrm link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub if_id: Option<u32>,
    /// The number in its frames' tags, if it is a VLAN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
    /// What kind of tag they have, if it is a VLAN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<VlanProtocol>,
    /// Its VRF.
    pub vrf: String,
    /// What its frames begin with.
    pub link: LinkKind,
    /// Its Ethernet address.
    pub mac: Mac,
    /// The largest IP packet in bytes.
    pub mtu: u16,
    /// Whether it sends and receives: it may, and its interface can.
    pub up: bool,
    /// On which side of the IPsec boundary it is.
    #[serde(default)]
    pub side: Side,
    /// The tunnel's end that makes it an unprotected one, if that is not configured: one of its
    /// addresses, or the remote end of a tunnel that leaves by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tunnel_end: Option<IpAddr>,
    /// How the source of clear packets is held against the routes.
    #[serde(default)]
    pub rpf: ReversePath,
    /// How the MSS of TCP connections through it is lowered: "off", "pmtu", or a number of bytes.
    #[serde(default)]
    pub mss: MssClamp,
    /// What is switched on that its packets meet: on the port itself, or for its VRF as a whole. The
    /// words are those of [`VrfView::features`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub features: Vec<String>,
    /// Its own addresses.
    pub addresses: Vec<IpPrefix>,
    /// What it has done, all workers together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub statistics: Option<PortStatistics>,
    /// What the system's interface has counted itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<DeviceStatistics>,
    /// Where received frames wait for a worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ring: Option<RingView>,
    /// Neighbours that were learned on its link.
    #[serde(default)]
    pub neighbours: NeighbourCounts,
}

/// What an interface of the system has counted since it was made: a part of the kernel's
/// `rtnl_link_stats64`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceStatistics {
    /// Frames received.
    pub rx_packets: u64,
    /// Their bytes.
    pub rx_bytes: u64,
    /// Frames with errors.
    pub rx_errors: u64,
    /// Frames that the kernel dropped before or beside the gateway.
    pub rx_dropped: u64,
    /// Frames that the device dropped, as the kernel was too slow.
    pub rx_missed: u64,
    /// Frames sent. Of a TAP device: frames that the gateway has read.
    pub tx_packets: u64,
    /// Their bytes.
    pub tx_bytes: u64,
    /// Frames that the device could not send.
    pub tx_errors: u64,
    /// Frames that the device dropped instead of sending them. Of a TAP device: frames that the
    /// gateway was too slow to read.
    pub tx_dropped: u64,
}

/// Where received frames wait for a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RingView {
    /// Rings, one for each worker.
    pub queues: u64,
    /// Frames that each holds.
    pub frames: u64,
    /// Memory of each in bytes.
    pub bytes: u64,
    /// Frames in the last second, of the busiest.
    pub rate: u64,
    /// For how many milliseconds the busiest would take frames at that rate if nobody read them;
    /// absent while none come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holds_ms: Option<u64>,
}

/// Neighbours that were learned on a port's link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NeighbourCounts {
    /// IPv4 ones.
    pub ipv4: u64,
    /// IPv6 ones.
    pub ipv6: u64,
    /// The most that there may be of each family.
    pub limit: u64,
    /// Answers that were not remembered as there was no room.
    pub refused: u64,
}

/// What a port has done, all workers together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortStatistics {
    /// Packets handed to the gateway.
    pub rx_packets: u64,
    /// Their bytes, link header included.
    pub rx_bytes: u64,
    /// Packets for which the kernel had no room in the ring that it shares with the port: its own
    /// count.
    #[serde(default)]
    pub rx_ring_full: u64,
    /// Packets lost before the gateway saw them, because it had no buffer or closed the port.
    pub rx_missed: u64,
    /// Frames refused: longer than a buffer, or with an offload that cannot be undone.
    pub rx_errors: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Their bytes, link header included.
    pub tx_bytes: u64,
    /// Packets not sent because the queue was full.
    pub tx_dropped: u64,
    /// Packets not sent because they were longer than the link takes.
    #[serde(default)]
    pub tx_too_long: u64,
    /// Packets not sent because the interface was down.
    #[serde(default)]
    pub tx_down: u64,
    /// Packets the system refused to send for another reason.
    pub tx_errors: u64,
    /// Frames larger than the MTU that were cut into segments on receipt.
    pub rx_segmented: u64,
    /// Checksums that the sender had left to offload and that were completed on receipt.
    pub rx_checksummed: u64,
}

/// A neighbour to make known, permanently.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NeighbourSpec {
    /// The port whose link it is on.
    pub port: String,
    /// Its IP address.
    pub address: IpAddr,
    /// Its Ethernet address.
    pub mac: Mac,
}

/// Names one neighbour.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NeighbourId {
    /// The port whose link it is on.
    pub port: String,
    /// Its IP address.
    pub address: IpAddr,
}

/// Which neighbours are meant. What is absent is not looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NeighbourFilter {
    /// Those on one port's link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// Those of ports in one VRF.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vrf: Option<String>,
    /// Those of one address family.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub family: Option<Family>,
    /// Those inside a prefix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<IpPrefix>,
    /// Those in one state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<NeighbourState>,
}

/// How sure it is that a neighbour is where it is said to be, by iproute2's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NeighbourState {
    /// Someone said so, and nothing but a command or a reload changes it.
    Permanent,
    /// It said so itself, not long ago.
    Reachable,
    /// It is being asked whether it is still there, and used meanwhile.
    Probe,
}

/// A neighbour as it is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NeighbourView {
    /// The port whose link it is on.
    pub port: String,
    /// The port's VRF.
    pub vrf: String,
    /// Its IP address.
    pub address: IpAddr,
    /// Its Ethernet address.
    pub mac: Mac,
    /// How sure that is.
    pub state: NeighbourState,
    /// Who said so: `gateway` where it was learned from the link.
    pub origin: Origin,
    /// Milliseconds since it was last heard of; absent where it is permanent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_ms: Option<u64>,
}

/// A VRF to add.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VrfSpec {
    /// Its name.
    pub name: String,
    /// The number of its routing table. The gateway chooses one if it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<u32>,
}

/// Names a VRF.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VrfName {
    /// Its name.
    pub name: String,
}

/// A change of a VRF.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VrfChange {
    /// The VRF.
    pub name: String,
    /// Whether it is an IPsec gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipsec: Option<Ipsec>,
    /// Whether IKE for its own addresses is asked policies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ike: Option<Ike>,
    /// The most that it may have of what VRFs share, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub highest_share: Option<u8>,
}

const fn whole() -> u8 {
    100
}

/// A VRF as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VrfView {
    /// Its name.
    pub name: String,
    /// Its number.
    pub id: u16,
    /// The number of its routing table.
    #[serde(default)]
    pub table: u32,
    /// The names of the ports in it.
    pub ports: Vec<String>,
    /// Its routes, those that follow from addresses included.
    pub routes: u64,
    /// Its policies.
    pub policies: u64,
    /// Its SAs.
    pub states: u64,
    /// Whether it is an IPsec gateway.
    #[serde(default)]
    pub ipsec: Ipsec,
    /// Whether it is one that has no policies, so that nothing crosses its boundary.
    #[serde(default)]
    pub closed: bool,
    /// What is switched on that its packets may meet: `filter`, `flow`, `xfrm` links, `rule`, `leak` (routes
    /// into other VRFs), `mss`, `qdisc`, `tap`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub features: Vec<String>,
    /// Whether IKE for its own addresses is asked policies.
    #[serde(default)]
    pub ike: Ike,
    /// The most that it may have of what VRFs share, in percent.
    #[serde(default = "whole")]
    pub highest_share: u8,
    /// What happens to packets that none of its policies matches.
    pub defaults: DefaultActionView,
    /// Who asked for it.
    pub origin: Origin,
}

/// A worker thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerView {
    /// Its number, from 0.
    pub index: usize,
    /// The processor that it is pinned to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processor: Option<usize>,
    /// Times that it went round all of its ports.
    pub rounds: u64,
    /// Batches that it handled.
    pub batches: u64,
    /// Packets that it handled.
    pub packets: u64,
    /// Packets that it dropped.
    pub drops: u64,
    /// Everything that it has counted beside drops and the decision cache.
    #[serde(default)]
    pub counters: Vec<CounterView>,
}

/// One counter of a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CounterView {
    /// Its name, which stays the same.
    pub name: String,
    /// What it counts.
    pub meaning: String,
    /// How often that has happened.
    pub value: u64,
}

/// How often packets were dropped for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DropView {
    /// The reason's name.
    pub reason: String,
    /// What it means.
    pub meaning: String,
    /// How many packets, all workers together.
    pub packets: u64,
}

impl PortStatistics {
    /// Both together.
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            rx_packets: self.rx_packets + other.rx_packets,
            rx_bytes: self.rx_bytes + other.rx_bytes,
            rx_ring_full: self.rx_ring_full + other.rx_ring_full,
            rx_missed: self.rx_missed + other.rx_missed,
            rx_errors: self.rx_errors + other.rx_errors,
            tx_packets: self.tx_packets + other.tx_packets,
            tx_bytes: self.tx_bytes + other.tx_bytes,
            tx_dropped: self.tx_dropped + other.tx_dropped,
            tx_too_long: self.tx_too_long + other.tx_too_long,
            tx_down: self.tx_down + other.tx_down,
            tx_errors: self.tx_errors + other.tx_errors,
            rx_segmented: self.rx_segmented + other.rx_segmented,
            rx_checksummed: self.rx_checksummed + other.rx_checksummed,
        }
    }

    /// Packets lost on receipt.
    pub fn rx_lost(&self) -> u64 {
        self.rx_ring_full + self.rx_missed + self.rx_errors
    }

    /// Packets that were to leave and were not sent.
    pub fn unsent(&self) -> u64 {
        self.tx_dropped + self.tx_too_long + self.tx_down + self.tx_errors
    }
}

impl InterfaceState {
    /// Its name, as in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Down => "down",
            Self::NoCarrier => "no-carrier",
            Self::Gone => "gone",
        }
    }
}

impl NeighbourState {
    /// iproute2's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Permanent => "permanent",
            Self::Reachable => "reachable",
            Self::Probe => "probe",
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Configuration => "configuration",
            Self::Runtime => "runtime",
            Self::Gateway => "gateway",
        })
    }
}
