//! Packets larger than their way: cut where the sender allows it, refused where it does not.
//!
//! Exits: `too_big`, `no_buffer`.

use packet::{DropReason, Packet};
use rand::Rng;
use wire::{Origin, SaSlot, fragment, ipv6};

use crate::decision::Exit;
use crate::host::errors::Complaint;
use crate::lane::{Flight, Onward};
use crate::worker::Round;

impl Round<'_> {
    /// A packet that exceeds `exit.limit`. IPv4 without DF, and what the gateway says itself, is
    /// cut before it is encrypted, so that no ESP packet needs reassembly before it can be
    /// decrypted (RFC 4301 section 8.1), with one exception: IPv6 packets that every link must
    /// carry, and the tunnel does not, are encrypted whole (RFC 2473 section 7.1).
    pub(crate) fn oversize(
        &mut self,
        packet: Packet,
        flight: &Flight,
        slot: Option<SaSlot>,
        exit: &Exit,
        onward: &mut Onward,
    ) {
        let headers = &flight.headers;
        let is_own = matches!(flight.arrival.origin, Origin::Host | Origin::HostProtected);
        let is_v6 = headers.addresses.is_v6();
        if is_v6 && !is_own && slot.is_some() && headers.total_length <= ipv6::MIN_MTU {
            return self.leave(packet, headers, slot, exit, onward);
        }
        let packet = match !headers.dont_fragment || (is_v6 && is_own) {
            true => self.cut(packet, exit.limit, |round, part| {
                round.leave(part, headers, slot, exit, onward)
            }),
            false => Some(packet),
        };
        if let Some(packet) = packet {
            self.complain(&packet, flight, Complaint::TooBig(exit.limit), onward);
            self.drop(packet, DropReason::TooBig);
        }
    }

    /// An ESP packet that is too large for its port: the peer is to reassemble it.
    #[cold]
    pub(crate) fn emit_in_pieces(&mut self, packet: Packet, exit: &Exit) {
        let limit = self.tables.port(exit.port).map_or(0, |port| port.spec.mtu);
        if let Some(packet) = self.cut(packet, limit, |round, part| round.emit(part, exit)) {
            self.drop(packet, DropReason::TooBig);
        }
    }

    /// Gives the fragments of a packet to `each`. Hands the packet back where it cannot be cut.
    pub(crate) fn cut(
        &mut self,
        packet: Packet,
        limit: u16,
        mut each: impl FnMut(&mut Self, Packet),
    ) -> Option<Packet> {
        let is_v6 = packet.bytes().first().is_some_and(|octet| octet >> 4 == 6);
        let plan = if is_v6 {
            fragment::plan_v6(packet.bytes(), limit)
        } else {
            fragment::plan(packet.bytes(), limit)
        };
        let Ok(plan) = plan else { return Some(packet) };
        let identification = if is_v6 { self.worker.randomness.next_u32() } else { 0 };
        for piece in plan {
            let Some(mut part) = self.new_packet(packet.port()) else { break };
            let written = part.append(piece.total_length()).and_then(|room| match is_v6 {
                true => fragment::write_v6(packet.bytes(), &piece, identification, room),
                false => fragment::write(packet.bytes(), &piece, room),
            });
            match written {
                Some(_) => each(self, part),
                None => self.drop(part, DropReason::TooBig),
            }
        }
        self.worker.statistics.fragmented.add(1);
        self.consume(packet);
        None
    }
}
