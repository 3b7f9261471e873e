//! What is changed: policies by the tables themselves or by requests to the control thread, and the
//! SAs of a tunnel.

use std::path::Path;
use std::sync::mpsc;

use api::{NeighbourSpec, PolicyAction, PolicyId, Request};
use control::{Changes, Control, OpenedPort};
use packet::{LinkKind, Time};
use store::{Directory, Log, Snapshot};
use tables::{
    Action, Direction, FieldsSelector, PolicySpec, Publisher, Selector, Shared, Tables,
    UpperSelector,
};
use wire::{IpPrefix, PortRange, Protocol, Spi, VrfId};

use crate::frame::{Family, Fields};
use crate::topology::{self, IN, OUT, PEER_OUT, STATION, Tunnel};

/// The SPI of the first SA.
pub(crate) const FIRST_SPI: u32 = 0x1000;

/// One change after the other.
pub(crate) trait Change: Send {
    /// Makes the next one, and has it published.
    ///
    /// # Errors
    /// If it is refused.
    fn change(&mut self) -> anyhow::Result<()>;
}

/// Tables with `count` policies: the first so many flows have one each, and the last is for all, so
/// that no packet is ever without.
pub(crate) fn policies(count: u32) -> anyhow::Result<Tables> {
    let mut tables = topology::tables(1)?;
    for flow in 0..count.saturating_sub(1) {
        tables.add_policy(policy_of(flow)?)?;
    }
    tables.add_policy(topology::policy_for_all(Direction::Out, false, 2, Action::Bypass)?)?;
    tables.compile();
    Ok(tables)
}

/// Publishes tables once more than they were made, so that how they came about is behind whoever
/// reads them.
pub(crate) fn published(tables: Tables) -> Publisher {
    let mut publisher = Publisher::new(tables.clone());
    publisher.publish(tables);
    publisher
}

/// The policy of one flow alone.
fn policy_of(flow: u32) -> anyhow::Result<PolicySpec> {
    let fields = Fields::of(Family::V4, flow.into());
    let port = |port| PortRange::new(port, port);
    let upper = UpperSelector::Ports {
        source: port(fields.source_port)?,
        destination: port(fields.destination_port)?,
    };
    let selector = Selector {
        source: IpPrefix::host(fields.source).range(),
        destination: IpPrefix::host(fields.destination).range(),
        protocol: Some(Protocol::UDP),
        upper,
        fields: FieldsSelector::ANY,
    };
    Ok(PolicySpec {
        vrf: VrfId::MAIN,
        direction: Direction::Out,
        if_id: None,
        priority: 1,
        selector,
        action: Action::Bypass,
    })
}

/// Deletes the policy of one flow after the other, and adds it again.
pub(crate) struct Policies {
    publisher: Publisher,
    flows: u32,
    next: u32,
    deleted: bool,
}

impl Policies {
    /// Of the first `flows`, each of which but the last policy's has one.
    pub(crate) fn new(publisher: Publisher, flows: u32) -> Self {
        Self { publisher, flows, next: 0, deleted: false }
    }
}

impl Change for Policies {
    fn change(&mut self) -> anyhow::Result<()> {
        let spec = policy_of(self.next)?;
        let mut tables = Tables::clone(&self.publisher.current());
        if self.deleted {
            tables.add_policy(spec)?;
            self.next = (self.next + 1) % self.flows.saturating_sub(1).max(1);
        } else {
            let index = tables
                .policy_of_selector(spec.vrf, spec.direction, &spec.selector)
                .map(|policy| policy.index);
            tables.remove_policy(index.unwrap_or_default())?;
        }
        self.deleted = !self.deleted;
        self.publisher.publish(tables);
        Ok(())
    }
}

/// The same by requests, as users make them.
pub(crate) struct Requests {
    control: Control,
    flows: u32,
    next: u32,
    deleted: bool,
    log: Option<Log>,
}

/// The gateway of [`topology::tables`], as somebody would configure it.
const CONFIG: &str = r#"
[[port]]
name = "in"
kind = "memory"
side = "protected"
addresses = ["10.0.0.1/24"]

[[port]]
name = "out"
kind = "memory"
addresses = ["10.0.1.1/24"]

[[route]]
to = "198.18.0.0/15"
via = "10.0.1.2"
"#;

impl Requests {
    /// A gateway with `count` policies, of which those of the first `flows` change.
    pub(crate) fn new(count: u32, flows: u32) -> anyhow::Result<Self> {
        let mut control = Control::new(1, [1; 32]);
        let plan = control.plan(control::load("bench.toml", CONFIG)?);
        let opened = [("in", IN), ("out", OUT)].map(|(name, id)| OpenedPort {
            name: name.to_owned(),
            id,
            mac: topology::mac(id),
            mtu: 1500,
            link: LinkKind::Ethernet,
        });
        control.apply(plan, &opened, Time(0))?;
        let neighbour =
            NeighbourSpec { port: "out".to_owned(), address: PEER_OUT.into(), mac: STATION };
        control.handle(Request::NeighbourAdd(neighbour), Time(0))?;
        for flow in 0..count.saturating_sub(1) {
            control.handle(Request::PolicyAdd(request(&policy_of(flow)?)), Time(0))?;
        }
        let all = topology::policy_for_all(Direction::Out, false, 2, Action::Bypass)?;
        control.handle(Request::PolicyAdd(request(&all)), Time(0))?;
        Ok(Self { control, flows, next: 0, deleted: false, log: None })
    }

