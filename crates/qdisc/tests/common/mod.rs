//! An item, and disciplines of them.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use qdisc::{Discipline, Dropped, FlowStatistics, Item, Next, Settings, Slots};
use types::qdisc::{FqCodel, Pfifo, Qdisc, Tbf};

pub(crate) const MILLISECOND: u64 = 1_000_000;
pub(crate) const SECOND: u64 = 1_000_000_000;
const PLACES: usize = 20_000;

/// An item with a number of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) number: u64,
    pub(crate) flow: u32,
    pub(crate) length: u32,
    pub(crate) speaks_ecn: bool,
    pub(crate) is_marked: bool,
}

impl Frame {
    pub(crate) fn new(number: u64, flow: u32, length: u32) -> Self {
        Self { number, flow, length, speaks_ecn: false, is_marked: false }
    }
}

impl Item for Frame {
    fn length(&self) -> u32 {
        self.length
    }

    fn memory(&self) -> u32 {
        2368
    }

    fn flow(&self) -> u32 {
        self.flow
    }

    fn mark(&mut self) -> bool {
        self.is_marked |= self.speaks_ecn;
        self.speaks_ecn
    }
}

/// A discipline with places of its own.
pub(crate) struct Rig {
    pub(crate) discipline: Discipline<Frame>,
    slots: Slots<Frame>,
}

impl Rig {
    pub(crate) fn new(settings: Settings, places: usize) -> Self {
        Self { discipline: Discipline::new(settings, 0), slots: Slots::new(places) }
    }

    pub(crate) fn enqueue(
        &mut self,
        now: u64,
        frame: Frame,
        has_room: bool,
        dropped: impl FnMut(Frame, Dropped),
    ) {
        self.discipline.enqueue(&mut self.slots, now, frame, has_room, dropped);
    }

    pub(crate) fn dequeue(
        &mut self,
        now: u64,
        dropped: impl FnMut(Frame, Dropped),
    ) -> Option<Frame> {
        self.dequeue_if(now, |_| true, dropped)
    }

    pub(crate) fn dequeue_if(
        &mut self,
        now: u64,
        may_leave: impl Fn(&Frame) -> bool,
        dropped: impl FnMut(Frame, Dropped),
    ) -> Option<Frame> {
        self.discipline.dequeue(&mut self.slots, now, may_leave, dropped)
    }

    pub(crate) fn change(
        &mut self,
        settings: Settings,
        now: u64,
        dropped: impl FnMut(Frame, Dropped),
    ) {
        self.discipline.change(settings, &mut self.slots, now, dropped);
    }

    pub(crate) fn flush(&mut self, dropped: impl FnMut(Frame, Dropped)) {
        self.discipline.flush(&mut self.slots, dropped);
    }

    pub(crate) fn next(&self) -> Next {
        self.discipline.next()
    }

    pub(crate) fn len(&self) -> usize {
        self.discipline.len()
    }

    pub(crate) fn flow_statistics(&self) -> FlowStatistics {
        self.discipline.flow_statistics().unwrap()
    }
}

pub(crate) fn fq_codel(settings: FqCodel) -> Rig {
    Rig::new(Settings::new(&Qdisc::FqCodel(settings), None).unwrap(), PLACES)
}

pub(crate) fn pfifo(limit: u32) -> Rig {
    Rig::new(Settings::new(&Qdisc::Pfifo(Pfifo { limit }), None).unwrap(), PLACES)
}

pub(crate) fn tbf(rate: u64, burst: u32, child: Option<Qdisc>) -> Rig {
    let root = Qdisc::Tbf(Tbf { rate, burst, limit: 1 << 20 });
    Rig::new(Settings::new(&root, child.as_ref()).unwrap(), PLACES)
}

/// For items that must not be dropped.
pub(crate) fn none(frame: Frame, why: Dropped) {
    panic!("{frame:?} was dropped: {why:?}");
}
