//! Helpers: packets of connections whose payload announces other connections.
//!
//! Only packets whose decision says so come here. What is announced is expected from then on; where
//! addresses are translated, what the payload says is translated too, and so are TCP's sequence
//! numbers, as it may become longer or shorter by that. Addresses and ports of the header are for
//! apply.

use std::ops::RangeInclusive;

use conntrack::helper::{Heard, Help, Splice};
use conntrack::nat::{Lease, NotLent, SequenceShift};
use conntrack::{
    Connections, CtState, Direction, Expectation, Handle, Named, New, Packet as Seen, Reference,
    Refused,
};
use packet::{DropReason, Packet};
use wire::common::Facts;
use wire::{Addresses, Protocol};

use super::confirm::{Confirming, NotMade};
use crate::batch::Packets;

/// The ports that an announcement may be translated to, if no pool says others: none of well-known
/// services.
const PORTS: RangeInclusive<u16> = 1024..=u16::MAX;

/// Sources that are tried for an expected connection.
const TRIES: u16 = 32;

/// Lengths of headers.
const UDP: usize = 8;

/// What has become of a packet.
pub(super) enum Helped {
    /// It goes on.
    Done,
    /// Its connection is another one by now.
    DecideAgain,
    /// It ends.
    Refused(DropReason),
}

/// A packet of a connection as its tracker is to see it, if that is another than it came: it
/// acknowledges what has become of the other side's payload.
pub(super) fn acknowledging(
    connections: &Connections,
    reference: Reference,
    packet: &Seen,
) -> Option<Seen> {
    let Named::Connection(handle, direction, _) = reference.named() else { return None };
    connections.acknowledging(handle.index, direction, packet)
}

impl Confirming<'_, '_> {
    /// Has the helper of its connection read a packet, and does to the payload what that says.
    #[cold]
    pub(super) fn help(
        &self,
        batch: &mut Packets,
        at: usize,
        packet: &Seen,
        connections: &Connections,
    ) -> Helped {
        let decision = batch.records[at].decision;
        let Named::Connection(handle, direction, state) = decision.reference().named() else {
            return Helped::Done;
        };
        if state.contains(CtState::INV) {
            return Helped::Done;
        }
        let facts = batch.records[at].facts;
        let upper = usize::from(facts.upper_offset());
        let bytes = &mut batch.packets[at];
        bytes.truncate(facts.total_length().into());
        let Some(start) = payload_start(bytes.bytes(), upper, packet) else { return Helped::Done };
        let payload = bytes.bytes().get(start..).unwrap_or_default();
        let is_translated = decision.is_translated() || decision.is_rewritten();
        let heard = Heard { handle, direction, packet, payload, is_translated };
        // The listener's address is one of the pool's only if the pool has lent it.
        let ports = |master: &conntrack::Connection| {
            let pool = self.decider.nat_pool_of(master.binding);
            let pool = pool.filter(|_| direction == Direction::Original);
            pool.and_then(|(_, pool)| pool.pool.ports_of(master.zone, &master.original))
                .unwrap_or(PORTS)
        };
        match connections.help(&heard, ports, self.decider.now()) {
            Help::Pass => Helped::Done,
            Help::Gone => Helped::DecideAgain,
            Help::NoPort => Helped::Refused(DropReason::NatExhausted),
            Help::Change { splice, sequence, acknowledgments } => {
                let numbers = (sequence, &acknowledgments);
                let length = change(bytes, facts, start, splice.as_ref(), numbers);
                match length {
                    Some(length) => {
                        let record = &mut batch.records[at];
                        record.facts = Facts(record.facts.0 & !0xffff | u64::from(length));
                        Helped::Done
                    }
                    None => Helped::Refused(DropReason::TooBig),
                }
            }
        }
    }

