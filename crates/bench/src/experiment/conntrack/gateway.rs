//! The gateway that is measured: its tables and its flows.

use std::sync::Arc;

use conntrack::{Connections, CtState, Settings};
use flow::CacheSettings;
use io::memory::MemoryHandle;
use path::Worker;
use pipeline::{Action, Change, Ct, Field, Flow, Match, NatEnd, NatNew, NatSpec, Owner, Pipeline};
use tables::{Publisher, RouteSpec, Tables};
use wire::VrfId;

use super::{Flows, START};
use crate::dut;
use crate::topology::{self, IN, OUT, PEER_IN, STATION};

/// A gateway's tables with these flows, and a connection table of this size.
pub(super) fn tables(flows: Flows, connections: u32) -> anyhow::Result<Tables> {
    match flows {
        Flows::Plain => routes(),
        flows => with_flows(list(flows), connections),
    }
}

/// The published firewall, which lets errors about its connections in as well.
pub(super) fn tables_with_errors(connections: u32) -> anyhow::Result<Tables> {
    let mut flows = list(Flows::Firewall);
    let related = CtState::REL | CtState::TRK;
    let mut matches = Match::ANY;
    matches.set(Field::CtState, related.0.into(), related.0.into());
    matches.set(Field::InPort, OUT.0.into(), 0xffff);
    flows.extend(flows.last().cloned().map(|answers| Flow { matches, ..answers }));
    with_flows(flows, connections)
}

/// A gateway that routes both ways, with these flows, and a connection table of this size.
pub(super) fn with_flows(flows: Vec<Flow>, connections: u32) -> anyhow::Result<Tables> {
    let mut tables = routes()?;
    let settings = Settings { connections, ipv6_connections: 1, ..Settings::default() };
    tables.set_connections(Arc::new(Connections::new(&settings, [3, 5], START)?));
    let mut pipeline = Pipeline::new();
    for flow in flows {
        pipeline.apply(Change::Add { flow, check_overlap: false }, Owner::User)?;
    }
    tables.set_pipeline(pipeline, START)?;
    Ok(tables)
}

fn routes() -> anyhow::Result<Tables> {
    let mut tables = topology::tables(1)?;
    tables.set_neighbour(IN, PEER_IN.into(), STATION)?;
    let back = RouteSpec::Via { port: IN, address: PEER_IN.into() };
    tables.set_route(VrfId::MAIN, "10.128.0.0/9".parse()?, back)?;
    Ok(tables)
}

fn list(flows: Flows) -> Vec<Flow> {
    let (new, est) = (CtState::NEW | CtState::TRK, CtState::EST | CtState::TRK);
    let flow = |table, priority, conditions: &[(Field, u8)], actions: Vec<Action>| {
        let mut matches = Match::ANY;
        for &(field, value) in conditions {
            let mask = if field == Field::InPort { 0xffff } else { u128::from(value) };
            let mask =
                if value == 0 && field == Field::CtState { CtState::TRK.0.into() } else { mask };
            matches.set(field, value.into(), mask);
        }
        let (vrf, cookie, idle_timeout, hard_timeout) = (VrfId::MAIN, 0, 0, 0);
        Flow { vrf, table, priority, matches, actions, cookie, idle_timeout, hard_timeout }
    };
    let ct = |commit, table, nat| Action::Ct(Box::new(Ct { commit, table, nat, ..Ct::default() }));
    let nat = flows == Flows::Nat;
    let translate = nat.then(NatSpec::default);
    let new_nat = nat.then(|| NatSpec {
        new: Some(Arc::new(NatNew {
            end: NatEnd::Source,
            addresses: "203.0.113.0-203.0.113.127".parse().ok(),
            ports: None,
            choice: None,
            persistent: false,
            endpoint_independent: false,
            blocks: None,
        })),
        twice: false,
    });
    let to = |port| match flows {
        Flows::Routed | Flows::Nat => Action::Normal,
        _ => Action::Output(port),
    };
    let port = |id: wire::PortId| (Field::InPort, id.0 as u8);
    let state = |state: CtState| (Field::CtState, state.0);
    vec![
        flow(0, 100, &[state(CtState(0))], vec![ct(false, Some(1), translate)]),
        flow(1, 10, &[state(new), port(IN)], vec![ct(true, None, new_nat), to(OUT)]),
        flow(1, 10, &[state(new), port(OUT)], Vec::new()),
        flow(1, 10, &[state(est), port(IN)], vec![to(OUT)]),
        flow(1, 10, &[state(est), port(OUT)], vec![to(IN)]),
    ]
}

pub(super) fn worker(
    tables: Tables,
    caches: [CacheSettings; 4],
) -> anyhow::Result<(Worker, [MemoryHandle; 2])> {
    dut::worker(0, Publisher::new(tables).shared().reader(), caches)
}
