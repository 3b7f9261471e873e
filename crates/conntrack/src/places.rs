//! Free places, and the wheel of deadlines, in pools with a lock each.
//!
//! A pool has every n-th place. A place is free, in the wheel, or in nobody's list for a moment, while
//! it is looked at.
//! The first places of the table have room for IPv6; others are taken for IPv4 while there are any.

use packet::Time;

use crate::sync::{AtomicU32, Mutex, Ordering, allocate, lock};
use crate::timeout::TICK_BITS;

/// A turn of the wheel is 512 steps of 2^30 nanoseconds: nine minutes. What is due later is looked
/// at once a turn.
const STEPS: u64 = 512;
pub(crate) const STEP_BITS: u32 = 30;

const NONE: u32 = u32::MAX;
/// What a place is in, if not in a step of the wheel.
const FREE: u32 = u32::MAX;
const NOWHERE: u32 = u32::MAX - 1;

/// How far behind a place the one is whose memory is asked for when it is looked at.
const AHEAD: usize = 6;

#[derive(Clone, Copy, Default)]
#[repr(align(16))]
struct Link {
    next: u32,
    previous: u32,
    list: u32,
    /// The place that was [`AHEAD`] places behind it in the wheel, when it came; perhaps it is no more.
    ahead: u32,
}

/// A step of the wheel.
#[derive(Clone, Copy)]
#[repr(align(32))]
struct Step {
    /// Its first place.
    head: u32,
    /// Of the latest places, the one that comes next is written over.
    turn: u32,
    latest: [u32; AHEAD],
}

impl Step {
    const EMPTY: Self = Self { head: NONE, turn: 0, latest: [NONE; AHEAD] };

    /// Notes the place that has come last, and returns the one that has come [`AHEAD`] places before it.
    fn note(&mut self, local: u32) -> u32 {
        let turn = self.turn as usize % AHEAD;
        self.turn = (turn + 1) as u32;
        core::mem::replace(&mut self.latest[turn], local)
    }
}

struct Pool {
    links: Box<[Link]>,
    /// Places below this have room for IPv6.
    wide: u32,
    /// The first free place for IPv4 only, and the first one with room for IPv6.
    free: [u32; 2],
    steps: Box<[Step]>,
    /// The number of the step that is being looked at.
    step: u64,
}

pub(crate) struct Places {
    pools: Box<[Shared]>,
}

/// A pool as workers share it, on cache lines of its own.
#[repr(align(64))]
struct Shared {
    /// Which of the lists of [`Pool::free`] have a place: a bit each. It is written under the lock, and
    /// read first: a full table has many pools to ask.
    free: AtomicU32,
    pool: Mutex<Pool>,
}

impl Shared {
    fn new(pool: Pool) -> Self {
        Self { free: AtomicU32::new(pool.kinds()), pool: Mutex::new(pool) }
    }

    fn may_have(&self, needs_wide: bool) -> bool {
        let kinds = if needs_wide { 1 << 1 } else { 1 << 0 | 1 << 1 };
        self.free.load(Ordering::Acquire) & kinds != 0
    }

    fn note(&self, pool: &Pool) {
        let kinds = pool.kinds();
        if self.free.load(Ordering::Relaxed) != kinds {
            self.free.store(kinds, Ordering::Release);
        }
    }
}

/// What to do with a place whose turn it is.
pub(crate) enum Due {
    /// Look again then.
    At(Time),
    /// Its connection has ended: the caller takes it out of the table.
    Ended,
}

impl Places {
    /// `None` without memory.
    pub(crate) fn new(count: u32, wide: u32, now: Time) -> Option<Self> {
        let pools = (count / 1024).clamp(1, 16).next_power_of_two();
        let of_pool = |pool: u32, all: u32| (all + pools - 1 - pool) / pools;
        let mut all = Vec::new();
        for pool in 0..pools {
            let (count, wide) = (of_pool(pool, count), of_pool(pool, wide));
            all.push(Shared::new(Pool::new(count, wide, now)?));
        }
        Some(Self { pools: all.into() })
    }

    pub(crate) fn bytes(&self) -> usize {
        let of = |shared: &Shared| {
            let pool = lock(&shared.pool);
            size_of_val(&*pool.links) + size_of_val(&*pool.steps)
        };
        self.pools.iter().map(of).sum()
    }

    pub(crate) fn pools(&self) -> u32 {
        self.pools.len() as u32
    }

    fn shared(&self, index: u32) -> (&Shared, u32) {
        let count = self.pools();
        (&self.pools[(index & (count - 1)) as usize], index / count)
    }

