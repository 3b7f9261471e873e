//! The thread that compiles policies.
//!
//! It looks at the published tables now and then, compiles what is worth it, and hands the result to
//! the control thread. It runs at the lowest priority, off the workers' processors if there are
//! others, and a fifth of the time at most.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use runtime::affinity;
use rustix::process::setpriority_process;
use tables::{Compiled, Direction, Effort, Reader, Tables, Wanted};
use wire::VrfId;

use crate::daemon::Message;

/// How often the tables are looked at.
const PERIOD: Duration = Duration::from_millis(50);

/// How much longer the thread rests than it worked.
const REST: u32 = 4;

/// Without a change for so long, policies are compiled as well as may be.
const QUIET: Duration = Duration::from_secs(2);

/// The lowest priority (setpriority(2)).
const LOWEST: i32 = 19;

/// Starts the thread. `workers` are the processors that workers are pinned to.
///
/// # Errors
/// If the system gives no thread.
pub(super) fn start(
    reader: Reader,
    workers: &[Option<usize>],
    control: SyncSender<Message>,
) -> anyhow::Result<()> {
    let workers: Vec<usize> = workers.iter().copied().flatten().collect();
    let run = move || {
        lower(&workers);
        Compiler {
            reader,
            control,
            states: BTreeMap::new(),
            generation: None,
            rested: Instant::now(),
            last: None,
        }
        .run();
    };
    thread::Builder::new().name("compile".into()).spawn(run).context("starting a thread")?;
    Ok(())
}

/// Lets the workers go first. That the system refuses is said and changes nothing else.
fn lower(workers: &[usize]) {
    if let Err(error) = setpriority_process(None, LOWEST) {
        tracing::warn!(%error, "policies are compiled at the priority of everything else");
    }
    let others = affinity::usable().map(|usable| {
        usable.into_iter().filter(|processor| !workers.contains(processor)).collect::<Vec<_>>()
    });
    match others {
        Ok(others) if others.is_empty() => {}
        others => {
            if let Err(error) = others.and_then(|others| affinity::restrict(&others)) {
                tracing::warn!(%error, "policies may be compiled on the workers' processors");
            }
        }
    }
}

/// What is known of the policies of one VRF and direction.
#[derive(Clone, Copy)]
struct State {
    /// When they were seen to have changed last.
    changed: Instant,
    /// What was compiled last was compiled quickly.
    is_quick: bool,
}

struct Compiler {
    reader: Reader,
    control: SyncSender<Message>,
    states: BTreeMap<(VrfId, u8), State>,
    /// Of the tables that were looked at last.
    generation: Option<u64>,
    /// When all policies of a direction may be compiled again.
    rested: Instant,
    /// The VRF and direction that were compiled last. Those behind them are next.
    last: Option<(VrfId, u8)>,
}

impl Compiler {
    /// Works until the control thread is gone.
    fn run(mut self) {
        loop {
            let begin = Instant::now();
            let tables = Arc::clone(self.reader.load());
            let Some(job) = self.next(&tables, begin) else {
                drop(tables);
                thread::sleep(PERIOD);
                continue;
            };
            let Job { vrf, direction, effort } = job;
            let compiled = tables.vrf(vrf).and_then(|vrf| match effort {
                Some(effort) => Some(Compiled::new(&vrf.spd, direction, effort)),
                None => Compiled::of_added(&vrf.spd, direction),
            });
            // What the control thread waits for before it frees the snapshot.
            drop(tables);
            let took = begin.elapsed();
            let Some(compiled) = compiled.map(Arc::new) else { continue };
            tracing::debug!(vrf = vrf.0, ?direction, ?effort, ?took, "policies compiled");
            if self.control.send(Message::Compiled { vrf, direction, compiled }).is_err() {
                return;
            }
            let rest = (took * REST).max(PERIOD);
            if effort.is_some() {
                self.rested = Instant::now() + rest;
            }
            // What comes meanwhile is compiled by itself, which takes little.
            thread::sleep(if effort.is_some() { PERIOD } else { rest });
        }
    }

    /// What had best be compiled now. VRFs and directions take turns: one whose policies change all
    /// the time is wanted all the time, and must not keep the others waiting.
    fn next(&mut self, tables: &Tables, now: Instant) -> Option<Job> {
        let is_same = self.generation.replace(tables.generation()) == Some(tables.generation());
        if is_same && !self.states.values().any(|state| state.is_quick) {
            return None;
        }
        self.states.retain(|(vrf, _), _| tables.vrf(*vrf).is_some());
        let is_rested = now >= self.rested;
        let vrfs = tables.vrfs().filter(|vrf| !vrf.spd.is_empty());
        let mut all: Vec<_> =
            vrfs.flat_map(|vrf| Direction::ALL.map(|direction| (vrf, direction))).collect();
        all.sort_unstable_by_key(|(vrf, direction)| {
            let key = (vrf.id, *direction as u8);
            (Some(key) <= self.last, key)
        });
        for (vrf, direction) in all {
            let key = (vrf.id, direction as u8);
            let wanted = vrf.spd.wants_compiling(direction);
            if wanted.is_some() {
                // Looked at again, whether or not there is a new snapshot by then.
                self.generation = None;
                self.states.insert(key, State { changed: now, is_quick: true });
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
            return Some(Job { vrf: vrf.id, direction, effort });
        }
        None
    }
}

/// Something to compile.
struct Job {
    vrf: VrfId,
    direction: Direction,
    /// None if only what was added since is to be compiled.
    effort: Option<Effort>,
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::sync::mpsc;

    use tables::{Action, PolicySpec, Publisher, Selector};
    use wire::{Addresses, IpRange};

    use super::*;

    #[test]
    fn policies_that_change_all_the_time_do_not_keep_others_waiting() {
        let mut tables = Tables::new(1, 0);
        let other = tables.add_vrf("other").unwrap();
        let all =
            Selector::all_of(&Addresses::V4 { source: [0; 4].into(), destination: [0; 4].into() });
        for vrf in [VrfId::MAIN, other] {
            for host in 0..40 {
                let address = IpAddr::V4(host.into());
                let source = IpRange::new(address, address).unwrap();
                let selector = Selector { source, ..all };
                let (direction, action) = (Direction::Out, Action::Bypass);
                let spec = PolicySpec { vrf, direction, priority: 1, selector, action };
                tables.add_policy(spec).unwrap();
            }
        }
        let publisher = Publisher::new(tables);
        let mut compiler = Compiler {
            reader: publisher.shared().reader(),
            control: mpsc::sync_channel(1).0,
            states: BTreeMap::new(),
            generation: None,
            rested: Instant::now(),
            last: None,
        };
        // Nothing that is compiled is ever used, as if all policies changed again meanwhile.
        let mut next = || compiler.next(&publisher.current(), Instant::now()).unwrap().vrf;
        assert_eq!([next(), next(), next()], [VrfId::MAIN, other, VrfId::MAIN]);
    }
}
