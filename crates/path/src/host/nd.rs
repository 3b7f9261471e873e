//! Neighbour discovery (RFC 4861): answers solicitations for our own addresses, and learns who
//! was asked for.
//!
//! Exits: `address_conflict`, `nd_malformed`, `nd_not_for_us`.

use std::net::{IpAddr, Ipv6Addr};

use packet::{DropReason, Packet};
use tables::Port;
use wire::ndp::{self, Invalid, Message};
use wire::{Addresses, Headers, Mac, PortId, ethernet};

use crate::host::arp::learn;
use crate::host::conflict::{self, is_conflict};
use crate::outputs::Neighbours;

const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// A message for the gateway. `from` is the frame's source, if it came in one.
pub(crate) fn receive(
    neighbours: &mut Neighbours<'_>,
    id: PortId,
    packet: Packet,
    headers: &Headers,
    from: Option<Mac>,
) {
    let outputs = &mut neighbours.outputs;
    let (Some(port), Addresses::V6 { source, .. }) = (outputs.objects.port(id), headers.addresses)
    else {
        return outputs.drop(packet, DropReason::NdMalformed);
    };
    let message = match judge(port, headers, packet.bytes(), from) {
        Ok(message) => message,
        Err(Refused::Conflict(own)) => {
            if from.is_some_and(|mac| conflict::tell(outputs, port, own.into(), mac)) {
                // Unsolicited, to all nodes (RFC 4861 section 7.2.6).
                advertise(neighbours, port, own, Ipv6Addr::UNSPECIFIED, None);
            }
            return neighbours.outputs.drop(packet, DropReason::AddressConflict);
        }
        Err(Refused::Dropped(reason)) => return outputs.drop(packet, reason),
    };
    match message {
        Message::NeighbourSolicitation { target, source_link } => {
            if let Some(mac) = source_link {
                learn(outputs, port, source.into(), mac);
            }
            advertise(neighbours, port, target, source, source_link);
            neighbours.outputs.buffers.consume(packet);
        }
        Message::NeighbourAdvertisement { target, override_cached, target_link, .. } => {
            let mac = match (target_link, port.neighbours.lookup(target.into())) {
                // RFC 4861 section 7.2.5: only where it says so does it replace what is known.
                (Some(told), Some(known)) if told != known && !override_cached => None,
                (told, known) => told.or(known),
            };
            if let Some(mac) = mac {
                learn(outputs, port, target.into(), mac);
            }
            neighbours.outputs.buffers.consume(packet);
        }
        Message::RouterSolicitation { .. } => outputs.drop(packet, DropReason::NdNotForUs),
    }
}

/// Why the gateway does not take a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Another station has this address of the port.
    Conflict(Ipv6Addr),
    Dropped(DropReason),
}

impl From<Refused> for DropReason {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Conflict(_) => Self::AddressConflict,
            Refused::Dropped(reason) => reason,
        }
    }
}

/// The message that came by a port, if the gateway takes it: it is right, and a solicitation for an
/// address of the port, or an advertisement of another one. The gateway is no host that takes what
/// routers tell, and sends no router advertisements. `from` is the frame's source; if that is not
/// known, the message is one of another station.
pub(crate) fn judge(
    port: &Port,
    headers: &Headers,
    packet: &[u8],
    from: Option<Mac>,
) -> Result<Message, Refused> {
    let message = ndp::parse(headers, headers.upper_bytes(packet)).map_err(|invalid| {
        Refused::Dropped(match invalid {
            Invalid::Kind => DropReason::NdNotForUs,
            _ => DropReason::NdMalformed,
        })
    })?;
    let source = headers.addresses.source();
    // Who asks whether anybody has an address has none: a solicitation is judged by its source.
    let told = match message {
        Message::NeighbourAdvertisement { target, .. } => Some(target),
        Message::NeighbourSolicitation { .. } | Message::RouterSolicitation { .. } => None,
    };
    let sender = match source {
        IpAddr::V6(source) => Some(source),
        IpAddr::V4(_) => None,
    };
    let is_ours = |address: &Ipv6Addr| is_conflict(port, (*address).into(), from);
    if let Some(own) = told.into_iter().chain(sender).find(is_ours) {
        return Err(Refused::Conflict(own));
    }
    if port.owns(source) {
        return Err(Refused::Dropped(DropReason::NdMalformed));
    }
    let is_taken = match message {
        Message::NeighbourSolicitation { target, .. } => port.owns(target.into()),
        Message::NeighbourAdvertisement { target, .. } => !port.owns(target.into()),
        Message::RouterSolicitation { .. } => false,
    };
    if is_taken { Ok(message) } else { Err(Refused::Dropped(DropReason::NdNotForUs)) }
}

/// Tells that we have `target`: whoever asked, or, where the asker has no address yet, everyone
/// (RFC 4861 section 7.2.4).
fn advertise(
    neighbours: &mut Neighbours<'_>,
    port: &Port,
    target: Ipv6Addr,
    asker: Ipv6Addr,
    asker_link: Option<Mac>,
) {
    let solicited = !asker.is_unspecified();
    let message = Message::NeighbourAdvertisement {
        target,
        router: true,
        solicited,
        override_cached: true,
        target_link: Some(port.spec.mac),
    };
    let to = if solicited { asker } else { ALL_NODES };
    let buffers = &mut neighbours.outputs.buffers;
    let Some(mut packet) = buffers.new_packet(port.id, ndp::MAX_PACKET) else { return };
    let room = packet.append(ndp::MAX_PACKET).unwrap_or_default();
    let length = message.write_packet(target, to, room).unwrap_or(0);
    packet.truncate(length);
    let mac = match solicited {
        true => asker_link,
        false => ethernet::multicast_mac(IpAddr::V6(ALL_NODES)),
    };
    match mac {
        Some(mac) => neighbours.outputs.send_packet(port, mac, packet),
        None => neighbours.send_to_station(port.id, to.into(), packet),
    }
}
