//! Links: ports and VRFs with the names that iproute2 has for their parts in JSON.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use types::{Mac, MssClamp, ReversePath, Side};

/// A link as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkView {
    /// Its number.
    pub ifindex: u32,
    /// Its name.
    pub ifname: String,
    /// The port whose VLAN it is, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    /// `UP`, `BROADCAST` and so on, by Linux's names.
    pub flags: Vec<String>,
    /// The largest IP packet in bytes.
    pub mtu: u32,
    /// The VRF that it is in, unless that is `main`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub master: Option<String>,
    /// `UP` or `DOWN`.
    pub operstate: String,
    /// `ether`, or `none` if its frames have no header.
    pub link_type: String,
    /// Its Ethernet address. A VRF has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<Mac>,
    /// The address of all stations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broadcast: Option<Mac>,
    /// What it is.
    pub linkinfo: LinkInfo,
    /// What it has done, all workers together.
    pub stats64: LinkStatistics,
    /// The system's interface that it is on, where it is on one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// On which side of the IPsec boundary it is.
    #[serde(default)]
    pub side: Side,
    /// The tunnel's end that makes it an unprotected one, if that is not configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tunnel_end: Option<IpAddr>,
    /// How the source of clear packets is held against the routes.
    #[serde(default)]
    pub rpf: ReversePath,
    /// How the MSS of TCP connections through it is lowered: "off", "pmtu", or a number of bytes.
    #[serde(default)]
    pub mss: MssClamp,
    /// What is switched on that its packets meet. Of a port: on itself or for its VRF as a whole; of
    /// a VRF: on itself or one of its ports. The words are those of `VrfView::features`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub features: Vec<String>,
}

/// What a link is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkInfo {
    /// `vrf`, `vlan`, or another `kind` of a port's configuration.
    pub info_kind: String,
    /// Of a VRF, a VLAN and an xfrm link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub info_data: Option<LinkData>,
    /// `vrf` if it is in one other than `main`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub info_slave_kind: Option<String>,
    /// The table of the VRF that it is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub info_slave_data: Option<LinkData>,
}

/// What tells a link from others of its kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkData {
    /// The routing table of a VRF.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<u32>,
    /// What a VLAN's tags are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// The number in them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u16>,
    /// The `if_id` of an xfrm link, as iproute2 has it: in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub if_id: Option<String>,
}

/// What a link has received and sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkStatistics {
    /// Received.
    pub rx: LinkCounts,
    /// Sent.
    pub tx: LinkCounts,
}

/// What passed a link in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkCounts {
    /// Bytes, link headers included.
    pub bytes: u64,
    /// Packets.
    pub packets: u64,
    /// Packets with errors.
    pub errors: u64,
    /// Packets for which there was no room.
    pub dropped: u64,
}
