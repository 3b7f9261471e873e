//! The thread that compiles policies and large filters.
//!
//! It looks at the published tables now and then, compiles what is worth it, and hands the result
//! to the control thread. It runs at the lowest priority, off the workers' processors if there are
//! others, and a fifth of the time at most. If it fails, packets are looked up as before.

mod filters;
mod schedule;
#[cfg(test)]
mod tests;

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use runtime::affinity;
use rustix::process::setpriority_process;
use tables::{Compiled, Reader, Spd, Tables};

use self::filters::Filters;
use self::schedule::{Job, Schedule};
use crate::daemon::Message;

/// How often the tables are looked at.
const PERIOD: Duration = Duration::from_millis(50);

/// How much longer the thread rests than it worked.
const REST: u32 = 4;

/// Panics outside of compiling after which the thread ends. Those while compiling are counted by
/// [`Schedule`].
const MOST_PANICS: u32 = 3;

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
            schedule: Schedule::new(Instant::now()),
            filters: Filters::new(),
            compile: &compile,
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

/// How a job is done. `None` if there is nothing to do any more.
type Compile = dyn Fn(&Spd, &Job) -> Option<Compiled> + Sync;

fn compile(spd: &Spd, job: &Job) -> Option<Compiled> {
    match job.effort {
        Some(effort) => Some(Compiled::new(spd, job.direction, effort)),
        None => Compiled::of_added(spd, job.direction),
    }
}

struct Compiler {
    reader: Reader,
    control: SyncSender<Message>,
    schedule: Schedule,
    filters: Filters,
    compile: &'static Compile,
}

impl Compiler {
    /// Works until the control thread is gone.
    fn run(mut self) {
        if let Err(why) = supervise(|| self.step(), thread::sleep) {
            tracing::error!(why, "policies are compiled no more until the next start");
            // Without a control thread nobody asks.
            let _ = self.control.send(Message::CompilerEnded { why });
        }
    }

    /// Does what is due. Returns how long to rest, or `None` if the control thread is gone.
    fn step(&mut self) -> Option<Duration> {
        let begin = Instant::now();
        let tables = Arc::clone(self.reader.load());
        let Some(job) = self.schedule.next(&tables, begin) else {
            if let Some(message) = self.filters.step(&tables, begin) {
                drop(tables);
                self.control.send(message).ok()?;
                return Some((begin.elapsed() * REST).max(PERIOD));
            }
            return Some(PERIOD);
        };
        let message = perform(self.compile, &mut self.schedule, &tables, &job, begin);
        // What the control thread waits for before it frees the snapshot.
        drop(tables);
        let took = begin.elapsed();
        tracing::debug!(?job, ?took, "compiled");
        if let Some(message) = message {
            self.control.send(message).ok()?;
        }
        let rest = (took * REST).max(PERIOD);
        if job.effort.is_some() {
            self.schedule.rest_until(Instant::now() + rest);
        }
        // What comes meanwhile is compiled by itself, which takes little.
        Some(if job.effort.is_some() { PERIOD } else { rest })
    }
}

/// Takes steps until one returns no time to rest. A panic ends a step and not the thread: what is
/// wanted follows from the tables, whatever is lost.
///
/// # Errors
/// What the last panic said, if there were too many.
fn supervise(
    mut step: impl FnMut() -> Option<Duration>,
    sleep: impl Fn(Duration),
) -> Result<(), String> {
    let mut panics = 0;
    loop {
        match catch_unwind(AssertUnwindSafe(&mut step)) {
            Ok(Some(rest)) => sleep(rest),
            Ok(None) => return Ok(()),
            Err(panic) => {
                panics += 1;
                let why = said(&*panic);
                tracing::error!(why, panics, "the compile thread panicked; please report it");
                if panics == MOST_PANICS {
                    return Err(format!("the compile thread panicked {panics} times: {why}"));
                }
                sleep(PERIOD);
            }
        }
    }
}

/// Does a job, and returns what the control thread is told. A panic ends this job alone: packets
/// are looked up as before.
fn perform(
    compile: &Compile,
    schedule: &mut Schedule,
    tables: &Tables,
    job: &Job,
    now: Instant,
) -> Option<Message> {
    let spd = tables.spd(job.scope)?;
    let Job { scope, direction, .. } = *job;
    match catch_unwind(AssertUnwindSafe(|| compile(spd, job))) {
        Ok(compiled) => {
            schedule.succeeded(job);
            let compiled = Arc::new(compiled?);
            Some(Message::Compiled { scope, direction, compiled })
        }
        Err(panic) => {
            let why = said(&*panic);
            let is_last = schedule.failed(job, now);
            tracing::error!(?job, why, is_last, "compiling policies panicked; please report it");
            let then = if is_last { "tried again in an hour" } else { "tried again soon" };
            let why = format!("compiling panicked ({why}) and is {then}");
            Some(Message::CompileFailed { scope, direction, why })
        }
    }
}

/// What a panic says.
fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
