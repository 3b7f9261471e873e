//! Whether what was decided about a packet is right for all packets of its megaflow, and the same as decide
//! says.

use pipeline::{Action, NatEnd, NatNew};
use tables::Tables;
use wire::VrfId;

use super::{Candidate, Ingress, is_as_made};
use crate::connection::Change;
use crate::decide::flows::Seen;
use crate::decide::question::Question;
use crate::decide::trace::{Step, Trace};
use crate::decide::{Beside, KeyView, LookedUp, decide_by};
use crate::decision::Decision;
use crate::extension::{Extension, Extensions};

/// Whether the packets of all sources ask for the same.
pub(super) fn is_of_any_source(change: &Change) -> bool {
    match change {
        Change::Make { destination, expected: None, instead_of: None, has_more: false, .. } => {
            destination.as_ref().is_none_or(|nat| is_one(nat))
        }
        Change::Make { .. } | Change::Write { .. } | Change::End { .. } => false,
    }
}

/// Whether packets of all sources get the same destination. Of several, the source says which.
fn is_one(nat: &NatNew) -> bool {
    nat.end == NatEnd::Source
        || nat.addresses.is_none_or(|range| range.first() == range.last())
            && nat.ports.is_none_or(|(first, last)| first == last)
}

/// Sees whether anything was asked that megaflows know nothing of.
pub(super) struct Watch {
    pub(super) vrf: VrfId,
    pub(super) is_routed: bool,
    pub(super) is_for_all: bool,
}

impl Trace for Watch {
    fn step<'a>(&mut self, step: impl FnOnce() -> Step<'a>) {
        self.is_for_all &= match step() {
            Step::Flow(pipeline::Step::Tracked { zone, .. }, _) => zone == self.vrf.0,
            // Also if nothing comes of it, as the packet is dropped.
            Step::Flow(pipeline::Step::Action { action: Action::Ct(ct), .. }, _) => {
                let new = ct.nat.as_ref().and_then(|nat| nat.new.as_ref());
                new.is_none_or(|nat| is_one(nat))
            }
            Step::Key(_)
            | Step::Vrf(_)
            | Step::Route { .. }
            | Step::Source { .. }
            | Step::NoPolicies { .. }
            | Step::Inside { .. }
            | Step::Flow(..)
            | Step::Ike { .. }
            | Step::Neighbour { .. }
            | Step::Host { .. }
            | Step::Verdict { .. } => true,
            // By more than its destination.
            _ => false,
        };
    }

    fn asks(&mut self, question: impl FnOnce() -> Question) {
        self.is_for_all &= match question() {
            Question::Route { vrf, .. } => self.is_routed && vrf == self.vrf,
            Question::OnLink(_) => self.is_routed,
            Question::Vrf(vrf)
            | Question::Policies(vrf)
            | Question::Filters(vrf)
            | Question::Flows(vrf)
            | Question::Ike(vrf) => vrf == self.vrf,
            _ => false,
        };
    }
}

/// Holds what a megaflow says against what decide says. A connection may have changed since it was asked
/// about; then its decision is not used.
pub(super) fn check(
    (at, key, tables): (u8, impl KeyView, &Tables),
    (candidate, seen): (&Candidate, &Seen<'_>),
    found: &Decision,
    extensions: &Extensions,
) {
    let mut decided = Decision::NONE;
    let mut beside = Beside::NOTHING;
    // From the start.
    beside.seen = Some(Seen { looked: None, hash: None, ..*seen });
    decide_by(key, tables, &LookedUp::NOTHING, &mut (), &mut decided, &mut beside);
    if decided.reference() != found.reference() || !candidate.is_as_it_was(tables) {
        return;
    }
    let none = Extension::NONE;
    let extension = found.extension().map_or(&none, |number| extensions.get(number));
    if let Some(number) = found.extension() {
        decided.set_extension(number);
    }
    assert_eq!((found, extension), (&decided, &beside.extension), "{:?}", key.flow());
    let asked = &extensions.asked[usize::from(at)];
    let change = asked.change.clone().filter(|_| found.is_passing());
    // Entries of other tuples may have come or gone meanwhile.
    let compared = |change: Option<Change>| match change {
        Some(Change::Make { mut new, destination, source, expected, instead_of, has_more }) => {
            new.vacant = None;
            Some(Change::Make { new, destination, source, expected, instead_of, has_more })
        }
        other => other,
    };
    assert_eq!(compared(change), compared(beside.change), "{:?}", key.flow());
    assert!(beside.copies.is_empty(), "{:?}", key.flow());
}

/// Holds what was known of a packet that has opened a connection against what decide says.
pub(in crate::decide) fn check_opened<const WORDS: usize>(
    (at, key, tables): (u8, impl KeyView, &Tables),
    words: &[u64; WORDS],
    seen: &Seen<'_>,
    found: &Decision,
    extensions: &Extensions,
) {
    let mut candidate = Candidate::nothing();
    let ingress = Ingress::of(words, tables);
    let is_alike = ingress.is_some_and(|ingress| {
        candidate.assign(&ingress, (words, key), seen, &extensions.megaflows).is_some()
    });
    if let Some(Change::Make { new, .. }) = &extensions.asked[usize::from(at)].change
        && is_alike
        && is_as_made(&candidate.plain, new)
    {
        check((at, key, tables), (&candidate, seen), found, extensions);
    }
}
