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
            // So that the control thread frees the snapshot.
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

    /// What had best be compiled now.
    fn next(&mut self, tables: &Tables, now: Instant) -> Option<Job> {
        let is_same = self.generation.replace(tables.generation()) == Some(tables.generation());
        if is_same && !self.states.values().any(|state| state.is_quick) {
            return None;
        }
        self.states.retain(|(vrf, _), _| tables.vrf(*vrf).is_some());
        let is_rested = now >= self.rested;
        for vrf in tables.vrfs().filter(|vrf| !vrf.spd.is_empty()) {
            for direction in Direction::ALL {
                let key = (vrf.id, direction as u8);
                let job = |effort| Some(Job { vrf: vrf.id, direction, effort });
                let wanted = vrf.spd.wants_compiling(direction);
                if wanted.is_some() {
                    // Looked at again, whether or not there is a new snapshot by then.
                    self.generation = None;
                    self.states.insert(key, State { changed: now, is_quick: true });
                }
                match wanted {
                    Some(Wanted::Added) => return job(None),
                    Some(Wanted::All) if is_rested => return job(Some(Effort::Quick)),
                    Some(Wanted::All) => continue,
                    None => {}
                }
                let is_due =
                    |state: &State| state.is_quick && now.duration_since(state.changed) >= QUIET;
                if is_rested && self.states.get(&key).is_some_and(is_due) {
                    self.states.insert(key, State { changed: now, is_quick: false });
                    return job(Some(Effort::Best));
                }
            }
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
