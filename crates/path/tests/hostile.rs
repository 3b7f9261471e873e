//! Senders that mean harm: what they send must not harm anybody else.

mod fixture;

use fixture::*;
use packet::DropReason;
use tables::{Action, Direction, RouteKind};
use wire::{VrfId, headers};

/// The gateway and its peer.
const OUTER: (&str, &str) = ("192.168.11.2", "192.168.11.1");

#[test]
fn packets_to_nobody_leave_buffers_for_everybody_else() {
    let mut tables = plain_tables();
    let mut spec = tables.port(LAN).unwrap().spec.clone();
    spec.addresses = vec![prefix("10.0.0.1/8")];
    tables.update_port(LAN, spec).unwrap();
    let mut gateway = Gateway::new(tables);
    for host in 0..200 {
        for _ in 0..40 {
            gateway.receive(WAN, &udp("8.8.8.8", &format!("10.1.1.{host}"), (1, 2), 10));
        }
        gateway.sent(LAN);
    }
    // The other port still resolves next hops, and packets still pass.
    gateway.change(|tables| _ = tables.remove_neighbour(WAN, ip("192.168.11.1")).unwrap());
    gateway.receive(LAN, &udp("10.0.0.5", "8.8.8.8", (1, 2), 10));
    gateway.sent_one(WAN);
    gateway.change(|tables| tables.set_neighbour(WAN, ip("192.168.11.1"), PEER_MAC).unwrap());
    gateway.poll();
    gateway.sent_one(WAN);
    assert!(gateway.worker.held() <= BUFFERS / 4, "{} held", gateway.worker.held());
    gateway.assert_nothing_lost();
}

/// The gateway of [`tunnel_tables`], with one tunnel for all of IPv6 and a peer that sends through it.
fn all_v6_through_the_tunnel() -> (Gateway, esp::OutboundSa) {
    let mut tables = tunnel_tables(OUTER, false);
    let mine = Action::Protect(template(OUTER.0, OUTER.1));
    let theirs = Action::Protect(template(OUTER.1, OUTER.0));
    tables.add_policy(policy(Direction::Out, "::/0", "::/0", mine)).unwrap();
    tables.add_policy(policy(Direction::In, "::/0", "::/0", theirs)).unwrap();
    (Gateway::new(tables), peer_outbound(0x1002, false))
}

#[test]
fn what_came_protected_is_not_answered_in_clear_on_the_link() {
    let (mut gateway, peer) = all_v6_through_the_tunnel();
    for inner in [echo("fe80::99", "fd13::1", 56), udp("fe80::99", "fd13::1", (1, 2), 56)] {
        gateway.receive(WAN, &seal(&peer, OUTER.1, OUTER.0, &inner));
        assert_eq!(gateway.sent(WAN), [], "neither an answer nor a question for its neighbour");
    }
    assert_eq!(gateway.dropped(DropReason::LinkLocal), 2);
    gateway.assert_nothing_lost();
}

#[test]
fn an_error_about_a_protected_packet_comes_from_an_address_that_is_known_there() {
    let (mut gateway, peer) = all_v6_through_the_tunnel();
    gateway.change(|tables| {
        let mut spec = tables.port(LAN).unwrap().spec.clone();
        spec.addresses.sort_by_key(|own| std::cmp::Reverse(own.address()));
        assert!(spec.addresses[0].to_string().starts_with("fe80:"));
        tables.update_port(LAN, spec).unwrap();
    });
    let mut inner = udp("2001:db8::7", "fd13::5", (53, 5000), 10);
    inner[7] = 1;
    gateway.receive(WAN, &seal(&peer, OUTER.1, OUTER.0, &inner));
    let error = open(&peer_inbound(0x1001, false), &gateway.sent_one(WAN).1);
    assert_eq!(headers::parse(&error).unwrap().addresses, addresses(ip("fd13::1"), ip("2001:db8::7")));
    gateway.assert_nothing_lost();
}

#[test]
fn link_local_addresses_and_groups_are_no_way_around_policies() {
    let mut gateway = Gateway::new(plain_tables());
    let own = gateway.publisher.current().port(LAN).unwrap().link_local().unwrap().to_string();
    gateway.change(|tables| tables.set_neighbour(LAN, ip("fe80::5"), HOST_MAC).unwrap());
    for (to, answers) in [(own.as_str(), 1), ("ff02::1", 1), ("224.0.0.1", 0)] {
        let from = if to.contains(':') { "fe80::5" } else { "192.168.13.5" };
        gateway.receive(LAN, &echo(from, to, 8));
        assert_eq!(gateway.sent(LAN).len(), answers, "{to} without policies");
    }
    assert_eq!(gateway.dropped(DropReason::LocalIcmp), 1);
    assert_eq!(gateway.worker.statistics().echo_replies.read(), 2);
    gateway.change(|tables| {
        tables.add_policy(policy(Direction::In, "::/0", "::/0", Action::Discard)).unwrap();
        tables.add_policy(policy(Direction::In, "0.0.0.0/0", "0.0.0.0/0", Action::Discard)).unwrap();
    });
    for (from, to) in [("fe80::5", own.as_str()), ("fe80::5", "ff02::1"), ("192.168.13.5", "224.0.0.1")] {
        gateway.receive(LAN, &echo(from, to, 8));
        assert_eq!(gateway.sent(LAN), [], "{to}");
    }
    assert_eq!(gateway.dropped(DropReason::PolicyDiscard), 3);
    gateway.assert_nothing_lost();
}

#[test]
fn link_local_destinations_of_ipv4_are_not_forwarded() {
    let mut gateway = Gateway::new(plain_tables());
    gateway.receive(LAN, &udp("192.168.13.5", "169.254.169.254", (1, 80), 10));
    assert_eq!(gateway.sent(WAN), []);
    assert_eq!(gateway.dropped(DropReason::LinkLocal), 1);
    gateway.assert_nothing_lost();
}

#[test]
fn routes_that_refuse_tell_only_whom_policies_let_in() {
    let mut tables = tunnel_tables(OUTER, false);
    tables.set_route(VrfId::MAIN, prefix("192.168.13.128/25"), RouteKind::Unreachable).unwrap();
    let mut gateway = Gateway::new(tables);
    let from_there = udp("192.168.12.7", "192.168.13.200", (1, 2), 10);
    gateway.receive(WAN, &from_there);
    assert_eq!((gateway.sent(WAN), gateway.dropped(DropReason::PolicyClear)), (vec![], 1));
    let peer = peer_outbound(0x1002, false);
    gateway.receive(WAN, &seal(&peer, OUTER.1, OUTER.0, &from_there));
    let error = open(&peer_inbound(0x1001, false), &gateway.sent_one(WAN).1);
    assert_eq!(headers::parse(&error).unwrap().addresses.destination(), ip("192.168.12.7"));
    // Without policies, nothing decrypted is let in, and nothing of it told in clear.
    gateway.change(|tables| {
        let indexes: Vec<_> = Direction::ALL
            .iter()
            .flat_map(|direction| tables.vrf(VrfId::MAIN).unwrap().spd.policies(*direction))
            .map(|policy| policy.index)
            .collect();
        indexes.into_iter().for_each(|index| _ = tables.remove_policy(index).unwrap());
    });
    gateway.receive(WAN, &seal(&peer, OUTER.1, OUTER.0, &from_there));
    assert_eq!((gateway.sent(WAN), gateway.dropped(DropReason::PolicyWrongSelector)), (vec![], 1));
    gateway.assert_nothing_lost();
}
