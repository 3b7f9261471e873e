//! Everything that a gateway has counted, for reports.

use api::{
    CounterView, DropView, PolicyFilter, PolicyView, PortView, Refusal, Reply, Request, StateList,
    StateView, WorkerView,
};
use packet::Time;
use serde::Serialize;

use crate::gateway::RequestHandler;

/// Counters by port, drop reason, policy and SA.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Counted {
    /// Ports, with their statistics.
    pub(crate) ports: Vec<PortView>,
    /// Every drop reason, those that did not happen included.
    pub(crate) drops: Vec<DropView>,
    /// What workers have counted beside drops and the decision cache, all of them together.
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
        let mut counted = Self::default();
        for request in [
            Request::Ports,
            Request::Workers,
            Request::Drops,
            Request::PolicyList(PolicyFilter::default()),
            Request::StateList(StateList::default()),
        ] {
            match handler.handle(request, now)? {
                Reply::Ports(ports) => counted.ports = ports,
                Reply::Workers(workers) => counted.counters = total(workers),
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

/// The counters of several workers, each summed up.
fn total(workers: Vec<WorkerView>) -> Vec<CounterView> {
    let mut each = workers.into_iter().map(|worker| worker.counters);
    let mut total = each.next().unwrap_or_default();
    for counters in each {
        // Every worker has the same counters, in the same order.
        for (sum, counter) in total.iter_mut().zip(counters) {
            sum.value += counter.value;
        }
    }
    total
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use control::Control;
    use path::WorkerStatistics;

    use super::*;

    #[test]
    fn counters_of_all_workers_are_added_up_by_name() {
        let workers = [(); 2].map(|()| Arc::<WorkerStatistics>::default());
        workers[0].icmp_errors_limited.add(3);
        workers[1].icmp_errors_limited.add(4);
        workers[1].events_lost.add(1);
        let mut handler = RequestHandler::new(Control::new(2, [0; 32]));
        for statistics in workers {
            handler.add_worker(None, statistics);
        }
        let counted = Counted::at(&mut handler, Time(0)).unwrap();
        let value =
            |name| counted.counters.iter().find(|counter| counter.name == name).unwrap().value;
        assert_eq!(
            (value("icmp_errors_limited"), value("events_lost"), value("rounds")),
            (7, 1, 0)
        );
    }
}
