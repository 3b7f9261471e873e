//! What has to be true of one wish by itself, whether it comes from the configuration file or as a
//! command.

mod algorithm;
mod policy;
mod state;

pub(crate) use algorithm::{default_truncation, encryption_name, integrity_name};
pub(crate) use policy::{action, policy, selector};
pub(crate) use state::state;

use std::net::IpAddr;

use api::{NeighbourSpec, Refusal, RefusalCode, RouteKind, RouteSpec};
use types::IpPrefix;

/// The longest name of a port or VRF, in bytes: as long as Linux lets interface names be.
pub(crate) const MAX_NAME: usize = 15;

/// The smallest MTU of a port in bytes (RFC 791 section 3.2).
pub(crate) const MIN_MTU: u16 = 68;

/// The largest MTU of a port in bytes: what a buffer takes, less an Ethernet header.
pub(crate) const MAX_MTU: u16 = (packet::MAX_FRAME - 14) as u16;

/// The smallest MTU of a port with an IPv6 address, in bytes (RFC 8200 section 5).
pub(crate) const MIN_MTU_V6: u16 = 1280;

/// What is wrong with a wish, and with which part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// The part, by its name in the configuration file.
    pub(crate) part: &'static str,
    /// What kind of reason.
    pub(crate) code: RefusalCode,
    /// What is wrong.
    pub(crate) message: String,
    /// What would be right.
    pub(crate) hint: Option<String>,
}

impl Fault {
    pub(crate) fn invalid(part: &'static str, message: impl Into<String>) -> Self {
        Self { part, code: RefusalCode::Invalid, message: message.into(), hint: None }
    }

    pub(crate) fn unsupported(part: &'static str, message: impl Into<String>) -> Self {
        Self { part, code: RefusalCode::Unsupported, message: message.into(), hint: None }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        Self { code: fault.code, message: fault.message, hint: fault.hint }
    }
}

/// A word as errors show it: nothing that could confuse a terminal, not all of a long one, and no
/// key.
pub(crate) fn shown(word: &str) -> String {
    const SHOWN: usize = 40;
    if word.len() > 12 && (word.starts_with("0x") || word.starts_with("0X")) {
        return "0x...".to_owned();
    }
    let start: String = word.chars().take(SHOWN).flat_map(char::escape_debug).collect();
    if word.chars().nth(SHOWN).is_some() { format!("{start}...") } else { start }
}

/// A name of a port or VRF: 1 to 15 letters, digits, `-`, `_` and `.`, no word that means something
/// else in commands.
pub(crate) fn name(part: &'static str, name: &str) -> Result<(), Fault> {
    const HINT: &str = "1 to 15 letters, digits, '-', '_' or '.', the first a letter or digit";
    if name.is_empty() || name.len() > MAX_NAME {
        return Err(Fault::invalid(part, format!("a name of {} bytes", name.len())).hint(HINT));
    }
    let wrong =
        |(at, c): &(usize, char)| !(c.is_ascii_alphanumeric() || *at > 0 && "-_.".contains(*c));
    if let Some((_, c)) = name.char_indices().find(wrong) {
        return Err(Fault::invalid(
            part,
            format!("'{}' is not allowed here in a name", c.escape_default()),
        )
        .hint(HINT));
    }
    Ok(())
}

/// An address that a port may have.
pub(crate) fn own_address(part: &'static str, prefix: IpPrefix) -> Result<(), Fault> {
    let address = prefix.address();
    if !is_station(address) || prefix.length() == 0 {
        return Err(Fault::invalid(part, format!("{prefix} cannot be the address of a port"))
            .hint("a unicast address with the prefix length of its link, as in 192.0.2.1/24"));
    }
    // The first and last address of an IPv4 link name the link and everyone on it, unless it is a
    // point-to-point one (RFC 3021).
    if address.is_ipv4() && prefix.length() < 31 {
        let range = prefix.range();
        if address == range.first() || address == range.last() {
            let what = if address == range.first() { "network" } else { "broadcast" };
            return Err(Fault::invalid(
                part,
                format!("{address} is the {what} address of {}", prefix.network()),
            )
            .hint("the address of one host on the link, as in 192.0.2.1/24"));
        }
    }
    Ok(())
}

/// An address that a station on a link may have.
pub(crate) fn station(part: &'static str, address: IpAddr) -> Result<(), Fault> {
    if !is_station(address) {
        return Err(Fault::invalid(part, format!("{address} is not the address of one station"))
            .hint("a unicast address"));
    }
    Ok(())
}

/// An Ethernet address that a station may have.
pub(crate) fn station_mac(part: &'static str, mac: types::Mac) -> Result<(), Fault> {
    if mac.is_group() || mac == types::Mac::default() {
        return Err(Fault::invalid(part, format!("{mac} is not the address of one station"))
            .hint("an address whose first octet is even, and not all zeros"));
    }
    Ok(())
}

/// A permanent neighbour.
pub(crate) fn neighbour(spec: &NeighbourSpec) -> Result<(), Fault> {
    station("address", spec.address)?;
    station_mac("mac", spec.mac)
}

