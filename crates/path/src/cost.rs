//! What the stages cost while packets pass: one round in about 256 of those with packets is timed,
//! stage by stage.
//!
//! The stages are given a [`Watch`]. That of a round that is not timed is `()`, for which nothing
//! is compiled, so such a round pays one branch.

use core::cell::Cell;

use packet::Counter;

use crate::graph::graph;

/// A timed round comes after at least so many with packets, and up to twice as many more. How many,
/// changes each time: what comes at regular intervals is neither always timed nor never.
const LEAST_PACE: u32 = 128;

/// Rounds with packets before the first that is timed: the very first ones fill the processor's
/// caches.
const FIRST: u32 = 16;

/// What is timed by itself: the stages of [`graph`] in its order, and what a round does beside them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timed {
    Receive,
    Parse,
    Decide,
    Confirm,
    Apply,
    Seal,
    Open,
    Waiting,
    Queue,
    Transmit,
    Beside,
}

/// How many things are timed by themselves.
const TIMED: usize = Timed::Beside as usize + 1;

/// The name of what a round does beside its stages.
pub const BESIDE: &str = "beside";

/// What was timed. Written by one worker, read by anyone.
#[derive(Debug, Default)]
pub struct Costs {
    /// Rounds that were timed and had packets.
    pub rounds: Counter,
    /// Rounds that were timed and had none, and what they took.
    pub idle_rounds: Counter,
    /// Ticks of the clock of [`crate::WorkerSettings`].
    pub idle_ticks: Counter,
    stages: [StageCost; TIMED],
}

/// What was timed of a stage, in rounds with packets.
#[derive(Debug, Default)]
pub struct StageCost {
    /// How often it had packets.
    pub calls: Counter,
    /// Its packets.
    pub packets: Counter,
    /// What it took, in ticks of the clock of [`crate::WorkerSettings`].
    pub ticks: Counter,
}

impl Costs {
    /// Each stage of [`graph`], then [`BESIDE`], with its name.
    pub fn stages(&self) -> impl Iterator<Item = (&'static str, &StageCost)> {
        graph().iter().map(|stage| stage.name).chain([BESIDE]).zip(&self.stages)
    }
}

/// Notes what the stages of a round cost.
pub(crate) trait Watch<'e> {
    /// `stage` has taken the time since the last call, and had so many packets.
    fn lap(&mut self, stage: Timed, packets: usize);

    /// Where is noted what full batches cost that are sent in the middle of another stage.
    fn early(&self) -> Option<&'e Early>;
}

/// Nothing is noted.
impl<'e> Watch<'e> for () {
    #[inline(always)]
    fn lap(&mut self, _stage: Timed, _packets: usize) {}

    #[inline(always)]
    fn early(&self) -> Option<&'e Early> {
        None
    }
}

/// What was sent in the middle of a stage, as a port's outgoing batch was full.
#[derive(Debug)]
pub(crate) struct Early {
    clock: fn() -> u64,
    noted: Cell<Noted>,
}

impl Early {
    pub(crate) fn new(clock: fn() -> u64) -> Self {
        Self { clock, noted: Cell::default() }
    }

    /// The time before a batch of so many packets is sent.
    pub(crate) fn begin(&self) -> u64 {
        (self.clock)()
    }

    /// The batch was sent.
    pub(crate) fn end(&self, begin: u64, packets: usize) {
        let mut noted = self.noted.get();
        noted.add((self.clock)().saturating_sub(begin), packets);
        self.noted.set(noted);
    }
}

/// What is noted of a stage in one round.
#[derive(Clone, Copy, Debug, Default)]
struct Noted {
    ticks: u64,
    calls: u64,
    packets: u64,
}

impl Noted {
    fn add(&mut self, ticks: u64, packets: usize) {
        self.ticks += ticks;
        self.calls += u64::from(packets > 0);
        self.packets += packets as u64;
    }
}

/// Times one round.
pub(crate) struct Stopwatch<'e> {
    early: &'e Early,
    last: u64,
    noted: [Noted; TIMED],
}

impl<'e> Stopwatch<'e> {
    /// Begins now.
    pub(crate) fn start(early: &'e Early) -> Self {
        Self { early, last: early.begin(), noted: [Noted::default(); TIMED] }
    }

    /// The round is over; it had packets or not.
    pub(crate) fn write(&self, costs: &Costs, had_packets: bool) {
        if !had_packets {
            costs.idle_rounds.add(1);
            return costs.idle_ticks.add(self.noted.iter().map(|noted| noted.ticks).sum());
        }
        costs.rounds.add(1);
        for (cost, noted) in costs.stages.iter().zip(&self.noted) {
            cost.calls.add(noted.calls);
            cost.packets.add(noted.packets);
            cost.ticks.add(noted.ticks);
        }
    }
}

