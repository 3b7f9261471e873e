//! What the tables know of a port.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use types::station::{broadcast_of, check_port_address, check_station_mac, is_v6_link_local};
use types::{IfId, LinkKind, MssClamp, ReversePath, Side};
use wire::ethernet::EtherType;
use wire::{IpPrefix, Mac, PortId, VrfId};

use crate::error::TableError;
use crate::limit::{MAX_ADDRESSES, MIN_MTU_V6, check_mtu};
use crate::neighbour::Neighbours;
use crate::next_hop::{LinkHeader, NextHopId};
use crate::source;
use crate::vlan::{Vlan, VlanTable};

/// What a port is configured to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortSpec {
    /// Its name.
    pub name: Arc<str>,
    /// The VRF it is in.
    pub vrf: VrfId,
    /// What its frames begin with.
    pub link: LinkKind,
    /// Its Ethernet address.
    pub mac: Mac,
    /// The largest IP packet in bytes.
    pub mtu: u16,
    /// Its own addresses with their prefix lengths; each makes a connected route, unless it is IPv6
    /// link-local.
    pub addresses: Vec<IpPrefix>,
    /// Whether it may send and receive.
    pub up: bool,
    /// Which VLAN it is, if it is a sub-port. It stays the same for as long as the port exists.
    ///
    /// A sub-port has its parent's kind of link and Ethernet address, whatever is said here. Its
    /// MTU is at most its parent's, and it is down while its parent is.
    pub vlan: Option<Vlan>,
    /// Which xfrm link it is, if it is one. It stays the same for as long as the port exists.
    ///
    /// An xfrm link has no link header, and is on the protected side, whatever is said here.
    pub if_id: Option<IfId>,
    /// On which side of the IPsec boundary it is said to be; see [`Port::side`].
    pub side: Side,
    /// How the source of clear packets that come by it is held against the routes.
    pub reverse_path: ReversePath,
    /// How the MSS of TCP connections through it is lowered.
    pub mss: MssClamp,
}

impl PortSpec {
    /// An Ethernet port that is up in the main VRF, with an MTU of 1,500 bytes and nothing else.
    pub fn new(name: impl Into<Arc<str>>, mac: Mac) -> Self {
        Self {
            name: name.into(),
            vrf: VrfId::MAIN,
            link: LinkKind::Ethernet,
            mac,
            mtu: 1500,
            addresses: Vec::new(),
            up: true,
            vlan: None,
            if_id: None,
            side: Side::Unset,
            reverse_path: ReversePath::Off,
            mss: MssClamp::Off,
        }
    }
}

/// A port in the snapshot.
#[derive(Clone, Debug)]
pub struct Port {
    /// Its number.
    pub id: PortId,
    /// As configured, with an IPv6 link-local address: every Ethernet port has one. If none is
    /// configured, it follows from the Ethernet address (RFC 2464 section 5), unless the MTU is too
    /// small for IPv6.
    pub spec: PortSpec,
    /// On which side of the IPsec boundary it is: as configured, or, if nothing is, unprotected while
    /// a tunnel ends in an address of the port or leaves by it. That a port is protected is never
    /// concluded: a wrong guess would leak.
    pub side: Side,
    /// The stations on its link.
    pub neighbours: Arc<Neighbours>,
    /// Its own next hop, for destinations on the link that have none of their own. Where the link
    /// has a header, these have to be resolved ([`crate::NextHopState::OnLink`]); where it has
    /// none, it serves them all. It stays the same for as long as the port exists.
    pub next_hop: NextHopId,
    /// Its sub-ports.
    pub vlans: VlanTable,
    /// Whether what leaves by it passes a queueing discipline: its own, its parent's, or its VRF's.
    pub is_queued: bool,
    /// Since which generation it is there and in its VRF: no two ports of one number, and no two times
    /// of one port in a VRF, have the same.
    pub since: u64,
}

impl Port {
    /// The port by whose queue its frames leave: its own, or, if it is a
    /// sub-port, that of the port at the other end of its parents.
    #[inline(always)]
    pub fn queue(&self) -> PortId {
        self.spec.vlan.map_or(self.id, |vlan| vlan.queue())
    }

    /// Whether `address` is one of the port's own.
    pub fn owns(&self, address: IpAddr) -> bool {
        self.spec.addresses.iter().any(|own| own.address() == address)
    }

    /// Whether the port listens to packets to `address` that come in by it: its own addresses, its
    /// subnets' broadcast addresses and the limited one (RFC 1122 section 3.2.1.3), and the
    /// multicast groups that every node or router is in: all hosts of IPv4 (RFC 1112 section 4);
    /// all nodes, all routers and the solicited-node groups of IPv6 (RFC 4291 section 2.8).
    pub fn listens_to(&self, address: IpAddr) -> bool {
        match address {
            _ if self.owns(address) => true,
            IpAddr::V4(address) => {
                address.is_broadcast()
                    || address == Ipv4Addr::new(224, 0, 0, 1)
                    || self.spec.addresses.iter().any(|own| broadcast_of(*own) == Some(address))
            }
            IpAddr::V6(address) => {
                [ALL_NODES, ALL_ROUTERS].contains(&address)
                    || own_v6(&self.spec).any(|own| solicited_node(own) == address)
            }
        }
    }

    /// Whether `address` is the broadcast address of one of the port's prefixes.
    pub(crate) fn has_broadcast(&self, address: IpAddr) -> bool {
        self.spec.addresses.iter().filter_map(|own| broadcast_of(*own)).any(|it| address == it)
    }

