//! Which processors the workers of this daemon run on, beside those of other daemons.

use runtime::affinity;
use runtime::claims::{ClaimError, Claims};

/// What claims of processors begin with.
pub(super) const CLAIM: &str = "processor-";

/// The processor of each of `workers` workers: the `wanted` ones, else the first that no other
/// daemon has. None if there are too few of these, because two workers pinned to one would only be
/// in each other's way.
///
/// # Errors
/// If a wanted processor may not be used, or not every worker gets one.
pub(super) fn choose(
    workers: usize,
    wanted: &[usize],
    claims: &mut Claims,
) -> anyhow::Result<Vec<Option<usize>>> {
    let chosen = affinity::processors(workers, wanted)?;
    if !wanted.is_empty() {
        for &processor in chosen.iter().flatten() {
            match claims.claim(&name(processor)) {
                Ok(_) => {}
                Err(ClaimError::Held { holder }) => tracing::warn!(
                    processor,
                    "another daemon has pinned a worker to the same processor: {holder}"
                ),
                Err(error) => unknown(&error),
            }
        }
        return Ok(chosen);
    }
    if chosen.iter().any(Option::is_none) {
        return Ok(chosen);
    }
    let mut free = Vec::with_capacity(workers);
    for processor in affinity::usable()? {
        match claims.claim(&name(processor)) {
            Ok(_) => free.push(processor),
            Err(ClaimError::Held { .. }) => {}
            Err(error) => {
                unknown(&error);
                free.push(processor);
            }
        }
        if free.len() == workers {
            return Ok(free.into_iter().map(Some).collect());
        }
    }
    for processor in free {
        claims.release(&name(processor));
    }
    tracing::info!(workers, "other daemons leave too few processors: the workers are not pinned");
    Ok(vec![None; workers])
}

fn name(processor: usize) -> String {
    format!("{CLAIM}{processor}")
}

fn unknown(error: &ClaimError) {
    tracing::warn!("whether another daemon uses a processor is not known: {error}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn daemons_spread_over_processors() {
        let folder = tempfile::tempdir().unwrap();
        let daemon = || Claims::new(folder.path(), "pid 1".to_owned()).unwrap();
        let usable = affinity::usable().unwrap();
        let mut daemons: Vec<_> = usable.iter().map(|_| daemon()).collect();
        for (claims, &processor) in daemons.iter_mut().zip(&usable) {
            assert_eq!(choose(1, &[], claims).unwrap(), [Some(processor)]);
        }
        let mut late = daemon();
        assert_eq!(choose(1, &[], &mut late).unwrap(), [None]);
        // Who asks for a processor by its number gets it.
        assert_eq!(choose(1, &[usable[0]], &mut late).unwrap(), [Some(usable[0])]);
        // One that ends gives its processor back.
        daemons.pop();
        assert_eq!(choose(1, &[], &mut daemon()).unwrap(), [usable.last().copied()]);
    }
}