    /// Makes a connection that was expected, translated as the one that has announced it.
    #[cold]
    pub(super) fn make_expected(
        &self,
        new: &New,
        expected: &Expectation,
        (packet, length): (&Seen, u32),
        connections: &Connections,
    ) -> Result<Handle, NotMade> {
        // Another packet may have come in its stead. What is to be translated otherwise then must not be
        // refused for that.
        if !connections.is_expected(new, self.decider.now()) {
            return Err(NotMade::Exists);
        }
        let commit = |lease: &Lease| self.commit((new, lease), (packet, length), connections);
        let to = match expected.translated {
            None => Some(new.original),
            Some((address, port)) => new.original.with_destination(address, port),
        };
        let exhausted = || NotMade::Dropped(DropReason::NatExhausted);
        let to = to.ok_or_else(exhausted)?;
        let Some(source) = expected.translated_source else {
            return commit(&Lease::of(to)).map_err(NotMade::from);
        };
        let master = connections.connection(expected.master.index, self.decider.now());
        let pool = master.and_then(|master| self.decider.nat_pool_of(master.binding));
        if let Some((id, pool)) = pool {
            let lent = pool.pool.lend_at(new.zone, source, &to, |lease| {
                commit(&Lease { binding: id.binding(lease.binding), ..*lease })
            });
            match lent {
                Ok(handle) => return Ok(handle),
                Err(NotLent::Refused(why)) => return Err(why.into()),
                // It is none of the pool's addresses.
                Err(NotLent::Family) => {}
                Err(NotLent::Exhausted | NotLent::Block | NotLent::NoSubscriber) => {
                    return Err(exhausted());
                }
            }
        }
        for port in ports_of_expected(to.source) {
            let Some(translated) = to.with_source(source, port) else { break };
            match commit(&Lease::of(translated)) {
                Err(Refused::TupleTaken) => {}
                result => return result.map_err(NotMade::from),
            }
        }
        Err(exhausted())
    }
}

/// The ports to try for the source of a connection that was expected: its own, and the next ones.
pub(crate) fn ports_of_expected(own: u16) -> impl Iterator<Item = u16> {
    (0..TRIES).map(move |more| own.checked_add(more).unwrap_or(PORTS.start() + more))
}

fn payload_start(packet: &[u8], upper: usize, seen: &Seen) -> Option<usize> {
    match seen {
        Seen::Tcp(_) => {
            let header = wire::tcp::Header::parse(packet.get(upper..)?)?;
            Some(upper + usize::from(header.header_length))
        }
        Seen::Datagram => Some(upper + UDP),
        Seen::Sctp(_) | Seen::Malformed => None,
    }
}

/// Writes into the payload of a TCP packet, which begins at `start`, and its sequence numbers.
/// Returns the new length of the packet; `None` if it has no room to grow.
fn change(
    packet: &mut Packet,
    facts: Facts,
    start: usize,
    splice: Option<&Splice>,
    (sequence, acknowledgments): (u32, &SequenceShift),
) -> Option<u16> {
    if let Some(Splice { place, text }) = splice {
        let (from, to) = (start + place.start, start + place.end);
        let length = packet.len();
        let after = u16::try_from(length - place.len() + text.len()).ok()?;
        if text.len() > place.len() {
            packet.append(text.len() - place.len())?;
        }
        let bytes = packet.bytes_mut();
        bytes.copy_within(to..length, from + text.len());
        bytes[from..from + text.len()].copy_from_slice(text.as_bytes());
        packet.truncate(after.into());
        set_length(packet.bytes_mut(), facts.is(Facts::V6), after);
    }
    let length = packet.len() as u16;
    let addresses = addresses(packet.bytes(), facts.is(Facts::V6))?;
    let segment = packet.bytes_mut().get_mut(facts.upper_offset().into()..)?;
    wire::tcp::renumber(segment, sequence, |number| acknowledgments.acknowledgment(number));
    wire::tcp::fill_checksum(&addresses, segment);
    Some(length)
}

/// Writes the length of the packet into its IP header.
fn set_length(packet: &mut [u8], is_v6: bool, length: u16) {
    match is_v6 {
        true => {
            let payload = length - wire::ipv6::HEADER_LENGTH as u16;
            packet[4..6].copy_from_slice(&payload.to_be_bytes());
        }
        false => {
            packet[2..4].copy_from_slice(&length.to_be_bytes());
            let header = usize::from(packet[0] & 15) * 4;
            packet[10..12].fill(0);
            let checksum = wire::checksum::checksum(&packet[..header]);
            packet[10..12].copy_from_slice(&checksum.to_be_bytes());
        }
    }
}

fn addresses(packet: &[u8], is_v6: bool) -> Option<Addresses> {
    let headers = wire::headers::parse(packet).ok()?;
    (headers.addresses.is_v6() == is_v6 && headers.protocol == Protocol::TCP)
        .then_some(headers.addresses)
}
