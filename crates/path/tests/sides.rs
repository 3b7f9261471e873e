//! The IPsec boundary: every combination of where a packet comes from, where it leaves, what
//! policies say of it and what the defaults are, held against RFC 4301 in a few lines.

mod fixture;

use fixture::*;
use packet::DropReason;
use path::{Decision, Verdict, decide};
use tables::{
    Action, DefaultAction, Direction, Ike, Ipsec, PortSpec, ReversePath, Side, Tables, Template,
};
use wire::{
    Addresses, FlowKey, FragmentClass, Origin, PacketFields, PortId, Protocol, SaSlot, Spi, Upper,
    VrfId,
};

/// Where a packet comes from.
#[derive(Clone, Copy, Debug, PartialEq)]
enum From {
    Port(Side),
    Decrypted,
    /// The gateway itself: an answer, an error that goes back by the port that it is about, one
    /// that does not, and something about a packet that was protected.
    Answer,
    ErrorBack,
    ErrorElsewhere,
    AboutProtected,
}

/// What a direction's policies say of a packet.
type Said = Option<PolicyKind>;

#[derive(Clone, Copy, Debug, PartialEq)]
enum PolicyKind {
    Bypass,
    Discard,
    Protect,
}

use PolicyKind::{Bypass, Discard, Protect};

const SAID: [Said; 4] = [None, Some(Bypass), Some(Discard), Some(Protect)];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    Dropped,
    Clear,
    Sealed,
}

/// RFC 4301 section 5, each direction by itself, with the two defaults that do not apply where
/// nobody says on which side a port is. `exit` is none where no route leads.
fn model(from: From, exit: Option<Side>, inbound: Said, out: Said, accept: [bool; 2]) -> Fate {
    let is_own = !matches!(from, From::Port(_) | From::Decrypted);
    let owes_in = !is_own && from != From::Port(Side::Protected);
    let owes_out = exit != Some(Side::Protected);
    let out = if owes_out { out } else { Some(Bypass) };
    let enters = match (owes_in, from == From::Decrypted, inbound) {
        (false, ..) | (_, false, Some(Bypass)) | (_, true, Some(Protect)) => true,
        (_, false, None) => accept[0] || (from == From::Port(Side::Unset) && out == Some(Protect)),
        _ => false,
    };
    let leaves_clear = match (out, from) {
        (Some(Discard | Protect), _) => false,
        (_, From::AboutProtected) => !owes_out,
        (Some(Bypass), _) | (None, From::ErrorBack) => true,
        (None, From::Decrypted) => accept[1] || exit != Some(Side::Unprotected),
        (None, _) => accept[1],
    };
    match (enters, out) {
        (false, _) | (_, Some(Discard)) => Fate::Dropped,
        (true, Some(Protect)) => Fate::Sealed,
        (true, _) if leaves_clear => Fate::Clear,
        (true, _) => Fate::Dropped,
    }
}

const INSIDE: PortId = PortId(0);
const OUTSIDE: PortId = PortId(1);
const HERE: &str = "192.168.13.5";
const THERE: &str = "10.9.9.9";

/// Packets from a host on the link of the port 0 to one behind the port 1, and a tunnel by a third.
struct Case {
    from: From,
    exit: Option<Side>,
    inbound: Said,
    fwd: Option<Said>,
    out: Said,
    accept: [bool; 3],
}

