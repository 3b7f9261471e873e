//! ICMP and ICMPv6 errors, within a rate limit (RFC 1812 section 4.3.2, RFC 4443 section 2.4).

use std::net::IpAddr;

use flow::FairLimiter;
use packet::{Packet, Time};
use wire::{Addresses, Headers, Protocol, VrfId, icmpv4, icmpv6, ipv6, tcp};

use crate::batch::{Arrival, Known, Queues};
use crate::decide::Locality;
use crate::decision::Refusal;
use crate::host::error_about;
use crate::outputs::{Buffers, Outputs};
use crate::stage::apply::{Applier, is_own};

/// What the sender of a packet is told that is not sent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IcmpError {
    /// It was refused.
    Unreachable(Refusal),
    /// Its TTL or hop limit ran out.
    HopLimit,
    /// Its way takes no more than so many bytes.
    TooBig(u16),
    /// The gateway does not understand its protocol.
    Protocol,
}

impl IcmpError {
    /// In the words of RFC 792, RFC 4443 and RFC 9293.
    pub const fn name(self, is_v6: bool) -> &'static str {
        match (self, is_v6) {
            (Self::Unreachable(Refusal::NoRoute), false) => "network unreachable",
            (Self::Unreachable(Refusal::NoRoute), true) => "no route to destination",
            (Self::Unreachable(Refusal::HostUnreachable), false) => "host unreachable",
            (Self::Unreachable(Refusal::HostUnreachable), true) => "address unreachable",
            (Self::Unreachable(Refusal::Prohibited), _) => {
                "communication administratively prohibited"
            }
            (Self::Unreachable(Refusal::Port), _) => "port unreachable",
            (Self::Unreachable(Refusal::TcpReset), _) => "a TCP reset",
            (Self::HopLimit, _) => "time exceeded",
            (Self::TooBig(_), false) => "fragmentation needed",
            (Self::TooBig(_), true) => "packet too big",
            (Self::Protocol, false) => "protocol unreachable",
            (Self::Protocol, true) => "unrecognized next header",
        }
    }

    /// Type and code of the message; none of a TCP reset.
    pub fn kind_and_code(self, is_v6: bool) -> Option<(u8, u8)> {
        match (self, is_v6) {
            (Self::Unreachable(Refusal::TcpReset), _) => None,
            (_, false) => Some(message_v4(self).kind_and_code()),
            (_, true) => Some(message_v6(self, &Headers::NONE).kind_and_code()),
        }
    }

    /// The MTU that the message names.
    pub fn mtu(self, is_v6: bool) -> Option<u16> {
        match self {
            Self::TooBig(mtu) if is_v6 => Some(mtu.max(ipv6::MIN_MTU)),
            Self::TooBig(mtu) => Some(mtu),
            _ => None,
        }
    }
}

impl Applier<'_, '_> {
    /// Tells the sender of a packet why it was not sent on, unless the gateway itself sent it.
    #[cold]
    pub(crate) fn tell_sender(
        &mut self,
        packet: &Packet,
        known: &Known,
        error: IcmpError,
        queues: &mut Queues,
    ) {
        if is_own(known.key.origin) {
            return;
        }
        let Outputs { buffers, objects, now, .. } = &mut self.neighbours.outputs;
        let headers = known.headers(packet);
        if let IcmpError::Unreachable(Refusal::TcpReset) = error
            && headers.protocol == Protocol::TCP
        {
            let limiter = (&mut *self.state.errors, known.key.vrf);
            let to_many = || objects.has_broadcast(known.key.vrf, &headers.addresses);
            if let Some(message) = reset(packet, &headers, to_many, limiter, *now, buffers) {
                let peer = headers.addresses.source();
                self.send_own(message, peer, error_about(&known.key), queues);
            }
            return;
        }
        // A filter may refuse what no route was asked about.
        let source = || match objects.has_broadcast(known.key.vrf, &headers.addresses) {
            true => None,
            false => objects.source_of_error(known, packet),
        };
        let limiter = (&mut *self.state.errors, known.key.vrf);
        if let Some(message) = build(packet, &headers, error, source, limiter, *now, buffers) {
            let peer = headers.addresses.source();
            self.send_own(message, peer, error_about(&known.key), queues);
        }
    }

    /// Sends a packet of our own to `peer`: through the stages, or straight onto the link if the
    /// peer's address means something on that link only.
    pub(crate) fn send_own(
        &mut self,
        packet: Packet,
        peer: IpAddr,
        arrival: Arrival,
        queues: &mut Queues,
    ) {
        match peer {
            IpAddr::V6(address) if address.is_unicast_link_local() => {
                let port = packet.port();
                let limit =
                    self.neighbours.outputs.objects.port(port).map_or(0, |port| port.spec.mtu);
                let packet = match packet.len() > usize::from(limit) {
                    true => self.cut(packet, limit, |applier, part| {
                        applier.neighbours.send_to_station(port, peer, part);
                    }),
                    false => Some(packet),
                };
                if let Some(packet) = packet {
                    self.neighbours.send_to_station(port, peer, packet);
                }
            }
            _ => self.again(packet, arrival, queues),
        }
    }
}

/// Builds what tells a sender in `vrf` that its packet's next hop did not answer.
pub(crate) fn unanswered(
    packet: &Packet,
    vrf: VrfId,
    outputs: &mut Outputs<'_>,
    locality: Locality<'_>,
    limiter: &mut FairLimiter,
) -> Option<Packet> {
    let headers = wire::headers::parse(packet.bytes()).ok()?;
    let source = headers.addresses.source();
    let objects = outputs.objects;
    let is_own = objects.port(packet.port()).is_some_and(|port| port.owns(source));
    if locality.is_of_vrf(vrf, source) || is_own {
        return None;
    }
    let error = IcmpError::Unreachable(Refusal::HostUnreachable);
    let from = || objects.source_to(vrf, packet.port(), source);
    let (limiter, now) = ((limiter, vrf), outputs.now);
    build(packet, &headers, error, from, limiter, now, &mut outputs.buffers)
}

