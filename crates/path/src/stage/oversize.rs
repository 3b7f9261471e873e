//! Packets larger than their way: cut where the sender allows it, refused where it does not.
//!
//! Exits: `too_big`, `no_buffer`.

use packet::{DropReason, Packet};
use rand::Rng;
use rand::rngs::StdRng;
use tables::NextHopId;
use wire::common::Facts;
use wire::{fragment, ipv6};

use crate::batch::{DEFRAGMENTED, Known, Queues, longest_fragment};
use crate::host::errors::IcmpError;
use crate::outputs::Buffers;
use crate::stage::apply::{Applier, Way};

/// How a packet leaves that may be larger than its way allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// Whole.
    Whole,
    /// In fragments of at most so many bytes, which are encrypted one by one.
    Cut(u16),
    /// Encrypted whole, and the ESP packet is cut.
    CutOutside,
    /// Not at all: the sender is told.
    TooBig,
}

impl Fit {
    /// Of a packet whose way takes `limit` bytes, before it is encrypted if it `is_protected`.
    ///
    /// IPv4 without DF, and what the gateway sends itself, is cut before it is encrypted, so that no
    /// ESP packet needs reassembly before it can be decrypted (RFC 4301 section 8.1), with one
    /// exception: IPv6 packets that every link must carry, and the tunnel does not, are encrypted
    /// whole (RFC 2473 section 7.1). What came in fragments leaves in none that are longer.
    pub(crate) fn of(known: &Known, limit: u16, is_protected: bool) -> Self {
        let is_own = known.facts.is(Facts::OWN);
        let length = known.facts.total_length();
        let must_pass = known.is_v6() && length <= ipv6::MIN_MTU;
        let was_cut = known.facts.is(DEFRAGMENTED);
        let may_cut = !known.inner.dont_fragment || (known.is_v6() && (is_own || was_cut));
        let most = match was_cut && may_cut {
            true => limit.min(longest_fragment(known.facts)),
            false => limit,
        };
        match length <= most {
            true => Self::Whole,
            false if must_pass && !is_own && is_protected && length <= limit => Self::Whole,
            false if must_pass && !is_own && is_protected => Self::CutOutside,
            false if may_cut => Self::Cut(most),
            false => Self::TooBig,
        }
    }
}

impl Applier<'_, '_> {
    /// A packet that is larger than its way allows, or came in fragments.
    #[cold]
    pub(crate) fn oversize(
        &mut self,
        packet: Packet,
        known: &Known,
        way: Way,
        queues: &mut Queues,
    ) {
        let fit = Fit::of(known, way.limit, way.slot.is_some());
        if fit == Fit::TooBig {
            self.tell_sender(&packet, known, IcmpError::TooBig(way.limit), queues);
            return self.end::<true>(packet, known, DropReason::TooBig);
        }
        let packet = match self.translate(packet, known) {
            Ok(packet) => packet,
            Err(packet) => return self.end::<true>(packet, known, DropReason::ConnectionGone),
        };
        let Fit::Cut(limit) = fit else {
            return self.leave::<true>(packet, known, way, queues);
        };
        let uncut = self.cut(packet, limit, |applier, part| {
            applier.leave::<true>(part, known, way, queues);
        });
        if let Some(packet) = uncut {
            self.tell_sender(&packet, known, IcmpError::TooBig(way.limit), queues);
            self.end::<true>(packet, known, DropReason::TooBig);
        }
    }

    /// An ESP packet that is too large for its port: the peer is to reassemble it.
    #[cold]
    pub(crate) fn emit_in_pieces(&mut self, packet: Packet, next_hop: NextHopId) {
        let limit = self.neighbours.outputs.objects.next_hop(next_hop).map_or(0, |hop| hop.mtu);
        let emit = |applier: &mut Self, part| applier.neighbours.emit(part, next_hop, None);
        if let Some(packet) = self.cut(packet, limit, emit) {
            self.drop(packet, DropReason::TooBig);
        }
    }

    /// Gives the fragments of a packet to `each`. Hands the packet back if it cannot be cut.
    pub(crate) fn cut(
        &mut self,
        packet: Packet,
        limit: u16,
        mut each: impl FnMut(&mut Self, Packet),
    ) -> Option<Packet> {
        let bytes = packet.bytes();
        let is_v6 = bytes.first().is_some_and(|octet| octet >> 4 == 6);
        let plan =
            if is_v6 { fragment::plan_v6(bytes, limit) } else { fragment::plan(bytes, limit) };
        let Ok(plan) = plan else { return Some(packet) };
        let identification = new_identification(is_v6, self.state.randomness);
        for piece in plan {
            let length = piece.total_length();
            let buffers: &mut Buffers<'_> = &mut self.neighbours.outputs.buffers;
            let Some(mut part) = buffers.new_packet(packet.port(), length) else { break };
            let written = part.append(length).and_then(|room| match is_v6 {
                true => fragment::write_v6(packet.bytes(), &piece, identification, room),
                false => fragment::write(packet.bytes(), &piece, room),
            });
            match written {
                Some(_) => each(self, part),
                None => self.drop(part, DropReason::TooBig),
            }
        }
        let buffers = &mut self.neighbours.outputs.buffers;
        buffers.statistics.fragmented.add(1);
        buffers.consume(packet);
        None
    }
}

/// IPv4 fragments keep their packet's.
fn new_identification(is_v6: bool, randomness: &mut StdRng) -> u32 {
    if is_v6 { randomness.next_u32() } else { 0 }
}
