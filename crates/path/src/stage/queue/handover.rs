//! Rings by which workers hand frames to each other.
//!
//! For each frame an empty buffer comes back, so that no worker runs out of buffers for what waits
//! in the disciplines of another.

use packet::{DropReason, Packet};
use rtrb::{Consumer, Producer, PushError, RingBuffer};

use super::{Owner, Queued, Stage};
use crate::outputs::{Objects, Outputs};

/// A frame, and the next discipline on its way; none if its port is to send it.
type Handed = (Queued, Option<Stage>);

/// One worker's ends of the rings between all workers: see [`handovers`].
pub struct Handover {
    /// By worker.
    pub(super) links: Vec<Option<Link>>,
}

/// A worker's ends of the rings between it and another one.
pub(super) struct Link {
    frames_out: Producer<Handed>,
    /// Empty buffers, one for each frame that went out.
    buffers_back: Consumer<Packet>,
    frames_in: Consumer<Handed>,
    /// Empty buffers, one for each frame that came in.
    buffers_out: Producer<Packet>,
    /// Frames for which no buffer has come back.
    owed: usize,
    most: usize,
    /// Whether frames were handed over since it was last asked.
    has_handed_over: bool,
}

impl Link {
    pub(super) fn take_handed_over(&mut self) -> bool {
        core::mem::take(&mut self.has_handed_over)
    }
}

/// The ends of rings between all of `workers` workers, in order. Each may have `capacity` frames on
/// the way to each other one.
pub fn handovers(workers: usize, capacity: usize) -> Vec<Handover> {
    let none = |_| Handover { links: (0..workers).map(|_| None).collect() };
    let mut all: Vec<_> = (0..workers).map(none).collect();
    for one in 0..workers {
        for other in one + 1..workers {
            let (forth_in, forth_out) = RingBuffer::new(capacity);
            let (back_in, back_out) = RingBuffer::new(capacity);
            let (forth_empty_in, forth_empty_out) = RingBuffer::new(capacity);
            let (back_empty_in, back_empty_out) = RingBuffer::new(capacity);
            let link = |frames_out, buffers_back, frames_in, buffers_out| Link {
                frames_out,
                buffers_back,
                frames_in,
                buffers_out,
                owed: 0,
                most: capacity,
                has_handed_over: false,
            };
            all[one].links[other] = Some(link(forth_in, forth_empty_out, back_out, back_empty_in));
            all[other].links[one] = Some(link(back_in, back_empty_out, forth_out, forth_empty_in));
        }
    }
    all
}

/// Hands a frame to another worker, for the discipline at `stage` or, without, for its port.
pub(super) fn hand_over(
    outputs: &mut Outputs<'_>,
    worker: usize,
    item: Queued,
    stage: Option<Stage>,
) {
    let link = outputs.queueing.links.get_mut(worker).and_then(Option::as_mut);
    let refused = match link.filter(|link| link.owed < link.most) {
        Some(link) => match link.frames_out.push((item, stage)) {
            Ok(()) => {
                link.owed += 1;
                link.has_handed_over = true;
                outputs.queueing.has_handed_over = true;
                return;
            }
            Err(PushError::Full((item, _))) => item,
        },
        None => item,
    };
    count(outputs.objects, &refused, stage);
    outputs.drop_waiting(refused.packet, DropReason::QdiscHandover);
}

/// Takes what another worker has handed over: frames, and buffers. Returns how many frames.
pub(super) fn take(owner: &mut Owner, worker: usize, outputs: &mut Outputs<'_>) -> usize {
    let Some(link) = &mut outputs.queueing.links[worker] else { return 0 };
    while let Ok(packet) = link.buffers_back.pop() {
        link.owed -= 1;
        outputs.buffers.pool.give(packet);
    }
    // What comes meanwhile waits for the next round.
    let slots = link.frames_in.slots();
    for _ in 0..slots {
        let Some(link) = &mut outputs.queueing.links[worker] else { break };
        let Ok((item, stage)) = link.frames_in.pop() else { break };
        let pool = &mut outputs.buffers.pool;
        let buffer = if item.packet.is_large() { pool.take_large() } else { pool.take() };
        let (back, item) = match buffer {
            Some(buffer) => (buffer, Some(item)),
            None => {
                let reason = DropReason::QdiscHandover;
                outputs.buffers.statistics.drops.add(reason, 1);
                outputs.buffers.follower.dropped(&item.packet, reason, false);
                count(outputs.objects, &item, stage);
                (item.packet, None)
            }
        };
        // There is room: the other worker has no more frames on the way than buffers fit.
        if let Err(PushError::Full(back)) = link.buffers_out.push(back) {
            outputs.buffers.pool.give(back);
        }
        match item {
            Some(item) if item.may_leave(outputs.objects) => owner.pass(item, stage, outputs),
            Some(item) => outputs.drop_waiting(item.packet, DropReason::QdiscFlushed),
            None => {}
        }
    }
    slots
}

/// Counts a packet that its worker could not hand over for the discipline that it was for.
fn count(objects: Objects<'_>, item: &Queued, stage: Option<Stage>) {
    let mut stage = stage;
    while let Some(at) = stage {
        let placed = at.device(item.port, objects).and_then(|device| objects.qdiscs().on(device));
        if let Some(placed) = placed {
            let bytes = u64::from(qdisc::Item::length(item));
            return placed.not_handed_over.add(objects.worker, 1, bytes);
        }
        stage = at.next();
    }
}
