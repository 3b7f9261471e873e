//! Seal: outbound packets are encrypted, those of one SA together, and get their outer header.
//!
//! Exits: `esp_no_outbound_sa`, `esp_sequence_exhausted`, `esp_no_room`.

use arrayvec::ArrayVec;
use esp::{SealError, SealJob};
use packet::{BATCH, DropReason};
use wire::Protocol;

use crate::encapsulation::Outer;
use crate::lane::Sealing;
use crate::worker::Round;

impl Round<'_> {
    pub(crate) fn seal(&mut self, sealing: &mut ArrayVec<Sealing, BATCH>) {
        sealing.sort_unstable_by_key(|item| (item.slot, item.order));
        for group in sealing.chunk_by_mut(|one, next| one.slot == next.slot) {
            self.seal_group(group);
        }
        // A packet that could not be sealed was emptied; the others have their outer header.
        for item in sealing.drain(..) {
            match item.packet.is_empty() {
                true => self.worker.pool.give(item.packet),
                false if item.is_oversize => self.emit_in_pieces(item.packet, &item.exit),
                false => self.emit(item.packet, &item.exit),
            }
        }
    }

    fn seal_group(&mut self, group: &mut [Sealing]) {
        let tables = self.tables;
        let statistics = &self.worker.statistics;
        let Some(sa) = group.first().and_then(|first| tables.sad().outbound(first.slot)) else {
            statistics.drops.add(DropReason::EspNoOutboundSa, group.len() as u64);
            return group.iter_mut().for_each(|item| item.packet.clear());
        };
        let mut jobs: ArrayVec<SealJob<'_>, BATCH> = group
            .iter_mut()
            .map(|item| {
                let (buffer, start, length) = item.packet.buffer_mut();
                let next_header =
                    if buffer[start] >> 4 == 6 { Protocol::IPV6 } else { Protocol::IPV4 };
                SealJob::new(buffer, start, length, next_header)
            })
            .collect();
        sa.outbound.seal(&mut jobs, &mut self.worker.randomness);
        let results: ArrayVec<_, BATCH> =
            jobs.iter().map(|job| (job.start, job.length, job.result)).collect();
        drop(jobs);
        let (mut packets, mut bytes, mut failed) = (0, 0, 0);
        for (item, (start, length, result)) in group.iter_mut().zip(results) {
            let payload = item.packet.len();
            let reason = match result {
                Ok(()) => {
                    item.packet.set_used(start, length);
                    let outer = Outer::new(sa, item.inner, length, self.worker.identification);
                    self.worker.identification = self.worker.identification.wrapping_add(1);
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
                Err(SealError::NoRoom) => DropReason::EspNoRoom,
            };
            failed += 1;
            statistics.drops.add(reason, 1);
            item.packet.clear();
        }
        statistics.encrypted.add(packets);
        sa.counters.add(self.worker.index, packets, bytes);
        if failed > 0 {
            sa.errors.add(self.worker.index, failed, 0);
        }
    }
}
