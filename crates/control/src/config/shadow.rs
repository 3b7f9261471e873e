//! Policies that no packet can match, because an earlier one matches all that they do.

use std::collections::BTreeMap;

use api::PolicySpec;
use tables::{Selector, shadowed_selectors};

use super::Said;
use super::diagnostic::Errors;
use crate::check;

/// How many selectors may be compared in all: a second or two.
const WORK: usize = 1 << 28;

/// More notes than these help nobody.
const MOST_NOTES: usize = 20;

/// Notes the policies that never match, in the file's order.
pub(super) fn note(policies: &[Said<'_, PolicySpec>], errors: &mut Errors<'_>) {
    note_within(policies, WORK, errors);
}

pub(super) fn note_within(
    policies: &[Said<'_, PolicySpec>],
    mut work: usize,
    errors: &mut Errors<'_>,
) {
    let mut by_direction = BTreeMap::<_, Vec<(u32, usize, Selector)>>::new();
    for policy in policies {
        let PolicySpec { vrf, direction, priority, .. } = &policy.value;
        // Each was checked by itself before.
        let Ok(selector) = check::selector(&policy.value.selector) else { continue };
        by_direction.entry((vrf, *direction)).or_default().push((
            *priority,
            policy.table.at,
            selector,
        ));
    }
    let (mut shadowed, mut unchecked) = (Vec::new(), 0);
    for mut policies in by_direction.into_values() {
        // Among equal priorities the first in the file is the first to be tried.
        policies.sort_by_key(|(priority, ..)| *priority);
        let selectors: Vec<_> = policies.iter().map(|(.., selector)| *selector).collect();
        let found = shadowed_selectors(&selectors, &mut work);
        let places = |(later, earlier): (usize, usize)| (policies[later].1, policies[earlier].1);
        shadowed.extend(found.selectors.into_iter().map(places));
        unchecked += found.unchecked;
    }
    shadowed.sort_unstable();
    for &(later, earlier) in shadowed.iter().take(MOST_NOTES) {
        let line = errors.line(earlier);
        errors.note(
            later,
            format!(
                "this policy never matches a packet: the policy on line {line} comes first and \
                 matches all that it does"
            ),
        );
    }
    if let Some((next, _)) = shadowed.get(MOST_NOTES) {
        let more = shadowed.len() - MOST_NOTES;
        errors.note(*next, format!("from here on {more} more policies never match a packet"));
    }
    if unchecked > 0 {
        errors.note(
            0,
            format!(
                "{unchecked} of {} policies overlap too much to find out whether they ever match \
                 a packet",
                policies.len()
            ),
        );
    }
}
