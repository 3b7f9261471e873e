//! Which worker runs on which processor.

use anyhow::{Context, bail};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// The calling thread.
const THIS_THREAD: Pid = Pid::from_raw(0);

/// The processor of each of `workers` workers: the `wanted` ones, else the first that the process
/// may use. None if there are fewer processors than workers, because two workers pinned to one
/// would only be in each other's way.
///
/// # Errors
/// If a wanted processor may not be used, or not every worker gets one.
pub fn processors(workers: usize, wanted: &[usize]) -> anyhow::Result<Vec<Option<usize>>> {
    let usable = usable()?;
    if wanted.is_empty() {
        if workers > usable.len() {
            tracing::info!(
                workers,
                processors = usable.len(),
                "more workers than processors: they are not pinned"
            );
            return Ok(vec![None; workers]);
        }
        return Ok(usable.into_iter().take(workers).map(Some).collect());
    }
    if wanted.len() < workers {
        bail!(
            "{} processors are named for {workers} workers: name one for each, or none",
            wanted.len()
        );
    }
    let missing: Vec<usize> =
        wanted.iter().copied().filter(|processor| !usable.contains(processor)).collect();
    if let Some(first) = missing.first() {
        match missing.len() {
            1 => bail!("processor {first} cannot be used; the process may use {usable:?}"),
            _ => bail!("processors {missing:?} cannot be used; the process may use {usable:?}"),
        }
    }
    Ok(wanted.iter().copied().take(workers).map(Some).collect())
}

/// Keeps the calling thread on `processor`.
///
/// # Errors
/// If the system refuses.
pub fn pin(processor: usize) -> anyhow::Result<()> {
    restrict(&[processor])
}

/// Keeps the calling thread, and what it starts from now on, on `processors`.
///
/// # Errors
/// If the system refuses.
pub fn restrict(processors: &[usize]) -> anyhow::Result<()> {
    let mut set = CpuSet::new();
    for &processor in processors {
        set.set(processor).with_context(|| format!("processor {processor}"))?;
    }
    sched_setaffinity(THIS_THREAD, &set)
        .with_context(|| format!("keeping a thread on processors {processors:?}"))
}

/// The processors that the process may use, by number.
///
/// # Errors
/// If the system does not say.
pub fn usable() -> anyhow::Result<Vec<usize>> {
    let set = sched_getaffinity(THIS_THREAD).context("asking which processors may be used")?;
    Ok((0..CpuSet::count()).filter(|&processor| set.is_set(processor).unwrap_or(false)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_get_the_first_usable_processors_or_none() {
        let usable = usable().unwrap();
        assert_eq!(processors(1, &[]).unwrap(), [Some(usable[0])]);
        assert_eq!(processors(usable.len() + 1, &[]).unwrap(), vec![None; usable.len() + 1]);
        let last = *usable.last().unwrap();
        assert_eq!(processors(1, &[last]).unwrap(), [Some(last)]);
    }

    #[test]
    fn processors_that_are_not_there_are_refused() {
        assert!(
            processors(2, &[0]).unwrap_err().to_string().contains("1 processors are named for 2")
        );
        let error = processors(1, &[CpuSet::count() + 1]).unwrap_err().to_string();
        assert!(error.contains("the process may use"), "{error}");
        let error = processors(2, &[2000, 2001]).unwrap_err().to_string();
        assert!(error.contains("processors [2000, 2001] cannot be used"), "{error}");
    }

    #[test]
    fn a_pinned_thread_stays() {
        let processor = usable().unwrap()[0];
        std::thread::spawn(move || {
            pin(processor).unwrap();
            assert_eq!(usable().unwrap(), [processor]);
        })
        .join()
        .unwrap();
    }
}
