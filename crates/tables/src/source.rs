//! From which of its own addresses the gateway speaks.

use core::cmp::Reverse;
use std::net::{IpAddr, Ipv6Addr};

use wire::{IpPrefix, PortId, VrfId};

use crate::port::{Port, is_link_local};
use crate::snapshot::Tables;

impl Tables {
    /// The own address from which the gateway speaks to `peer` in a VRF, of the VRF's own ports
    /// alone. `port` goes before the others if it is one of them: the port that the packet in
    /// question came by.
    ///
    /// If the route to `peer` says an address (`src`), it is that one. Otherwise IPv6 has RFC 6724,
    /// with `port` as the outgoing interface; no address here is deprecated, temporary or of a home
    /// network. IPv4 has an address of `port`, if it has one: see [`crate::Port::source_for`]. A link-local
    /// one goes behind all others for a peer elsewhere: nobody forwards packets from it (RFC 3927
    /// section 7).
    ///
    /// Not constant work: to be asked within a rate limit.
    pub fn source_in(&self, vrf: VrfId, port: PortId, peer: IpAddr) -> Option<IpAddr> {
        let said = self.vrf(vrf)?.routing_table().source_to(peer);
        if let Some(said) = said.filter(|said| self.vrf(vrf).is_some_and(|it| it.is_local(*said))) {
            return Some(said);
        }
        match peer {
            IpAddr::V4(_) => {
                let of = |port: &Port| Some((port.reaches(peer), port.source_for(peer)?));
                let by = self.port(port).filter(|port| port.spec.vrf == vrf).and_then(of);
                let others = || self.ports_of(vrf).filter_map(of);
                let near = || others().find(|(reaches, _)| *reaches);
                let fits = |(reaches, own): &(bool, IpAddr)| {
                    *reaches || !is_link_local(*own) || is_link_local(peer)
                };
                let best = by.filter(fits).or_else(near).or_else(|| others().find(fits));
                best.or(by).or_else(|| others().next()).map(|(_, own)| own)
            }
            IpAddr::V6(peer) => {
                let all = self.ports_of(vrf).flat_map(|it| {
                    it.spec.addresses.iter().filter_map(move |own| match own.address() {
                        IpAddr::V6(address) => Some((it.id == port, own, address)),
                        IpAddr::V4(_) => None,
                    })
                });
                // Link-local addresses are those of other links.
                let usable = all.filter(|(is_by, _, own)| *is_by || !own.is_unicast_link_local());
                // Of equal ones the first.
                let best = usable.max_by_key(|(is_by, prefix, own)| {
                    (preference(peer, *own, prefix.length(), *is_by), Reverse((!is_by, *own)))
                });
                best.map(|(_, _, own)| own.into())
            }
        }
    }
}

/// How good an own address is for packets to `peer`: the greater, the better (RFC 6724 section 5).
pub(crate) fn preference(
    peer: Ipv6Addr,
    own: Ipv6Addr,
    length: u8,
    is_by: bool,
) -> (bool, (bool, Reverse<u8>), bool, bool, u32) {
    let (mine, theirs) = (scope(own), scope(peer));
    // Rule 2: the smallest scope that is enough, otherwise the largest there is.
    let is_enough = mine >= theirs;
    let scope = (is_enough, Reverse(if is_enough { mine } else { u8::MAX - mine }));
    let common = (own.to_bits() ^ peer.to_bits()).leading_zeros().min(length.into());
    (own == peer, scope, is_by, label(own) == label(peer), common)
}

/// RFC 6724 section 3.1: as of multicast addresses.
fn scope(address: Ipv6Addr) -> u8 {
    match address {
        _ if address.is_multicast() => address.octets()[1] & 0xf,
        _ if address.is_unicast_link_local() || address.is_loopback() => 2,
        _ if within(address, 0xfec0 << 112, 10) => 5,
        _ => 14,
    }
}

/// RFC 6724 section 2.1: the default policy table, longer prefixes first.
const LABELS: [(u128, u8, u8); 8] = [
    (1, 128, 0),
    (0xffff << 32, 96, 4),
    (0, 96, 3),
    (0x2001 << 112, 32, 5),
    (0x2002 << 112, 16, 2),
    (0x3ffe << 112, 16, 12),
    (0xfec0 << 112, 10, 11),
    (0xfc00 << 112, 7, 13),
];

fn label(address: Ipv6Addr) -> u8 {
    let found = LABELS.iter().find(|(prefix, length, _)| within(address, *prefix, *length));
    found.map_or(1, |(.., label)| *label)
}

fn within(address: Ipv6Addr, prefix: u128, length: u8) -> bool {
    (address.to_bits() ^ prefix).leading_zeros() >= length.into()
}

/// Of a port's own IPv6 addresses the best to speak to `peer` from.
pub(crate) fn best_of<'a>(
    own: impl Iterator<Item = &'a IpPrefix>,
    peer: Ipv6Addr,
) -> Option<IpAddr> {
    let mut best = None;
    for prefix in own {
        let IpAddr::V6(address) = prefix.address() else { continue };
        let is = preference(peer, address, prefix.length(), true);
        if best.is_none_or(|(before, _)| is > before) {
            best = Some((is, address));
        }
    }
    best.map(|(_, address)| address.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn best(own: &[&str], peer: &str) -> String {
        let own: Vec<IpPrefix> = own.iter().map(|text| text.parse().unwrap()).collect();
        best_of(own.iter(), peer.parse().unwrap()).unwrap().to_string()
    }

    /// RFC 6724 section 10.1, as far as its addresses are of one interface.
    #[test]
    fn examples_of_rfc_6724() {
        for (peer, own, chosen) in [
            ("2001:db8:1::1", &["2001:db8:3::1/64", "fe80::1/64"][..], "2001:db8:3::1"),
            ("ff05::1", &["2001:db8:3::1/64", "fe80::1/64"], "2001:db8:3::1"),
            ("2001:db8:1::1", &["2001:db8:1::1/64", "2001:db8:2::1/64"], "2001:db8:1::1"),
            ("fe80::1", &["fe80::2/64", "2001:db8:1::1/64"], "fe80::2"),
            ("2001:db8:1::1", &["2001:db8:1::2/64", "2001:db8:3::2/64"], "2001:db8:1::2"),
            (
                "2002:c633:6401::1",
                &["2002:c633:6401::d5e3:7953/64", "2001:db8:1::2/64"],
                "2002:c633:6401::d5e3:7953",
            ),
            ("fd00::9", &["2001:db8::1/64", "fd99::1/64"], "fd99::1"),
            // The first of equal ones; bits behind the prefix do not count.
            ("2001:db8:9::1", &["2001:db8:8::1/32", "2001:db8:9::2/32"], "2001:db8:8::1"),
            // What is too small is better than nothing.
            ("2001:db8::1", &["fe80::1/64"], "fe80::1"),
        ] {
            assert_eq!(best(own, peer), chosen, "{peer}");
        }
    }
}
