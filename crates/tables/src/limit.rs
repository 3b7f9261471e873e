//! How much the tables hold, so that no configuration and no peer can make them grow without bound.

use packet::MAX_MTU;
use thiserror::Error;

/// So many, or as few as are reached soon where this crate tests itself. Tables of a million would
/// take its tests minutes and gigabytes.
const fn most(most: usize, in_tests: usize) -> usize {
    if cfg!(test) { in_tests } else { most }
}

/// The most VRFs.
pub const MAX_VRFS: usize = 4096;
/// The most numbers of VRFs, with those that rest: see `Tables::rest_vrf_number`.
pub const MAX_VRF_NUMBERS: usize = 2 * MAX_VRFS;
/// The most ports that are no sub-ports of others.
pub const MAX_PORTS: usize = 1024;
/// The most VLAN sub-ports.
pub const MAX_SUB_PORTS: usize = 16_384;
/// The most addresses of one port.
pub const MAX_ADDRESSES: usize = 256;
/// The most routing tables that no VRF has.
pub const MAX_TABLES: usize = 4096;
/// The most routes of one table, local and connected ones included.
pub const MAX_ROUTES: usize = most(2_097_152, 10_000);
/// The most next hops: those of routes, of known neighbours, and one of each port.
pub const MAX_NEXT_HOPS: usize = most(4_194_304, 2048);
/// The most multipath routes of all VRFs.
pub const MAX_GROUPS: usize = 262_144;
/// The most policies of all VRFs.
pub const MAX_POLICIES: usize = most(1_048_576, 20_000);
/// The most rules of all filters.
pub const MAX_FILTER_RULES: usize = 262_144;
/// So many VRFs may lead a packet on, each to the next one, by routes into one another's tables.
pub const MAX_LEAKS: usize = 4;
/// The most policy rules, of both families.
pub const MAX_RULES: usize = 16_384;
/// The most filters: of ports and VRFs, before and after routing.
pub const MAX_FILTERS: usize = most(32_768, 400);
/// The most SAs.
pub const MAX_SAS: usize = most(1_048_576, 256);
/// The smallest MTU with which a link carries IPv4 (RFC 791 section 3.2).
pub const MIN_MTU_V4: u16 = 68;
/// The smallest MTU with which a link carries IPv6 (RFC 8200 section 5).
pub const MIN_MTU_V6: u16 = 1280;

/// A port cannot have this MTU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("an MTU of {mtu} bytes{}", if *.v6 { " on a port with an IPv6 address" } else { "" })]
pub struct MtuError {
    /// The MTU in bytes.
    pub mtu: u16,
    /// The smallest.
    pub least: u16,
    /// The largest.
    pub most: u16,
    /// Whether the port has an IPv6 address.
    pub v6: bool,
}

/// Whether a port can have an MTU of `mtu` bytes, `v6` if it has an IPv6 address.
///
/// # Errors
/// [`MtuError`], with the MTUs that it can have.
pub fn check_mtu(mtu: u16, v6: bool) -> Result<(), MtuError> {
    let least = if v6 { MIN_MTU_V6 } else { MIN_MTU_V4 };
    let most = MAX_MTU;
    if (least..=most).contains(&mtu) { Ok(()) } else { Err(MtuError { mtu, least, most, v6 }) }
}
