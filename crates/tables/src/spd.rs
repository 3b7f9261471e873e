//! The security policy database of one VRF.

use std::sync::Arc;

use wire::FlowKey;

use crate::policy::{DefaultAction, Direction, Policy};

/// The policies of one VRF, ordered, by direction.
#[derive(Clone, Debug, Default)]
pub struct Spd {
    lists: [Vec<Arc<Policy>>; 3],
    defaults: [DefaultAction; 3],
}

impl Spd {
    /// Whether there is no policy at all, in which case IPsec does not touch the VRF.
    pub fn is_empty(&self) -> bool {
        self.lists.iter().all(Vec::is_empty)
    }

    /// The policy of `direction` that decides the packet: the first in order of priority, then of insertion, that matches.
    /// Its position among the direction's policies, from 1, comes with it.
    pub fn lookup(&self, direction: Direction, key: &FlowKey) -> Option<(usize, &Arc<Policy>)> {
        let list = &self.lists[direction as usize];
        let position = list.iter().position(|policy| policy.spec.selector.matches(key))?;
        Some((position + 1, &list[position]))
    }

    /// The policies of `direction`, in the order in which they are tried.
    pub fn policies(&self, direction: Direction) -> impl ExactSizeIterator<Item = &Arc<Policy>> {
        self.lists[direction as usize].iter()
    }

    /// What happens to packets of `direction` that no policy matches.
    pub fn default_action(&self, direction: Direction) -> DefaultAction {
        self.defaults[direction as usize]
    }
}
