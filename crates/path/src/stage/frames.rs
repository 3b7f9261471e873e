//! Frames that flows send on as they came: by one port, or by all that flows join.
//!
//! Exits: `port_down`, `too_big`, `connection_gone`, `flow_unsupported`, `link_protocol`.

use packet::{DropReason, Packet};
use wire::{Origin, PortId};

use super::apply::Applier;
use super::runs::ETHERNET;
use crate::batch::{DEFRAGMENTED, Known, longest_fragment};

impl Applier<'_, '_> {
    /// Sends the frame that a packet came in by all ports that flows join with its own.
    #[cold]
    pub(super) fn flood<const EXTENSION: bool>(&mut self, packet: Packet, known: &Known) {
        let outputs = &mut self.neighbours.outputs;
        let port = match known.key.origin {
            Origin::Port(by) => outputs.objects.port(by),
            _ => None,
        };
        match port.filter(|_| !known.facts.is(DEFRAGMENTED)) {
            Some(port) => outputs.flood(packet, port),
            None => self.end::<EXTENSION>(packet, known, DropReason::FlowUnsupported),
        }
    }

    /// Sends the frame that a packet came in by a port, as it was but for its translation. What came
    /// in fragments leaves in such.
    #[cold]
    pub(super) fn output<const EXTENSION: bool>(
        &mut self,
        packet: Packet,
        known: &Known,
        port: PortId,
    ) {
        let outputs = &mut self.neighbours.outputs;
        let Some(to) = outputs.objects.port(port).filter(|port| port.spec.up) else {
            return self.end::<EXTENSION>(packet, known, DropReason::PortDown);
        };
        let (mtu, length) = (to.spec.mtu, known.facts.total_length());
        let was_cut = known.facts.is(DEFRAGMENTED);
        if length > mtu && !was_cut {
            return self.end::<EXTENSION>(packet, known, DropReason::TooBig);
        }
        let mut packet = match self.translate(packet, known) {
            Ok(packet) => packet,
            Err(packet) => {
                return self.end::<EXTENSION>(packet, known, DropReason::ConnectionGone);
            }
        };
        let limit = mtu.min(longest_fragment(known.facts));
        if !was_cut || length <= limit {
            return self.output_frame::<EXTENSION>(packet, known, to, None);
        }
        let (buffer, start, _) = packet.buffer_mut();
        let link = start.checked_sub(ETHERNET).and_then(|at| buffer[at..start].try_into().ok());
        let link: Option<[u8; ETHERNET]> = link;
        let uncut = self.cut(packet, limit, |applier, part| {
            applier.output_frame::<EXTENSION>(part, known, to, link);
        });
        if let Some(packet) = uncut {
            self.end::<EXTENSION>(packet, known, DropReason::TooBig);
        }
    }

    /// Sends a frame with this Ethernet header, or that which it came with.
    fn output_frame<const EXTENSION: bool>(
        &mut self,
        mut packet: Packet,
        known: &Known,
        port: &tables::Port,
        link: Option<[u8; ETHERNET]>,
    ) {
        if EXTENSION {
            self.tap_egress(packet.bytes(), known);
        }
        // See `super::runs::FrameWay::send`.
        let Some(frame) = packet.grow_front(ETHERNET) else {
            return self.end::<EXTENSION>(packet, known, DropReason::LinkProtocol);
        };
        if let Some(link) = link {
            frame[..ETHERNET].copy_from_slice(&link);
        }
        self.neighbours.outputs.buffers.statistics.forwarded.add(1);
        self.neighbours.outputs.send_untagged(port, packet);
    }
}
