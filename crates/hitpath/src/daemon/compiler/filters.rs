//! Filters of many rules, compiled one after the other.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use tables::{CompiledFilter, FilterPlace, Tables};

use super::said;
use super::schedule::LONG_PAUSE;
use crate::daemon::Message;

/// What is known of the filters.
pub(super) struct Filters {
    /// Of the tables in which none was wanted.
    generation: Option<u64>,
    /// The one that was compiled last. Those behind it are next: one whose rules change all the time
    /// must not keep the others waiting.
    last: Option<FilterPlace>,
    /// Those whose compiling panicked.
    failed: BTreeMap<FilterPlace, Instant>,
}

impl Filters {
    pub(super) const fn new() -> Self {
        Self { generation: None, last: None, failed: BTreeMap::new() }
    }

    /// Compiles the filter that is next, if one is wanted.
    pub(super) fn step(&mut self, tables: &Tables, now: Instant) -> Option<Message> {
        if self.generation == Some(tables.generation()) {
            return None;
        }
        self.failed.retain(|_, failed| now.duration_since(*failed) < LONG_PAUSE);
        let wanted = tables.filters().filter(|(_, filter)| filter.wants_compiling());
        let wanted = wanted.filter(|(place, _)| !self.failed.contains_key(place));
        let next = wanted.min_by_key(|(place, _)| (Some(*place) <= self.last, *place));
        let Some((place, filter)) = next else {
            self.generation = Some(tables.generation());
            return None;
        };
        self.last = Some(place);
        match catch_unwind(AssertUnwindSafe(|| CompiledFilter::new(filter))) {
            Ok(compiled) => Some(Message::CompiledFilter { place, compiled: Arc::new(compiled) }),
            Err(panic) => {
                let why = said(&*panic);
                tracing::error!(?place, why, "compiling a filter panicked; please report it");
                self.failed.insert(place, now);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tables::{
        FilterAction, FilterHook, FilterMatch, FilterSpec, FilterTarget, FilterVerdict, MarkBits,
        RejectWith,
    };
    use wire::VrfId;

    fn add(tables: &mut Tables, place: FilterPlace, preference: u32) {
        let action = FilterAction {
            verdict: FilterVerdict::Drop,
            reject_with: RejectWith::AdminProhibited,
            set_mark: None,
            log: false,
        };
        let selects = FilterMatch { v4: None, v6: None, mark: MarkBits { value: 0, mask: 0 } };
        tables.set_filter_rule(FilterSpec { place, preference, selects, action }).unwrap();
    }

    fn place(hook: FilterHook) -> FilterPlace {
        FilterPlace { target: FilterTarget::Vrf(VrfId::MAIN), hook }
    }

    /// The filter that was compiled, once it is in the tables.
    fn step(filters: &mut Filters, tables: &mut Tables, is_used: bool) -> Option<FilterPlace> {
        let message = filters.step(tables, Instant::now())?;
        let Message::CompiledFilter { place, compiled } = message else { panic!("{message:?}") };
        if is_used {
            assert!(tables.install_compiled_filter(place, &compiled));
        }
        Some(place)
    }

    #[test]
    fn large_filters_are_compiled_in_turn_and_again_when_they_change() {
        let [first, second] = FilterHook::ALL.map(place);
        let (mut tables, mut filters) = (Tables::new(1, 7), Filters::new());
        (0..50).for_each(|preference| add(&mut tables, first, preference));
        assert_eq!(step(&mut filters, &mut tables, true), None);
        for hook in [first, second] {
            (0..500).for_each(|preference| add(&mut tables, hook, preference));
        }
        // Tables that are not published have no generation of their own.
        filters.generation = None;
        // The result for the first comes too late, and the second has its turn.
        assert_eq!(step(&mut filters, &mut tables, false), Some(first));
        assert_eq!(step(&mut filters, &mut tables, true), Some(second));
        assert_eq!(step(&mut filters, &mut tables, true), Some(first));
        assert_eq!(step(&mut filters, &mut tables, true), None);
        add(&mut tables, second, 1000);
        filters.generation = None;
        assert_eq!(step(&mut filters, &mut tables, true), Some(second));
        assert_eq!(step(&mut filters, &mut tables, true), None);
    }
}
