//! Open: ESP packets for the gateway are decrypted, those of one SA together; what was inside goes
//! through the stages again.
//!
//! An authentic packet whose number is above the edge of its replay window waits until that is
//! moved, and what comes behind it on the same SA waits behind it.
//!
//! Exits: `esp_no_sa`, `esp_truncated`, `esp_replayed`, `esp_too_old`,
//! `esp_sequence_unstored`, `esp_bad_icv`, `esp_bad_padding`, `esp_next_header`, `esp_dummy`,
//! `esp_congestion`, `xfrm_link_down`, `ip_version`, `ip_truncated`.

use std::collections::BTreeSet;

use arrayvec::ArrayVec;
use esp::{OpenError, OpenJob};
use flow::{EdgeQueue, Release};
use packet::{BATCH, DropReason, Packet, Time};
use tables::{Event, IfId, Sa, SaIdentity};
use wire::{Origin, Protocol, SaSlot, Spi, VrfId};

use crate::batch::{Arrival, Opening, Queue};
use crate::encapsulation::propagate_congestion;
use crate::outputs::{Buffers, Objects};
use crate::statistics::WorkerStatistics;

/// What is known of a packet that is decrypted and waits: its SA and number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unstored {
    slot: SaSlot,
    spi: Spi,
    /// Of the replay window: another SA may have the slot by now.
    place: u32,
    sequence: u32,
}

/// What became of a packet.
enum Outcome {
    Opened,
    Waits(Unstored),
    Dropped(DropReason),
}

/// What opening needs.
pub(crate) struct Opener<'a, 'b> {
    pub objects: Objects<'b>,
    pub buffers: &'a mut Buffers<'b>,
    pub unstored: &'a mut EdgeQueue<Unstored>,
    pub events: &'a mut rtrb::Producer<Event>,
    pub now: Time,
}

/// Says that the edge of the replay window at `place` is to be moved.
fn ask(place: u32, events: &mut rtrb::Producer<Event>, statistics: &WorkerStatistics) {
    if events.push(Event::SequenceNumbers { place }).is_err() {
        statistics.events_lost.add(1);
    }
}

/// Decrypts what waits, and puts what was inside into `again`. Leaves `opening` empty.
pub(crate) fn open(
    opening: &mut ArrayVec<Opening, BATCH>,
    again: &mut Queue,
    opener: &mut Opener<'_, '_>,
) {
    opening.sort_unstable_by_key(|item| (item.slot, item.spi, item.order));
    let mut outcomes: ArrayVec<Outcome, BATCH> = ArrayVec::new();
    for group in opening.chunk_by_mut(|one, next| (one.slot, one.spi) == (next.slot, next.spi)) {
        open_group(group, opener, &mut outcomes);
    }
    let Opener { objects, buffers, unstored, now, .. } = opener;
    for (item, outcome) in opening.drain(..).zip(outcomes) {
        let slot = objects.slot(item.slot);
        match (outcome, slot) {
            (Outcome::Dropped(reason), _) => buffers.drop(item.packet, reason),
            (_, None) => buffers.drop(item.packet, DropReason::EspNoSa),
            (Outcome::Opened, Some(slot)) => {
                let mut packet = item.packet;
                let vrf = match enter(&mut packet, &slot.identity, *objects) {
                    Ok(vrf) => vrf,
                    Err(reason) => {
                        buffers.drop(packet, reason);
                        continue;
                    }
                };
                let arrival = Arrival::new(vrf, Origin::Sa(item.slot));
                if let Err(packet) = again.push(packet, arrival) {
                    buffers.drop(packet, DropReason::NoBuffer);
                }
            }
            (Outcome::Waits(what), Some(_)) if unstored.any(|other| *other == what) => {
                refuse(what, item.packet, DropReason::EspReplayed, *objects, buffers);
            }
            (Outcome::Waits(what), Some(slot)) => {
                let given_up = unstored.hold(*now, slot.identity.inner, what, item.packet);
                if let Some((what, packet)) = given_up {
                    let reason = DropReason::EspSequenceUnstored;
                    refuse(what, packet, reason, *objects, buffers);
                }
            }
        }
    }
}

/// Puts into `again` what waits and may be accepted by now, and drops what has waited too long.
/// Returns whether more could not be put there, as it is full.
#[cold]
pub(crate) fn release(again: &mut Queue, opener: &mut Opener<'_, '_>) -> bool {
    let Opener { objects, buffers, unstored, events, now } = opener;
    let mut is_full = false;
    // Windows of packets that wait on: an edge that is moved meanwhile lets nothing overtake them.
    let mut waits = BTreeSet::new();
    unstored.release(*now, |what, is_late, mut packet| {
        if again.packets.is_full() {
            is_full = true;
            return Release::Waits(packet);
        }
        let Some((identity, sa)) = sa_of(*what, *objects) else {
            buffers.drop(packet, DropReason::EspNoSa);
            return Release::Taken;
        };
        let window = sa.inbound.replay_window();
        let accepted = match waits.contains(&what.place) {
            false => window.accept(what.sequence),
            true => Err(OpenError::Unstored),
        };
        if window.asks() {
            ask(window.place(), events, buffers.statistics);
        }
        match accepted {
            Err(OpenError::Unstored) if !is_late => {
                waits.insert(what.place);
                return Release::Waits(packet);
            }
            Err(why) => refuse(*what, packet, reason(why), *objects, buffers),
            Ok(()) => {
                buffers.statistics.decrypted.add(1);
                sa.counters.add(objects.worker, 1, packet.bytes().len() as u64);
                let arrival = match enter(&mut packet, identity, *objects) {
                    Ok(vrf) => Arrival::new(vrf, Origin::Sa(what.slot)),
                    Err(reason) => {
                        buffers.drop(packet, reason);
                        return Release::Taken;
                    }
                };
                if let Err(packet) = again.push(packet, arrival) {
                    buffers.drop(packet, DropReason::NoBuffer);
                }
            }
        }
        Release::Taken
    });
    is_full
}

