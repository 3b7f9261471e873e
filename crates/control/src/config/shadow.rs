//! Policies and rules of filters that no packet can match, because an earlier one matches all that
//! they do.

use std::collections::{BTreeMap, BTreeSet};

use api::{FilterSpec, PolicySpec};
use tables::{FilterMatch, MarkBits, Selector, shadowed_selectors};

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
        let PolicySpec { vrf, if_id, direction, priority, .. } = &policy.value;
        // Each was checked by itself before.
        let Ok(selector) = check::selector(&policy.value.selector) else { continue };
        by_direction.entry((vrf, *if_id, *direction)).or_default().push((
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

/// The same for the rules of filters.
pub(super) fn note_filters(filters: &[Said<'_, FilterSpec>], errors: &mut Errors<'_>) {
    let mut by_place = BTreeMap::<_, Vec<(u32, usize, FilterMatch)>>::new();
    for filter in filters {
        let FilterSpec { target, hook, pref, .. } = &filter.value;
        // Each was checked by itself before.
        let Ok(checked) = check::filter(&filter.value) else { continue };
        let rule = (pref.unwrap_or_default(), filter.table.at, checked.selects);
        by_place.entry((target, *hook)).or_default().push(rule);
    }
    let mut work = WORK;
    let (mut shadowed, mut unchecked) = (Vec::new(), 0);
    for mut rules in by_place.into_values() {
        rules.sort_by_key(|(pref, ..)| *pref);
        let rules: Vec<_> = rules.into_iter().map(|(_, at, selects)| (at, selects)).collect();
        unchecked += note_of_filter(&rules, &mut work, &mut shadowed);
    }
    shadowed.sort_unstable();
    for &(later, earlier) in shadowed.iter().take(MOST_NOTES) {
        let line = errors.line(earlier);
        let text = format!(
            "this rule never matches a packet: the one on line {line} comes first and matches all \
            that it does"
        );
        errors.note(later, text);
    }
    if let Some((next, _)) = shadowed.get(MOST_NOTES) {
        let more = shadowed.len() - MOST_NOTES;
        errors.note(*next, format!("from here on {more} more rules never match a packet"));
    }
    if unchecked > 0 {
        let text = format!(
            "{unchecked} of {} rules of filters overlap too much to find out whether they ever \
            match a packet",
            filters.len()
        );
        errors.note(0, text);
    }
}

/// Finds those of one filter's rules, in order, that an earlier one covers, each with that one.
/// Returns how many were not looked at.
fn note_of_filter(
    rules: &[(usize, FilterMatch)],
    work: &mut usize,
    shadowed: &mut Vec<(usize, usize)>,
) -> usize {
    let mut unchecked = 0;
    // A rule that asks for a mark is covered by one that asks for the same, or for none.
    let marks: BTreeSet<_> =
        rules.iter().map(|(_, selects)| (selects.mark.value, selects.mark.mask)).collect();
    for (value, mask) in marks {
        let mark = MarkBits { value, mask };
        let among = rules
            .iter()
            .filter(|(_, selects)| selects.mark == mark || selects.mark == MarkBits::default());
        // A rule for both families is covered if both of its selectors are.
        let mut selectors = Vec::new();
        let mut owners = Vec::new();
        for (at, selects) in among {
            for selector in selects.selectors() {
                selectors.push(selector);
                owners.push((*at, selects));
            }
        }
        let found = shadowed_selectors(&selectors, work);
        unchecked += found.unchecked;
        let mut covered = BTreeMap::<usize, (usize, usize)>::new();
        for (later, earlier) in found.selectors {
            let (at, selects) = owners[later];
            if selects.mark != mark {
                continue;
            }
            let entry = covered.entry(at).or_insert((0, owners[earlier].0));
            entry.0 += 1;
            if entry.0 == selects.selectors().count() {
                shadowed.push((at, entry.1));
            }
        }
    }
    unchecked
}
