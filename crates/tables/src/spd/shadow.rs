//! Policies that no packet can match, because an earlier one matches all that they do.

use classifier::shadowed;
use wire::IpRange;

use super::words::SelectorRule;
use crate::policy::Selector;

/// What [`shadowed_selectors`] has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShadowedSelectors {
    /// By their positions: those that are never the first to match, each with the first earlier one
    /// that matches all that it does. In order.
    pub selectors: Vec<(usize, usize)>,
    /// How many were not looked at, because it would have been too much work.
    pub unchecked: usize,
}

/// Finds, among the selectors of policies of one VRF and direction in order, those that a single
/// earlier one covers.
///
/// `work` is how many selectors may be compared, about, and becomes less by what was: 2^28 are a
/// second or two.
pub fn shadowed_selectors(selectors: &[Selector], work: &mut usize) -> ShadowedSelectors {
    let (mut v4, mut v6) = ((Vec::new(), Vec::new()), (Vec::new(), Vec::new()));
    for (position, selector) in selectors.iter().enumerate() {
        match SelectorRule::of(selector) {
            SelectorRule::V4(rule) => {
                v4.0.push(rule);
                v4.1.push(position);
            }
            SelectorRule::V6(rule) => {
                v6.0.push(rule);
                v6.1.push(position);
            }
        }
    }
    let covers = |positions: &[usize], earlier: u32, later: u32| {
        let [earlier, later] = [earlier, later].map(|at| &selectors[positions[at as usize]]);
        covers(&earlier.source, &later.source) && covers(&earlier.destination, &later.destination)
    };
    let of_v4 = shadowed(&v4.0, work, |earlier, later| covers(&v4.1, earlier, later));
    let of_v6 = shadowed(&v6.0, work, |earlier, later| covers(&v6.1, earlier, later));
    let mut found = ShadowedSelectors::default();
    for (of, positions) in [(of_v4, v4.1), (of_v6, v6.1)] {
        let pair = |(later, earlier)| (positions[later as usize], positions[earlier as usize]);
        found.selectors.extend(of.rules.into_iter().map(pair));
        found.unchecked += positions.len() - of.checked;
    }
    found.selectors.sort_unstable();
    found
}

/// Whether a range has all addresses of another of its family.
fn covers(range: &IpRange, other: &IpRange) -> bool {
    range.first() <= other.first() && other.last() <= range.last()
}
