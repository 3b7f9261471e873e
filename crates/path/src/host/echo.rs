//! Echo requests to the gateway are turned into replies, in place (RFC 1122 section 3.2.2.6, RFC
//! 4443 section 4.2).

use std::net::IpAddr;

use packet::{DropReason, Packet};
use tables::Port;
use wire::{Addresses, Headers, Protocol, checksum, icmpv4, icmpv6, ipv4, ipv6};

use crate::batch::{Known, Queues};
use crate::host::answer_to;
use crate::stage::apply::Applier;

const HOP_LIMIT: u8 = 64;

pub(super) fn reply(
    applier: &mut Applier<'_, '_>,
    mut packet: Packet,
    known: &Known,
    queues: &mut Queues,
) {
    let headers = &known.headers(&packet);
    let arrival = answer_to(&known.key);
    // RFC 1122 section 3.2.2 and RFC 4443 section 2.4: a damaged message is discarded, not
    // answered.
    if !is_intact(packet.bytes(), headers) {
        return applier.drop(packet, DropReason::LocalChecksum);
    }
    let extra = plain_header(packet.bytes_mut(), headers);
    packet.strip(extra);
    let port = applier.neighbours.outputs.objects.port(packet.port());
    if !turn(packet.bytes_mut(), headers, port) {
        return applier.drop(packet, DropReason::LocalIcmp);
    }
    applier.neighbours.outputs.buffers.statistics.echo_replies.add(1);
    applier.send_own(packet, headers.addresses.source(), arrival, queues);
}

/// Whether the checksum of an ICMP message is right.
pub(crate) fn is_intact(packet: &[u8], headers: &Headers) -> bool {
    let message = headers.upper_bytes(packet);
    match headers.addresses {
        Addresses::V4 { .. } => icmpv4::is_right(message),
        Addresses::V6 { source, destination } => icmpv6::is_right(source, destination, message),
    }
}

/// Turns an echo request with a plain header, which came by `port`, into its reply. Returns false if
/// it is not to be answered.
pub(crate) fn turn(packet: &mut [u8], headers: &Headers, port: Option<&Port>) -> bool {
    match headers.addresses {
        // RFC 1122 section 3.2.2.6 leaves that to us, and the sender may be anybody.
        Addresses::V4 { destination, .. } if destination.is_multicast() => false,
        Addresses::V4 { .. } => {
            ipv4::turn_around(packet, HOP_LIMIT);
            packet.get_mut(ipv4::HEADER_LENGTH..).is_some_and(icmpv4::echo_reply)
        }
        Addresses::V6 { source, destination } => {
            let is_reply = packet.get_mut(ipv6::HEADER_LENGTH..).is_some_and(icmpv6::echo_reply);
            ipv6::turn_around(packet, HOP_LIMIT);
            if !destination.is_multicast() {
                return is_reply;
            }
            match port.and_then(|port| port.source_for(source.into())) {
                Some(IpAddr::V6(own)) => {
                    set_source(packet, destination, own);
                    is_reply
                }
                _ => false,
            }
        }
    }
}

/// Removes IPv4 options and IPv6 extension headers: a reply does not carry the request's. Returns
/// how many bytes in front are of the packet no more.
pub(crate) fn plain_header(packet: &mut [u8], headers: &Headers) -> usize {
    let upper = usize::from(headers.upper_offset);
    let plain = if headers.addresses.is_v6() { ipv6::HEADER_LENGTH } else { ipv4::HEADER_LENGTH };
    let Some(extra) = upper.checked_sub(plain).filter(|extra| *extra > 0) else { return 0 };
    packet.copy_within(..plain, extra);
    let bytes = &mut packet[extra..];
    let length = bytes.len();
    if headers.addresses.is_v6() {
        bytes[6] = Protocol::ICMPV6.0;
        ipv6::set_payload_length(bytes, (length - plain) as u16);
    } else {
        bytes[0] = 0x45;
        ipv4::set_total_length(bytes, length as u16);
        ipv4::fill_checksum(bytes);
    }
    extra
}

/// Replaces the source, which was the group that was asked, and brings the checksum along.
fn set_source(packet: &mut [u8], group: std::net::Ipv6Addr, own: std::net::Ipv6Addr) {
    if let Some(source) = packet.get_mut(8..24) {
        source.copy_from_slice(&own.octets());
    }
    if let Some(field) = packet.get_mut(42..44) {
        let old = u16::from_be_bytes([field[0], field[1]]);
        field.copy_from_slice(&checksum::update_v6(old, group, own).to_be_bytes());
    }
}
