//! Flows of few kinds, for worlds whose packets are tracked and translated.

use std::sync::Arc;

use conntrack::{ClassLimits, Connections, CtState, Settings};
use packet::Time;
use pipeline::{
    Action, Alg, Change, Ct, Field, Flow, Match, NatEnd, NatNew, NatSpec, Number, Owner, Pipeline,
    SetWord, Zone,
};
use types::RejectWith;
use wire::{IpRange, PortId, VrfId};

/// How many kinds of flows a VRF may have, with none.
pub(crate) const KINDS: usize = 26;
/// Flows whose connections count for a class, as only those of `[firewall]` do.
const WITH_LIMITS: usize = 17;

/// So few that they do not suffice.
const CONNECTIONS: u32 = 5;
const EXPECTATIONS: u32 = 3;

pub(crate) const TRK: CtState = CtState::TRK;
pub(crate) const NEW: CtState = CtState(CtState::NEW.0 | TRK.0);
pub(crate) const EST: CtState = CtState(CtState::EST.0 | TRK.0);
const RPL: CtState = CtState(CtState::RPL.0 | TRK.0);
pub(crate) const REL: CtState = CtState(CtState::REL.0 | TRK.0);

/// A connection table for so many workers, the same in all worlds.
pub(crate) fn connections(workers: usize) -> Arc<Connections> {
    let settings = Settings {
        connections: CONNECTIONS,
        ipv6_connections: CONNECTIONS,
        expectations: EXPECTATIONS,
        workers: workers as u32,
        ..Settings::default()
    };
    let table = Connections::new(&settings, [1, 2], Time(1_000_000_000)).unwrap();
    table.limit_classes([(1, ClassLimits { connections: 2, source: 1 })]);
    Arc::new(table)
}

/// The flows of VRFs with these kinds; `ports` are two of each VRF.
pub(crate) fn pipeline(kinds: &[(VrfId, usize, [PortId; 2])]) -> Pipeline {
    let mut pipeline = Pipeline::new();
    for &(vrf, kind, ports) in kinds {
        for flow in flows(vrf, kind, ports) {
            let change = Change::Add { flow, check_overlap: false };
            let owner = if kind == WITH_LIMITS { Owner::Firewall } else { Owner::User };
            pipeline.apply(change, owner).unwrap();
        }
    }
    pipeline
}

pub(crate) type Condition = (Field, u128, u128);

pub(crate) fn has(state: CtState) -> Condition {
    (Field::CtState, state.0.into(), state.0.into())
}

pub(crate) fn untracked() -> Condition {
    (Field::CtState, 0, TRK.0.into())
}

pub(crate) fn by(port: PortId) -> Condition {
    (Field::InPort, port.0.into(), 0xffff)
}

fn to(port: PortId) -> Condition {
    (Field::Oif, port.0.into(), 0xffff)
}

pub(crate) fn ct(ct: Ct) -> Action {
    Action::Ct(Box::new(ct))
}

pub(crate) const NORMAL: Action = Action::Normal;

pub(crate) fn commit() -> Ct {
    Ct { commit: true, ..Ct::default() }
}

/// A connection with a label.
pub(crate) fn labelled(ct: Ct) -> Ct {
    let (field, value, mask) = LABELLED;
    Ct { exec: vec![Action::Set { word: SetWord::SetField, field, value, mask }], ..ct }
}

pub(crate) const LABELLED: Condition = (Field::CtLabel, 1 << 32, 1 << 32);

pub(crate) fn to_table_1(nat: Option<NatSpec>) -> Action {
    ct(Ct { table: Some(1), nat, ..Ct::default() })
}

/// To a table, tracked in a second zone.
fn to_zone_9(table: u8) -> Action {
    let (zone, nat) = (Zone::Number(Number::This(9)), Some(NatSpec::default()));
    ct(Ct { table: Some(table), zone, nat, ..Ct::default() })
}

/// A connection of a zone with a mark.
fn mark(zone: u16, mark: u128) -> Ct {
    let (field, bits) = (Field::CtMark, 0xffff_ffff);
    let exec = vec![Action::Set { word: SetWord::SetField, field, value: mark, mask: bits }];
    Ct { zone: Zone::Number(Number::This(zone)), exec, ..commit() }
}

