//! What is right and worth a word all the same.

use std::collections::BTreeSet;
use std::net::IpAddr;

use api::FirewallAction;
use types::{IpPrefix, IpRange};

use super::{Compiled, Place, SitePort, TABLES, Vrf, Writer};
use crate::firewall::Firewall;

/// What is said of flows by hand in these.
pub(crate) fn doubt_flows(vrf: &str, count: usize) -> String {
    let (first, last) = (TABLES.start(), TABLES.end());
    let flows =
        if count == 1 { "1 flow by hand is" } else { &format!("{count} flows by hand are") };
    format!(
        "{flows} in tables {first} to {last} of VRF {vrf}, which are those of the firewall: its packets \
         meet what is there, too"
    )
}

/// What is said of zones with networks in a VRF that is no IPsec gateway.
pub(crate) fn doubt_networks(vrf: &str) -> String {
    format!(
        "VRF {vrf} has a zone with `networks` and is no IPsec gateway until it has policies: what goes \
         to these networks leaves in clear by its route (ipsec = \"required\" of the VRF keeps it in)"
    )
}

/// What is said of networks of zones in an IPsec gateway that lets out what is of no policy, if policies
/// are not for all that goes there. `kept_in` are the destinations of those that protect or block.
pub(crate) fn doubt_unprotected(
    vrf: &str,
    networks: impl Iterator<Item = IpPrefix>,
    kept_in: impl Iterator<Item = IpRange>,
) -> Option<String> {
    const TOLD: usize = 10;
    let number = |address: IpAddr| match address {
        IpAddr::V4(address) => (false, u128::from(address.to_bits())),
        IpAddr::V6(address) => (true, address.to_bits()),
    };
    let ends = |range: IpRange| (number(range.first()), number(range.last()));
    let mut kept_in: Vec<_> = kept_in.map(ends).collect();
    kept_in.sort_unstable();
    // Those that touch each other as one.
    let mut joined: Vec<((bool, u128), (bool, u128))> = Vec::with_capacity(kept_in.len());
    for (first, last) in kept_in {
        match joined.last_mut() {
            Some((_, end)) if first.0 == end.0 && first.1 <= end.1.saturating_add(1) => {
                *end = last.max(*end);
            }
            _ => joined.push((first, last)),
        }
    }
    let is_open = |network: &IpPrefix| {
        let (first, last) = ends(network.range());
        let begun = joined.partition_point(|(begin, _)| *begin <= first);
        begun.checked_sub(1).is_none_or(|at| joined[at].1 < last)
    };
    let open: Vec<_> = networks.filter(is_open).map(|network| network.to_string()).collect();
    if open.is_empty() {
        return None;
    }
    let told = open.iter().take(TOLD).map(String::as_str).collect::<Vec<_>>().join(", ");
    let more = match open.len().saturating_sub(TOLD) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Some(format!(
        "VRF {vrf} has default-out = \"accept\", and no policies that protect or block all that goes to \
         the `networks` {told}{more}: the rest may leave in clear, if it has a route (a policy with \
         action block for the network, behind the others, keeps it in)"
    ))
}

/// What is said of a VRF without flows from which a route leads into one with a firewall.
pub(crate) fn doubt_leak(from: &str, into: &str) -> String {
    format!(
        "a route leads from VRF {from}, which has neither a firewall nor flows, into VRF {into}, which has \
         a firewall: packets meet its `default` there (flows of VRF {from} say what may pass)"
    )
}

impl Compiled {
    /// The VRFs that zones have networks in.
    pub(crate) fn vrfs_of_networks(&self) -> impl Iterator<Item = &str> {
        let vrfs = self.vrfs.iter().filter(|vrf| !vrf.networks.is_empty());
        vrfs.map(|vrf| vrf.name.as_str())
    }

    /// The networks of zones in a VRF.
    pub(crate) fn networks_in(&self, vrf: &str) -> impl Iterator<Item = IpPrefix> {
        let networks = self.vrf(vrf).map(|vrf| vrf.networks.iter());
        networks.into_iter().flatten().map(|(network, _)| *network)
    }
}