    /// A free place, of the pool of `hint` if it has one. The wheel looks at it when it is `due`.
    /// `next` is told of the one that the pool gives next, if there is one.
    pub(crate) fn take(
        &self,
        (hint, needs_wide): (u32, bool),
        due: Time,
        now: Time,
        mut next: impl FnMut(u32),
    ) -> Option<u32> {
        let count = self.pools();
        (0..count).find_map(|more| {
            let number = hint.wrapping_add(more) & (count - 1);
            let shared = &self.pools[number as usize];
            if !shared.may_have(needs_wide) {
                return None;
            }
            let mut pool = lock(&shared.pool);
            let (local, behind) = pool.take(needs_wide)?;
            shared.note(&pool);
            if let Some(link) = pool.links.get(behind as usize) {
                packet::prefetch(link);
                next(behind * count + number);
            }
            pool.link(local, due, now);
            Some(local * count + number)
        })
    }

    /// Whether [`Places::take`] would find one.
    pub(crate) fn has_free(&self, needs_wide: bool) -> bool {
        self.pools.iter().any(|pool| pool.may_have(needs_wide))
    }

    /// Gives a place back that is in the wheel or in no list.
    pub(crate) fn give(&self, index: u32) {
        let (shared, local) = self.shared(index);
        let mut pool = lock(&shared.pool);
        pool.unlink(local);
        pool.release(local);
        shared.note(&pool);
    }

    /// The same of several places of one pool.
    pub(crate) fn give_all(&self, pool: u32, indices: &[u32]) {
        let count = self.pools();
        let shared = &self.pools[(pool & (count - 1)) as usize];
        let mut pool = lock(&shared.pool);
        for index in indices {
            pool.unlink(index / count);
            pool.release(index / count);
        }
        shared.note(&pool);
    }

    /// Has the wheel look at a place at a time. A place that is free by now is left so.
    pub(crate) fn schedule(&self, index: u32, due: Time, now: Time) {
        let (shared, local) = self.shared(index);
        let mut pool = lock(&shared.pool);
        if pool.links[local as usize].list != FREE {
            pool.unlink(local);
            pool.link(local, due, now);
        }
    }

    /// Has the wheel look at a place that it has in its next step.
    pub(crate) fn look_soon(&self, index: u32) {
        self.schedule(index, Time(0), Time(0));
    }

    /// Looks at places of one pool that are due, no more than `budget` of them, and returns how many it
    /// has looked at. Steps without any are passed, at most a turn of the wheel. The pool is left alone
    /// if somebody else has it. `coming` is told of places that are looked at soon, most of them.
    pub(crate) fn look(
        &self,
        number: u32,
        now: Time,
        budget: u32,
        coming: impl FnMut(u32),
        judge: impl FnMut(u32) -> Due,
    ) -> u32 {
        let count = self.pools();
        let shared = &self.pools[(number & (count - 1)) as usize];
        let Ok(mut pool) = shared.pool.try_lock() else { return 0 };
        pool.look(now, budget, (number & (count - 1), count), coming, judge)
    }
}

impl Pool {
    fn new(count: u32, wide: u32, now: Time) -> Option<Self> {
        let mut pool = Self {
            links: allocate(count as usize)?,
            wide,
            free: [NONE; 2],
            steps: vec![Step::EMPTY; STEPS as usize].into(),
            step: now.0 >> STEP_BITS,
        };
        for local in (0..count).rev() {
            pool.release(local);
        }
        Some(pool)
    }

    /// The lists that have a free place, a bit each.
    fn kinds(&self) -> u32 {
        let has = |kind: usize| u32::from(self.free[kind] != NONE) << kind;
        has(0) | has(1)
    }

    /// A free place, and the one behind it in its list.
    fn take(&mut self, needs_wide: bool) -> Option<(u32, u32)> {
        let kind = self.kind_of_free(needs_wide)?;
        let local = self.free[kind];
        let link = &mut self.links[local as usize];
        self.free[kind] = link.next;
        link.list = NOWHERE;
        Some((local, link.next))
    }

    /// The list of free places to take one from.
    fn kind_of_free(&self, needs_wide: bool) -> Option<usize> {
        let [narrow, wide] = self.free.map(|first| first != NONE);
        match (needs_wide, wide) {
            (false, _) if narrow => Some(0),
            (_, true) => Some(1),
            (_, false) => None,
        }
    }

    fn release(&mut self, local: u32) {
        let kind = usize::from(local < self.wide);
        let next = self.free[kind];
        self.links[local as usize] = Link { next, previous: NONE, list: FREE, ahead: NONE };
        self.free[kind] = local;
    }