    /// Whether `address` is on the port's link: on the prefix of one of its addresses, or IPv6
    /// link-local.
    pub fn reaches(&self, address: IpAddr) -> bool {
        is_v6_link_local(address)
            || self.spec.addresses.iter().any(|own| !own.is_host() && own.contains(address))
    }

    /// The port's IPv6 link-local address.
    pub fn link_local(&self) -> Option<Ipv6Addr> {
        own_v6(&self.spec).find(Ipv6Addr::is_unicast_link_local)
    }

    /// The port's own address from which to speak to `peer`: of IPv6 as RFC 6724 says; of IPv4 one
    /// whose prefix holds it, else the first that is not link-local unless `peer` is.
    pub fn source_for(&self, peer: IpAddr) -> Option<IpAddr> {
        if let IpAddr::V6(peer) = peer {
            return source::best_of(self.spec.addresses.iter(), peer);
        }
        let own =
            || self.spec.addresses.iter().filter(|own| own.address().is_ipv4() == peer.is_ipv4());
        let local = is_link_local(peer);
        own()
            .find(|own| own.contains(peer))
            .or_else(|| own().find(|own| is_link_local(own.address()) == local))
            .or_else(|| own().next())
            .map(IpPrefix::address)
    }

    /// Whether one of the port's addresses makes the connected route to `prefix`.
    pub(crate) fn connects(&self, prefix: IpPrefix) -> bool {
        self.spec
            .addresses
            .iter()
            .any(|own| is_routed(own) && !own.is_host() && own.network() == prefix)
    }
}

/// All IPv6 nodes on the link.
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
/// All IPv6 routers on the link.
const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);

impl PortSpec {
    /// Whether it has queues of its own, as VLANs and xfrm links do not.
    pub fn has_queues(&self) -> bool {
        self.vlan.is_none() && self.if_id.is_none()
    }

    /// What its frames to a station begin with: nothing where the link has no header.
    pub fn link_header(&self, destination: Mac, ether_type: EtherType) -> LinkHeader {
        match self.link {
            LinkKind::Ethernet => {
                LinkHeader::ethernet(destination, self.mac, self.vlan.as_ref(), ether_type)
            }
            LinkKind::Ip => LinkHeader::NONE,
        }
    }

    /// Makes a sub-port follow its parent.
    pub(crate) fn follow(&mut self, parent: &Self) {
        (self.link, self.mac) = (parent.link, parent.mac);
        self.mtu = self.mtu.min(parent.mtu);
        self.up &= parent.up;
        if let Some(vlan) = &mut self.vlan {
            vlan.follow(parent.vlan);
        }
    }

    /// The spec as it goes into the snapshot, with its link-local address. `before` is the port
    /// until now: the link-local address that followed from its Ethernet address goes with that.
    pub(crate) fn checked(mut self, before: Option<&Port>) -> Result<Self, TableError> {
        if self.if_id.is_some() {
            (self.link, self.side) = (LinkKind::Ip, Side::Protected);
        }
        self.check_link()?;
        if self.addresses.len() > MAX_ADDRESSES {
            return Err(TableError::Limit { what: "addresses of a port", limit: MAX_ADDRESSES });
        }
        if let Some(before) = before.filter(|before| before.spec.mac != self.mac) {
            let derived = link_local_of(before.spec.mac);
            self.addresses.retain(|own| own.address() != derived || !before.owns(derived));
        }
        for own in &self.addresses {
            if let Err(why) = check_port_address(*own) {
                return Err(TableError::PortAddress { port: self.name, address: *own, why });
            }
        }
        let carries_v6 = self.link == LinkKind::Ethernet && self.mtu >= MIN_MTU_V6;
        if carries_v6 && !self.addresses.iter().any(|own| is_v6_link_local(own.address())) {
            // 64 is a prefix length.
            self.addresses.extend(IpPrefix::new(link_local_of(self.mac), 64));
        }
        Ok(self)
    }

    fn check_link(&self) -> Result<(), TableError> {
        if self.link == LinkKind::Ethernet
            && let Err(why) = check_station_mac(self.mac)
        {
            return Err(TableError::PortMac { port: Arc::clone(&self.name), mac: self.mac, why });
        }
        let has_v6 = self.addresses.iter().any(|own| own.address().is_ipv6());
        check_mtu(self.mtu, has_v6)
            .map_err(|why| TableError::PortMtu { port: Arc::clone(&self.name), why })?;
        Ok(())
    }
}

/// Whether an address of a port is in the FIB: IPv6 link-local ones are not, every link has the
/// same prefix.
pub(crate) fn is_routed(own: &IpPrefix) -> bool {
    !is_v6_link_local(own.address())
}

/// The link-local address that follows from an Ethernet address (RFC 4291 appendix A).
fn link_local_of(Mac([a, b, c, d, e, g]): Mac) -> IpAddr {
    let word = |high, low| u16::from_be_bytes([high, low]);
    Ipv6Addr::new(0xfe80, 0, 0, 0, word(a ^ 2, b), word(c, 0xff), word(0xfe, d), word(e, g)).into()
}

/// RFC 4291 section 2.7.1.
fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    const GROUPS: u128 = 0xff02_0000_0000_0000_0000_0001_ff00_0000;
    Ipv6Addr::from_bits(GROUPS | address.to_bits() & 0xff_ffff)
}

fn own_v6(spec: &PortSpec) -> impl Iterator<Item = Ipv6Addr> {
    spec.addresses.iter().filter_map(|own| match own.address() {
        IpAddr::V4(_) => None,
        IpAddr::V6(address) => Some(address),
    })
}

pub(crate) fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}
