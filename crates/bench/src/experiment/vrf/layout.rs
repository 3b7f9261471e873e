//! Where tenants are: their links, their addresses and their prefixes.

use std::net::IpAddr;

use wire::{IpPrefix, PortId};

use crate::frame::Family;
use crate::topology::{IN, OUT};

/// On which side of the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Behind [`IN`].
    Client,
    /// Behind [`OUT`].
    Server,
}

impl Side {
    pub(crate) const BOTH: [Self; 2] = [Self::Client, Self::Server];

    /// The port with a queue.
    pub(crate) const fn port(self) -> PortId {
        match self {
            Self::Client => IN,
            Self::Server => OUT,
        }
    }
}

/// Which links tenants have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Links {
    /// The first tenant has the ports themselves, each other one a VLAN.
    Untagged,
    /// So many VLANs, one tenant after the other.
    Vlans(u16),
}

/// The first number of a sub-port (the tables' own are below).
const FIRST_SUB_PORT: u16 = 1024;

/// Places for the VLANs of a side.
const VLANS: u16 = 4096;

/// Who the tenants are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub tenants: u32,
    pub links: Links,
    /// Whether all tenants have the same prefixes, as each has a VRF of its own.
    pub overlap: bool,
    /// Prefixes of a tenant on each side: half of its routes.
    pub half: u32,
}

impl Layout {
    /// The number of a tenant's VLAN.
    pub(crate) fn vlan(&self, tenant: u32) -> Option<u16> {
        match self.links {
            Links::Untagged => (tenant > 0).then_some(tenant as u16),
            Links::Vlans(count) => Some(1 + (tenant % u32::from(count)) as u16),
        }
    }

    /// The port of a VLAN, or the one that has none.
    pub(crate) fn port(side: Side, vlan: Option<u16>) -> PortId {
        match vlan {
            None => side.port(),
            Some(number) => PortId(FIRST_SUB_PORT + side as u16 * VLANS + number - 1),
        }
    }

    /// The gateway's address on a tenant's link, and that of the station behind which the tenant's
    /// prefixes are. Each tenant has a station of its own, also on a link that it shares.
    pub(crate) fn ends(&self, family: Family, side: Side, tenant: u32) -> (IpPrefix, IpAddr) {
        match self.links {
            Links::Vlans(count) if u32::from(count) < self.tenants => shared(family, side, tenant),
            _ => Self::link(family, side, self.vlan(tenant)),
        }
    }

    /// The gateway's address on a link of one tenant, and that of its station.
    pub(crate) fn link(family: Family, side: Side, vlan: Option<u16>) -> (IpPrefix, IpAddr) {
        link_of(family, side as u32 * u32::from(VLANS) + u32::from(vlan.unwrap_or(0)))
    }

    /// A tenant's prefix.
    pub(crate) fn prefix(&self, family: Family, side: Side, tenant: u32, number: u32) -> IpPrefix {
        let address = self.address(family, side, tenant, number, 0);
        prefix_of(address, if family == Family::V6 { 48 } else { 24 })
    }

    /// An address in it: a /24 of 32.0.0.0/3, or a /48.
    pub(crate) fn address(
        &self,
        family: Family,
        side: Side,
        tenant: u32,
        number: u32,
        host: u32,
    ) -> IpAddr {
        let tenant = if self.overlap { 0 } else { tenant };
        let number = tenant * self.half + number;
        match family {
            Family::V4 => {
                let first = 1 + side as u32;
                IpAddr::V4((first << 29 | number << 8 | host).into())
            }
            Family::V6 => {
                let first = 0x2a20 + 0x20 * side as u128;
                IpAddr::V6((first << 112 | u128::from(number) << 80 | u128::from(host)).into())
            }
        }
    }
}

/// Link number `index`: the gateway's address and the other station's.
pub(crate) fn link_of(family: Family, index: u32) -> (IpPrefix, IpAddr) {
    let address = |host: u32| match family {
        Family::V4 => IpAddr::V4((10 << 24 | index << 2 | host).into()),
        Family::V6 => {
            IpAddr::V6((0xfd00_u128 << 112 | u128::from(index) << 64 | u128::from(host)).into())
        }
    };
    (prefix_of(address(1), if family == Family::V6 { 64 } else { 30 }), address(2))
}

/// A second station on the link of a station, whose address is of no prefix of a link.
pub(crate) fn behind(station: IpAddr) -> IpAddr {
    match station {
        IpAddr::V4(address) => IpAddr::V4((address.to_bits() ^ 1 << 24).into()),
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() ^ 2 << 112).into()),
    }
}

/// One link of a side for all tenants: the gateway's address and that of a tenant's station.
fn shared(family: Family, side: Side, tenant: u32) -> (IpPrefix, IpAddr) {
    let place = 128 + side as u32;
    let address = |host: u32| match family {
        Family::V4 => IpAddr::V4((10 << 24 | place << 16 | host).into()),
        Family::V6 => {
            let network = 0xfd01_u128 << 112 | u128::from(place) << 64;
            IpAddr::V6((network | u128::from(host)).into())
        }
    };
    let own = prefix_of(address(1), if family == Family::V6 { 64 } else { 16 });
    (own, address(2 + tenant))
}

/// Neither length is more than the family's addresses have bits.
fn prefix_of(address: IpAddr, length: u8) -> IpPrefix {
    IpPrefix::new(address, length).unwrap_or_else(|_| IpPrefix::host(address))
}
