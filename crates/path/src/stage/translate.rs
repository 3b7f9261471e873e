//! Translate: a packet becomes what its connection says, or what flows have written.

use std::net::IpAddr;

use conntrack::{Named, Reference, Translation, Tuple};
use packet::Packet;
use wire::common::Facts;
use wire::quoted::Quoted;
use wire::{Addresses, FlowKey, FragmentClass, Protocol, Upper, ipv6};

use crate::batch::{Known, Record};
use crate::connection;
use crate::extension::{Further, Rewrite};
use crate::outputs::Objects;

/// Translates a packet as its connection says. Hands it back if that is not known any more: it must
/// not leave untranslated.
#[inline(never)]
pub(crate) fn by_connection(
    mut packet: Packet,
    known: &Known,
    objects: Objects<'_>,
) -> Result<Packet, Packet> {
    match try_translate(&mut packet, known, objects) {
        Some(()) => Ok(packet),
        None => Err(packet),
    }
}

/// Writes the TTL or hop limit and the DSCP that flows have set. The gateway counts its own hop from
/// there on.
#[cold]
pub(crate) fn write_fields(packet: &mut Packet, known: &mut Known, rewrite: &Rewrite) {
    let bytes = packet.bytes_mut();
    if let Some(dscp) = rewrite.dscp {
        let class = dscp << 2 | known.inner.traffic_class & 3;
        match known.is_v6() {
            true => ipv6::set_traffic_class(bytes, class),
            false => wire::ipv4::set_traffic_class(bytes, class),
        }
        known.inner.traffic_class = class;
    }
    if let Some(hop_limit) = rewrite.hop_limit {
        match known.is_v6() {
            true => ipv6::set_hop_limit(bytes, hop_limit),
            false => wire::ipv4::set_ttl(bytes, hop_limit),
        }
        known.facts.0 = known.facts.0 & !(0xff << 32) | u64::from(hop_limit) << 32;
    }
}

/// Writes the addresses and ports that flows have set.
#[cold]
pub(crate) fn rewrite(
    mut packet: Packet,
    known: &Known,
    rewrite: Option<Rewrite>,
) -> Result<Packet, Packet> {
    let Some([(source, source_port), (destination, destination_port)]) =
        rewrite.and_then(|rewrite| rewrite.ends)
    else {
        return Ok(packet);
    };
    let before = match known.key.upper {
        Upper::Ports { source, destination } => {
            Tuple::new(known.key.addresses, known.key.protocol, source, destination)
        }
        _ => connection::addresses(&known.key),
    };
    let after = before.with_source(source, source_port);
    let after = after.and_then(|after| after.with_destination(destination, destination_port));
    let upper = usize::from(known.facts.upper_offset());
    let has_ports = known.key.fragment != FragmentClass::Later;
    let written = after.is_some_and(|after| {
        let translation = Translation::between(&before, &after);
        let is_neutral = translation.is_neutral();
        let is_applied = translation.apply(packet.bytes_mut(), upper, has_ports).is_ok();
        if is_applied && is_neutral && has_ports && is_icmpv6_error(&known.key) {
            let addresses = [before, after].map(|tuple| tuple.addresses);
            rewrite_quoted(packet.bytes_mut(), upper, addresses);
        }
        is_applied
    });
    if written { Ok(packet) } else { Err(packet) }
}

fn is_icmpv6_error(key: &FlowKey) -> bool {
    let is_error = |kind| wire::quoted::is_error(key.protocol, kind);
    key.protocol == Protocol::ICMPV6
        && matches!(key.upper, Upper::Icmp { kind, .. } if is_error(kind))
}

/// Gives the packet that an ICMPv6 error quotes the address that its receiver knows: without it, a host
/// behind translated prefixes would take no error for its own, and learn no path MTU. Prefixes are
/// translated so that the checksum stays.
fn rewrite_quoted(packet: &mut [u8], icmp: usize, [before, after]: [Addresses; 2]) {
    const ICMP_HEADER: usize = 8;
    let Some(quoted) = packet.get_mut(icmp + ICMP_HEADER..) else { return };
    let Some(quoted) = quoted.first_chunk_mut::<{ ipv6::HEADER_LENGTH }>() else { return };
    if quoted[0] >> 4 != 6 {
        return;
    }
    let mut write = |from: usize, before: IpAddr, after: IpAddr| {
        if let (IpAddr::V6(before), IpAddr::V6(after)) = (before, after)
            && quoted[from..from + 16] == before.octets()
        {
            quoted[from..from + 16].copy_from_slice(&after.octets());
        }
    };
    // What was sent by the receiver of the error, to its sender.
    write(8, before.destination(), after.destination());
    write(24, before.source(), after.source());
}