    fn unlink(&mut self, local: u32) {
        let Link { next, previous, list, .. } = self.links[local as usize];
        if list >= NOWHERE {
            return;
        }
        match previous {
            NONE => self.steps[list as usize].head = next,
            previous => self.links[previous as usize].next = next,
        }
        if next != NONE {
            self.links[next as usize].previous = previous;
        }
        self.links[local as usize].list = NOWHERE;
    }

    fn link(&mut self, local: u32, due: Time, now: Time) {
        let (due, now) = (due.0 >> STEP_BITS, now.0 >> STEP_BITS);
        // Behind the step that is being looked at, and less than a turn away from it.
        let first = self.step.max(now.min(self.step + STEPS / 2)) + 1;
        let step = (due + 1).clamp(first, self.step + STEPS - 1);
        let list = (step % STEPS) as u32;
        let step = &mut self.steps[list as usize];
        let (next, ahead) = (core::mem::replace(&mut step.head, local), step.note(local));
        self.links[local as usize] = Link { next, previous: NONE, list, ahead };
        if next != NONE {
            self.links[next as usize].previous = local;
        }
    }

    fn look(
        &mut self,
        now: Time,
        budget: u32,
        (number, pools): (u32, u32),
        mut coming: impl FnMut(u32),
        mut judge: impl FnMut(u32) -> Due,
    ) -> u32 {
        let present = now.0 >> STEP_BITS;
        // After a long pause, every step is due, and is so once.
        self.step = self.step.max(present.saturating_sub(STEPS - 1));
        let mut done = 0;
        while done < budget && self.step <= present {
            let local = self.steps[(self.step % STEPS) as usize].head;
            if local == NONE {
                self.step += 1;
                continue;
            }
            done += 1;
            let ahead = self.links[local as usize].ahead;
            if let Some(link) = self.links.get(ahead as usize) {
                packet::prefetch(link);
                coming(ahead * pools + number);
            }
            self.unlink(local);
            if let Due::At(due) = judge(local * pools + number) {
                self.link(local, due, now);
            }
        }
        done
    }
}

/// The time of a tick, given that it is not far from now.
pub(crate) fn time_of(tick: u32, now: Time) -> Time {
    let present = now.0 >> TICK_BITS;
    let ahead = i64::from(tick.wrapping_sub(present as u32) as i32);
    Time(present.saturating_add_signed(ahead) << TICK_BITS)
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Beside a map: no place is due early, none is forgotten, none is given out twice.
        #[test]
        fn the_wheel_is_a_map_of_deadlines(
            steps in proptest::collection::vec((0u8..4, any::<u32>(), 0u64..2000), 1..200),
        ) {
            let (count, wide) = (40, 13);
            let start = Time(77 << STEP_BITS);
            let places = Places::new(count, wide, start).unwrap();
            let mut now = start;
            let mut due: BTreeMap<u32, Time> = BTreeMap::new();
            for (what, pick, seconds) in steps {
                match what {
                    0 | 1 => {
                        let needs_wide = pick % 2 == 0;
                        let free_wide = (0..wide).any(|place| !due.contains_key(&place));
                        let at = Time(now.0 + (seconds << STEP_BITS));
                        let taken = places.take((pick, needs_wide), at, now, |_| {});
                        let expected = free_wide || !needs_wide && due.len() < count as usize;
                        prop_assert_eq!(taken.is_some(), expected);
                        if let Some(place) = taken {
                            prop_assert!(!needs_wide || place < wide);
                            prop_assert_eq!(due.insert(place, at), None);
                        }
                    }
                    2 => {
                        let place = due.keys().nth(pick as usize % due.len().max(1)).copied();
                        if let Some(place) = place {
                            places.give(place);
                            due.remove(&place);
                        }
                    }
                    _ => {
                        now = Time(now.0 + (seconds << STEP_BITS));
                        let mut ended = Vec::new();
                        loop {
                            let looked = places.look(0, now, 7, |_| {}, |place| match due[&place] <= now {
                                true => { ended.push(place); Due::Ended }
                                false => Due::At(due[&place]),
                            });
                            if looked < 7 { break; }
                        }
                        for place in ended {
                            due.remove(&place);
                            places.give(place);
                        }
                        // A step behind at most, and the one that has begun.
                        let latest = Time(now.0.saturating_sub(2 << STEP_BITS));
                        prop_assert!(due.values().all(|at| *at >= latest));
                    }
                }
            }
        }
    }

    #[test]
    fn ticks_near_now_are_times() {
        for now in [0u64, 1 << 40, 1 << 58, (1 << 58) + (5 << 56)] {
            for ahead in [-1000i64, 0, 1, 1 << 20] {
                let Some(at) = (now >> TICK_BITS).checked_add_signed(ahead) else { continue };
                assert_eq!(time_of(at as u32, Time(now)), Time(at << TICK_BITS));
            }
        }
    }
}
