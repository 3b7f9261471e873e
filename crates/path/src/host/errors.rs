//! ICMP and ICMPv6 errors, within a rate limit (RFC 1812 section 4.3.2, RFC 4443 section 2.4).

use std::net::IpAddr;

use packet::Packet;
use tables::{Action, Direction};
use wire::{Addresses, FlowKey, Headers, Origin, icmpv4, icmpv6, ipv6};

use crate::decision::Refusal;
use crate::host::answer_to;
use crate::lane::{Arrival, Flight, Onward};
use crate::worker::Round;

/// What the gateway has to say of a packet that it does not send on.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Complaint {
    Unreachable(Refusal),
    HopLimit,
    TooBig(u16),
    Port,
    Protocol,
}

impl Round<'_> {
    /// Tells the sender of a packet why it was not sent on. Says nothing about the gateway's own
    /// packets.
    pub(crate) fn complain(
        &mut self,
        packet: &Packet,
        flight: &Flight,
        complaint: Complaint,
        onward: &mut Onward,
    ) {
        if matches!(flight.arrival.origin, Origin::Host | Origin::HostProtected) {
            return;
        }
        let from = self.speaking_address(&flight.key(), packet);
        self.error(packet, &flight.headers, complaint, from, answer_to(&flight.key()), onward);
    }

    /// Tells the sender of a packet that its next hop did not answer. Whether the packet came in
    /// clear is not known any more, so the message may not leave in clear where there are policies.
    pub(crate) fn complain_unanswered(&mut self, packet: &Packet, onward: &mut Onward) {
        let Ok(headers) = wire::headers::parse(packet.bytes()) else { return };
        let Some(port) = self.tables.port(packet.port()) else { return };
        let source = headers.addresses.source();
        let vrf = port.spec.vrf;
        if self.tables.vrf(vrf).is_none_or(|vrf| vrf.is_local(source)) || port.owns(source) {
            return;
        }
        let from = port.source_for(source);
        let arrival = Arrival { vrf, origin: Origin::HostProtected };
        self.error(
            packet,
            &headers,
            Complaint::Unreachable(Refusal::HostUnreachable),
            from,
            arrival,
            onward,
        );
    }

    fn error(
        &mut self,
        offending: &Packet,
        headers: &Headers,
        complaint: Complaint,
        from: Option<IpAddr>,
        arrival: Arrival,
        onward: &mut Onward,
    ) {
        let (v4, v6) = (message_v4(complaint), message_v6(complaint, headers));
        let may_answer = match headers.addresses {
            Addresses::V4 { .. } => icmpv4::may_answer_with_error(headers),
            Addresses::V6 { .. } => icmpv6::may_answer_with_error(v6, headers),
        };
        let (true, Some(from)) = (may_answer, from) else { return };
        if !self.worker.errors.allow(self.now, headers.addresses.source()) {
            return self.worker.statistics.icmp_errors_limited.add(1);
        }
        let Some(mut packet) = self.new_packet(offending.port()) else { return };
        let room = packet.append(icmpv6::MAX_ERROR_PACKET).unwrap_or_default();
        let length = match from {
            IpAddr::V4(from) => icmpv4::write_error_packet(v4, from, offending.bytes(), room),
            IpAddr::V6(from) => icmpv6::write_error_packet(v6, from, offending.bytes(), room),
        };
        packet.truncate(length.unwrap_or(0));
        self.worker.statistics.icmp_errors.add(1);
        self.say(packet, headers.addresses.source(), arrival, onward);
    }

    /// The address of ours that speaks about a packet: of the port that it came by (RFC 1812
    /// section 4.3.2.4), or, where it came by a tunnel, one that the tunnel's policy covers, so
    /// that the answer may go back the same way.
    fn speaking_address(&self, key: &FlowKey, packet: &Packet) -> Option<IpAddr> {
        let peer = key.addresses.source();
        let by_port = || self.tables.port(packet.port())?.source_for(peer);
        let Origin::Sa(_) = key.origin else { return by_port() };
        let vrf = self.tables.vrf(key.vrf)?;
        let covered = [Direction::Fwd, Direction::In].into_iter().find_map(|direction| {
            let policy = vrf.spd.lookup(direction, key)?;
            let Action::Protect(_) = policy.spec.action else { return None };
            let inside = policy.spec.selector.destination;
            let ports = self.tables.ports().filter(|port| port.spec.vrf == key.vrf);
            let mut own = ports.flat_map(|port| &port.spec.addresses).map(wire::IpPrefix::address);
            own.find(|own| inside.contains(*own) && vrf.is_local(*own))
        });
        covered.or_else(by_port)
    }

    /// Sends a packet of our own to `peer`: through the stages, or straight onto the link where the
    /// peer's address means something on that link only.
    pub(crate) fn say(
        &mut self,
        packet: Packet,
        peer: IpAddr,
        arrival: Arrival,
        onward: &mut Onward,
    ) {
        match peer {
            IpAddr::V6(address) if address.is_unicast_link_local() => {
                let port = packet.port();
                let limit = self.tables.port(port).map_or(0, |port| port.spec.mtu);
                let packet = match packet.len() > usize::from(limit) {
                    true => self.cut(packet, limit, |round, part| {
                        round.send_to_neighbour(port, peer, part)
                    }),
                    false => Some(packet),
                };
                if let Some(packet) = packet {
                    self.send_to_neighbour(port, peer, packet);
                }
            }
            _ => self.again(&mut onward.again, packet, arrival),
        }
    }
}

