//! Whether a connection that is there would be made by the rules as they are now.

use std::net::IpAddr;

use api::FirewallAction;
use conntrack::{Connection, Role, Tuple};
use types::{PortId, Protocol};

use super::compile::{BORROWED, Compiled, LABEL, NO_PORT, Vrf};
use super::services::{Service, Type};
use super::{Firewall, GATEWAY, Part, matches, parts};

/// A connection, as far as it is judged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    /// The port that its first packet came by, and the one that it left by.
    pub(crate) ports: [u16; 2],
    pub(crate) source: IpAddr,
    /// As the packet came.
    pub(crate) destination: IpAddr,
    pub(crate) protocol: Protocol,
    /// Of ICMP the type.
    pub(crate) port: u16,
    /// What the destination has become, if it is translated.
    pub(crate) forwarded: Option<(IpAddr, u16)>,
    /// What the source has become, if it is translated.
    pub(crate) translated: Option<(IpAddr, u16)>,
    /// Whether that is the address of the port that it left by, and so changes with that.
    pub(crate) is_borrowed: bool,
}

impl Seen {
    /// A connection that the firewall made; `None` if somebody else did.
    pub(crate) fn of(connection: &Connection) -> Option<Self> {
        let Connection { original, reply, label, .. } = connection;
        if label & LABEL == 0 {
            return None;
        }
        let port = |shift: u32| (label >> shift) as u16;
        let addresses = |tuple: &Tuple| (tuple.addresses.source(), tuple.addresses.destination());
        let ((source, destination), (server, client)) = (addresses(original), addresses(reply));
        let is_icmp = original.role != Role::None;
        Some(Self {
            ports: [port(0), port(16)],
            source,
            destination,
            protocol: original.protocol,
            port: original.destination,
            forwarded: connection.is_dnat.then_some((server, reply.source)),
            // Of ICMP, both tuples have the type there.
            // A port alone changes where that of another connection is in the way.
            translated: (connection.is_snat && client != source)
                .then_some((client, if is_icmp { 0 } else { reply.destination })),
            is_borrowed: label & BORROWED != 0,
        })
    }
}

impl Firewall {
    /// Whether the rules let a connection be as it is: that it passes, and that it is translated as
    /// it would be translated now.
    pub(crate) fn allows(&self, vrf: &Vrf, seen: &Seen) -> bool {
        let Some(from) = vrf.from(seen) else { return false };
        let forward = self.forward_of(vrf, from, seen);
        let (destination, port) = match forward {
            Some(at) => {
                let spec = &self.spec.forwards[at];
                (spec.to, spec.to_port.unwrap_or(seen.port))
            }
            None => (seen.destination, seen.port),
        };
        let wanted = forward.map(|_| (destination, port));
        if wanted != seen.forwarded {
            return false;
        }
        let Some(to) = vrf.to(destination, seen.ports[1]) else { return false };
        let passes = forward.is_some()
            || self.verdict(from, to, seen, destination, port) == FirewallAction::Accept;
        passes && self.is_translated_so(vrf, (from, to), seen, destination, forward.is_some())
    }

    /// The class whose limits a connection counts for: the zone that it comes from, if any has limits.
    pub(crate) fn class_of(&self, vrf: &Vrf, seen: &Seen) -> u16 {
        vrf.from(seen).filter(|_| self.is_limited()).unwrap_or(0)
    }

    /// The first port that is forwarded of those that are meant.
    fn forward_of(&self, vrf: &Vrf, from: u16, seen: &Seen) -> Option<usize> {
        (0..self.spec.forwards.len()).find(|at| {
            let (outside, hairpin) = &self.forward_zones[*at];
            let spec = &self.spec.forwards[*at];
            let sources: &[_] = if outside.contains(&from) { &spec.sources } else { &[] };
            (outside.contains(&from) || hairpin.contains(&from))
                && vrf.outer_addresses(self, *at).any(|own| own == seen.destination)
                && parts(&self.forwards[*at], sources, &[])
                    .any(|part| part.includes(seen, seen.destination, seen.port))
        })
    }

    /// What the policy from a zone to another says.
    fn verdict(
        &self,
        from: u16,
        to: u16,
        seen: &Seen,
        destination: IpAddr,
        port: u16,
    ) -> FirewallAction {
        let Some(policy) = self.by_zones.get(&(from, to)) else { return self.spec.default };
        let rules = &self.policies[*policy].rules;
        let rule = rules
            .iter()
            .find(|rule| matches(rule).any(|part| part.includes(seen, destination, port)));
        rule.map_or(self.spec.policies[*policy].action, |rule| rule.action)
    }

