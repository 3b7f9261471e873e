//! Controlled delay (RFC 8289): when an item of a queue is dropped or marked because those before
//! it have waited too long, all of them, for an interval.

use crate::{Dropped, Item, Nanoseconds};

/// Parameters of [`Codel`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CodelSettings {
    /// Items may wait so long all the time.
    pub(crate) target: Nanoseconds,
    /// They may wait longer for so long.
    pub(crate) interval: Nanoseconds,
    /// Whether items are marked instead of dropped if their sender understands it.
    pub(crate) ecn: bool,
    /// Whatever waits longer is marked.
    pub(crate) ce_threshold: Option<Nanoseconds>,
}

/// What was taken from a queue.
pub(crate) struct Popped<T> {
    /// The item.
    pub(crate) item: T,
    /// When it came.
    pub(crate) at: Nanoseconds,
    /// Bytes that are left in the queue.
    pub(crate) left: u64,
}

/// Items that were marked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marks {
    /// Instead of being dropped.
    pub(crate) ecn: u64,
    /// For their waiting alone.
    pub(crate) threshold: u64,
}

/// The state of one queue, by the names of RFC 8289 section 5.2.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Codel {
    first_above_time: Option<Nanoseconds>,
    drop_next: Nanoseconds,
    count: u32,
    lastcount: u32,
    dropping: bool,
}

impl Codel {
    /// That of a queue that nothing has waited in.
    pub(crate) const NEW: Self =
        Self { first_above_time: None, drop_next: 0, count: 0, lastcount: 0, dropping: false };

    /// Takes the next item that is to leave (RFC 8289 section 5.5). `pop` takes the queue's first
    /// item; items that are not to leave are `dropped`. `maxpacket` is the longest item in bytes
    /// so far: a queue with no more than that in it is never too long.
    pub(crate) fn dequeue<T: Item>(
        &mut self,
        now: Nanoseconds,
        settings: &CodelSettings,
        maxpacket: u64,
        marks: &mut Marks,
        mut pop: impl FnMut() -> Option<Popped<T>>,
        mut dropped: impl FnMut(T, Dropped),
    ) -> Option<T> {
        let mut next = |codel: &mut Self| {
            let popped = pop();
            let ok_to_drop = codel.ok_to_drop(now, settings, maxpacket, popped.as_ref());
            (popped, ok_to_drop)
        };
        let (mut popped, mut ok_to_drop) = next(self);
        let mut is_marked = false;
        if self.dropping {
            if !ok_to_drop {
                self.dropping = false;
            }
            while self.dropping && now >= self.drop_next {
                let Some(mut first) = popped.take() else { break };
                self.count = self.count.saturating_add(1);
                if settings.ecn && first.item.mark() {
                    marks.ecn += 1;
                    is_marked = true;
                    popped = Some(first);
                    self.drop_next = control_law(self.drop_next, settings.interval, self.count);
                    break;
                }
                dropped(first.item, Dropped::Congestion);
                (popped, ok_to_drop) = next(self);
                match ok_to_drop {
                    true => {
                        self.drop_next = control_law(self.drop_next, settings.interval, self.count);
                    }
                    false => self.dropping = false,
                }
            }
        } else if ok_to_drop && let Some(mut first) = popped.take() {
            if settings.ecn && first.item.mark() {
                marks.ecn += 1;
                is_marked = true;
                popped = Some(first);
            } else {
                dropped(first.item, Dropped::Congestion);
                (popped, _) = next(self);
            }
            self.dropping = true;
            // If dropping ended not long ago, it goes on at the rate that it had reached.
            let delta = self.count.saturating_sub(self.lastcount);
            let is_recent =
                now.saturating_sub(self.drop_next) < settings.interval.saturating_mul(16);
            self.count = if delta > 1 && is_recent { delta } else { 1 };
            self.drop_next = control_law(now, settings.interval, self.count);
            self.lastcount = self.count;
        }
        let Popped { mut item, at, .. } = popped?;
        let waited = now.saturating_sub(at);
        if !is_marked
            && settings.ce_threshold.is_some_and(|threshold| waited > threshold)
            && item.mark()
        {
            marks.threshold += 1;
        }
        Some(item)
    }

    /// Whether items have waited longer than the target for an interval (RFC 8289 section 5.6).
    fn ok_to_drop<T>(
        &mut self,
        now: Nanoseconds,
        settings: &CodelSettings,
        maxpacket: u64,
        popped: Option<&Popped<T>>,
    ) -> bool {
        let is_above = popped.is_some_and(|popped| {
            now.saturating_sub(popped.at) >= settings.target && popped.left > maxpacket
        });
        if !is_above {
            self.first_above_time = None;
            return false;
        }
        let since =
            *self.first_above_time.get_or_insert_with(|| now.saturating_add(settings.interval));
        // The interval has only begun if this item is the first.
        now >= since
    }
}

/// When the next item is dropped after `count` of them (RFC 8289 section 5.4).
fn control_law(time: Nanoseconds, interval: Nanoseconds, count: u32) -> Nanoseconds {
    time.saturating_add((interval as f64 / f64::from(count.max(1)).sqrt()) as Nanoseconds)
}
