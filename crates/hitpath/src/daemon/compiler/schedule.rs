//! What is compiled when.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tables::{Direction, Effort, Scope, Tables, Wanted};

/// Without a change for so long, policies are compiled as well as may be.
pub(super) const QUIET: Duration = Duration::from_secs(2);

/// How long policies whose compiling failed are left alone.
pub(super) const PAUSE: Duration = Duration::from_secs(10);

/// Failures in a row after which the policies of a scope and direction are left alone for
/// [`LONG_PAUSE`].
pub(super) const MOST_FAILURES: u32 = 3;

/// See [`MOST_FAILURES`]. By then they may be other policies.
pub(super) const LONG_PAUSE: Duration = Duration::from_secs(3600);

/// Something to compile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Job {
    pub(super) scope: Scope,
    pub(super) direction: Direction,
    /// None if only what was added since is to be compiled.
    pub(super) effort: Option<Effort>,
}

impl Job {
    fn key(&self) -> Key {
        (self.scope, self.direction as u8)
    }
}

/// A VRF or xfrm link, and direction.
type Key = (Scope, u8);

/// What is known of the policies of one scope and direction.
#[derive(Clone, Copy)]
struct State {
    /// When they were seen to have changed last.
    changed: Instant,
    /// What was compiled last was compiled quickly.
    is_quick: bool,
}

/// That the policies of one scope and direction could not be compiled.
#[derive(Clone, Copy)]
struct Failures {
    in_a_row: u32,
    last: Instant,
}

/// What was compiled when, and so what is next. Nothing is lost with a result that comes too late
/// or never: what is wanted follows from the tables.
#[derive(Clone)]
pub(super) struct Schedule {
    states: BTreeMap<Key, State>,
    failures: BTreeMap<Key, Failures>,
    /// Of the tables that were looked at last.
    generation: Option<u64>,
    /// When all policies of a direction may be compiled again.
    rested: Instant,
    /// The scope and direction that were compiled last. Those behind them are next.
    last: Option<Key>,
}

impl Schedule {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            states: BTreeMap::new(),
            failures: BTreeMap::new(),
            generation: None,
            rested: now,
            last: None,
        }
    }

    /// Before `rested`, only what was added is compiled.
    pub(super) fn rest_until(&mut self, rested: Instant) {
        self.rested = rested;
    }

    /// A job was done.
    pub(super) fn succeeded(&mut self, job: &Job) {
        self.failures.remove(&job.key());
    }

    /// A job could not be done. Returns whether it is not tried again for [`LONG_PAUSE`].
    pub(super) fn failed(&mut self, job: &Job, now: Instant) -> bool {
        let failures =
            self.failures.entry(job.key()).or_insert(Failures { in_a_row: 0, last: now });
        *failures = Failures { in_a_row: failures.in_a_row + 1, last: now };
        let is_last = failures.in_a_row >= MOST_FAILURES;
        // What was compiled before is as it was.
        if job.effort == Some(Effort::Best)
            && let Some(state) = self.states.get_mut(&job.key())
        {
            state.is_quick = true;
        }
        is_last
    }

    /// Whether it failed a short time ago, or too often lately.
    fn is_paused(&self, key: Key, now: Instant) -> bool {
        self.failures.get(&key).is_some_and(|failures| {
            let pause = if failures.in_a_row < MOST_FAILURES { PAUSE } else { LONG_PAUSE };
            now.duration_since(failures.last) < pause
        })
    }

    /// What had best be compiled now. Scopes and directions take turns: one whose policies change all
    /// the time is wanted all the time, and must not keep the others waiting.
    pub(super) fn next(&mut self, tables: &Tables, now: Instant) -> Option<Job> {
        let is_same = self.generation.replace(tables.generation()) == Some(tables.generation());
        if is_same && !self.states.values().any(|state| state.is_quick) {
            return None;
        }
        self.states.retain(|(scope, _), _| tables.spd(*scope).is_some());
        self.failures.retain(|(scope, _), _| tables.spd(*scope).is_some());
        let is_rested = now >= self.rested;
        let spds = tables.spds().filter(|(_, spd)| !spd.is_empty());
        let mut all: Vec<_> = spds
            .flat_map(|(scope, spd)| Direction::ALL.map(|direction| (scope, spd, direction)))
            .collect();
        all.sort_unstable_by_key(|(scope, _, direction)| {
            let key = (*scope, *direction as u8);
            (Some(key) <= self.last, key)
        });
        for (scope, spd, direction) in all {
            let key = (scope, direction as u8);
            let wanted = spd.wants_compiling(direction);
            if wanted.is_some() {
                // Looked at again, whether or not there is a new snapshot by then.
                self.generation = None;
                self.states.insert(key, State { changed: now, is_quick: true });
            }
            if self.is_paused(key, now) {
                continue;
            }
            let is_due =
                |state: &State| state.is_quick && now.duration_since(state.changed) >= QUIET;
            let effort = match wanted {
                Some(Wanted::Added) => None,
                Some(Wanted::All) if is_rested => Some(Effort::Quick),
                None if is_rested && self.states.get(&key).is_some_and(is_due) => {
                    self.states.insert(key, State { changed: now, is_quick: false });
                    Some(Effort::Best)
                }
                Some(Wanted::All) | None => continue,
            };
            self.last = Some(key);
            return Some(Job { scope, direction, effort });
        }
        None
    }
}
