//! ICMP errors about what a tunnel brought are from an address from which the tunnel leads back.

#[path = "fixture/built.rs"]
mod built;
mod fixture;

use core::time::Duration;

use built::flow;
use fixture::*;
use pipeline::{Action, Field};
use tables::Tables;
use types::RejectWith;
use wire::{Upper, headers};

const OUTER: (&str, &str) = ("192.168.11.2", "192.168.11.1");
/// Who sends, a station that does not answer, and the address of ours that the tunnel's policies cover.
const INNER: [[&str; 3]; 2] =
    [["192.168.12.7", "192.168.13.77", "192.168.13.1"], ["fd12::7", "fd13::77", "fd13::1"]];

fn tables() -> Tables {
    tunnel_tables(OUTER, false)
}

fn receive(gateway: &mut Gateway, [sender, to, _]: [&str; 3]) {
    let inner = udp(sender, to, (53, 5000), 100);
    gateway.receive(WAN, &seal(&peer_outbound(0x1002, false), OUTER.1, OUTER.0, &inner));
}

/// The error that the sender gets, by the tunnel.
fn assert_told(gateway: &mut Gateway, [sender, _, own]: [&str; 3]) {
    let (_, sent) = gateway.sent_one(WAN);
    let error = open(&peer_inbound(0x1001, false), &sent);
    let parsed = headers::parse(&error).unwrap();
    assert_eq!(parsed.addresses, addresses(ip(own), ip(sender)));
    assert!(matches!(parsed.upper, Upper::Icmp { kind: 1 | 3, .. }));
    gateway.assert_nothing_lost();
}

#[test]
fn about_what_flows_reject() {
    for inner in INNER {
        let reject = |kind: u128| {
            let of_kind = [(Field::DlType, kind, 0xffff), (Field::NwProto, 17, 0xff)];
            flow(0, 2, &of_kind, &[Action::Reject(RejectWith::AdminProhibited)])
        };
        let flows = vec![reject(0x0800), reject(0x86dd), flow(0, 1, &[], &[Action::Normal])];
        let mut gateway = Gateway::new(built::with_flows(tables(), flows, 64));
        receive(&mut gateway, inner);
        assert_told(&mut gateway, inner);
    }
}

#[test]
fn about_a_station_that_does_not_answer() {
    for inner in INNER {
        let mut gateway = Gateway::new(tables());
        receive(&mut gateway, inner);
        for _ in 0..5 {
            gateway.wait(Duration::from_secs(1));
            _ = gateway.sent(LAN);
        }
        assert_told(&mut gateway, inner);
    }
}

/// What the sender says for itself counts: it may send from where no tunnel leads.
#[test]
fn a_sender_in_clear_is_told_from_the_address_of_its_port() {
    let mut gateway = Gateway::new(tables());
    gateway.receive(LAN, &udp("192.168.13.5", "192.168.13.77", (5000, 53), 10));
    for _ in 0..5 {
        gateway.wait(Duration::from_secs(1));
    }
    let errors: Vec<_> = gateway.sent(LAN).into_iter().map(|(_, packet)| packet).collect();
    let found = errors.iter().filter_map(|packet| headers::parse(packet).ok());
    let told: Vec<_> = found.map(|headers| headers.addresses).collect();
    assert_eq!(told, [addresses(ip("192.168.13.1"), ip("192.168.13.5"))]);
}
