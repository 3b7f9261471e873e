//! A discipline as it stands on a device: fq_codel or a FIFO, with or without a token bucket.

use types::qdisc::{FqCodel as FqCodelSettings, Pfifo, Qdisc, Tbf};

use crate::fifo::{Fifo, Limit};
use crate::fq_codel::{FlowStatistics, FqCodel};
use crate::slots::Slots;
use crate::tbf::Bucket;
use crate::{Dropped, Item, Nanoseconds, Statistics};

/// What a discipline is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    bucket: Option<Tbf>,
    queue: QueueSettings,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QueueSettings {
    FqCodel(FqCodelSettings),
    Fifo(Limit),
}

impl Settings {
    /// `root`, and what stands under it if that is a token bucket: without, a FIFO with the
    /// bucket's limit in bytes.
    ///
    /// `None` if something stands under a discipline that takes nothing under it, or a token
    /// bucket under another.
    pub fn new(root: &Qdisc, child: Option<&Qdisc>) -> Option<Self> {
        let queue = |qdisc: &Qdisc| match qdisc {
            Qdisc::Tbf(_) => None,
            Qdisc::FqCodel(settings) => Some(QueueSettings::FqCodel(*settings)),
            Qdisc::Pfifo(Pfifo { limit }) => Some(QueueSettings::Fifo(Limit::Packets(*limit))),
        };
        let (bucket, queue) = match (root, child) {
            (Qdisc::Tbf(tbf), None) => (Some(*tbf), QueueSettings::Fifo(Limit::Bytes(tbf.limit))),
            (Qdisc::Tbf(tbf), Some(child)) => (Some(*tbf), queue(child)?),
            (other, None) => (None, queue(other)?),
            (_, Some(_)) => return None,
        };
        Some(Self { bucket, queue })
    }
}

enum Queue {
    FqCodel(FqCodel),
    Fifo(Fifo),
}

/// When something may leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Next {
    /// Nothing waits.
    Empty,
    /// Something waits, and may leave from then on.
    At(Nanoseconds),
}

/// A discipline with what waits in it.
pub struct Discipline<T> {
    settings: Settings,
    bucket: Option<Bucket>,
    /// What the queue has given, and waits for tokens. It still counts as one of the queue's.
    head: Option<T>,
    queue: Queue,
    /// Of the whole, and of the queue under a token bucket.
    outer: Statistics,
    inner: Statistics,
}

impl<T: Item> Discipline<T> {
    /// One in which nothing waits.
    pub fn new(settings: Settings, now: Nanoseconds) -> Self {
        Self {
            settings,
            bucket: settings.bucket.as_ref().map(|tbf| Bucket::new(tbf, now)),
            head: None,
            queue: Queue::new(&settings.queue),
            outer: Statistics::default(),
            inner: Statistics::default(),
        }
    }

    /// Becomes another. What waits goes on waiting, as far as the limits allow.
    pub fn change(
        &mut self,
        settings: Settings,
        slots: &mut Slots<T>,
        now: Nanoseconds,
        mut dropped: impl FnMut(T, Dropped),
    ) {
        let (outer, inner) = (&mut self.outer, &mut self.inner);
        let mut count = |item: T, why: Dropped| {
            outer.drops += 1;
            inner.drops += 1;
            dropped(item, why);
        };
        self.settings = settings;
        match (&mut self.bucket, &settings.bucket) {
            (Some(bucket), Some(tbf)) => bucket.change(tbf, now),
            (bucket, tbf) => *bucket = tbf.as_ref().map(|tbf| Bucket::new(tbf, now)),
        }
        if let Some(bucket) = &self.bucket
            && let Some(item) = self.head.take_if(|item| !bucket.takes(item.length()))
        {
            count(item, Dropped::TooLong);
        }
        match (&mut self.queue, &settings.queue) {
            (Queue::Fifo(fifo), QueueSettings::Fifo(limit)) => {
                fifo.change(*limit, slots, &mut count);
            }
            (Queue::FqCodel(queue), QueueSettings::FqCodel(wanted)) if queue.can_change(wanted) => {
                queue.change(wanted, slots, &mut count);
            }
            (queue, wanted) => {
                let mut former = core::mem::replace(queue, Queue::new(wanted));
                // A queue of another kind begins to count anew.
                *inner = Statistics::default();
                let mut count = |item, why| {
                    outer.drops += 1;
                    inner.drops += 1;
                    dropped(item, why);
                };
                while let Some((item, at)) = former.take(slots) {
                    queue.enqueue(slots, item, at, true, &mut count);
                }
            }
        }
    }

    /// Takes an item in, or drops it; perhaps others too, or instead. Without `has_room` as many
    /// are dropped as come in, at least.
    pub fn enqueue(
        &mut self,
        slots: &mut Slots<T>,
        now: Nanoseconds,
        item: T,
        has_room: bool,
        mut dropped: impl FnMut(T, Dropped),
    ) {
        if self.bucket.as_ref().is_some_and(|bucket| !bucket.takes(item.length())) {
            self.outer.drops += 1;
            return dropped(item, Dropped::TooLong);
        }
        let (outer, inner) = (&mut self.outer, &mut self.inner);
        self.queue.enqueue(slots, item, now, has_room, |item, why| {
            outer.drops += 1;
            inner.drops += 1;
            dropped(item, why);
        });
    }