/// Gives a packet that was translated the ends back that it came with. `None` if it is no packet that
/// they may be of.
#[cold]
pub(crate) fn restore(packet: &mut Packet, before: [(IpAddr, u16); 2]) -> Option<()> {
    let headers = wire::headers::parse(packet.bytes()).ok()?;
    let has_ports = headers.fragment.class != FragmentClass::Later;
    let now = match headers.upper {
        Upper::Ports { source, destination } if has_ports => {
            Tuple::new(headers.addresses, headers.protocol, source, destination)
        }
        Upper::Icmp { kind, code, identifier } if has_ports => {
            Tuple::icmp(headers.addresses, kind, code, identifier)?
        }
        _ => Tuple::new(headers.addresses, headers.protocol, 0, 0),
    };
    let [(source, source_port), (destination, destination_port)] = before;
    let then = now.with_source(source, source_port)?;
    let then = then.with_destination(destination, destination_port)?;
    let upper = usize::from(headers.upper_offset);
    Translation::between(&now, &then).apply(packet.bytes_mut(), upper, has_ports).ok()
}

/// The same in place, of a packet of a connection that is no error and no fragment. False if it is as it
/// was.
#[inline(always)]
pub(crate) fn whole(packet: &mut Packet, record: &Record, objects: Objects<'_>) -> bool {
    let translation = || {
        let Named::Connection(handle, direction, _) = record.decision.reference().named() else {
            return None;
        };
        objects.connections()?.translation(handle, direction)
    };
    let (upper, reference) =
        (usize::from(record.facts.upper_offset()), record.decision.reference());
    let protocol = (!record.facts.is(Facts::V6)).then_some(Protocol((record.key[1] >> 8) as u8));
    let usual = match protocol {
        Some(Protocol::TCP) => Some(true),
        Some(Protocol::UDP) => Some(false),
        _ => None,
    };
    if let (Some(is_tcp), Some(connections)) = (usual, objects.connections())
        && connections.translate_usual(reference, packet.bytes_mut(), upper, is_tcp)
    {
        return true;
    }
    translation().is_some_and(|it| it.apply(packet.bytes_mut(), upper, true).is_ok())
}

/// The same by several connections, one after the other.
#[cold]
pub(crate) fn by_all(
    mut packet: Packet,
    known: &Known,
    further: &Further,
    objects: Objects<'_>,
) -> Result<Packet, Packet> {
    let all = further.all(known.decision.reference());
    let mut translating = all.filter(|(_, is_translated)| *is_translated);
    // It may be translated in part by then, and is dropped.
    let is_done = translating
        .all(|(reference, _)| try_translate_by(reference, &mut packet, known, objects).is_some());
    if is_done { Ok(packet) } else { Err(packet) }
}

fn try_translate(packet: &mut Packet, known: &Known, objects: Objects<'_>) -> Option<()> {
    try_translate_by(known.decision.reference(), packet, known, objects)
}

#[inline(always)]
fn try_translate_by(
    reference: Reference,
    packet: &mut Packet,
    known: &Known,
    objects: Objects<'_>,
) -> Option<()> {
    let connections = objects.connections()?;
    match reference.named() {
        Named::Connection(handle, direction, _) => {
            let translation = connections.translation(handle, direction)?;
            let upper = usize::from(known.facts.upper_offset());
            translation.apply(packet.bytes_mut(), upper, true).ok()
        }
        Named::Related(handle, direction, _) => {
            let translation = connections.translation(handle, direction)?;
            let headers = known.headers(packet);
            let Quoted { places: [icmp, quoted, upper], sequence, .. } =
                Quoted::read(packet.bytes(), &headers)?;
            let sequence = sequence
                .and_then(|number| connections.as_sent(handle.index, direction.opposite(), number));
            translation.apply_to_error(packet.bytes_mut(), icmp, quoted, upper, sequence).ok()
        }
        Named::Untracked | Named::Renewed(..) | Named::Absent(..) => None,
    }
}