    /// Keeps every change in a log in `directory` from now on. As with clients that do not wait,
    /// the disk is not waited for.
    pub(crate) fn keep_in(&mut self, directory: &Path) -> anyhow::Result<()> {
        let log = Log::start(Directory::open(directory, "hitpath bench churn")?)?;
        self.control.keep_changes(true);
        let Changes { text, keys } = self.control.all_changes();
        let configuration = "bench".to_owned();
        let snapshot = Snapshot { configuration, text, keys, keeps_keys: true, is_needed: true };
        let (sender, receiver) = mpsc::channel();
        log.replace(snapshot, Some(Box::new(move |result| _ = sender.send(result))));
        receiver.recv()?.map_err(anyhow::Error::msg)?;
        self.log = Some(log);
        Ok(())
    }

    /// What workers read from.
    pub(crate) fn shared(&self) -> Shared {
        self.control.shared()
    }
}

impl Change for Requests {
    fn change(&mut self) -> anyhow::Result<()> {
        let spec = request(&policy_of(self.next)?);
        if self.deleted {
            self.control.handle(Request::PolicyAdd(spec), Time(0))?;
            self.next = (self.next + 1) % self.flows.saturating_sub(1).max(1);
        } else {
            let id = PolicyId {
                if_id: 0,
                vrf: spec.vrf,
                direction: spec.direction,
                index: None,
                selector: spec.selector,
            };
            self.control.handle(Request::PolicyDelete(id), Time(0))?;
        }
        self.deleted = !self.deleted;
        if let Some(log) = &self.log {
            if let Some(failure) = log.failure() {
                anyhow::bail!("{failure}");
            }
            let Changes { text, keys } = self.control.take_changes();
            log.append(text, keys, None);
        }
        Ok(())
    }
}

/// An outbound bypass policy for UDP or anything, as a request has it.
fn request(spec: &PolicySpec) -> api::PolicySpec {
    let ports = |which: fn((PortRange, PortRange)) -> PortRange| match spec.selector.upper {
        UpperSelector::Ports { source, destination } => Some(which((source, destination))),
        _ => None,
    };
    api::PolicySpec {
        vrf: "main".to_owned(),
        if_id: 0,
        direction: Direction::Out,
        selector: api::Selector {
            source: Some(spec.selector.source),
            destination: Some(spec.selector.destination),
            protocol: spec.selector.protocol,
            source_ports: ports(|both| both.0),
            destination_ports: ports(|both| both.1),
            ..api::Selector::default()
        },
        priority: spec.priority,
        action: PolicyAction::Bypass,
        template: None,
        name: None,
    }
}

/// Brings a tunnel a new SA, and takes the old one away.
pub(crate) struct Rekeys {
    publisher: Publisher,
    tunnel: Tunnel,
    spi: u32,
}

impl Rekeys {
    /// Of a tunnel whose SA has [`FIRST_SPI`].
    pub(crate) fn new(publisher: Publisher, tunnel: Tunnel) -> Self {
        Self { publisher, tunnel, spi: FIRST_SPI }
    }
}

impl Change for Rekeys {
    fn change(&mut self) -> anyhow::Result<()> {
        let mut tables = Tables::clone(&self.publisher.current());
        self.tunnel.add_sa(&mut tables, Spi(self.spi + 1))?;
        tables.remove_sa(VrfId::MAIN, self.tunnel.destination.into(), Spi(self.spi))?;
        self.spi += 1;
        self.publisher.publish(tables);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_two_changes_all_policies_are_there_again() {
        let publisher = Publisher::new(policies(30).unwrap());
        let mut reader = publisher.shared().reader();
        let mut policies = Policies::new(publisher, 10);
        for _ in 0..40 {
            policies.change().unwrap();
            assert_eq!(reader.load().policy_count(), 29);
            policies.change().unwrap();
            assert_eq!(reader.load().policy_count(), 30);
        }
        let mut requests = Requests::new(30, 10).unwrap();
        let mut reader = requests.shared().reader();
        requests.change().unwrap();
        assert_eq!(reader.load().policy_count(), 29);
        requests.change().unwrap();
        assert_eq!(reader.load().policy_count(), 30);
    }

    #[test]
    fn a_rekey_leaves_one_sa_in_the_same_slot() {
        let tunnel = Tunnel::out(esp::Algorithm::AesGcm128);
        let mut tables = topology::tables(1).unwrap();
        tunnel.add_sa(&mut tables, Spi(FIRST_SPI)).unwrap();
        let publisher = Publisher::new(tables);
        let mut reader = publisher.shared().reader();
        let slot = reader.load().sad().iter().next().unwrap().slot;
        let mut rekeys = Rekeys::new(publisher, tunnel);
        for _ in 0..3 {
            rekeys.change().unwrap();
        }
        let sas: Vec<_> = reader.load().sad().iter().map(|sa| (sa.slot, sa.spec.spi)).collect();
        assert_eq!(sas, [(slot, Spi(FIRST_SPI + 3))]);
    }
}
