//! What a lookup takes, counted.

/// Is told what a lookup of one header does, while it does it. Lookups are generic over it, so that
/// those that nobody watches pay nothing: `()` watches nothing.
pub trait Observer {
    /// A node of a tree, or a place of another structure, is read.
    fn probe(&mut self);

    /// The header is compared with rules, as many as `rules` returns.
    fn compare(&mut self, rules: impl FnOnce() -> u32);
}

impl Observer for () {
    #[inline(always)]
    fn probe(&mut self) {}

    #[inline(always)]
    fn compare(&mut self, _rules: impl FnOnce() -> u32) {}
}

/// What lookups have taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Nodes of trees, or places of another structure, that were read.
    pub probes: u32,
    /// Rules that were compared. Some are compared at once with others.
    pub rules: u32,
}

impl Observer for Count {
    fn probe(&mut self) {
        self.probes += 1;
    }

    fn compare(&mut self, rules: impl FnOnce() -> u32) {
        self.rules += rules();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Chain, Header, Rule, first_observed};

    /// Groups are compared up to the one with the first match, and have as many rules as there are.
    #[test]
    fn a_chain_is_compared_up_to_the_match() {
        let rule = |number: u32| {
            let mut rule = Rule::<4>::ANY;
            (rule.value[0], rule.mask[0]) = (number, u32::MAX);
            (number, rule)
        };
        let chain = Chain::new((0..19).map(rule));
        for (number, compared) in [(0, 8), (7, 8), (8, 16), (16, 19), (18, 19), (19, 19)] {
            let mut count = Count::default();
            let header = Header([number, 0, 0, 0]);
            let found = first_observed([(&chain, ())], &header, |(), _| true, &mut count);
            assert_eq!(found.map(|(_, rule)| rule), (number < 19).then_some(number));
            assert_eq!(count, Count { probes: 0, rules: compared });
        }
    }
}