/// An MTU that a port may have, `v6` where it has an IPv6 address.
pub(crate) fn mtu(part: &'static str, mtu: u16, v6: bool) -> Result<(), Fault> {
    if !(MIN_MTU..=MAX_MTU).contains(&mtu) {
        return Err(Fault::invalid(part, format!("an MTU of {mtu} bytes"))
            .hint(format!("{MIN_MTU} to {MAX_MTU} bytes")));
    }
    if v6 && mtu < MIN_MTU_V6 {
        return Err(Fault::invalid(
            part,
            format!("an MTU of {mtu} bytes on a port with an IPv6 address"),
        )
        .hint(format!("{MIN_MTU_V6} bytes at least (RFC 8200 section 5)")));
    }
    Ok(())
}

/// Destinations that a route may have.
pub(crate) fn destination(part: &'static str, prefix: IpPrefix) -> Result<(), Fault> {
    prefix.without_host_bits().map_err(|why| {
        Fault::invalid(part, format!("{prefix}: {why}")).hint(prefix.network().to_string())
    })?;
    if prefix.length() > 0 && is_group(prefix.address()) {
        return Err(Fault::unsupported(
            part,
            format!("{prefix}: multicast and broadcast are not routed"),
        ));
    }
    if prefix.length() >= 10 && is_link_local_v6(prefix.address()) {
        return Err(Fault::invalid(
            part,
            format!("{prefix}: link-local addresses are on every link, and not routed"),
        ));
    }
    Ok(())
}

/// A route that someone may ask for.
pub(crate) fn route(spec: &RouteSpec) -> Result<(), Fault> {
    destination("to", spec.destination)?;
    match spec.kind {
        RouteKind::Unicast => {}
        RouteKind::Local | RouteKind::Broadcast => {
            return Err(Fault::invalid(
                "kind",
                format!("routes of kind {} follow from the addresses of ports", spec.kind),
            )
            .hint("add an address to a port"));
        }
        RouteKind::Blackhole | RouteKind::Unreachable | RouteKind::Prohibit => {
            let part = spec.via.map(|_| "via").or(spec.port.as_ref().map(|_| "port"));
            return match part {
                Some(part) => Err(Fault::invalid(
                    part,
                    format!("a route of kind {} sends nowhere", spec.kind),
                )
                .hint("leave out next hop and port, or make it unicast")),
                None => Ok(()),
            };
        }
    }
    let Some(via) = spec.via else {
        if spec.port.is_none() {
            return Err(Fault::invalid(
                "to",
                format!("the route to {} leads nowhere", spec.destination),
            )
            .hint("a next hop, a port, or both; or kind blackhole, unreachable or prohibit"));
        }
        return Ok(());
    };
    if via.is_ipv4() != spec.destination.address().is_ipv4() {
        return Err(Fault::unsupported(
            "via",
            format!(
                "next hop {via} and destination {} are of two address families",
                spec.destination
            ),
        )
        .hint("a next hop of the destination's family"));
    }
    station("via", via)?;
    if spec.port.is_none() && is_link_local_v6(via) {
        return Err(Fault::invalid("via", "a link-local next hop does not say on which link")
            .hint("name the port too"));
    }
    Ok(())
}

/// Whether an address can be that of one station.
fn is_station(address: IpAddr) -> bool {
    match address {
        _ if address.is_unspecified() || address.is_loopback() || is_group(address) => false,
        // "This network" (RFC 1122 section 3.2.1.3) and what is reserved (RFC 1112 section 4).
        IpAddr::V4(address) => address.octets()[0] != 0 && address.octets()[0] < 240,
        IpAddr::V6(address) => address.to_ipv4_mapped().is_none(),
    }
}

/// Multicast, or IPv4 broadcast.
pub(crate) fn is_group(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_multicast() || address.is_broadcast(),
        IpAddr::V6(address) => address.is_multicast(),
    }
}

pub(crate) fn is_link_local_v6(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for good in ["lan", "eth0", "0", "a.b-c_d", "fifteen-letters"] {
            assert_eq!(name("name", good), Ok(()), "{good}");
        }
        for bad in ["", "-a", "a b", "a/b", "sixteen-letters-", "é", "a\n"] {
            assert!(name("name", bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn own_addresses() {
        for good in ["192.0.2.1/24", "192.0.2.0/31", "192.0.2.1/32", "2001:db8::/64", "fe80::1/64"]
        {
            assert_eq!(own_address("addresses", good.parse().unwrap()), Ok(()), "{good}");
        }
        for bad in [
            "192.0.2.0/24",
            "192.0.2.255/24",
            "0.0.0.0/0",
            "127.0.0.1/8",
            "224.0.0.1/24",
            "ff02::1/64",
            "::/0",
            "10.0.0.1/0",
            "240.0.0.1/8",
        ] {
            assert!(own_address("addresses", bad.parse().unwrap()).is_err(), "{bad}");
        }
    }
}