impl Case {
    fn tables(&self) -> Tables {
        let mut tables = plain_tables();
        let spec = tables.port(WAN).unwrap().spec.clone();
        let addresses = vec![prefix("203.0.113.2/24")];
        let uplink = PortSpec { name: "uplink".into(), addresses, ..spec };
        tables.add_port(PortId(2), uplink).unwrap();
        tables.set_neighbour(PortId(2), ip("203.0.113.1"), PEER_MAC).unwrap();
        let side = match self.from {
            From::Port(side) => side,
            _ => Side::Unset,
        };
        set_side(&mut tables, INSIDE, side);
        match self.exit {
            Some(side) => set_side(&mut tables, OUTSIDE, side),
            None => _ = tables.remove_route(VrfId::MAIN, prefix("0.0.0.0/0")).unwrap(),
        }
        add_sa(&mut tables, "203.0.113.2", "203.0.113.1", 7, false);
        for (direction, accept) in Direction::ALL.into_iter().zip(self.accept) {
            let action = if accept { DefaultAction::Accept } else { DefaultAction::Block };
            tables.set_default_action(VrfId::MAIN, direction, action).unwrap();
        }
        // One that matches nothing here, so that there are policies, and `fwd` ones where wanted.
        let nothing = |direction| policy(direction, "198.51.100.1", "198.51.100.2", Action::Bypass);
        tables.add_policy(nothing(Direction::In)).unwrap();
        let fwd = self.fwd.inspect(|_| _ = tables.add_policy(nothing(Direction::Fwd)).unwrap());
        for (direction, said) in [
            (Direction::In, self.inbound),
            (Direction::Fwd, fwd.flatten()),
            (Direction::Out, self.out),
        ] {
            let action = match said {
                None => continue,
                Some(Bypass) => Action::Bypass,
                Some(Discard) => Action::Discard,
                Some(Protect) => Action::Protect(template("203.0.113.2", "203.0.113.1")),
            };
            tables.add_policy(policy(direction, HERE, THERE, action)).unwrap();
        }
        tables
    }

    fn key(&self) -> FlowKey {
        let origin = match self.from {
            From::Port(_) => Origin::Port(INSIDE),
            From::Decrypted => Origin::Sa(SLOT),
            From::Answer => Origin::Host,
            From::ErrorBack => Origin::HostError(OUTSIDE),
            From::ErrorElsewhere => Origin::HostError(INSIDE),
            From::AboutProtected => Origin::HostProtected,
        };
        FlowKey {
            vrf: VrfId::MAIN,
            origin,
            addresses: Addresses::V4 { source: v4(HERE), destination: v4(THERE) },
            protocol: Protocol::UDP,
            fragment: FragmentClass::Whole,
            upper: Upper::Ports { source: 1000, destination: 2000 },
            fields: PacketFields::NONE,
        }
    }
}

const SLOT: SaSlot = SaSlot(0);