    /// The item that is to leave now, if one is.
    ///
    /// One whose turn it is and that `may_leave` refuses is dropped as [`Dropped::Flushed`]. It
    /// takes no tokens and none of its flow's turn. There is one such item at most in a call, which
    /// then returns `None` while [`Discipline::next`] may say that another one can leave already:
    /// how many are dropped at once is for the caller to say.
    pub fn dequeue(
        &mut self,
        slots: &mut Slots<T>,
        now: Nanoseconds,
        may_leave: impl Fn(&T) -> bool,
        mut dropped: impl FnMut(T, Dropped),
    ) -> Option<T> {
        let (outer, inner) = (&mut self.outer, &mut self.inner);
        let mut count = |item, why| {
            outer.drops += 1;
            inner.drops += 1;
            dropped(item, why);
        };
        let item = loop {
            let item = match self.head.take() {
                Some(item) => item,
                None => self.queue.dequeue(slots, now, &may_leave, &mut count)?,
            };
            if !may_leave(&item) {
                count(item, Dropped::Flushed);
                return None;
            }
            let Some(bucket) = &mut self.bucket else { break item };
            // The burst may have become less since it came.
            if !bucket.takes(item.length()) {
                count(item, Dropped::TooLong);
                continue;
            }
            if bucket.take(item.length(), now) {
                break item;
            }
            self.head = Some(item);
            outer.overlimits += 1;
            return None;
        };
        for statistics in [outer, inner] {
            statistics.packets += 1;
            statistics.bytes += u64::from(item.length());
        }
        Some(item)
    }

    /// Whether what waits for tokens may not leave, so that it need not be waited for. Such items
    /// behind it are found when it is their turn.
    pub fn waits_in_vain(&self, may_leave: impl Fn(&T) -> bool) -> bool {
        self.head.as_ref().is_some_and(|item| !may_leave(item))
    }

    /// When [`Discipline::dequeue`] is to be called again.
    pub fn next(&self) -> Next {
        match (&self.head, &self.bucket) {
            (Some(item), Some(bucket)) => Next::At(bucket.time_of(item.length())),
            _ if self.is_empty() => Next::Empty,
            _ => Next::At(0),
        }
    }

    /// Drops all that waits.
    pub fn flush(&mut self, slots: &mut Slots<T>, mut dropped: impl FnMut(T, Dropped)) {
        while let Some(item) = self.head.take().or_else(|| Some(self.queue.take(slots)?.0)) {
            self.outer.drops += 1;
            self.inner.drops += 1;
            dropped(item, Dropped::Flushed);
        }
    }

    /// Items that wait.
    pub fn len(&self) -> usize {
        self.queue.packets() as usize + usize::from(self.head.is_some())
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Begins to count anew: the whole of it, or what stands under its token bucket.
    pub fn forget_statistics(&mut self, of_whole: bool, of_queue: bool) {
        if of_whole {
            self.outer = Statistics::default();
        }
        if of_queue {
            self.inner = Statistics::default();
        }
        if let (true, Queue::FqCodel(queue)) = (of_queue, &mut self.queue) {
            queue.forget_statistics();
        }
    }

    /// What it is.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What the whole of it has done.
    pub fn statistics(&self) -> Statistics {
        self.with_what_waits(self.outer)
    }

    /// What the queue under its token bucket has done, or the only one.
    pub fn queue_statistics(&self) -> Statistics {
        self.with_what_waits(self.inner)
    }

    fn with_what_waits(&self, statistics: Statistics) -> Statistics {
        let head = self.head.as_ref().map_or(0, |item| u64::from(item.length()));
        Statistics { backlog: self.queue.bytes() + head, queued: self.len() as u64, ..statistics }
    }

    /// What fq_codel has done, if that is the queue.
    pub fn flow_statistics(&self) -> Option<FlowStatistics> {
        match &self.queue {
            Queue::FqCodel(queue) => Some(queue.statistics()),
            Queue::Fifo(_) => None,
        }
    }
}

impl Queue {
    fn new(settings: &QueueSettings) -> Self {
        match settings {
            QueueSettings::FqCodel(settings) => Self::FqCodel(FqCodel::new(settings)),
            QueueSettings::Fifo(limit) => Self::Fifo(Fifo::new(*limit)),
        }
    }

    fn enqueue<T: Item>(
        &mut self,
        slots: &mut Slots<T>,
        item: T,
        at: Nanoseconds,
        has_room: bool,
        mut dropped: impl FnMut(T, Dropped),
    ) {
        match self {
            Self::FqCodel(queue) => queue.enqueue(slots, item, at, has_room, dropped),
            Self::Fifo(fifo) => {
                if let Err(item) = fifo.enqueue(slots, item, at, has_room) {
                    dropped(item, Dropped::Overlimit);
                }
            }
        }
    }

    fn dequeue<T: Item>(
        &mut self,
        slots: &mut Slots<T>,
        now: Nanoseconds,
        may_leave: impl Fn(&T) -> bool,
        dropped: impl FnMut(T, Dropped),
    ) -> Option<T> {
        match self {
            Self::FqCodel(queue) => queue.dequeue(slots, now, may_leave, dropped),
            Self::Fifo(fifo) => Some(fifo.dequeue(slots)?.0),
        }
    }

    fn take<T: Item>(&mut self, slots: &mut Slots<T>) -> Option<(T, Nanoseconds)> {
        match self {
            Self::FqCodel(queue) => queue.take(slots),
            Self::Fifo(fifo) => fifo.dequeue(slots),
        }
    }

    fn packets(&self) -> u32 {
        match self {
            Self::FqCodel(queue) => queue.packets(),
            Self::Fifo(fifo) => fifo.queue().packets,
        }
    }

    fn bytes(&self) -> u64 {
        match self {
            Self::FqCodel(queue) => queue.bytes(),
            Self::Fifo(fifo) => fifo.queue().bytes,
        }
    }
}
