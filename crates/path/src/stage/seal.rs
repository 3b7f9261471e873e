//! Seal: outbound packets are encrypted, those of one SA together, and get their outer header.
//!
//! Exits: `esp_no_outbound_sa`, `esp_sequence_exhausted`, `esp_sequence_unreserved`,
//! `esp_no_room`.

use arrayvec::ArrayVec;
use esp::{SealError, SealJob};
use packet::{BATCH, DropReason};
use tables::Event;
use wire::Protocol;

use crate::batch::Sealing;
use crate::encapsulation::Outer;
use crate::stage::apply::Applier;

/// Encrypts what waits and sends it. Leaves `sealing` empty.
pub(crate) fn seal(sealing: &mut ArrayVec<Sealing, BATCH>, applier: &mut Applier<'_, '_>) {
    sealing.sort_unstable_by_key(|item| (item.slot, item.order));
    for group in sealing.chunk_by_mut(|one, next| one.slot == next.slot) {
        seal_group(group, applier);
    }
    if let Some(known) = applier.tapped.take() {
        applier.tap_encrypted(sealing, &known);
    }
    // A packet that could not be sealed was emptied; the others have their outer header.
    for item in sealing.drain(..) {
        match item.packet.is_empty() {
            true => applier.neighbours.outputs.buffers.pool.give(item.packet),
            false if item.is_oversize => applier.emit_in_pieces(item.packet, item.next_hop),
            false => applier.neighbours.emit(item.packet, item.next_hop, None),
        }
    }
}

/// Encrypts the packets of one SA.
fn seal_group(group: &mut [Sealing], applier: &mut Applier<'_, '_>) {
    let objects = applier.neighbours.outputs.objects;
    let statistics = applier.neighbours.outputs.buffers.statistics;
    let state = &mut applier.state;
    let Some(sa) = group.first().and_then(|first| objects.outbound(first.slot)) else {
        statistics.drops.add(DropReason::EspNoOutboundSa, group.len() as u64);
        return group.iter_mut().for_each(|item| item.packet.clear());
    };
    let mut jobs: ArrayVec<SealJob<'_>, BATCH> = group
        .iter_mut()
        .map(|item| {
            let (buffer, start, length) = item.packet.buffer_mut();
            let next_header = if buffer[start] >> 4 == 6 { Protocol::IPV6 } else { Protocol::IPV4 };
            SealJob::new(buffer, start, length, next_header)
        })
        .collect();
    let asks = sa.outbound.seal(&mut jobs, state.randomness);
    let results: ArrayVec<_, BATCH> =
        jobs.iter().map(|job| (job.start, job.length, job.result)).collect();
    drop(jobs);
    let (mut packets, mut bytes, mut failed) = (0, 0, 0);
    for (item, (start, length, result)) in group.iter_mut().zip(results) {
        let payload = item.packet.len();
        let reason = match result {
            Ok(()) => {
                item.packet.set_used(start, length);
                let outer = Outer::new(sa, item.inner, length, *state.identification);
                *state.identification = state.identification.wrapping_add(1);
                match item.packet.prepend(outer.bytes().len()) {
                    Some(room) => {
                        room.copy_from_slice(outer.bytes());
                        packets += 1;
                        bytes += payload as u64;
                        continue;
                    }
                    None => DropReason::EspNoRoom,
                }
            }
            Err(SealError::SequenceExhausted) => DropReason::EspSequenceExhausted,
            Err(SealError::SequenceUnreserved) => DropReason::EspSequenceUnreserved,
            Err(SealError::NoRoom) => DropReason::EspNoRoom,
        };
        failed += 1;
        statistics.drops.add(reason, 1);
        item.packet.clear();
    }
    statistics.encrypted.add(packets);
    sa.counters.add(objects.worker, packets, bytes);
    if let Some(if_id) = sa.spec.identity.if_id
        && let Some(link) = objects.xfrm_link(if_id)
    {
        objects.count_sent(link.id, packets, bytes);
    }
    if failed > 0 {
        sa.errors.add(objects.worker, failed, 0);
    }
    if asks {
        let place = sa.outbound.numbers().place();
        applier.neighbours.outputs.tell_always(Event::SequenceNumbers { place });
    }
}
