//! Two things compared by many short runs in turn, A B, B A: what one costs of the other, and
//! between which bounds that lies.

use crate::compare::interval;
use crate::core_state::{CoreMonitor, CoreState, Looks};
use crate::measure::{Meter, Sample, percentile};

/// So many pairs, all in one state of the core, are enough to judge by.
pub(crate) const ENOUGH: usize = 30;

/// So many times as many pairs as are wanted are tried.
const TRIES: usize = 3;

/// Which of the two a run is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    /// What is held against.
    Base,
    /// What is of interest.
    This,
}

/// Runs side by side.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pairs(Vec<Pair>);

#[derive(Clone, Copy, Debug)]
struct Pair {
    /// Cycles per packet of the base and of this.
    cycles: (f64, f64),
    looks: [Looks; 2],
}

impl Pair {
    /// The state of the core in both runs.
    fn state(&self, best: f64) -> CoreState {
        let [first, second] = self.looks.map(|looks| looks.state(best));
        if first == second { first } else { CoreState::Mixed }
    }
}

impl Pairs {
    /// Runs pairs until `wanted` of all that there are were in one state of the core, or three
    /// times as many were tried.
    ///
    /// # Errors
    /// Those of `run`.
    pub(crate) fn run(
        &mut self,
        meter: &Meter,
        monitor: &CoreMonitor,
        wanted: usize,
        mut run: impl FnMut(Which) -> anyhow::Result<Sample>,
    ) -> anyhow::Result<()> {
        while self.in_one_state(monitor.best()).1 < wanted && self.0.len() < TRIES * wanted {
            let mut measured = |which| {
                let run = monitor.steadily(meter, 1, || run(which))?;
                anyhow::Ok((run.result.cycles_per_packet, run.looks))
            };
            // Who goes first finds another state of the processor's caches.
            let (base, this) = if self.0.len().is_multiple_of(2) {
                let base = measured(Which::Base)?;
                (base, measured(Which::This)?)
            } else {
                let this = measured(Which::This)?;
                (measured(Which::Base)?, this)
            };
            self.0.push(Pair { cycles: (base.0, this.0), looks: [base.1, this.1] });
        }
        Ok(())
    }

    /// The state of the core in which most pairs were, and how many: alone if it is as many as
    /// another.
    fn in_one_state(&self, best: f64) -> (CoreState, usize) {
        let count = |state| self.0.iter().filter(|pair| pair.state(best) == state).count();
        let (alone, shared) = (count(CoreState::Alone), count(CoreState::Shared));
        if alone >= shared { (CoreState::Alone, alone) } else { (CoreState::Shared, shared) }
    }

    /// What came of them. Enough pairs with the core alone count by themselves, or enough with its
    /// sibling busy; otherwise all do, and are marked.
    pub(crate) fn compared(&self, best: f64, wanted: usize) -> Compared {
        let (state, count) = self.in_one_state(best);
        let core = if count >= wanted.clamp(1, ENOUGH) { state } else { CoreState::Mixed };
        let counted: Vec<(f64, f64)> = self
            .0
            .iter()
            .filter(|pair| core == CoreState::Mixed || pair.state(best) == core)
            .map(|pair| pair.cycles)
            .collect();
        let sorted = |of: fn(&(f64, f64)) -> f64| {
            let mut sorted: Vec<f64> = counted.iter().map(of).collect();
            sorted.sort_by(f64::total_cmp);
            sorted
        };
        let (base, this) = (sorted(|pair| pair.0), sorted(|pair| pair.1));
        let (low, high) = interval(&counted);
        let (base_cycles, cycles) = (percentile(&base, 0.5), percentile(&this, 0.5));
        let speed = base_cycles / cycles;
        Compared { base_cycles, this, speed, low, high, pairs: counted.len(), core }
    }
}

/// What came of pairs.
#[derive(Clone, Debug)]
pub(crate) struct Compared {
    /// Cycles per packet of the base. Median.
    pub base_cycles: f64,
    /// Cycles per packet of each run of this, sorted.
    pub this: Vec<f64>,
    /// Speed of this, of the base's: more than 1 is better.
    pub speed: f64,
    /// The speed lies between these with a probability of 95 %.
    pub low: f64,
    pub high: f64,
    /// How many pairs count.
    pub pairs: usize,
    pub core: CoreState,
}

/// What becomes of a comparison for which there is a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Pass,
    FallShort,
    /// There were not enough pairs in one state of the core.
    TooFew,
}