impl Writer<'_> {
    /// Notes the ports that zones have forgotten.
    pub(super) fn doubt_ports(&mut self, vrf: &Vrf, ports: &[SitePort]) {
        let is_zoned = |port: &SitePort| vrf.ports.iter().any(|(_, zoned)| zoned.id == port.id);
        let becomes = match self.firewall.spec.default {
            FirewallAction::Reject => "rejected",
            _ => "dropped",
        };
        let of_vrf = ports.iter().filter(|port| port.vrf == vrf.name && port.is_of_hosts());
        for port in of_vrf.filter(|port| !is_zoned(port)) {
            self.doubts.insert(format!(
                "port {} is in no zone of the firewall in VRF {}: what comes by it, and what would \
                 leave by it, is {becomes} (name it in the `ports` of a zone)",
                port.name, vrf.name
            ));
        }
    }

    /// Notes the policies and translations whose zones are in no VRF together: a packet comes from a
    /// zone and goes to one within a VRF.
    pub(super) fn doubt_pairs(&mut self, vrfs: &[Vrf]) {
        let Firewall { spec, by_zones, snats, .. } = self.firewall;
        let meet = |from: u16, to: u16| vrfs.iter().any(|vrf| vrf.has(from) && vrf.has(to));
        let matching = by_zones.iter().filter(|((from, to), _)| meet(*from, *to));
        let matching: BTreeSet<usize> = matching.map(|(_, policy)| *policy).collect();
        let policies = spec.policies.iter().enumerate().filter(|(at, _)| !matching.contains(at));
        let policies = policies.map(|(at, it)| (Place::Policy(at), &it.from, &it.to));
        let snats = spec.snats.iter().zip(snats).enumerate().filter(|(_, (_, zones))| {
            !zones.from.iter().any(|from| zones.to.iter().any(|to| meet(*from, *to)))
        });
        let snats = snats.map(|(at, (it, _))| (Place::Snat(at), &it.from, &it.to));
        for (place, from, to) in policies.chain(snats) {
            self.doubts.insert(format!(
                "{place} never matches a packet: no zone of `from` ({}) is in one VRF with a zone of \
                 `to` ({}), and zones are within one VRF",
                from.join(", "),
                to.join(", ")
            ));
        }
    }

    /// Notes translations to addresses for which nobody answers: on the link of a port and of none of the
    /// gateway's, or what nothing can be behind.
    pub(super) fn doubt_addresses(&mut self, vrfs: &[Vrf]) {
        let Firewall { spec, snats, forward_zones, .. } = self.firewall;
        let mut doubts = Vec::new();
        for vrf in vrfs {
            let all = || vrf.ports.iter().flat_map(|(_, port)| &port.addresses);
            let is_own = |address: IpAddr| all().any(|own| own.address() == address);
            // The port of these zones that is to answer for it, and cannot.
            let unanswered = |zones: &[u16], address: IpAddr| {
                let ports = vrf.ports.iter().filter(|(zone, _)| zones.contains(zone));
                let mut ports = ports.map(|(_, port)| port).filter(|port| !port.is_tunnel);
                let has = |port: &&SitePort| port.addresses.iter().any(|it| it.contains(address));
                ports.find(has).filter(|_| !is_own(address)).map(|port| port.name.clone())
            };
            let mut nobody = |place: Place, address: IpAddr, port: &str| {
                doubts.push(format!(
                    "{place}: {address} is on the link of port {port}, and none of the gateway's \
                     addresses: nobody answers for it there (give it to the port)"
                ));
            };
            for (at, (it, zones)) in spec.snats.iter().zip(snats).enumerate() {
                let ends = it.addresses.map(|range| [range.first(), range.last()]);
                let first = ends
                    .into_iter()
                    .flatten()
                    .find_map(|address| Some((address, unanswered(&zones.to, address)?)));
                first.iter().for_each(|(address, port)| nobody(Place::Snat(at), *address, port));
            }
            for (at, (it, (from, _))) in spec.forwards.iter().zip(forward_zones).enumerate() {
                for address in &it.addresses {
                    let port = unanswered(from, *address);
                    port.iter().for_each(|port| nobody(Place::Forward(at), *address, port));
                }
            }
            for (at, (it, (from, _))) in spec.forwards.iter().zip(forward_zones).enumerate() {
                let place = Place::Forward(at);
                if !from.iter().any(|zone| vrf.has(*zone)) {
                    continue;
                }
                if is_own(it.to) {
                    doubts.push(format!(
                        "{place}: {} is an address of the gateway itself, where nobody listens",
                        it.to
                    ));
                } else if all().any(|on_link| is_broadcast(on_link, it.to)) {
                    doubts.push(format!(
                        "{place}: {} is the broadcast of a link, and no host",
                        it.to
                    ));
                }
            }
        }
        self.doubts.extend(doubts);
    }

    /// Notes the zones whose networks get packets that masquerade leaves alone: nothing says with which
    /// address.
    pub(super) fn doubt_masquerade(&mut self, vrf: &Vrf) {
        for (_, zone) in &vrf.networks {
            let spec = &self.firewall.spec.zones[usize::from(*zone) - 1];
            if spec.masquerade.is_some() {
                self.doubts.insert(format!(
                    "zone {}: masquerade is for what leaves by its ports, and translates nothing that \
                     goes to its networks ([[firewall.snat]] does)",
                    spec.name
                ));
            }
        }
    }
}

/// Whether an address is the first or the last of the network on a link, which no host has (RFC 919; RFC
/// 3021 knows links of two).
fn is_broadcast(on_link: &IpPrefix, address: IpAddr) -> bool {
    let range = on_link.range();
    address.is_ipv4() && on_link.length() < 31 && [range.first(), range.last()].contains(&address)
}