pub(crate) fn nat(end: NatEnd, addresses: &str, ports: Option<(u16, u16)>) -> Option<NatSpec> {
    let addresses = addresses.parse::<IpRange>().unwrap();
    let (addresses, choice, blocks) = (Some(addresses), None, None);
    let (persistent, endpoint_independent) = (false, false);
    let new = NatNew { end, addresses, ports, choice, persistent, endpoint_independent, blocks };
    Some(NatSpec { new: Some(Arc::new(new)), twice: true })
}

pub(crate) fn set(field: Field, value: u128) -> Action {
    Action::Set { word: SetWord::Mod, field, value, mask: field.max() }
}

pub(crate) fn flow(
    vrf: VrfId,
    (table, priority): (u8, u16),
    conditions: &[Condition],
    actions: &[Action],
) -> Flow {
    let mut matches = Match::ANY;
    for (field, value, mask) in conditions {
        matches.set(*field, *value, *mask);
    }
    let actions = actions.to_vec();
    let (cookie, idle_timeout, hard_timeout) = (0, 0, 0);
    Flow { vrf, table, priority, matches, actions, cookie, idle_timeout, hard_timeout }
}

fn flows(vrf: VrfId, kind: usize, [a, b]: [PortId; 2]) -> Vec<Flow> {
    let flow = |table, priority, conditions: &[Condition], actions: &[Action]| {
        flow(vrf, (table, priority), conditions, actions)
    };

    let labelled_and_translated = || {
        let nat = nat(NatEnd::Source, "10.2.0.1", Some((3000, 3009)));
        let opened = [has(NEW), by(a), (Field::DlType, 0x800, 0xffff)];
        flow(1, 9, &opened, &[ct(labelled(Ct { nat, ..commit() })), NORMAL])
    };
    match kind {
        0 => vec![],
        1 => vec![flow(0, 1, &[], &[NORMAL])],
        // What begins at the first port goes out and is answered.
        2 => vec![
            flow(0, 10, &[untracked()], &[to_table_1(None)]),
            flow(1, 10, &[has(NEW), by(a)], &[ct(commit()), NORMAL]),
            flow(1, 10, &[has(EST)], &[NORMAL]),
            flow(1, 5, &[has(REL)], &[NORMAL]),
        ],
        // The same as frames.
        3 => vec![
            flow(0, 10, &[untracked()], &[to_table_1(None)]),
            flow(1, 10, &[has(NEW), by(a)], &[ct(commit()), Action::Output(b)]),
            flow(1, 10, &[has(EST), by(a)], &[Action::Output(b)]),
            flow(1, 10, &[has(EST), by(b)], &[Action::Output(a)]),
        ],
        // Sources are translated, and few ports there are.
        4 => vec![
            flow(0, 10, &[], &[to_table_1(Some(NatSpec::default()))]),
            flow(1, 10, &[has(EST)], &[NORMAL]),
            flow(1, 9, &[has(REL)], &[NORMAL]),
            flow(
                1,
                8,
                &[has(NEW), (Field::DlType, 0x800, 0xffff)],
                &[
                    ct(Ct { nat: nat(NatEnd::Source, "10.2.0.1", Some((3000, 3002))), ..commit() }),
                    NORMAL,
                ],
            ),
            flow(
                1,
                7,
                &[has(NEW)],
                &[
                    ct(Ct { nat: nat(NatEnd::Source, "fd02::77-fd02::78", None), ..commit() }),
                    NORMAL,
                ],
            ),
        ],
        // Destinations.
        5 => vec![
            flow(0, 10, &[], &[to_table_1(Some(NatSpec::default()))]),
            flow(1, 10, &[has(EST)], &[NORMAL]),
            flow(1, 9, &[has(REL)], &[NORMAL]),
            flow(
                1,
                8,
                &[has(NEW), (Field::DlType, 0x800, 0xffff), by(b)],
                &[
                    ct(Ct {
                        nat: nat(NatEnd::Destination, "10.1.0.5-10.1.0.6", Some((53, 54))),
                        ..commit()
                    }),
                    NORMAL,
                ],
            ),
            flow(1, 7, &[has(NEW)], &[ct(commit()), NORMAL]),
        ],
        // Marks: who is marked is not forwarded by the second port.
        6 => vec![
            flow(0, 10, &[], &[to_table_1(None)]),
            flow(1, 10, &[(Field::CtMark, 1, 1), by(b)], &[]),
            flow(
                1,
                9,
                &[(Field::NwProto, 6, 0xff)],
                &[
                    ct(Ct {
                        exec: vec![Action::Set {
                            word: SetWord::SetField,
                            field: Field::CtMark,
                            value: 1,
                            mask: 0xffff_ffff,
                        }],
                        ..commit()
                    }),
                    NORMAL,
                ],
            ),
            flow(1, 1, &[], &[ct(commit()), NORMAL]),
        ],
        // Some without tracking, by fields of packets.
        7 => vec![
            flow(0, 10, &[(Field::NwTtl, 64, 0xff)], &[Action::GotoTable(3)]),
            flow(0, 9, &[(Field::NwTos, 0, 0xfc)], &[NORMAL]),
            flow(3, 10, &[(Field::IpFrag, 1, 1)], &[NORMAL]),
            flow(3, 9, &[(Field::NwProto, 17, 0xff)], &[to_table_1(None)]),
            flow(3, 8, &[], &[Action::Resubmit { in_port: None, table: Some(1) }]),
            flow(1, 1, &[], &[NORMAL]),
        ],
        // Fields are written, some of tracked packets.
        9 => vec![
            flow(
                0,
                10,
                &[(Field::DlType, 0x800, 0xffff), by(a)],
                &[set(Field::NwSrc, 0x0a02_0063), Action::DecTtl, NORMAL],
            ),
            flow(
                0,
                9,
                &[(Field::DlType, 0x800, 0xffff), (Field::NwProto, 17, 0xff)],
                &[set(Field::UdpDst, 54), set(Field::NwTos, 0), NORMAL],
            ),
            flow(0, 8, &[(Field::NwProto, 6, 0xff)], &[to_table_1(None)]),
            flow(0, 1, &[], &[set(Field::NwTtl, 3), NORMAL]),
            flow(1, 1, &[], &[ct(commit()), set(Field::TcpSrc, 9), NORMAL]),
        ],
        // Fields are written into frames.
        10 => vec![
            flow(0, 10, &[by(a)], &[set(Field::NwTos, 0x28), Action::DecTtl, Action::Output(b)]),
            flow(0, 1, &[], &[NORMAL]),
        ],
        // Destinations and then sources are translated, as routes say; the rest is told.
        11 => vec![
            flow(0, 10, &[], &[to_table_1(Some(NatSpec::default()))]),
            flow(1, 10, &[has(EST)], &[NORMAL]),
            flow(1, 9, &[has(REL)], &[NORMAL]),
            flow(
                1,
                8,
                &[has(NEW), (Field::DlType, 0x800, 0xffff), (Field::NwProto, 17, 0xff), by(b)],
                &[ct(Ct {
                    nat: nat(NatEnd::Destination, "10.1.0.5-10.1.0.6", Some((53, 54))),
                    table: Some(2),
                    ..commit()
                })],
            ),
            flow(1, 7, &[has(NEW)], &[Action::GotoTable(2)]),
            flow(
                2,
                9,
                &[(Field::DlType, 0x800, 0xffff), to(a)],
                &[
                    ct(Ct { nat: nat(NatEnd::Source, "10.2.0.1", Some((3000, 3009))), ..commit() }),
                    NORMAL,
                ],
            ),
            flow(2, 8, &[to(b)], &[ct(commit()), NORMAL]),
            flow(2, 7, &[(Field::Oif, 0xfffe, 0xffff)], &[NORMAL]),
            flow(2, 6, &[(Field::Oif, 0xffff, 0xffff)], &[Action::Unrouted]),
            flow(2, 1, &[], &[Action::Log("".into()), Action::Reject(RejectWith::TcpReset)]),
        ],
        // Tracked in the zone of the VRF and in another one, and translated in both.
        12 => vec![
            flow(0, 10, &[], &[to_table_1(Some(NatSpec::default()))]),
            flow(1, 10, &[by(b)], &[to_zone_9(2)]),
            flow(1, 9, &[has(REL)], &[to_zone_9(2)]),
            flow(
                1,
                8,
                &[has(NEW), (Field::DlType, 0x800, 0xffff), (Field::NwProto, 17, 0xff)],
                &[ct(Ct {
                    nat: nat(NatEnd::Destination, "10.1.0.5-10.1.0.6", Some((53, 54))),
                    table: Some(2),
                    ..commit()
                })],
            ),
            flow(1, 7, &[], &[ct(commit()), Action::GotoTable(2)]),
            flow(2, 9, &[untracked()], &[to_zone_9(2)]),
            flow(
                2,
                8,
                &[has(NEW), (Field::CtZone, 9, 0xffff), (Field::DlType, 0x800, 0xffff)],
                &[
                    ct(Ct {
                        zone: Zone::Number(Number::This(9)),
                        nat: nat(NatEnd::Source, "10.2.0.1", Some((3000, 3002))),
                        ..commit()
                    }),
                    NORMAL,
                ],
            ),
            flow(2, 1, &[], &[ct(Ct { zone: Zone::Number(Number::This(9)), ..commit() }), NORMAL]),
        ],
        // In two zones as frames, of which one has marks.
        13 => vec![
            flow(0, 10, &[untracked()], &[to_table_1(None)]),
            flow(1, 10, &[by(a)], &[ct(mark(9, 4)), ct(commit()), Action::Output(b)]),
            flow(1, 9, &[has(EST)], &[to_zone_9(3)]),
            flow(3, 9, &[has(EST), (Field::CtMark, 4, 4)], &[Action::Output(a)]),
            flow(3, 8, &[], &[ct(mark(9, 2))]),
        ],
        // In more zones than a packet may have.
        14 => {
            let zone = |zone| ct(Ct { zone: Zone::Number(Number::This(zone)), ..commit() });
            let mut actions: Vec<Action> = (0..5).map(zone).collect();
            actions.push(NORMAL);
            vec![flow(0, 10, &[by(a)], &actions), flow(0, 1, &[], &[NORMAL])]
        }
        // By one port twice, and routed, of which some are translated.
        15 => vec![
            flow(
                0,
                10,
                &[by(a)],
                &[
                    ct(commit()),
                    Action::Output(b),
                    set(Field::NwTos, 0x28),
                    NORMAL,
                    Action::DecTtl,
                    Action::Output(b),
                ],
            ),
            flow(
                0,
                9,
                &[(Field::DlType, 0x800, 0xffff)],
                &[
                    ct(Ct {
                        nat: nat(NatEnd::Source, "10.2.0.1", Some((3000, 3009))),
                        table: Some(1),
                        ..commit()
                    }),
                    NORMAL,
                ],
            ),
            flow(0, 1, &[], &[NORMAL, Action::InPort]),
            flow(1, 1, &[], &[Action::InPort, NORMAL]),
        ],
        // What begins on either side counts for a class, whose limits are soon reached.
        WITH_LIMITS => vec![
            flow(0, 10, &[untracked()], &[to_table_1(None)]),
            flow(
                1,
                10,
                &[has(NEW)],
                &[ct(Ct { limit: Some(Number::This(1)), ..commit() }), NORMAL],
            ),
            flow(1, 10, &[has(EST)], &[NORMAL]),
            flow(1, 5, &[has(REL)], &[NORMAL]),
        ],
        // What goes on is the packet as it was before it was translated.
        18 => vec![
            flow(0, 10, &[], &[to_table_1(None), NORMAL]),
            flow(
                1,
                10,
                &[has(EST)],
                &[ct(Ct { table: Some(2), nat: Some(NatSpec::default()), ..Ct::default() })],
            ),
            flow(
                1,
                9,
                &[has(NEW), (Field::DlType, 0x800, 0xffff)],
                &[ct(Ct {
                    nat: nat(NatEnd::Destination, "10.1.0.5-10.1.0.6", Some((53, 54))),
                    ..commit()
                })],
            ),
            flow(1, 8, &[has(NEW)], &[ct(commit())]),
            flow(2, 1, &[], &[]),
        ],
        // Sources are translated, and it is read what they become.
        19 => vec![
            flow(0, 10, &[], &[to_table_1(Some(NatSpec::default()))]),
            flow(
                1,
                9,
                &[has(NEW), (Field::DlType, 0x800, 0xffff)],
                &[ct(Ct {
                    nat: nat(NatEnd::Source, "10.2.0.1-10.2.0.2", None),
                    table: Some(2),
                    ..commit()
                })],
            ),
            flow(1, 1, &[], &[NORMAL]),
            flow(2, 9, &[(Field::NwSrc, 0x0a02_0001, 0xffff_ffff)], &[Action::Output(b)]),
            flow(2, 1, &[], &[NORMAL]),
        ],
        // What begins at the first port has a label and is translated, as of a firewall, and only what has one
        // is answered.
        20 => vec![
            flow(0, 10, &[], &[to_table_1(Some(NatSpec::default()))]),
            flow(1, 20, &[has(EST), LABELLED], &[NORMAL]),
            flow(1, 19, &[has(CtState(NEW.0 | REL.0)), LABELLED], &[ct(commit()), NORMAL]),
            labelled_and_translated(),
            flow(1, 8, &[has(NEW), by(a)], &[ct(labelled(commit())), NORMAL]),
        ],
        // Answers begin connections anew.
        21 => vec![
            flow(0, 10, &[], &[to_table_1(Some(NatSpec::default()))]),
            flow(1, 20, &[has(EST), by(b), LABELLED], &[NORMAL]),
            flow(1, 19, &[has(RPL)], &[ct(labelled(Ct { force: true, ..commit() })), NORMAL]),
            flow(1, 10, &[(Field::NwProto, 6, 0xff), by(a)], &[ct(labelled(commit())), NORMAL]),
            flow(1, 9, &[], &[ct(Ct { force: true, ..commit() }), NORMAL]),
        ],
        // Connections with a label are held to their ports, and some end if routes lead elsewhere.
        22 => vec![
            flow(0, 10, &[], &[to_table_1(Some(NatSpec::default()))]),
            flow(1, 20, &[has(EST), LABELLED], &[Action::GotoTable(2)]),
            flow(1, 19, &[has(REL), LABELLED], &[Action::GotoTable(2)]),
            labelled_and_translated(),
            flow(1, 8, &[has(NEW)], &[ct(labelled(commit())), NORMAL]),
            flow(2, 9, &[by(a), to(b)], &[NORMAL]),
            flow(2, 8, &[by(b), to(a)], &[NORMAL]),
            flow(2, 7, &[has(RPL)], &[Action::Rerouted { ends: false }]),
            flow(2, 6, &[(Field::NwProto, 6, 0xff)], &[Action::Rerouted { ends: false }]),
            flow(2, 1, &[], &[Action::Rerouted { ends: true }]),
        ],
        // Helpers read what is said, and what is announced may come.
        23 => helped(vrf, None, NORMAL),
        // The same, and sources are translated, by few ports.
        24 => helped(vrf, nat(NatEnd::Source, "10.2.0.1", Some((3000, 3009))), NORMAL),
        // The same, and what is announced goes on as a frame.
        25 => helped(vrf, nat(NatEnd::Source, "10.2.0.1-10.2.0.2", None), Action::Output(a)),
        // A second zone for what no more is asked of, and two outputs.
        _ => vec![
            flow(
                0,
                10,
                &[by(a)],
                &[
                    ct(Ct { zone: Zone::Number(Number::This(9)), ..Ct::default() }),
                    to_table_1(None),
                ],
            ),
            flow(0, 9, &[by(b)], &[Action::Output(a), NORMAL]),
            flow(1, 1, &[], &[NORMAL]),
        ],
    }
}