    fn is_translated_so(
        &self,
        vrf: &Vrf,
        (from, to): (u16, u16),
        seen: &Seen,
        destination: IpAddr,
        is_forwarded: bool,
    ) -> bool {
        let v6 = seen.source.is_ipv6();
        let port = vrf.ports.iter().find(|(zone, port)| *zone == to && port.id == seen.ports[1]);
        let own = port.map(|(_, port)| port.address(v6));
        let is_borrowed =
            |own: IpAddr| seen.is_borrowed && seen.translated.is_some_and(|(is, _)| is == own);
        // As in table 244, the highest priority first.
        let loops = is_forwarded
            && from == to
            && self.forward_zones.iter().any(|(_, hairpin)| hairpin.contains(&to));
        if let (true, Some(Some(own))) = (loops, own) {
            return is_borrowed(own);
        }
        let snat = self.spec.snats.iter().zip(&self.snats).find(|(spec, zones)| {
            zones.from.contains(&from)
                && zones.to.contains(&to)
                && spec.addresses.is_none_or(|it| it.is_v6() == v6)
                && parts(&[], &spec.sources, &spec.destinations)
                    .any(|part| part.includes(seen, destination, 0))
        });
        if let Some((spec, _)) = snat {
            let Some(addresses) = spec.addresses else { return seen.translated.is_none() };
            return seen.translated.is_some_and(|(is, port)| {
                let has_ports = seen.protocol.has_ports();
                let in_range = |(first, last)| !has_ports || (first <= port && port <= last);
                !seen.is_borrowed && addresses.contains(is) && spec.ports.is_none_or(in_range)
            });
        }
        let zone = usize::from(to).checked_sub(1).and_then(|at| self.spec.zones.get(at));
        let masquerades = zone.and_then(|zone| zone.masquerade).is_some_and(|it| it.is_for(v6));
        match own.filter(|_| masquerades) {
            Some(Some(own)) => is_borrowed(own),
            // It would be dropped.
            Some(None) => false,
            None => seen.translated.is_none(),
        }
    }
}

impl Compiled {
    /// The VRF of this name, if the firewall is in it.
    pub(crate) fn vrf(&self, name: &str) -> Option<&Vrf> {
        self.vrfs.iter().find(|vrf| vrf.name == name)
    }

    /// The numbers of zones that ports are in.
    pub(crate) fn zones_of_ports(&self) -> impl Iterator<Item = (PortId, u16)> + '_ {
        let ports = self.vrfs.iter().flat_map(|vrf| &vrf.ports);
        ports.map(|(zone, port)| (PortId(port.id), *zone))
    }
}

impl Vrf {
    /// The zone that a connection comes from.
    fn from(&self, seen: &Seen) -> Option<u16> {
        let of_network = || (seen.ports[0] == NO_PORT).then(|| self.network(seen.source)).flatten();
        of_network().or_else(|| self.port(seen.ports[0])).or(self.rest)
    }

    /// The zone that it goes to.
    fn to(&self, destination: IpAddr, port: u16) -> Option<u16> {
        match port {
            NO_PORT => Some(GATEWAY),
            port => self.network(destination).or_else(|| self.port(port)),
        }
    }

    fn network(&self, address: IpAddr) -> Option<u16> {
        let found = self.networks.iter().filter(|(network, _)| network.contains(address));
        found.max_by_key(|(network, _)| network.length()).map(|(_, zone)| *zone)
    }

    fn port(&self, id: u16) -> Option<u16> {
        self.ports.iter().find(|(_, port)| port.id == id).map(|(zone, _)| *zone)
    }
}

impl Part {
    fn includes(&self, seen: &Seen, destination: IpAddr, port: u16) -> bool {
        let v6 = seen.source.is_ipv6();
        let number = seen.protocol.0;
        let is_service = match self.service.map(Service::plain) {
            None => true,
            Some(Service::Protocol(protocol)) => protocol == number,
            Some(Service::Helped(_)) => false,
            Some(Service::Ports { protocol, first, last }) => {
                protocol == number && first <= port && port <= last
            }
            Some(Service::Icmp { v4, v6: of_v6 }) => {
                let (icmp, kind) =
                    if v6 { (Protocol::ICMPV6, of_v6) } else { (Protocol::ICMP, v4) };
                seen.protocol == icmp
                    && match kind {
                        None => false,
                        Some(Type::Any) => true,
                        Some(Type::This(kind)) => u16::from(kind) == port,
                    }
            }
        };
        self.v6 == v6
            && is_service
            && self.source.is_none_or(|range| range.contains(seen.source))
            && self.destination.is_none_or(|range| range.contains(destination))
    }
}
