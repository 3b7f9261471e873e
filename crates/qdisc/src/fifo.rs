//! First in, first out, with a limit in packets or bytes.

use crate::slots::{Queue, Slots};
use crate::{Dropped, Item, Nanoseconds};

/// How much may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    Packets(u32),
    Bytes(u32),
}

pub(crate) struct Fifo {
    limit: Limit,
    queue: Queue,
}

impl Fifo {
    pub(crate) fn new(limit: Limit) -> Self {
        Self { limit, queue: Queue::EMPTY }
    }

    /// Sets another limit. What is above it is dropped, the last first in.
    pub(crate) fn change<T: Item>(
        &mut self,
        limit: Limit,
        slots: &mut Slots<T>,
        mut dropped: impl FnMut(T, Dropped),
    ) {
        self.limit = limit;
        let mut kept = Queue::EMPTY;
        while let Some((item, at)) = slots.pop(&mut self.queue) {
            let refused = match self.has_room(&kept, &item) {
                true => slots.push(&mut kept, item, at).err(),
                false => Some(item),
            };
            refused.into_iter().for_each(|item| dropped(item, Dropped::Overlimit));
        }
        self.queue = kept;
    }

    fn has_room(&self, queue: &Queue, item: &impl Item) -> bool {
        match self.limit {
            Limit::Packets(limit) => queue.packets < limit,
            Limit::Bytes(limit) => queue.bytes + u64::from(item.length()) <= limit.into(),
        }
    }

    pub(crate) fn enqueue<T: Item>(
        &mut self,
        slots: &mut Slots<T>,
        item: T,
        at: Nanoseconds,
        has_room: bool,
    ) -> Result<(), T> {
        if !has_room || !self.has_room(&self.queue, &item) {
            return Err(item);
        }
        slots.push(&mut self.queue, item, at)
    }

    pub(crate) fn dequeue<T: Item>(&mut self, slots: &mut Slots<T>) -> Option<(T, Nanoseconds)> {
        slots.pop(&mut self.queue)
    }

    pub(crate) fn queue(&self) -> &Queue {
        &self.queue
    }
}