/// Drops a packet that has waited, or was to wait.
fn refuse(
    what: Unstored,
    packet: Packet,
    reason: DropReason,
    objects: Objects<'_>,
    buffers: &mut Buffers<'_>,
) {
    if let Some((_, sa)) = sa_of(what, objects) {
        sa.errors.add(objects.worker, 1, 0);
    }
    buffers.drop(packet, reason);
}

/// The SA of a packet that waited, and its identity; nothing if the SA is gone.
fn sa_of<'t>(what: Unstored, objects: Objects<'t>) -> Option<(&'t SaIdentity, &'t Sa)> {
    let slot = objects.slot(what.slot)?;
    let sa = slot.sas.iter().find(|sa| sa.spec.spi == what.spi)?;
    (sa.inbound.replay_window().place() == what.place).then_some((&slot.identity, sa))
}

/// Decrypts the packets of one SA.
fn open_group(
    group: &mut [Opening],
    opener: &mut Opener<'_, '_>,
    outcomes: &mut ArrayVec<Outcome, BATCH>,
) {
    let Opener { objects, buffers, unstored, events, .. } = opener;
    let Some(&Opening { slot: number, spi, .. }) = group.first() else { return };
    let slot = objects.slot(number);
    let Some(sa) = slot.and_then(|slot| slot.sas.iter().find(|sa| sa.spec.spi == spi)) else {
        outcomes.extend(group.iter().map(|_| Outcome::Dropped(DropReason::EspNoSa)));
        return;
    };
    let place = sa.inbound.replay_window().place();
    let is_behind = !unstored.is_empty()
        && unstored.any(|first| (first.slot, first.spi, first.place) == (number, spi, place));
    let mut jobs: ArrayVec<OpenJob<'_>, BATCH> = group
        .iter_mut()
        .map(|item| {
            let (buffer, start, length) = item.packet.buffer_mut();
            OpenJob::new(buffer, start, length)
        })
        .collect();
    let is_time = match is_behind {
        false => sa.inbound.open(&mut jobs),
        true => sa.inbound.open_behind(&mut jobs),
    };
    let results: ArrayVec<_, BATCH> = jobs
        .iter()
        .map(|job| (job.start, job.length, job.next_header, job.sequence, job.result))
        .collect();
    drop(jobs);
    let (mut packets, mut bytes, mut failed) = (0, 0, 0);
    for (item, (start, length, next_header, sequence, result)) in group.iter_mut().zip(results) {
        let opened = match result {
            Ok(()) | Err(OpenError::Unstored) => {
                item.packet.set_used(start, length);
                // `noecn`: what the outer header says of congestion is nothing to the inner one.
                let outer_traffic_class = if sa.spec.no_ecn { 0 } else { item.outer_traffic_class };
                inner(&mut item.packet, next_header, outer_traffic_class)
            }
            Err(why) => Err(reason(why)),
        };
        outcomes.push(match (opened, result) {
            (Ok(()), Ok(())) => {
                (packets, bytes) = (packets + 1, bytes + length as u64);
                Outcome::Opened
            }
            (Ok(()), Err(_)) => Outcome::Waits(Unstored { slot: number, spi, place, sequence }),
            (Err(reason), _) => {
                failed += 1;
                Outcome::Dropped(reason)
            }
        });
    }
    buffers.statistics.decrypted.add(packets);
    sa.counters.add(objects.worker, packets, bytes);
    if failed > 0 {
        sa.errors.add(objects.worker, failed, 0);
    }
    if is_time {
        ask(place, events, buffers.statistics);
    }
}

/// Returns the VRF of a decrypted packet, which enters by the SA's xfrm link if there is one.
fn enter(
    packet: &mut Packet,
    identity: &SaIdentity,
    objects: Objects<'_>,
) -> Result<VrfId, DropReason> {
    match identity.if_id {
        None => Ok(identity.inner),
        Some(if_id) => enter_by_link(packet, if_id, objects),
    }
}

#[cold]
fn enter_by_link(
    packet: &mut Packet,
    if_id: IfId,
    objects: Objects<'_>,
) -> Result<VrfId, DropReason> {
    let link = objects.xfrm_link(if_id).filter(|link| link.spec.up);
    let link = link.ok_or(DropReason::XfrmLinkDown)?;
    packet.set_port(link.id);
    objects.count_received(link.id, 1, packet.bytes().len() as u64);
    Ok(link.spec.vrf)
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
