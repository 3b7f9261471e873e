//! Which flow the next packet is of.

use core::fmt;
use std::str::FromStr;

use anyhow::{Context, bail};
use flow::CacheSettings;
use workload::flows::{Popularity, Traffic as Draw};

/// How packets are spread over flows, as users name it: `uniform`, `zipf-0.99`, `flood`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread(pub(crate) Popularity);

impl Spread {
    pub(crate) const UNIFORM: Self = Self(Popularity::Uniform);
    pub(crate) const FLOOD: Self = Self(Popularity::Flood);
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Popularity::RoundRobin => f.write_str("round-robin"),
            Popularity::Uniform => f.write_str("uniform"),
            Popularity::Zipf(power) => write!(f, "zipf-{power}"),
            Popularity::Flood => f.write_str("flood"),
        }
    }
}

impl FromStr for Spread {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        Ok(Self(match text.split_once('-') {
            _ if text == "uniform" => Popularity::Uniform,
            _ if text == "flood" => Popularity::Flood,
            _ if text == "round-robin" => Popularity::RoundRobin,
            Some(("zipf", power)) => {
                let power: f64 = power
                    .parse()
                    .with_context(|| format!("'{power}' is no power: try zipf-0.99"))?;
                if !(0.01..=10.0).contains(&power) {
                    bail!("the power of zipf is between 0.01 and 10, not {power}");
                }
                Popularity::Zipf(power)
            }
            _ => bail!(
                "traffic is uniform, round-robin, flood or zipf-POWER as in zipf-0.99, not '{text}'"
            ),
        }))
    }
}

/// An endless row of flow numbers, the same for the same arguments: first every flow in turn, so
/// that all have been seen, then drawn.
#[derive(Clone, Debug)]
pub(crate) struct Traffic {
    all: std::ops::Range<u64>,
    draw: Draw,
    first: u64,
    is_flood: bool,
}

impl Traffic {
    /// Over flows 0 to `flows` - 1; a flood has no end of them.
    pub(crate) fn new(flows: u64, spread: Spread, seed: u64) -> Self {
        let is_flood = spread == Spread::FLOOD;
        let all = if is_flood { 0..0 } else { 0..flows };
        Self { all, draw: Draw::new(spread.0, flows, seed), first: 0, is_flood }
    }

    /// The same with flows from `first` on.
    pub(crate) fn beginning_at(self, first: u64) -> Self {
        Self { first, ..self }
    }

    /// How many packets are left until every flow was there once; of a flood, until a cache of the
    /// usual size is full of it.
    pub(crate) fn once_through(&self) -> u64 {
        if self.is_flood {
            2 * u64::from(CacheSettings::DEFAULT_BUCKETS)
        } else {
            self.all.end - self.all.start
        }
    }

    /// The flow of the next packet.
    #[inline]
    pub(crate) fn next_flow(&mut self) -> u64 {
        self.first + self.all.next().or_else(|| self.draw.next()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_flow_is_seen_before_any_is_drawn() {
        for spread in ["uniform", "zipf-1.1", "round-robin"] {
            let mut traffic = Traffic::new(1000, spread.parse().unwrap(), 7);
            assert_eq!(traffic.once_through(), 1000);
            assert!((0..1000).all(|flow| traffic.next_flow() == flow));
            assert!((0..5000).all(|_| traffic.next_flow() < 1000));
        }
        let mut flood = Traffic::new(1000, Spread::FLOOD, 7);
        assert!(flood.once_through() > CacheSettings::DEFAULT_BUCKETS.into());
        assert_eq!((0..5000).map(|_| flood.next_flow()).collect::<HashSet<_>>().len(), 5000);
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        for name in ["uniform", "flood", "round-robin", "zipf-0.9", "zipf-0.99", "zipf-1.1"] {
            assert_eq!(name.parse::<Spread>().unwrap().to_string(), name);
        }
        for wrong in ["", "zipf", "zipf-", "zipf-0", "zipf-nan", "zipf-1e9", "even"] {
            assert!(wrong.parse::<Spread>().is_err(), "{wrong}");
        }
    }
}