/// Connections whose payloads are read, translated so if they are IPv4's, and what they announce.
fn helped(vrf: VrfId, nat: Option<NatSpec>, announced: Action) -> Vec<Flow> {
    let flow = |priority, conditions: &[Condition], actions: &[Action]| {
        flow(vrf, (1, priority), conditions, actions)
    };
    let opens = |alg, nat| ct(Ct { alg: Some(alg), nat, ..commit() });
    let (tcp, udp) = ((Field::NwProto, 6, 0xff), (Field::NwProto, 17, 0xff));
    let v4 = (Field::DlType, 0x800, 0xffff);
    let expected = has(CtState(NEW.0 | REL.0));
    let again = ct(Ct { nat: Some(NatSpec::default()), ..commit() });
    vec![
        self::flow(vrf, (0, 10), &[], &[to_table_1(Some(NatSpec::default()))]),
        flow(9, &[expected], &[again, announced]),
        flow(8, &[has(EST)], &[NORMAL]),
        flow(8, &[has(REL)], &[NORMAL]),
        flow(7, &[has(NEW), v4, tcp], &[opens(Alg::Ftp, nat.clone()), NORMAL]),
        flow(6, &[has(NEW), v4, udp], &[opens(Alg::Tftp, nat), NORMAL]),
        flow(5, &[has(NEW), tcp], &[opens(Alg::Ftp, None), NORMAL]),
        flow(4, &[has(NEW), udp], &[opens(Alg::Tftp, None), NORMAL]),
    ]
}