fn fate(decision: Decision) -> Fate {
    match decision.verdict() {
        Verdict::Forward(_) => Fate::Clear,
        // Who is told that there is no route would have left in clear.
        Verdict::Refuse(DropReason::NoRoute, _) => Fate::Clear,
        Verdict::Protect(..) => Fate::Sealed,
        Verdict::Drop(_) => Fate::Dropped,
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_combination_is_as_rfc_4301_has_it() {
    let froms = Side::ALL.map(From::Port).into_iter().chain([
        From::Decrypted,
        From::Answer,
        From::ErrorBack,
        From::ErrorElsewhere,
        From::AboutProtected,
    ]);
    let (mut count, mut seen) = (0, [0; 3]);
    for from in froms {
        for exit in Side::ALL.map(Some).into_iter().chain([None]) {
            if from == From::ErrorBack && exit.is_none() {
                continue;
            }
            for inbound in SAID {
                for fwd in SAID.map(Some).into_iter().chain([None]) {
                    for out in SAID {
                        for bits in 0..8 {
                            let accept = [bits & 1 > 0, bits & 2 > 0, bits & 4 > 0];
                            let case = Case { from, exit, inbound, fwd, out, accept };
                            // Linux's `fwd` is asked where there is one.
                            let asked = fwd.unwrap_or(inbound);
                            let [accept_in, accept_out, accept_fwd] = accept;
                            let entry = if fwd.is_some() { accept_fwd } else { accept_in };
                            let expected = model(from, exit, asked, out, [entry, accept_out]);
                            let (found, _) = decide(&case.key(), &case.tables(), None, &mut ());
                            assert_eq!(
                                fate(found),
                                expected,
                                "{from:?} by {exit:?}: in {inbound:?} fwd {fwd:?} out {out:?} accept \
                                {accept:?}: {found:?}"
                            );
                            count += 1;
                            seen[expected as usize] += 1;
                        }
                    }
                }
            }
        }
    }
    assert_eq!(count, (8 * 4 - 1) * 4 * 5 * 4 * 8);
    assert!(seen.iter().all(|seen| *seen > count / 20), "{seen:?}");
}

/// What leaked: three defaults that block, one policy that matches everything.
#[test]
fn one_direction_does_not_speak_for_the_other() {
    for (inside, outside) in [(Side::Unset, Side::Unset), (Side::Unset, Side::Unprotected)] {
        for said in [(Some(Bypass), None), (None, Some(Bypass))] {
            let case = Case {
                from: From::Port(inside),
                exit: Some(outside),
                inbound: said.0,
                fwd: None,
                out: said.1,
                accept: [false; 3],
            };
            let (decision, _) = decide(&case.key(), &case.tables(), None, &mut ());
            assert_eq!(decision.verdict(), Verdict::Drop(DropReason::PolicyNoMatch), "{said:?}");
        }
    }
}

/// A port without a side is unprotected while a tunnel ends in an address of it, or leaves by it.
#[test]
fn the_unprotected_side_follows_the_tunnels() {
    let mut tables = plain_tables();
    let sides = |tables: &Tables| [LAN, WAN].map(|port| tables.port(port).unwrap().side);
    set_side(&mut tables, LAN, Side::Unset);
    assert_eq!(sides(&tables), [Side::Unset; 2]);
    add_sa(&mut tables, "192.168.11.2", "192.168.11.1", 7, false);
    assert_eq!(sides(&tables), [Side::Unset, Side::Unprotected]);
    assert_eq!(tables.tunnel_end_at(WAN), Some(ip("192.168.11.1")));
    tables.remove_sa(VrfId::MAIN, ip("192.168.11.1"), Spi(7)).unwrap();
    assert_eq!(sides(&tables), [Side::Unset; 2]);
    // The remote end alone, far away: by the route, and by the one that replaces it.
    let mut spec = policy(Direction::Out, HERE, THERE, Action::Bypass);
    spec.action =
        Action::Protect(Template { source: None, ..template("192.168.11.2", "198.51.100.7") });
    let index = tables.add_policy(spec).unwrap();
    assert_eq!(sides(&tables), [Side::Unset, Side::Unprotected]);
    let via = tables::RouteSpec::Via { port: LAN, address: ip("192.168.13.9") };
    tables.set_route(VrfId::MAIN, prefix("198.51.100.0/24"), via).unwrap();
    assert_eq!(sides(&tables), [Side::Unprotected, Side::Unset]);
    tables.remove_route(VrfId::MAIN, prefix("198.51.100.0/24")).unwrap();
    assert_eq!(sides(&tables), [Side::Unset, Side::Unprotected]);
    // What is said counts.
    set_side(&mut tables, WAN, Side::Protected);
    assert_eq!(sides(&tables), [Side::Unset, Side::Protected]);
    set_side(&mut tables, WAN, Side::Unset);
    tables.remove_policy(index).unwrap();
    assert_eq!(sides(&tables), [Side::Unset; 2]);
}

/// A VRF that had policies forwards nothing while it has none, until it is told that it need not
/// have any.
#[test]
fn no_policies_is_no_permission() {
    let mut gateway = Gateway::new(plain_tables());
    gateway.change(|tables| set_side(tables, LAN, Side::Unset));
    let packet = udp(HERE, THERE, (1000, 2000), 40);
    gateway.receive(LAN, &packet);
    assert_eq!(gateway.sent(WAN).len(), 1, "a plain router");
    let all = policy(Direction::Out, "0.0.0.0/0", "0.0.0.0/0", Action::Bypass);
    let mut index = 0;
    gateway.change(|tables| index = tables.add_policy(all).unwrap());
    gateway.change(|tables| _ = tables.remove_policy(index).unwrap());
    gateway.receive(LAN, &packet);
    assert_eq!(gateway.sent(WAN).len(), 0);
    assert_eq!(gateway.dropped(DropReason::IpsecClosed), 1);
    gateway.receive(LAN, &echo(HERE, "192.168.13.1", 8));
    assert_eq!(gateway.sent(LAN).len(), 1, "it answers");
    // Inside one side nothing crosses the boundary.
    gateway.change(|tables| {
        set_side(tables, LAN, Side::Protected);
        set_side(tables, WAN, Side::Protected);
    });
    gateway.receive(LAN, &packet);
    assert_eq!(gateway.sent(WAN).len(), 1);
    gateway.change(|tables| {
        set_side(tables, WAN, Side::Unset);
        tables.set_ipsec(VrfId::MAIN, Ipsec::Auto).unwrap();
    });
    gateway.receive(LAN, &packet);
    assert_eq!(gateway.sent(WAN).len(), 1, "it may be a plain router again");
    gateway.change(|tables| tables.set_ipsec(VrfId::MAIN, Ipsec::Off).unwrap());
    gateway.change(|tables| assert!(tables.add_policy(all).is_err()));
    gateway.assert_nothing_lost();
}

/// Clear packets from outside do not speak for stations inside, nor for the gateway.
#[test]
fn sources_that_lie_are_dropped() {
    let mut gateway = Gateway::new(plain_tables());
    gateway.change(|tables| set_side(tables, WAN, Side::Unprotected));
    let to = "192.168.13.5";
    for (source, reason) in [
        ("192.168.13.77", Some(DropReason::SourceProtected)),
        ("192.168.13.1", Some(DropReason::SourceOwn)),
        ("192.168.11.2", Some(DropReason::SourceOwn)),
        ("192.168.13.255", Some(DropReason::SourceOwn)),
        ("192.168.11.255", Some(DropReason::SourceOwn)),
        ("203.0.113.9", None),
    ] {
        let before = reason.map(|reason| gateway.dropped(reason));
        gateway.receive(WAN, &udp(source, to, (1, 2), 20));
        assert_eq!(gateway.sent(LAN).len(), usize::from(reason.is_none()), "{source}");
        assert_eq!(reason.map(|reason| gateway.dropped(reason)), before.map(|count| count + 1));
    }
    // From inside the same source is right, and what the routes do not say is not asked.
    gateway.receive(LAN, &udp("192.168.13.77", THERE, (1, 2), 20));
    gateway.receive(LAN, &udp("203.0.113.9", THERE, (1, 2), 20));
    assert_eq!(gateway.sent(WAN).len(), 2);
    gateway.assert_nothing_lost();
}

/// RFC 3704, with a route by one port, one by both, and none.
#[test]
fn reverse_paths() {
    let via = |port, address: &str| tables::RouteSpec::Via { port, address: ip(address) };
    let by_lan = ("10.1.0.9", via(LAN, "192.168.13.5"), [true, true, true]);
    let members = [(LAN, "192.168.13.5"), (WAN, "192.168.11.1")];
    let members = members.map(|(port, address)| {
        let address = Some(ip(address));
        tables::MemberSpec { port, address, onlink: false, weight: 1 }
    });
    let by_both = ("10.1.0.9", tables::RouteSpec::Multipath(members.into()), [true, true, false]);
    let by_wan = ("10.1.0.9", via(WAN, "192.168.11.1"), [true, false, false]);
    let nowhere = ("10.1.0.9", tables::RouteSpec::Blackhole, [false, false, false]);
    for (source, route, passes) in [by_lan, by_both, by_wan, nowhere] {
        let modes = [ReversePath::Loose, ReversePath::Feasible, ReversePath::Strict];
        for (mode, passes) in modes.into_iter().zip(passes).chain([(ReversePath::Off, true)]) {
            let mut tables = plain_tables();
            tables.set_route(VrfId::MAIN, prefix("10.1.0.0/24"), route.clone()).unwrap();
            let spec = tables.port(LAN).unwrap().spec.clone();
            tables.update_port(LAN, PortSpec { reverse_path: mode, ..spec }).unwrap();
            let mut gateway = Gateway::new(tables);
            gateway.receive(LAN, &udp(source, THERE, (1, 2), 20));
            let dropped = gateway.dropped(DropReason::ReversePath);
            let sent = gateway.sent(WAN).len();
            assert_eq!(
                (sent, dropped),
                (usize::from(passes), u64::from(!passes)),
                "{mode} {route:?}"
            );
        }
    }
}

/// IKE needs no policy, and its sender is not told that nothing listens here.
#[test]
fn ike_is_for_the_key_daemon() {
    let mut gateway = Gateway::new(tunnel_tables(("192.168.11.2", "192.168.11.1"), false));
    for port in [500, 4500] {
        gateway.receive(WAN, &udp("192.168.11.1", "192.168.11.2", (port, port), 40));
    }
    assert_eq!((gateway.dropped(DropReason::LocalIke), gateway.sent(WAN).len()), (2, 0));
    gateway.receive(WAN, &udp("192.168.11.1", "192.168.11.2", (500, 501), 40));
    assert_eq!(gateway.dropped(DropReason::PolicyNoMatch), 1);
    gateway.assert_nothing_lost();
}

/// With `ike = "policy"` IKE is judged as anything else for the gateway, from the next packet on.
#[test]
fn ike_may_be_asked_policies() {
    let mut gateway = Gateway::new(tunnel_tables(("192.168.11.2", "192.168.11.1"), false));
    let ike = udp("192.168.11.1", "192.168.11.2", (500, 500), 40);
    let other = udp("192.168.11.1", "192.168.11.2", (500, 501), 40);
    let counts = |gateway: &Gateway| {
        [DropReason::LocalIke, DropReason::PolicyNoMatch].map(|reason| gateway.dropped(reason))
    };
    gateway.receive(WAN, &ike);
    gateway.receive(WAN, &other);
    assert_eq!(counts(&gateway), [1, 1]);
    gateway.change(|tables| tables.set_ike(VrfId::MAIN, Ike::Policy).unwrap());
    gateway.receive(WAN, &ike);
    assert_eq!(counts(&gateway), [1, 2]);
    let mut index = 0;
    gateway.change(|tables| {
        let mut spec = policy(Direction::In, "192.168.11.1", "192.168.11.2", Action::Bypass);
        spec.priority = 1;
        index = tables.add_policy(spec).unwrap();
    });
    gateway.receive(WAN, &ike);
    assert_eq!(counts(&gateway), [2, 2]);
    gateway.change(|tables| _ = tables.remove_policy(index).unwrap());
    gateway.receive(WAN, &ike);
    assert_eq!(counts(&gateway), [2, 3]);
    gateway.change(|tables| tables.set_ike(VrfId::MAIN, Ike::Bypass).unwrap());
    gateway.receive(WAN, &ike);
    assert_eq!(counts(&gateway), [3, 3]);
    gateway.assert_nothing_lost();
}

/// The usual four lines, and nothing about sides: the tunnel works both ways, and in clear nothing
/// passes that it is for.
fn four_lines_work(gateway: &mut Gateway, outer: (&str, &str)) {
    let (here, there) = ("192.168.13.5", "192.168.12.7");
    gateway.receive(LAN, &udp(here, there, (1, 2), 20));
    let (_, sealed) = gateway.sent_one(WAN);
    assert_eq!(open(&peer_inbound(0x1001, false), &sealed)[16..20], [192, 168, 12, 7]);
    let peer = peer_outbound(0x1002, false);
    let inner = udp(there, here, (2, 1), 20);
    gateway.receive(WAN, &seal(&peer, outer.1, outer.0, &inner));
    assert_eq!(gateway.sent(LAN).len(), 1, "{:?}", gateway.drops());
    // In clear, from either side, with a source of either.
    for (port, source, destination) in [
        (WAN, there, here),
        (WAN, "203.0.113.9", here),
        (WAN, here, there),
        (LAN, here, "203.0.113.9"),
    ] {
        gateway.receive(port, &udp(source, destination, (1, 2), 20));
        assert_eq!((gateway.sent(LAN), gateway.sent(WAN)), (vec![], vec![]), "{source} {port:?}");
    }
    gateway.assert_nothing_lost();
}

#[test]
fn the_usual_four_lines() {
    let outer = ("192.168.11.2", "192.168.11.1");
    let mut tables = tunnel_tables(outer, false);
    set_side(&mut tables, LAN, Side::Unset);
    four_lines_work(&mut Gateway::new(tables), outer);
}

/// The tunnel ends in an address of a port of its own, that no packet passes.
#[test]
fn a_tunnel_that_ends_in_a_loopback_address() {
    let outer = ("203.0.113.254", "192.168.11.1");
    let mut tables = tunnel_tables(outer, false);
    set_side(&mut tables, LAN, Side::Unset);
    let lan = tables.port(LAN).unwrap().spec.clone();
    let addresses = vec![prefix("203.0.113.254/32")];
    tables.add_port(PortId(7), PortSpec { name: "lo".into(), addresses, ..lan }).unwrap();
    let sides = [LAN, WAN, PortId(7)].map(|port| tables.port(port).unwrap().side);
    assert_eq!(sides, [Side::Unset, Side::Unprotected, Side::Unprotected]);
    four_lines_work(&mut Gateway::new(tables), outer);
}

/// The remote end is reached by another port after a while.
#[test]
fn failover_to_a_second_uplink() {
    let outer = ("192.168.11.2", "198.51.100.1");
    let mut tables = tunnel_tables(outer, false);
    set_side(&mut tables, LAN, Side::Unset);
    let wan = tables.port(WAN).unwrap().spec.clone();
    let addresses = vec![prefix("203.0.113.2/24")];
    let backup = PortId(7);
    tables.add_port(backup, PortSpec { name: "backup".into(), addresses, ..wan }).unwrap();
    let side = |tables: &Tables| tables.port(backup).unwrap().side;
    assert_eq!(side(&tables), Side::Unset);
    let via = |port, address| tables::RouteSpec::Via { port, address: ip(address) };
    let far = prefix("198.51.100.0/24");
    tables.set_route(VrfId::MAIN, far, via(backup, "203.0.113.1")).unwrap();
    assert_eq!(side(&tables), Side::Unprotected);
    // What comes in clear by the new one is from outside now.
    let mut gateway = Gateway::new(tables);
    gateway.change(|tables| _ = tables.remove_route(VrfId::MAIN, far).unwrap());
    assert_eq!(side(&gateway.publisher.current()), Side::Unset);
    four_lines_work(&mut gateway, outer);
}

/// One port for both sides: it is outside, since the tunnel leaves by it, and what stations beside
/// it send to the tunnel and get from it needs policies that say so.
#[test]
fn a_gateway_with_one_arm() {
    let mut tables = tunnel_tables(("192.168.11.2", "192.168.11.1"), false);
    tables.remove_port(LAN).unwrap();
    let spec = tables.port(WAN).unwrap().spec.clone();
    let addresses = [&spec.addresses[..], &[prefix("192.168.13.1/24")]].concat();
    tables.update_port(WAN, PortSpec { addresses, ..spec }).unwrap();
    tables.set_neighbour(WAN, ip("192.168.13.5"), HOST_MAC).unwrap();
    let mut gateway = Gateway::new(tables);
    let (here, there) = ("192.168.13.5", "192.168.12.7");
    let going = udp(here, there, (1, 2), 20);
    gateway.receive(WAN, &going);
    assert_eq!((gateway.sent(WAN).len(), gateway.dropped(DropReason::PolicyNoMatch)), (0, 1));
    gateway.change(|tables| {
        let (mine, theirs) = ("192.168.13.0/24", "192.168.12.0/24");
        tables.add_policy(policy(Direction::In, mine, theirs, Action::Bypass)).unwrap();
        tables.add_policy(policy(Direction::Out, theirs, mine, Action::Bypass)).unwrap();
    });
    gateway.receive(WAN, &going);
    let (to, sealed) = gateway.sent_one(WAN);
    assert_eq!((to, sealed[9]), (PEER_MAC, Protocol::ESP.0));
    let inner = udp(there, here, (2, 1), 20);
    let peer = peer_outbound(0x1002, false);
    gateway.receive(WAN, &seal(&peer, "192.168.11.1", "192.168.11.2", &inner));
    assert_eq!(gateway.sent_one(WAN).0, HOST_MAC);
    gateway.receive(WAN, &inner);
    assert_eq!(gateway.dropped(DropReason::PolicyClear), 1);
    gateway.assert_nothing_lost();
}

/// What comes by the protected side owes no inbound policy: half a datagram of the other side does.
#[test]
fn fragments_of_both_sides_are_no_datagram() {
    let pieces = pieces_of(&echo("198.51.100.7", "192.168.13.1", 100), 68);
    let [first, rest @ ..] = &pieces[..] else { panic!("it is cut") };
    for (side, second, expected) in [
        (Side::Unset, LAN, 1),
        (Side::Unset, WAN, 0),
        (Side::Unprotected, WAN, 0),
        (Side::Protected, WAN, 1),
    ] {
        let mut tables = plain_tables();
        set_side(&mut tables, WAN, side);
        Direction::ALL.into_iter().for_each(|direction| accept(&mut tables, direction));
        let mut gateway = Gateway::new(tables);
        gateway.receive(LAN, first);
        rest.iter().for_each(|piece| gateway.receive(second, piece));
        assert_eq!(gateway.sent(WAN).len(), expected, "{side:?} {second:?}");
    }
}