/// An ICMP error about `offending`, a packet of `vrf`, if it may be answered and the rate limit
/// allows it. That is
/// asked before anything is looked up.
fn build(
    offending: &Packet,
    headers: &Headers,
    error: IcmpError,
    source: impl FnOnce() -> Option<IpAddr>,
    (limiter, vrf): (&mut FairLimiter, VrfId),
    now: Time,
    buffers: &mut Buffers<'_>,
) -> Option<Packet> {
    if !may_answer(error, headers) {
        return None;
    }
    if !limiter.allow(now, vrf, headers.addresses.source()) {
        buffers.statistics.icmp_errors_limited.add(1);
        return None;
    }
    let source = source()?;
    let mut packet = buffers.new_packet(offending.port(), icmpv6::MAX_ERROR_PACKET)?;
    let room = packet.append(icmpv6::MAX_ERROR_PACKET).unwrap_or_default();
    let length = write(error, headers, source, offending.bytes(), room);
    packet.truncate(length);
    buffers.statistics.icmp_errors.add(1);
    Some(packet)
}

/// Whether a packet may be answered with an error.
pub(crate) fn may_answer(error: IcmpError, headers: &Headers) -> bool {
    match headers.addresses {
        Addresses::V4 { .. } => icmpv4::may_answer_with_error(headers),
        Addresses::V6 { .. } => icmpv6::may_answer_with_error(message_v6(error, headers), headers),
    }
}

/// Writes an error packet from `source` about `offending`. Returns its length.
pub(crate) fn write(
    error: IcmpError,
    headers: &Headers,
    source: IpAddr,
    offending: &[u8],
    room: &mut [u8],
) -> usize {
    let length = match source {
        IpAddr::V4(source) => {
            icmpv4::write_error_packet(message_v4(error), source, offending, room)
        }
        IpAddr::V6(source) => {
            icmpv6::write_error_packet(message_v6(error, headers), source, offending, room)
        }
    };
    length.unwrap_or(0)
}

/// A reset of the connection that a packet belongs to, if it may be answered so and the rate limit
/// allows it.
fn reset(
    offending: &Packet,
    headers: &Headers,
    to_many: impl FnOnce() -> bool,
    (limiter, vrf): (&mut FairLimiter, VrfId),
    now: Time,
    buffers: &mut Buffers<'_>,
) -> Option<Packet> {
    let mut written = [0; tcp::MAX_RESET_PACKET];
    let length = tcp::write_reset(headers, offending.bytes(), &mut written)?;
    if !limiter.allow(now, vrf, headers.addresses.source()) {
        buffers.statistics.icmp_errors_limited.add(1);
        return None;
    }
    if to_many() {
        return None;
    }
    let mut packet = buffers.new_packet(offending.port(), length)?;
    packet.append(length)?.copy_from_slice(&written[..length]);
    buffers.statistics.tcp_resets.add(1);
    Some(packet)
}

fn message_v4(error: IcmpError) -> icmpv4::ErrorMessage {
    use icmpv4::{ErrorMessage, Unreachable};
    match error {
        IcmpError::Unreachable(Refusal::NoRoute) => ErrorMessage::Unreachable(Unreachable::Network),
        IcmpError::Unreachable(Refusal::HostUnreachable) => {
            ErrorMessage::Unreachable(Unreachable::Host)
        }
        IcmpError::Unreachable(Refusal::Prohibited | Refusal::TcpReset) => {
            ErrorMessage::Unreachable(Unreachable::AdministrativelyProhibited)
        }
        IcmpError::Unreachable(Refusal::Port) => ErrorMessage::Unreachable(Unreachable::Port),
        IcmpError::Protocol => ErrorMessage::Unreachable(Unreachable::Protocol),
        IcmpError::HopLimit => ErrorMessage::TimeExceeded,
        IcmpError::TooBig(mtu) => ErrorMessage::FragmentationNeeded { mtu },
    }
}

fn message_v6(error: IcmpError, headers: &Headers) -> icmpv6::ErrorMessage {
    use icmpv6::{ErrorMessage, ParameterProblem, Unreachable};
    match error {
        IcmpError::Unreachable(Refusal::NoRoute) => ErrorMessage::Unreachable(Unreachable::NoRoute),
        IcmpError::Unreachable(Refusal::HostUnreachable) => {
            ErrorMessage::Unreachable(Unreachable::Address)
        }
        IcmpError::Unreachable(Refusal::Prohibited | Refusal::TcpReset) => {
            ErrorMessage::Unreachable(Unreachable::AdministrativelyProhibited)
        }
        IcmpError::Unreachable(Refusal::Port) => ErrorMessage::Unreachable(Unreachable::Port),
        // The pointer names the next-header octet of the fixed header: the chain's last where there
        // is no other.
        IcmpError::Protocol => {
            let pointer =
                if usize::from(headers.upper_offset) == ipv6::HEADER_LENGTH { 6 } else { 40 };
            ErrorMessage::ParameterProblem { code: ParameterProblem::NextHeader, pointer }
        }
        IcmpError::HopLimit => ErrorMessage::TimeExceeded,
        // A link has at least this MTU (RFC 8200 section 5), and hosts ignore less.
        IcmpError::TooBig(mtu) => {
            ErrorMessage::PacketTooBig { mtu: u32::from(mtu.max(ipv6::MIN_MTU)) }
        }
    }
}
