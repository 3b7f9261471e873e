//! Rules in order, eight tried at once.

use core::iter;

use crate::classifier::Classifier;
use crate::count::Observer;
use crate::group::{Compare, Cursor, Group, LANES, NONE, Next, Work, run};
use crate::rule::{Header, Rule};

/// Rules in order, side by side.
#[derive(Clone, Debug, Default)]
pub struct Chain<const WORDS: usize> {
    groups: Vec<Group<WORDS>>,
}

impl<const WORDS: usize> Chain<WORDS> {
    /// Of these rules, each with the number by which it is known. Numbers grow, and are less than
    /// 2^31.
    pub fn new(rules: impl IntoIterator<Item = (u32, Rule<WORDS>)>) -> Self {
        let (numbers, rules): (Vec<u32>, Vec<Rule<WORDS>>) = rules.into_iter().unzip();
        let numbered = rules.chunks(LANES).zip(numbers.chunks(LANES));
        Self { groups: numbered.map(|(rules, numbers)| Group::of(rules, numbers)).collect() }
    }

    /// Whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// The most rules that a lookup compares, whatever the header.
    pub fn bound(&self) -> usize {
        self.groups.len() * LANES
    }

    #[inline(always)]
    fn find(
        &self,
        header: &Header<WORDS>,
        confirms: &mut impl FnMut(u32) -> bool,
        observer: &mut impl Observer,
        with: impl Compare,
    ) -> Option<u32> {
        for group in &self.groups {
            observer.compare(|| group.rules());
            let mut mark = group.first(header, with);
            if mark & 1 != 0 && mark != NONE {
                mark = group.confirmed(header, mark, confirms);
            }
            if mark != NONE {
                return Some(mark >> 1);
            }
        }
        None
    }
}

impl<const WORDS: usize> Classifier<WORDS> for Chain<WORDS> {
    fn lookup(&self, header: &Header<WORDS>, mut confirms: impl FnMut(u32) -> bool) -> Option<u32> {
        first([(self, ())], header, |(), rule| confirms(rule)).map(|((), rule)| rule)
    }

    fn matches<'a>(
        &'a self,
        header: &'a Header<WORDS>,
        mut confirms: impl FnMut(u32) -> bool + 'a,
    ) -> impl Iterator<Item = u32> + 'a {
        let mut cursor = Cursor::of(0, self.groups.len());
        iter::from_fn(move || {
            loop {
                let mark = run(Next(&mut cursor, &self.groups, header));
                if mark == NONE || mark & 1 == 0 || confirms(mark >> 1) {
                    return (mark != NONE).then_some(mark >> 1);
                }
            }
        })
    }
}

/// The first rule of several chains that matches a header, with what goes with its chain.
/// `confirms` is asked about rules that match [partly](Rule::is_partial).
pub fn first<'a, const WORDS: usize, T: Copy>(
    chains: impl IntoIterator<Item = (&'a Chain<WORDS>, T)>,
    header: &Header<WORDS>,
    confirms: impl FnMut(T, u32) -> bool,
) -> Option<(T, u32)> {
    first_observed(chains, header, confirms, &mut ())
}

/// As [`first`]. `observer` is told what is done.
#[inline]
pub fn first_observed<'a, const WORDS: usize, T: Copy>(
    chains: impl IntoIterator<Item = (&'a Chain<WORDS>, T)>,
    header: &Header<WORDS>,
    confirms: impl FnMut(T, u32) -> bool,
    observer: &mut impl Observer,
) -> Option<(T, u32)> {
    struct First<'h, const WORDS: usize, C, F, O>(C, &'h Header<WORDS>, F, &'h mut O);

    impl<'a, const WORDS: usize, T, C, F, O> Work for First<'_, WORDS, C, F, O>
    where
        T: Copy,
        C: IntoIterator<Item = (&'a Chain<WORDS>, T)>,
        F: FnMut(T, u32) -> bool,
        O: Observer,
    {
        type Output = Option<(T, u32)>;

        #[inline(always)]
        fn run(self, with: impl Compare) -> Self::Output {
            let Self(chains, header, mut confirms, observer) = self;
            for (chain, what) in chains {
                let mut confirm = |rule| confirms(what, rule);
                if let Some(rule) = chain.find(header, &mut confirm, observer, with) {
                    return Some((what, rule));
                }
            }
            None
        }
    }

    run(First(chains, header, confirms, observer))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::rule::linear;
    use crate::tree::tests::{confirms, header, rule};

    proptest! {
        #[test]
        fn chains_as_one_by_one(
            rules in proptest::collection::vec(rule::<4>(), 0..100),
            probes in proptest::collection::vec(any::<(usize, [u32; 4])>(), 1..50),
            cut in 0..100_usize,
        ) {
            let (front, back) = rules.split_at(cut.min(rules.len()));
            // Numbered by what is left out.
            let chain = |rules: &[Rule<4>]| Chain::new((0..).map(|n| 3 * n + 1).zip(rules.iter().copied()));
            let chains = [(chain(front), 0), (chain(back), front.len())];
            let number = |before: usize, rule: u32| before + (rule as usize - 1) / 3;
            for probe in probes {
                let header = header(&rules, probe);
                let wanted = linear(&rules, &header, |rule| confirms(rule, &header));
                let found = first(
                    chains.iter().map(|(chain, before)| (chain, *before)),
                    &header,
                    |before, rule| confirms(number(before, rule), &header),
                );
                prop_assert_eq!(found.map(|(before, rule)| number(before, rule)), wanted);
            }
        }
    }
}