/// An interval that is wider, and has the target in it, says little.
const WIDE: f64 = 0.02;

impl Compared {
    /// Whether the interval has `wanted` in it and is wide, so that instructions decide.
    pub(crate) fn is_wide(&self, wanted: f64) -> bool {
        self.low < wanted && wanted <= self.high && self.high - self.low > WIDE
    }

    /// Whether a speed of `wanted` is reached: if the interval is not wholly below it, and, if it
    /// is wide and they were counted, by `instructions` of the base by those of this.
    pub(crate) fn verdict(&self, wanted: f64, instructions: Option<f64>) -> Verdict {
        if self.pairs < ENOUGH || self.core == CoreState::Mixed {
            return Verdict::TooFew;
        }
        let reached = match instructions.filter(|_| self.is_wide(wanted)) {
            Some(ratio) => ratio >= wanted,
            None => self.high >= wanted,
        };
        if reached { Verdict::Pass } else { Verdict::FallShort }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(ratios: impl IntoIterator<Item = f64>, after: f64) -> Pairs {
        let looks = [Looks { before: 1.0, after }; 2];
        let pair = |ratio| Pair { cycles: (100.0, 100.0 / ratio), looks };
        Pairs(ratios.into_iter().map(pair).collect())
    }

    fn around(middle: f64, width: f64) -> Vec<f64> {
        (0..31).map(|at| middle + width * (f64::from((at * 37) % 11) - 5.0) / 5.0).collect()
    }

    #[test]
    fn a_target_is_missed_if_the_interval_is_wholly_below_it() {
        let verdict =
            |middle, width| pairs(around(middle, width), 1.0).compared(1.0, 30).verdict(0.99, None);
        assert_eq!(verdict(0.995, 0.001), Verdict::Pass);
        assert_eq!(verdict(0.989, 0.01), Verdict::Pass);
        assert_eq!(verdict(0.96, 0.01), Verdict::FallShort);
    }

    #[test]
    fn instructions_decide_where_the_interval_is_wide_and_nowhere_else() {
        let wide = pairs(around(0.98, 0.1), 1.0).compared(1.0, 30);
        assert!(wide.is_wide(0.99), "{wide:?}");
        assert_eq!(wide.verdict(0.99, Some(0.999)), Verdict::Pass);
        assert_eq!(wide.verdict(0.99, Some(0.97)), Verdict::FallShort);
        assert_eq!(wide.verdict(0.99, None), Verdict::Pass);
        let narrow = pairs(around(0.995, 0.001), 1.0).compared(1.0, 30);
        assert_eq!(narrow.verdict(0.99, Some(0.5)), Verdict::Pass);
    }

    #[test]
    fn pairs_of_one_state_count_and_too_few_are_no_verdict() {
        let few = pairs(around(1.0, 0.001).into_iter().take(29), 1.0).compared(1.0, 29);
        assert_eq!((few.pairs, few.verdict(0.99, None)), (29, Verdict::TooFew));
        let mut both = pairs(around(1.0, 0.001), 1.0);
        // The sibling comes while it is measured.
        both.0.extend(pairs([0.5; 20], 2.0).0);
        let compared = both.compared(1.0, 30);
        assert_eq!((compared.pairs, compared.core), (31, CoreState::Alone));
        assert!(compared.low > 0.99);
        // Three that were thought to be alone, as no quicker step had been seen yet.
        assert_eq!(both.compared(1.0, 34).core, CoreState::Alone);
        let mut both = pairs([1.0; 29], 1.0);
        both.0.extend(pairs([0.5; 29], 2.0).0);
        let compared = both.compared(1.0, 30);
        assert_eq!((compared.pairs, compared.core), (58, CoreState::Mixed));
        assert_eq!(compared.verdict(0.99, None), Verdict::TooFew);
    }

    #[test]
    fn the_two_take_turns_in_going_first() {
        let meter = Meter::new();
        let monitor = CoreMonitor::new(&meter, std::time::Duration::ZERO);
        use Which::{Base, This};
        let mut order = Vec::new();
        let mut pairs = Pairs::default();
        pairs
            .run(&meter, &monitor, 2, |which| {
                order.push(which);
                Ok(Sample { cycles_per_packet: if which == This { 2.0 } else { 1.0 } })
            })
            .unwrap();
        assert_eq!(order[..4], [Base, This, This, Base]);
        assert_eq!(pairs.compared(monitor.best(), 0).speed, 0.5);
        assert!(pairs.run(&meter, &monitor, 99, |_| anyhow::bail!("lost")).is_err());
    }
}
