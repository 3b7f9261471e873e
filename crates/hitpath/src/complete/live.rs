//! Names that the running daemon knows.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use api::{PolicyFilter, Reply, Request, StateList};
use control::grammar::Name;

use super::Candidate;
use crate::client;

/// How long the daemon may take, all questions together. Who waits has pressed a key.
const PATIENCE: Duration = Duration::from_millis(400);

/// More names than these help nobody, and a long list takes the daemon long.
const MOST: usize = 1000;

/// The daemon, as far as names are concerned.
pub(super) struct Live<'s> {
    socket: &'s Path,
    until: Instant,
}

impl<'s> Live<'s> {
    pub(super) fn new(socket: &'s Path) -> Self {
        Self { socket, until: Instant::now() + PATIENCE }
    }

    /// The names of what is there; none if no daemon says them in time.
    pub(super) fn names(&self, name: Name) -> Vec<Candidate> {
        match name {
            Name::Port => self.ports(),
            Name::Vrf => self.vrfs(),
            Name::Table => self.tables(),
            Name::Policy => self.policies(),
            Name::PolicyName => self.policy_names(),
            Name::Handle => self.token_buckets(),
        }
    }

    pub(super) fn ports(&self) -> Vec<Candidate> {
        let Some(Reply::Ports(ports)) = self.ask(&Request::Ports) else { return Vec::new() };
        let meaning = |port: &api::PortView| {
            let state = if port.up { "up" } else { "down" };
            format!("port, {}, {state}, vrf {}", port.kind, port.vrf)
        };
        bounded(ports.iter().map(|port| Candidate::new(port.name.as_str(), meaning(port))))
    }

    pub(super) fn vrfs(&self) -> Vec<Candidate> {
        let Some(Reply::Vrfs(vrfs)) = self.ask(&Request::VrfList) else { return Vec::new() };
        let meaning = |vrf: &api::VrfView| format!("VRF, table {}", vrf.table);
        bounded(vrfs.iter().map(|vrf| Candidate::new(vrf.name.as_str(), meaning(vrf))))
    }

    fn tables(&self) -> Vec<Candidate> {
        let Some(Reply::Vrfs(vrfs)) = self.ask(&Request::VrfList) else { return Vec::new() };
        let meaning = |vrf: &api::VrfView| format!("table of VRF {}", vrf.name);
        bounded(vrfs.iter().map(|vrf| Candidate::new(vrf.table.to_string(), meaning(vrf))))
    }

    /// Zones of connections: each VRF has one of its own.
    pub(super) fn zones(&self) -> Vec<Candidate> {
        let Some(Reply::Vrfs(vrfs)) = self.ask(&Request::VrfList) else { return Vec::new() };
        let meaning = |vrf: &api::VrfView| format!("zone of VRF {}", vrf.name);
        bounded(vrfs.iter().map(|vrf| Candidate::new(vrf.id.to_string(), meaning(vrf))))
    }

    /// What other disciplines may stand under.
    fn token_buckets(&self) -> Vec<Candidate> {
        let all = Request::QdiscList(api::QdiscFilter::default());
        let Some(Reply::Qdiscs(qdiscs)) = self.ask(&all) else { return Vec::new() };
        let buckets = qdiscs.iter().filter(|qdisc| qdisc.kind == "tbf");
        let meaning = |qdisc: &api::QdiscView| format!("tbf of {}", qdisc.dev);
        bounded(buckets.map(|qdisc| Candidate::new(qdisc.handle.to_string(), meaning(qdisc))))
    }

    fn policies(&self) -> Vec<Candidate> {
        let meaning = |policy: &api::PolicyView| {
            let (selector, direction) = (&policy.spec.selector, policy.spec.direction);
            let any = || "any".to_owned();
            let source = selector.source.map_or_else(any, |range| range.to_string());
            let destination = selector.destination.map_or_else(any, |range| range.to_string());
            let name = policy.spec.name.map(|name| format!("{name}, ")).unwrap_or_default();
            format!("{name}{source} > {destination} dir {direction}")
        };
        let all = self.listed_policies();
        bounded(all.iter().map(|one| Candidate::new(one.index.to_string(), meaning(one))))
    }

    fn policy_names(&self) -> Vec<Candidate> {
        let mut named: BTreeMap<String, usize> = BTreeMap::new();
        for name in self.listed_policies().iter().filter_map(|policy| policy.spec.name) {
            *named.entry(name.to_string()).or_default() += 1;
        }
        let meaning = |count| match count {
            1 => "1 policy".to_owned(),
            count => format!("{count} policies"),
        };
        bounded(named.into_iter().map(|(name, count)| Candidate::new(name, meaning(count))))
    }

    fn listed_policies(&self) -> Vec<api::PolicyView> {
        // A long list would only be cut.
        match self.ask(&Request::PolicyCount) {
            Some(Reply::Count(count)) if count <= MOST as u64 => {}
            _ => return Vec::new(),
        }
        match self.ask(&Request::PolicyList(PolicyFilter::default())) {
            Some(Reply::Policies(policies)) => policies,
            _ => Vec::new(),
        }
    }

    pub(super) fn reqids(&self) -> Vec<Candidate> {
        match self.ask(&Request::StateCount) {
            Some(Reply::Count(count)) if count <= MOST as u64 => {}
            _ => return Vec::new(),
        }
        let all = Request::StateList(StateList::default());
        let Some(Reply::States(states)) = self.ask(&all) else { return Vec::new() };
        let meaning = |sa: &api::StateView| format!("SA {} > {}", sa.source, sa.destination);
        bounded(states.iter().map(|sa| Candidate::new(sa.reqid.to_string(), meaning(sa))))
    }

    pub(super) fn taps(&self) -> Vec<Candidate> {
        let Some(Reply::Taps(taps)) = self.ask(&Request::TapList) else { return Vec::new() };
        bounded(taps.iter().map(|tap| Candidate::new(tap.id.to_string(), "tap")))
    }

    pub(super) fn traces(&self) -> Vec<Candidate> {
        let Some(Reply::Traces(traces)) = self.ask(&Request::TraceList) else { return Vec::new() };
        bounded(traces.iter().map(|trace| Candidate::new(trace.id.to_string(), "trace")))
    }

    fn ask(&self, request: &Request) -> Option<Reply> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        client::ask_within(self.socket, request, left).ok()
    }
}

fn bounded(all: impl Iterator<Item = Candidate>) -> Vec<Candidate> {
    all.take(MOST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_daemon_that_does_not_answer_is_not_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("control.sock");
        let begun = Instant::now();
        assert_eq!(Live::new(&socket).ports(), []);
        assert!(begun.elapsed() < PATIENCE, "there is no daemon at all");
        let _listener = UnixListener::bind(&socket).unwrap();
        let live = Live::new(&socket);
        let begun = Instant::now();
        for _ in 0..3 {
            assert_eq!(live.ports(), []);
        }
        assert!(begun.elapsed() < 3 * PATIENCE, "{:?}", begun.elapsed());
    }
}
