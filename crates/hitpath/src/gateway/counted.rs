//! Everything that a gateway has counted, for reports.

use api::{
    DropView, PolicyFilter, PolicyView, PortView, Refusal, Reply, Request, StateList, StateView,
};
use packet::Time;
use serde::Serialize;

use crate::gateway::{CounterView, RequestHandler};

/// Counters by port, drop reason, policy and SA.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Counted {
    /// Ports, with their statistics.
    pub(crate) ports: Vec<PortView>,
    /// Every drop reason, those that did not happen included.
    pub(crate) drops: Vec<DropView>,
    /// What the worker has counted beside drops.
    pub(crate) counters: Vec<CounterView>,
    /// Policies, in the order in which they are tried.
    pub(crate) policies: Vec<PolicyView>,
    /// SAs.
    pub(crate) sas: Vec<StateView>,
}

impl Counted {
    /// What is counted at `handler`.
    ///
    /// # Errors
    /// None that is known: what is asked can always be answered.
    pub(crate) fn at(handler: &mut RequestHandler, now: Time) -> Result<Self, Refusal> {
        let mut counted = Self { counters: handler.counters(), ..Self::default() };
        for request in [
            Request::Ports,
            Request::Drops,
            Request::PolicyList(PolicyFilter::default()),
            Request::StateList(StateList::default()),
        ] {
            match handler.handle(request, now)? {
                Reply::Ports(ports) => counted.ports = ports,
                Reply::Drops(drops) => counted.drops = drops,
                Reply::Policies(policies) => counted.policies = policies,
                Reply::States(states) => counted.sas = states,
                _ => {}
            }
        }
        Ok(counted)
    }

    /// Packets dropped for the reason called `name`.
    pub(crate) fn dropped(&self, name: &str) -> u64 {
        self.drops.iter().find(|drop| drop.reason == name).map_or(0, |drop| drop.packets)
    }
}
