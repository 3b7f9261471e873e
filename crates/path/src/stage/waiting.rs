//! Waiting: packets whose next hop is known by now go on, and those whose next hop did not answer
//! are given up.
//!
//! Exits: `neighbour_unresolved`, `reassembly_timeout`, and, where packets begin to wait,
//! `neighbour_queue_full` and `neighbour_table_full`.

use core::cell::RefCell;
use std::collections::BTreeSet;
use std::net::IpAddr;

use flow::{FairLimiter, FragmentUpper, GivenUp, Reassembly, Sender};
use packet::{DropReason, Time};
use tables::{Event, NextHopState};
use wire::{PortId, VrfId};

use crate::batch::{Arrival, Queue};
use crate::decide::Locality;
use crate::host::{errors, resolve};
use crate::outputs::{Buffers, Neighbours};
use crate::stage::translate;

/// Sends what waited for neighbours that are known now.
pub(crate) fn resume(neighbours: &mut Neighbours<'_>) {
    let Neighbours { outputs, waiting } = neighbours;
    let objects = outputs.objects;
    let lookup = |port: PortId, address: IpAddr| {
        let next_hop = objects.neighbour(port, address)?;
        let is_known = match next_hop.state {
            NextHopState::Resolved | NextHopState::Queued | NextHopState::Down => true,
            NextHopState::Pending | NextHopState::OnLink => false,
        };
        is_known.then_some(next_hop)
    };
    let is_followed = outputs.buffers.follower.is_on();
    waiting.take_resolved(lookup, |_, _, next_hop, packet| {
        let sent = match is_followed {
            false => outputs.send_to(packet, next_hop),
            true => outputs.send_followed(packet, next_hop),
        };
        if let Err(packet) = sent {
            outputs.drop(packet, DropReason::NeighbourUnresolved);
        }
    });
}

/// Gives up packets that wait on ports which have `moved` to another VRF: they would leave by a port
/// of another one than they came in. Forgets the fragments of VRFs that are `gone`, as another one
/// may have the number now.
pub(crate) fn part(
    neighbours: &mut Neighbours<'_>,
    reassembly: &mut Reassembly,
    fragments: &mut FragmentUpper,
    (moved, gone): &(BTreeSet<PortId>, BTreeSet<VrfId>),
) {
    let Neighbours { outputs, waiting } = neighbours;
    if !moved.is_empty() {
        let drop = |packet| outputs.drop_waiting(packet, DropReason::NeighbourUnresolved);
        waiting.forget(|port| moved.contains(&port), drop);
    }
    if !gone.is_empty() {
        waiting.forget_senders(|vrf| gone.contains(&vrf));
        let Buffers { pool, statistics, .. } = &mut outputs.buffers;
        let dropped = |fragments| statistics.drops.add(DropReason::ReassemblyTimeout, fragments);
        reassembly.forget(|vrf| gone.contains(&vrf), pool, dropped);
        fragments.forget(|vrf| gone.contains(&vrf));
    }
}

/// Asks again for neighbours that have not answered, and gives up the packets that waited too long;
/// their senders are told by packets in `again`.
pub(crate) fn advance(
    neighbours: &mut Neighbours<'_>,
    locality: Locality<'_>,
    limiter: &mut FairLimiter,
    again: &mut Queue,
) {
    let Neighbours { outputs, waiting } = neighbours;
    let now = outputs.now;
    if waiting.next_deadline().is_none_or(|deadline| deadline > now) {
        return;
    }
    let outputs = RefCell::new(outputs);
    let give_up = |port, address, packets: GivenUp<'_>| {
        let outputs = &mut *outputs.borrow_mut();
        if let Some(of) = outputs.objects.port(port) {
            let event = Event::NeighbourSilent { port, since: of.since, address };
            outputs.tell(of.spec.vrf, event);
        }
        for (mut packet, sender) in packets {
            let mut is_told = false;
            // Its sender is told about the packet that it has sent.
            if let Some(Sender { vrf, error, before }) = sender
                && before.is_none_or(|before| translate::restore(&mut packet, before).is_some())
                && let Some(message) = errors::unanswered(&packet, vrf, outputs, locality, limiter)
            {
                is_told = true;
                if let Err(message) = again.push(message, Arrival::new(vrf, error)) {
                    is_told = false;
                    outputs.drop(message, DropReason::NoBuffer);
                }
            }
            let reason = DropReason::NeighbourUnresolved;
            outputs.buffers.follower.dropped(&packet, reason, is_told);
            outputs.drop(packet, reason);
        }
    };
    let ask = |port, address| resolve::ask(&mut outputs.borrow_mut(), port, address);
    waiting.advance(now, ask, give_up);
}

/// Gives up datagrams whose fragments did not come in time.
pub(crate) fn expire(reassembly: &mut Reassembly, now: Time, buffers: &mut Buffers<'_>) {
    if reassembly.next_deadline().is_some_and(|deadline| deadline <= now) {
        let statistics = buffers.statistics;
        let dropped = |fragments| statistics.drops.add(DropReason::ReassemblyTimeout, fragments);
        reassembly.expire(now, buffers.pool, dropped);
    }
}
