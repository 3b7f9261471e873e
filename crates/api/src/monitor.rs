//! What changes, as it changes.

use serde::{Deserialize, Serialize};
use types::Family;

use crate::link::LinkView;
use crate::object::{AddressView, NeighbourView};
use crate::policy::PolicyView;
use crate::route::RouteView;
use crate::rule::RuleView;
use crate::state::StateView;

/// A kind of object that can be followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MonitorObject {
    /// Ports and VRFs.
    Link,
    /// Addresses of ports.
    Address,
    /// Routes by configuration and commands.
    Route,
    /// Neighbours.
    Neigh,
    /// Policy rules.
    Rule,
    /// SAs.
    State,
    /// Policies.
    Policy,
}

/// Which changes are to be told.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MonitorSpec {
    /// Of these objects; of all, if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub objects: Vec<MonitorObject>,
    /// Of this family. Links have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub family: Option<Family>,
}

/// A line of the reply.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum MonitorEvent {
    /// Something has changed.
    Change {
        /// When, in nanoseconds since 1970.
        time: u64,
        /// Whether it is gone.
        #[serde(default, skip_serializing_if = "core::ops::Not::not")]
        deleted: bool,
        /// Whether it was there before, and is another now.
        #[serde(default, skip_serializing_if = "core::ops::Not::not")]
        changed: bool,
        /// What it is like now, or last was.
        #[serde(flatten)]
        view: Box<MonitorView>,
    },
    /// How many changes did not fit into what waits for this client.
    Status {
        /// Since the beginning.
        lost: u64,
    },
}

/// An object as it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "object", content = "is", rename_all = "lowercase")]
pub enum MonitorView {
    /// A port or VRF.
    Link(LinkView),
    /// An address of a port.
    Address(AddressView),
    /// A route.
    Route(RouteView),
    /// A neighbour.
    #[serde(rename = "neigh")]
    Neighbour(NeighbourView),
    /// A policy rule.
    Rule(RuleView),
    /// An SA, without its keys.
    State(StateView),
    /// A policy.
    Policy(PolicyView),
}

impl MonitorView {
    /// Which kind it is.
    pub fn object(&self) -> MonitorObject {
        match self {
            Self::Link(_) => MonitorObject::Link,
            Self::Address(_) => MonitorObject::Address,
            Self::Route(_) => MonitorObject::Route,
            Self::Neighbour(_) => MonitorObject::Neigh,
            Self::Rule(_) => MonitorObject::Rule,
            Self::State(_) => MonitorObject::State,
            Self::Policy(_) => MonitorObject::Policy,
        }
    }

    /// Its family, if it has one.
    pub fn family(&self) -> Option<Family> {
        match self {
            Self::Link(_) => None,
            Self::Address(view) => Some(Family::of(view.address.address())),
            Self::Route(view) => Some(Family::of(view.destination.address())),
            Self::Neighbour(view) => Some(Family::of(view.address)),
            Self::Rule(view) => Some(view.family),
            Self::State(view) => Some(Family::of(view.destination)),
            Self::Policy(view) => {
                let selector = &view.spec.selector;
                let range = selector.destination.or(selector.source)?;
                Some(if range.is_v6() { Family::V6 } else { Family::V4 })
            }
        }
    }
}

impl MonitorSpec {
    /// Whether a change is to be told.
    pub fn wants(&self, view: &MonitorView) -> bool {
        (self.objects.is_empty() || self.objects.contains(&view.object()))
            && self.family.is_none_or(|family| view.family().is_none_or(|of| of == family))
    }
}
