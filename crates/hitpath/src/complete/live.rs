//! Names that the running daemon knows.

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

    fn policies(&self) -> Vec<Candidate> {
        // A long list would only be cut.
        match self.ask(&Request::PolicyCount) {
            Some(Reply::Count(count)) if count <= MOST as u64 => {}
            _ => return Vec::new(),
        }
        let all = Request::PolicyList(PolicyFilter::default());
        let Some(Reply::Policies(policies)) = self.ask(&all) else { return Vec::new() };
        let meaning = |policy: &api::PolicyView| {
            let (selector, direction) = (&policy.spec.selector, policy.spec.direction);
            let any = || "any".to_owned();
            let source = selector.source.map_or_else(any, |range| range.to_string());
            let destination = selector.destination.map_or_else(any, |range| range.to_string());
            format!("{source} > {destination} dir {direction}")
        };
        bounded(policies.iter().map(|one| Candidate::new(one.index.to_string(), meaning(one))))
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
