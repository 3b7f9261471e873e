//! Places for items, and queues of them.

use crate::{Item, Nanoseconds};

/// No place.
pub(crate) const NONE: u32 = u32::MAX;

struct Slot<T> {
    item: Option<T>,
    at: Nanoseconds,
    /// The one behind it in its queue or among the free ones.
    next: u32,
}

/// Places for items, made once. All disciplines of one thread share them, so that a discipline in
/// which nothing waits needs no memory for it.
pub struct Slots<T> {
    slots: Vec<Slot<T>>,
    free: u32,
}

/// Items in order.
#[derive(Clone, Copy)]
pub(crate) struct Queue {
    head: u32,
    tail: u32,
    pub(crate) packets: u32,
    pub(crate) bytes: u64,
}

impl Queue {
    pub(crate) const EMPTY: Self = Self { head: NONE, tail: NONE, packets: 0, bytes: 0 };
}

impl<T: Item> Slots<T> {
    /// Places for `count` items.
    pub fn new(count: usize) -> Self {
        let count = count.min(NONE as usize) as u32;
        let next = |number: u32| if number + 1 < count { number + 1 } else { NONE };
        let slot = |number| Slot { item: None, at: 0, next: next(number) };
        Self { slots: (0..count).map(slot).collect(), free: if count > 0 { 0 } else { NONE } }
    }

    /// Whether there are none at all.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.free == NONE
    }

    /// Puts an item behind all of a queue. It is handed back if no place is free.
    pub(crate) fn push(&mut self, queue: &mut Queue, item: T, at: Nanoseconds) -> Result<(), T> {
        let place = self.free;
        let Some(slot) = self.slots.get_mut(place as usize) else { return Err(item) };
        queue.bytes += u64::from(item.length());
        queue.packets += 1;
        self.free = slot.next;
        *slot = Slot { item: Some(item), at, next: NONE };
        match self.slots.get_mut(queue.tail as usize) {
            Some(last) => last.next = place,
            None => queue.head = place,
        }
        queue.tail = place;
        Ok(())
    }

    /// The first item of a queue.
    pub(crate) fn first(&self, queue: &Queue) -> Option<&T> {
        self.slots.get(queue.head as usize)?.item.as_ref()
    }

    /// Takes the first item of a queue, and when it came.
    pub(crate) fn pop(&mut self, queue: &mut Queue) -> Option<(T, Nanoseconds)> {
        let place = queue.head;
        let slot = self.slots.get_mut(place as usize)?;
        let item = slot.item.take()?;
        queue.head = slot.next;
        if queue.head == NONE {
            queue.tail = NONE;
        }
        slot.next = self.free;
        let at = slot.at;
        self.free = place;
        queue.packets -= 1;
        queue.bytes -= u64::from(item.length());
        Some((item, at))
    }
}