fn message_v4(complaint: Complaint) -> icmpv4::ErrorMessage {
    use icmpv4::{ErrorMessage, Unreachable};
    match complaint {
        Complaint::Unreachable(Refusal::NoRoute) => ErrorMessage::Unreachable(Unreachable::Network),
        Complaint::Unreachable(Refusal::HostUnreachable) => {
            ErrorMessage::Unreachable(Unreachable::Host)
        }
        Complaint::Unreachable(Refusal::Prohibited) => {
            ErrorMessage::Unreachable(Unreachable::AdministrativelyProhibited)
        }
        Complaint::Port => ErrorMessage::Unreachable(Unreachable::Port),
        Complaint::Protocol => ErrorMessage::Unreachable(Unreachable::Protocol),
        Complaint::HopLimit => ErrorMessage::TimeExceeded,
        Complaint::TooBig(mtu) => ErrorMessage::FragmentationNeeded { mtu },
    }
}

fn message_v6(complaint: Complaint, headers: &Headers) -> icmpv6::ErrorMessage {
    use icmpv6::{ErrorMessage, ParameterProblem, Unreachable};
    match complaint {
        Complaint::Unreachable(Refusal::NoRoute) => ErrorMessage::Unreachable(Unreachable::NoRoute),
        Complaint::Unreachable(Refusal::HostUnreachable) => {
            ErrorMessage::Unreachable(Unreachable::Address)
        }
        Complaint::Unreachable(Refusal::Prohibited) => {
            ErrorMessage::Unreachable(Unreachable::AdministrativelyProhibited)
        }
        Complaint::Port => ErrorMessage::Unreachable(Unreachable::Port),
        // The pointer names the next-header octet of the fixed header: the chain's last where there
        // is no other.
        Complaint::Protocol => {
            let pointer =
                if usize::from(headers.upper_offset) == ipv6::HEADER_LENGTH { 6 } else { 40 };
            ErrorMessage::ParameterProblem { code: ParameterProblem::NextHeader, pointer }
        }
        Complaint::HopLimit => ErrorMessage::TimeExceeded,
        // A link has at least this MTU (RFC 8200 section 5), and hosts ignore less.
        Complaint::TooBig(mtu) => {
            ErrorMessage::PacketTooBig { mtu: u32::from(mtu.max(ipv6::MIN_MTU)) }
        }
    }
}
