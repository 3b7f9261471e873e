//! Open: ESP packets for the gateway are decrypted, those of one SA together; what was inside goes
//! through the stages again.
//!
//! Exits: `esp_no_sa`, `esp_truncated`, `esp_replayed`, `esp_too_old`,
//! `esp_sequence_unstored`, `esp_bad_icv`, `esp_bad_padding`, `esp_next_header`, `esp_dummy`,
//! `esp_congestion`, `ip_version`, `ip_truncated`.

use arrayvec::ArrayVec;
use esp::{OpenError, OpenJob};
use packet::{BATCH, DropReason, Packet};
use wire::{Origin, Protocol};

use crate::batch::{Arrival, Opening, Queue};
use crate::encapsulation::propagate_congestion;
use crate::outputs::{Buffers, Objects};
use crate::statistics::WorkerStatistics;

/// Decrypts what waits, and puts what was inside into `again`. Leaves `opening` empty. `asks` is
/// told the places of replay windows whose edges are to be moved.
pub(crate) fn open(
    opening: &mut ArrayVec<Opening, BATCH>,
    objects: Objects<'_>,
    buffers: &mut Buffers<'_>,
    again: &mut Queue,
    mut asks: impl FnMut(&WorkerStatistics, u32),
) {
    opening.sort_unstable_by_key(|item| (item.slot, item.spi, item.order));
    let mut outcomes: ArrayVec<Result<(), DropReason>, BATCH> = ArrayVec::new();
    for group in opening.chunk_by_mut(|one, next| (one.slot, one.spi) == (next.slot, next.spi)) {
        if let Some(place) = open_group(group, objects, buffers, &mut outcomes) {
            asks(buffers.statistics, place);
        }
    }
    for (item, outcome) in opening.drain(..).zip(outcomes) {
        let vrf = objects.slot(item.slot).map(|slot| slot.identity.inner);
        match (outcome, vrf) {
            (Err(reason), _) => buffers.drop(item.packet, reason),
            (Ok(()), None) => buffers.drop(item.packet, DropReason::EspNoSa),
            (Ok(()), Some(vrf)) => {
                let arrival = Arrival::new(vrf, Origin::Sa(item.slot));
                if let Err(packet) = again.push(item.packet, arrival) {
                    buffers.drop(packet, DropReason::NoBuffer);
                }
            }
        }
    }
}

/// Decrypts the packets of one SA. Returns the place of its replay window if it is time to move
/// that one's edge.
fn open_group(
    group: &mut [Opening],
    objects: Objects<'_>,
    buffers: &Buffers<'_>,
    outcomes: &mut ArrayVec<Result<(), DropReason>, BATCH>,
) -> Option<u32> {
    let slot = group.first().and_then(|first| objects.slot(first.slot));
    let sa = slot.and_then(|slot| slot.sas.iter().find(|sa| sa.spec.spi == group[0].spi));
    let Some(sa) = sa else {
        outcomes.extend(group.iter().map(|_| Err(DropReason::EspNoSa)));
        return None;
    };
    let mut jobs: ArrayVec<OpenJob<'_>, BATCH> = group
        .iter_mut()
        .map(|item| {
            let (buffer, start, length) = item.packet.buffer_mut();
            OpenJob::new(buffer, start, length)
        })
        .collect();
    let asks = sa.inbound.open(&mut jobs);
    let results: ArrayVec<_, BATCH> =
        jobs.iter().map(|job| (job.start, job.length, job.next_header, job.result)).collect();
    drop(jobs);
    let (mut packets, mut bytes, mut failed) = (0, 0, 0);
    for (item, (start, length, next_header, result)) in group.iter_mut().zip(results) {
        let outcome = match result {
            Ok(()) => {
                item.packet.set_used(start, length);
                // `noecn`: what the outer header says of congestion is nothing to the inner one.
                let outer_traffic_class = if sa.spec.no_ecn { 0 } else { item.outer_traffic_class };
                inner(&mut item.packet, next_header, outer_traffic_class)
            }
            Err(why) => Err(reason(why)),
        };
        match outcome {
            Ok(()) => (packets, bytes) = (packets + 1, bytes + length as u64),
            Err(_) => failed += 1,
        }
        outcomes.push(outcome);
    }
    buffers.statistics.decrypted.add(packets);
    sa.counters.add(objects.worker, packets, bytes);
    if failed > 0 {
        sa.errors.add(objects.worker, failed, 0);
    }
    asks.then(|| sa.inbound.replay_window().place())
}

/// Checks that what was inside is what the trailer says (RFC 4303 section 2.6).
fn inner(
    packet: &mut Packet,
    next_header: Protocol,
    outer_traffic_class: u8,
) -> Result<(), DropReason> {
    let version = packet.bytes().first().map(|octet| octet >> 4);
    match (next_header, version) {
        (Protocol::IPV4, Some(4)) | (Protocol::IPV6, Some(6)) => {}
        (Protocol::IPV4 | Protocol::IPV6, Some(_)) => return Err(DropReason::IpVersion),
        (Protocol::IPV4 | Protocol::IPV6, None) => return Err(DropReason::IpTruncated),
        (Protocol::NONE, _) => return Err(DropReason::EspDummy),
        _ => return Err(DropReason::EspNextHeader),
    }
    match propagate_congestion(packet.bytes_mut(), outer_traffic_class) {
        true => Ok(()),
        false => Err(DropReason::EspCongestion),
    }
}

fn reason(why: OpenError) -> DropReason {
    match why {
        OpenError::Truncated => DropReason::EspTruncated,
        OpenError::Replayed => DropReason::EspReplayed,
        OpenError::TooOld => DropReason::EspTooOld,
        OpenError::Unstored => DropReason::EspSequenceUnstored,
        OpenError::BadIcv => DropReason::EspBadIcv,
        OpenError::BadPadding => DropReason::EspBadPadding,
    }
}