impl<'e> Watch<'e> for Stopwatch<'e> {
    fn lap(&mut self, stage: Timed, packets: usize) {
        let now = self.early.begin();
        let early = self.early.noted.take();
        // A processor whose counter falls behind another's takes no time.
        let spent = now.saturating_sub(self.last).saturating_sub(early.ticks);
        self.last = now;
        self.noted[stage as usize].add(spent, packets);
        let sent = &mut self.noted[Timed::Transmit as usize];
        sent.ticks += early.ticks;
        sent.calls += early.calls;
        sent.packets += early.packets;
    }

    fn early(&self) -> Option<&'e Early> {
        Some(self.early)
    }
}

/// Which rounds are timed.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Rounds with packets until one is timed.
    left: u32,
    state: u32,
}

impl Default for Pace {
    fn default() -> Self {
        Self { left: FIRST, state: 0x9e37_79b9 }
    }
}

impl Pace {
    /// Whether the next round is timed. If it turns out to have no packet, so is the one behind it.
    #[inline]
    pub(crate) const fn is_due(&self) -> bool {
        self.left == 0
    }

    /// A round had packets.
    #[inline]
    pub(crate) const fn busy(&mut self) {
        self.left = self.left.saturating_sub(1);
    }

    /// A round with packets was timed.
    pub(crate) const fn timed(&mut self) {
        // Marsaglia's xorshift: as even as this needs, and of no other use.
        self.state ^= self.state << 13;
        self.state ^= self.state >> 17;
        self.state ^= self.state << 5;
        self.left = LEAST_PACE + self.state % (2 * LEAST_PACE);
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// A clock that is one later each time, for one test alone.
    fn clock() -> u64 {
        static NOW: AtomicU64 = AtomicU64::new(0);
        NOW.fetch_add(1, Ordering::Relaxed)
    }

    #[test]
    fn what_is_timed_are_the_stages_of_the_graph_in_their_order() {
        let all = [
            Timed::Receive,
            Timed::Parse,
            Timed::Decide,
            Timed::Confirm,
            Timed::Apply,
            Timed::Seal,
            Timed::Open,
            Timed::Waiting,
            Timed::Queue,
            Timed::Transmit,
            Timed::Beside,
        ];
        let costs = Costs::default();
        let names: Vec<_> = costs.stages().map(|(name, _)| name).collect();
        assert_eq!(names.len(), TIMED);
        for (at, (timed, name)) in all.into_iter().zip(names).enumerate() {
            assert_eq!(
                (timed as usize, format!("{timed:?}").to_lowercase()),
                (at, name.to_owned())
            );
        }
    }

    #[test]
    fn time_belongs_to_the_stage_that_ends_and_a_full_batch_to_transmit() {
        let early = Early::new(clock);
        let mut watch = Stopwatch::start(&early);
        watch.lap(Timed::Receive, 4);
        let begin = early.begin();
        early.end(begin, 3);
        watch.lap(Timed::Apply, 4);
        watch.lap(Timed::Apply, 0);
        let costs = Costs::default();
        watch.write(&costs, true);
        let found: Vec<_> = costs
            .stages()
            .map(|(name, cost)| (name, cost.calls.read(), cost.packets.read(), cost.ticks.read()))
            .filter(|(.., ticks)| *ticks > 0)
            .collect();
        // Between two looks at the clock it is one later; that at the batch's begin is one of them.
        assert_eq!(found, [("receive", 1, 4, 1), ("apply", 1, 4, 3), ("transmit", 1, 3, 1)]);
        assert_eq!((costs.rounds.read(), costs.idle_rounds.read()), (1, 0));
    }

    #[test]
    fn a_round_without_packets_is_no_part_of_what_packets_cost() {
        let early = Early::new(clock);
        let mut watch = Stopwatch::start(&early);
        watch.lap(Timed::Receive, 0);
        let costs = Costs::default();
        watch.write(&costs, false);
        assert!(costs.stages().all(|(_, cost)| cost.ticks.read() == 0));
        assert_eq!((costs.rounds.read(), costs.idle_rounds.read()), (0, 1));
        assert!(costs.idle_ticks.read() > 0);
    }

    #[test]
    fn one_round_in_about_256_is_timed_at_changing_distances() {
        let mut pace = Pace::default();
        let mut timed = Vec::new();
        for round in 0..100_000_u32 {
            if pace.is_due() {
                timed.push(round);
                pace.timed();
            } else {
                pace.busy();
            }
        }
        let distances: Vec<_> = timed.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!((350..450).contains(&timed.len()), "{}", timed.len());
        assert!(distances.iter().all(|distance| (LEAST_PACE..4 * LEAST_PACE).contains(distance)));
        // No two in a row are alike but by chance.
        assert!(distances.windows(2).filter(|pair| pair[0] == pair[1]).count() < 10);
    }
}
