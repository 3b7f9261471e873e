//! Whether a decision made from an older snapshot is what [`crate::decide()`] would return from
//! this one.

use wire::FlowKey;

use crate::decide::Decider;
use crate::decision::Decision;

/// More changes than this are not gone through, so that the work is bounded; the flow is decided
/// anew.
pub(crate) const MOST_CHANGES: usize = 64;

/// Whether nothing that changed after `generation` concerns the flow. May be false if the decision
/// would be the same; never true if it would not.
pub(crate) fn holds(
    key: &FlowKey,
    decision: &Decision,
    generation: u64,
    decider: Decider<'_>,
) -> bool {
    let Some(changes) = decider.changes_since(generation) else { return false };
    let asked = decider.questions(key, decision);
    let mut left = MOST_CHANGES;
    for change in changes {
        if left == 0 || asked.concern(change) {
            return false;
        }
        left -= 1;
    }
    true
}

#[cfg(test)]
mod tests;
