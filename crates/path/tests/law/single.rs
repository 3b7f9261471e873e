//! Flows that come and go one by one among those of some kind.

use std::net::{Ipv4Addr, Ipv6Addr};

use pipeline::{Action, Change, Criteria, Ct, Field, Flow, NatEnd, NatSpec, Owner, Pipeline};
use proptest::option::weighted;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use wire::{PortId, VrfId};

use super::flows::{
    Condition, EST, LABELLED, NEW, NORMAL, REL, TRK, by, commit, ct, flow, has, labelled, nat, set,
    to_table_1, untracked,
};

/// One flow among others, by two ports of a VRF.
#[derive(Clone, Debug)]
pub(crate) struct Single {
    place: (u8, u16),
    /// By which of the two ports, if by one alone.
    is_by_second: Option<bool>,
    conditions: Vec<Condition>,
    actions: usize,
}

impl Single {
    fn flow(&self, vrf: VrfId, [a, b]: [PortId; 2]) -> Flow {
        let by_port = self.is_by_second.map(|is_second| by(if is_second { b } else { a }));
        let conditions: Vec<_> = self.conditions.iter().copied().chain(by_port).collect();
        let nat = nat(NatEnd::Source, "10.2.0.1", Some((3000, 3009)));
        let actions = match self.actions {
            0 => vec![],
            1 => vec![NORMAL],
            2 => vec![Action::Output(b)],
            3 => vec![ct(commit()), NORMAL],
            4 => vec![to_table_1(None)],
            5 => vec![to_table_1(Some(NatSpec::default()))],
            6 => vec![set(Field::NwTos, 0x28), NORMAL],
            7 => vec![Action::Resubmit { in_port: None, table: Some(2) }],
            8 => vec![ct(Ct { nat, ..commit() }), NORMAL],
            9 => vec![ct(labelled(Ct { nat, ..commit() })), NORMAL],
            10 => vec![ct(Ct { force: true, ..commit() }), NORMAL],
            11 => vec![Action::Rerouted { ends: false }],
            12 => vec![Action::Rerouted { ends: true }],
            13 => vec![ct(Ct { nat, anew: true, ..commit() }), NORMAL],
            14 => vec![ct(Ct { anew: true, ..commit() }), NORMAL],
            15 => vec![ct(labelled(Ct { owner: 1 << 32, ..commit() })), NORMAL],
            _ => vec![Action::Output(a), NORMAL],
        };
        flow(vrf, self.place, &conditions, &actions)
    }
}

/// It often matches what connections of the worlds are translated to.
pub(crate) fn single() -> impl Strategy<Value = Single> {
    // Mostly where connections were tracked, and above most of what is there.
    let place = (select(vec![0u8, 1, 1, 1, 2]), select(vec![4u16, 9, 12, 13, 14]));
    let is_by_second = weighted(0.15, any::<bool>());
    let state = select(vec![has(NEW), has(EST), has(REL), untracked(), has(TRK)]);
    let packets = prop_oneof![
        4 => addresses_v4(),
        2 => addresses_v6(),
        1 => ports(),
        1 => decrypted(),
        2 => Just(vec![]),
    ];
    (place, is_by_second, packets, weighted(0.25, state), weighted(0.1, Just(LABELLED)), 0usize..17)
        .prop_map(|(place, is_by_second, packets, state, label, actions)| {
            let conditions = packets.into_iter().chain(state).chain(label).collect();
            Single { place, is_by_second, conditions, actions }
        })
}

fn addresses_v4() -> impl Strategy<Value = Vec<Condition>> {
    let bits = |host: &str| host.parse::<Ipv4Addr>().unwrap().to_bits().into();
    let hosts = ["10.1.0.5", "10.1.0.6", "10.2.0.1", "10.3.0.5"].map(bits);
    let fields = [Field::NwSrc, Field::NwDst, Field::CtNwDst];
    addresses(0x800, fields, hosts, [0xffff_ffff, 0xffff_ff00])
}

fn addresses_v6() -> impl Strategy<Value = Vec<Condition>> {
    let bits = |host: &str| host.parse::<Ipv6Addr>().unwrap().to_bits();
    let hosts = ["fd01::5", "fd02::77", "fd02::78", "fd03::5"].map(bits);
    let fields = [Field::Ipv6Src, Field::Ipv6Dst, Field::CtIpv6Dst];
    addresses(0x86dd, fields, hosts, [u128::MAX, u128::MAX << 64])
}

/// Of one address or two.
fn addresses(
    dl_type: u128,
    [source, destination, original]: [Field; 3],
    hosts: [u128; 4],
    [host, network]: [u128; 2],
) -> impl Strategy<Value = Vec<Condition>> {
    let field = prop_oneof![3 => Just(source), 3 => Just(destination), 1 => Just(original)];
    let mask = prop_oneof![3 => Just(host), 1 => Just(network)];
    let condition = (field, select(hosts.to_vec()), mask)
        .prop_map(|(field, address, mask)| (field, address & mask, mask));
    prop::collection::vec(condition, 1..3).prop_map(move |mut conditions| {
        conditions.push((Field::DlType, dl_type, 0xffff));
        conditions
    })
}

/// Of IPv4.
fn ports() -> impl Strategy<Value = Vec<Condition>> {
    let fields =
        vec![(6, Field::TcpSrc), (6, Field::TcpDst), (17, Field::UdpSrc), (17, Field::UdpDst)];
    (select(fields), select(vec![53, 54, 1000, 3000, 3001])).prop_map(
        |((protocol, field), port)| {
            vec![
                (Field::DlType, 0x800, 0xffff),
                (Field::NwProto, protocol, 0xff),
                (field, port, 0xffff),
            ]
        },
    )
}

/// By an SA of this reqid.
fn decrypted() -> impl Strategy<Value = Vec<Condition>> {
    let by = |reqid| vec![(Field::Decrypted, 1, 1), (Field::Sa, reqid, Field::Sa.max())];
    (1..3u128).prop_map(by)
}

/// With one flow more; as it was if that is refused.
pub(crate) fn with(
    pipeline: &Pipeline,
    vrf: VrfId,
    single: &Single,
    ports: [PortId; 2],
) -> Pipeline {
    let mut more = pipeline.clone();
    let change = Change::Add { flow: single.flow(vrf, ports), check_overlap: false };
    match more.apply(change, Owner::User) {
        Ok(_) => more,
        Err(_) => pipeline.clone(),
    }
}

/// Without one of its flows.
pub(crate) fn without(pipeline: &Pipeline, which: &Index) -> Pipeline {
    let mut fewer = pipeline.clone();
    let all = pipeline.sorted();
    if !all.is_empty() {
        let flow = &all[which.index(all.len())].flow;
        let criteria = Criteria {
            table: Some(flow.table),
            strict: Some(flow.priority),
            matches: flow.matches.clone(),
            ..Criteria::all(Some(flow.vrf))
        };
        _ = fewer.apply(Change::Delete { criteria }, Owner::User);
    }
    fewer
}
