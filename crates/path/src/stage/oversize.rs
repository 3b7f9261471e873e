//! Packets larger than their way: cut where the sender allows it, refused where it does not.
//!
//! Exits: `too_big`, `no_buffer`.

use packet::{DropReason, Packet};
use wire::{SaSlot, fragment};

use crate::decision::Exit;
use crate::host::errors::Complaint;
use crate::lane::{Flight, Onward};
use crate::worker::Round;

impl Round<'_> {
    /// A packet that exceeds `exit.limit`. IPv4 without DF is cut before it is encrypted, so that no ESP packet ever needs
    /// reassembly before it can be decrypted (RFC 4301 section 8.1).
    pub(crate) fn oversize(
        &mut self,
        packet: Packet,
        flight: &Flight,
        slot: Option<SaSlot>,
        exit: &Exit,
        onward: &mut Onward,
    ) {
        let plan = match flight.headers.dont_fragment {
            true => None,
            false => fragment::plan(packet.bytes(), exit.limit).ok(),
        };
        let Some(plan) = plan else {
            self.complain(&packet, flight, Complaint::TooBig(exit.limit), onward);
            return self.drop(packet, DropReason::TooBig);
        };
        for piece in plan {
            let Some(mut part) = self.new_packet(packet.port()) else { break };
            let written =
                part.append(piece.total_length()).and_then(|room| fragment::write(packet.bytes(), &piece, room));
            match written {
                Some(_) => self.leave(part, &flight.headers, slot, exit, onward),
                None => self.drop(part, DropReason::TooBig),
            }
        }
        self.worker.statistics.fragmented.add(1);
        self.consume(packet);
    }
}
