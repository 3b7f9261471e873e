//! Random flows and packets, from a small world, so that they meet.
#![allow(dead_code)] // Each test uses a part.

use std::sync::Arc;

use pipeline::text::Names;
use pipeline::{
    Action, Alg, Ct, CtFields, Exit, Field, Fields, Flow, Match, NatBlocks, NatEnd, NatNew,
    NatSpec, Number, PortChoice, Prefixes, SetWord, Subfield, Track, Zone,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use types::{IpRange, PortId, RejectWith, VrfId};

/// Ports are called `p1` and so on, VRFs `blue 1`.
pub(crate) struct Called;

impl Names for Called {
    fn port(&self, name: &str) -> Option<PortId> {
        name.strip_prefix('p')?.parse().ok().map(PortId)
    }

    fn port_name(&self, port: PortId) -> Option<String> {
        Some(format!("p{}", port.0))
    }

    fn vrf(&self, name: &str) -> Option<VrfId> {
        match name {
            "main" => Some(VrfId::MAIN),
            name => name.strip_prefix("blue ")?.parse().ok().map(VrfId),
        }
    }

    fn vrf_name(&self, vrf: VrfId) -> Option<String> {
        Some(if vrf == VrfId::MAIN { "main".to_owned() } else { format!("blue {}", vrf.0) })
    }
}

/// Says of every packet the same.
pub(crate) struct Says(pub(crate) CtFields);

impl Track for Says {
    fn track(&mut self, _: u16, _: bool, _: &Fields, _: Option<&NatSpec>) -> CtFields {
        self.0.clone()
    }

    fn exit(&mut self, fields: &Fields) -> Exit {
        fields.exit()
    }
}

/// One condition of a match, if the packets have the field.
fn condition() -> impl Strategy<Value = (Field, u128, u128, Option<u128>)> {
    let numbers = select(vec![0_u128, 1, 2, 3, 6, 0x10, 0x11, 0x12, 0x80, 0x1234, 0xffff]);
    let address = select(vec![0x0a00_0000_u128, 0x0a00_0001, 0x0a01_0203, 0xc000_0201, 7]);
    let value = prop_oneof![numbers.clone(), address, any::<u128>()];
    let mask = prop_oneof![
        3 => Just(u128::MAX),
        2 => (0_u32..128).prop_map(|bits| u128::MAX << bits),
        1 => any::<u128>(),
    ];
    (select(Field::ALL), value, mask, proptest::option::weighted(0.2, numbers))
}

/// A match as the text forms allow it.
pub(crate) fn matches() -> impl Strategy<Value = Match> {
    let protocol = select(vec![
        (0_u16, None),
        (0x0800, None),
        (0x0800, Some(1_u8)),
        (0x0800, Some(6)),
        (0x0800, Some(17)),
        (0x0800, Some(132)),
        (0x0800, Some(47)),
        (0x86dd, None),
        (0x86dd, Some(6)),
        (0x86dd, Some(58)),
        (0x0806, None),
        (0x88cc, None),
    ]);
    (protocol, vec(condition(), 0..5), any::<u8>()).prop_map(|((dl_type, protocol), list, sa)| {
        let mut matches = Match::ANY;
        if dl_type != 0 {
            matches.set(Field::DlType, dl_type.into(), 0xffff);
        }
        if let Some(protocol) = protocol {
            matches.set(Field::NwProto, protocol.into(), 0xff);
        }
        match sa {
            0..8 => matches.set_sa(None),
            8..16 => matches.set_decrypted(true),
            16..24 => matches.set_sa(Some(sa.into())),
            _ => {}
        }
        for (field, value, mask, last) in list {
            put(&mut matches, field, value, mask, last);
        }
        matches
    })
}

/// Adds a condition if the text forms allow it.
fn put(matches: &mut Match, field: Field, value: u128, mask: u128, last: Option<u128>) {
    let max = Subfield::all(field).mask();
    let (value, mask) = (value & max, mask & max);
    let has_ranges = matches!(
        field,
        Field::NwSrc
            | Field::NwDst
            | Field::Ipv6Src
            | Field::Ipv6Dst
            | Field::TcpSrc
            | Field::TcpDst
            | Field::UdpDst
            | Field::CtNwSrc
    );
    let left_out =
        [Field::Sa, Field::Decrypted, Field::DlType, Field::NwProto, Field::IpDscp, Field::IpFrag];
    if left_out.contains(&field) || !matches.has(field.needs()) || mask == 0 {
        return;
    }
    let needs_connection = field.name().starts_with("ct_")
        && !["ct_state", "ct_zone", "ct_mark", "ct_label"].contains(&field.name());
    if needs_connection && matches.get(Field::CtState).0 & 0x0f == 0 {
        matches.set(Field::CtState, 0x21, 0x21);
    }
    match last {
        Some(last) if has_ranges => {
            let last = last & max;
            matches.set_range(field, value.min(last), value.max(last));
        }
        // An invalid packet commits nothing.
        _ if field == Field::CtState => matches.set(field, (value | 1) & !0x10, mask | 1),
        _ if field == Field::NwTos => matches.set(field, value & 0xfc, 0xfc),
        _ if field.is_maskable() => matches.set(field, value, mask),
        _ => matches.set(field, value, max),
    }
}

fn subfield(bits: u8) -> impl Strategy<Value = Subfield> {
    let fields = [Field::Reg0, Field::Reg1, Field::Reg7, Field::PktMark];
    (select(fields.to_vec()), 0..=32 - bits).prop_map(move |(field, first)| Subfield {
        field,
        first,
        bits,
    })
}

fn set(word: SetWord) -> impl Strategy<Value = Action> {
    (subfield(8), any::<u8>()).prop_map(move |(part, value)| Action::Set {
        word,
        field: part.field,
        value: u128::from(value) << part.first,
        mask: part.mask(),
    })
}

fn exec() -> impl Strategy<Value = Action> {
    let marked = (any::<u32>(), any::<u32>()).prop_filter("a mask", |(_, mask)| *mask != 0);
    marked.prop_map(|(value, mask)| Action::Set {
        word: SetWord::SetField,
        field: Field::CtMark,
        value: (value & mask).into(),
        mask: mask.into(),
    })
}

fn nat(is_v6: bool) -> impl Strategy<Value = NatSpec> {
    let (low, high) = match is_v6 {
        true => ("2001:db8::1", "2001:db8::9"),
        false => ("192.0.2.1", "192.0.2.9"),
    };
    let [low, high] = [low, high].map(|text| text.parse().unwrap());
    let ranges =
        [IpRange::new(low, low), IpRange::new(low, high)].map(|range| Some(range.unwrap()));
    let ports = select(vec![None, Some((80, 80)), Some((1024, 65535))]);
    let choice = select(vec![None, Some(PortChoice::Hash), Some(PortChoice::Random)]);
    let end = select(vec![NatEnd::Source, NatEnd::Destination]);
    let subscribers = IpRange::new(low, high).unwrap();
    let ours = (any::<bool>(), proptest::option::of((1_u16.., any::<bool>())));
    let new = (end, select(ranges.to_vec()), ports, choice, any::<bool>(), ours).prop_map(
        move |(end, addresses, ports, choice, persistent, (endpoint_independent, block))| {
            let is_source = end == NatEnd::Source;
            let blocks = block.filter(|_| is_source).map(|(ports, is_said)| NatBlocks {
                ports,
                subscribers: is_said.then_some(subscribers),
            });
            let endpoint_independent = endpoint_independent && is_source;
            let new =
                NatNew { end, addresses, ports, choice, persistent, endpoint_independent, blocks };
            Arc::new(new)
        },
    );
    (proptest::option::of(new), any::<bool>())
        .prop_map(|(new, twice)| NatSpec { twice: twice && new.is_some(), new })
}

fn number() -> impl Strategy<Value = Number> {
    prop_oneof![any::<u16>().prop_map(Number::This), subfield(16).prop_map(Number::Field)]
}

fn ct(is_v6: bool) -> impl Strategy<Value = Action> {
    let zone = prop_oneof![Just(Zone::Vrf), number().prop_map(Zone::Number),];
    let limit = proptest::option::of(number());
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    let nat = proptest::option::of(nat(is_v6));
    (flags, zone, proptest::option::of(1_u8..255), nat, vec(exec(), 0..2), limit).prop_map(
        |((commit, force, anew), zone, table, nat, exec, limit)| {
            let limit = limit.filter(|_| commit);
            let nat = nat.filter(|nat| commit || nat.new.is_none());
            let exec = if commit { exec } else { Vec::new() };
            let alg: Option<Alg> = None;
            Action::Ct(Box::new(Ct {
                commit,
                force: commit && force,
                anew: commit && anew,
                owner: if commit && anew { 0xffff << 16 } else { 0 },
                zone,
                table,
                nat,
                exec,
                alg,
                limit,
            }))
        },
    )
}

/// Actions that packets of a match can have.
fn actions(matches: &Match, table: u8) -> BoxedStrategy<Vec<Action>> {
    let dl_type = matches.get(Field::DlType).0;
    let ports = (1_u16..5).prop_map(PortId);
    let mut all = vec![
        ports.clone().prop_map(Action::Output).boxed(),
        Just(Action::Normal).boxed(),
        Just(Action::Unrouted).boxed(),
        any::<bool>().prop_map(|ends| Action::Rerouted { ends }).boxed(),
        Just(Action::InPort).boxed(),
        Just(Action::CtClear).boxed(),
        (proptest::option::of(ports), proptest::option::of(table.saturating_add(1).min(254)..255))
            .prop_map(|(in_port, table)| Action::Resubmit { in_port, table })
            .boxed(),
        set(SetWord::Load).boxed(),
        set(SetWord::SetField).boxed(),
        (subfield(5), subfield(5)).prop_map(|(from, to)| Action::Move { from, to }).boxed(),
        vec(any::<u8>(), 0..4).prop_map(Action::Note).boxed(),
        select(vec!["", "in", "from outside: "]).prop_map(|text| Action::Log(text.into())).boxed(),
    ];
    if dl_type == 0x0800 || dl_type == 0x86dd {
        all.push(Just(Action::DecTtl).boxed());
        all.push(ct(dl_type == 0x86dd).boxed());
        let tos = any::<u8>().prop_map(|tos| Action::Set {
            word: SetWord::Mod,
            field: Field::NwTos,
            value: u128::from(tos & 0xfc),
            mask: 0xfc,
        });
        all.push(tos.boxed());
    }
    if dl_type == 0x86dd {
        let prefix = |bits: u128| format!("{}/48", std::net::Ipv6Addr::from_bits(bits << 80));
        let npt = (any::<bool>(), 0u128..4, 0u128..4).prop_map(move |(is_source, from, to)| {
            let end = if is_source { NatEnd::Source } else { NatEnd::Destination };
            let [from, to] = [from, to].map(|bits| prefix(bits).parse().expect("a prefix"));
            Action::Nptv6(Box::new(Prefixes::new(end, from, to).expect("of one length")))
        });
        all.push(npt.boxed());
    }
    if dl_type == 0x0800 {
        let to = any::<u32>().prop_map(|address| Action::Set {
            word: SetWord::SetField,
            field: Field::NwDst,
            value: address.into(),
            mask: u32::MAX.into(),
        });
        all.push(to.boxed());
    }
    let reject = proptest::option::weighted(0.1, select(RejectWith::ALL.to_vec()));
    (vec(proptest::strategy::Union::new(all), 0..5), reject)
        .prop_map(|(mut all, reject)| {
            all.extend(reject.map(Action::Reject));
            all
        })
        .boxed()
}

/// A flow as the text forms allow it.
pub(crate) fn flow() -> impl Strategy<Value = Flow> {
    let place = (select(vec![0_u16, 1, 7]), select(vec![0_u8, 1, 2, 253]));
    let numbers = (select(vec![0_u16, 1, 100, 32768, 65535]), any::<u64>(), any::<u16>());
    (place, numbers, matches()).prop_flat_map(|((vrf, table), numbers, matches)| {
        let (priority, cookie, timeout) = numbers;
        actions(&matches, table).prop_map(move |actions| Flow {
            vrf: VrfId(vrf),
            table,
            priority,
            matches: matches.clone(),
            actions,
            cookie,
            idle_timeout: timeout & 3,
            hard_timeout: timeout >> 2,
        })
    })
}

/// A packet: what a match asks for, with some of it changed.
pub(crate) fn packet(matches: &Match, vrf: VrfId, noise: [(usize, u128); 2]) -> Fields {
    let mut like = matches.clone();
    for (at, value) in noise {
        let field = Field::ALL[at % Field::ALL.len()];
        like.set(field, value & Subfield::all(field).mask(), Subfield::all(field).mask());
    }
    like.example(vrf)
}
