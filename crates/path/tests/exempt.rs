//! What is asked no policy: ICMP errors about our own ESP, and multicast listener discovery.

mod fixture;

use fixture::*;
use packet::DropReason;
use tables::{Action, Direction, Ipsec, ReversePath, Side, Tables};
use wire::{PortId, Protocol, Spi, VrfId, checksum};

const ENDS: (&str, &str) = ("192.168.11.2", "192.168.11.1");
const ENDS_V6: (&str, &str) = ("fd11::2", "fd11::1");
/// On the tunnel's way, in no policy.
const ROUTER: &str = "203.0.113.9";

/// The first bytes of an ESP packet.
fn esp(ends: (&str, &str), spi: u32) -> Vec<u8> {
    let bytes = [&spi.to_be_bytes()[..], &[0, 0, 0, 7, 1, 2, 3, 4]].concat();
    packet(ip(ends.0), ip(ends.1), Protocol::ESP, 9, &bytes)
}

/// An ICMP error of a type and code about a packet.
fn error(from: &str, to: &str, (kind, code): (u8, u8), quoted: &[u8]) -> Vec<u8> {
    let mut message = [&[kind, code, 0, 0, 0, 0, 5, 0], quoted].concat();
    let (from, to) = (ip(from), ip(to));
    let (protocol, sum) = match from.is_ipv4() {
        true => (Protocol::ICMP, checksum::checksum(&message)),
        false => {
            let sum = checksum::upper(&addresses(from, to), Protocol::ICMPV6, &message);
            (Protocol::ICMPV6, sum)
        }
    };
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    packet(from, to, protocol, 60, &message)
}

/// Counts of errors about our ESP, of those without use, and of what no policy or a policy refuses.
fn counts(gateway: &Gateway) -> [u64; 4] {
    use DropReason::{LocalEspError, LocalIcmp, PolicyDiscard, PolicyNoMatch};
    [LocalEspError, LocalIcmp, PolicyNoMatch, PolicyDiscard].map(|reason| gateway.dropped(reason))
}

fn gateway(ends: (&str, &str)) -> Gateway {
    let mut tables = tunnel_tables(ends, false);
    set_side(&mut tables, LAN, Side::Unset);
    Gateway::new(tables)
}

#[test]
fn errors_about_our_esp_are_asked_no_policy() {
    for (ends, router, kinds) in [
        (ENDS, ROUTER, [(3, 4), (3, 1), (11, 0)]),
        (ENDS_V6, "2001:db8::9", [(2, 0), (1, 0), (3, 0)]),
    ] {
        let mut gateway = gateway(ends);
        for kind in kinds {
            gateway.receive(WAN, &error(router, ends.0, kind, &esp(ends, 0x1001)));
        }
        // From the peer itself, too.
        gateway.receive(WAN, &error(ends.1, ends.0, kinds[0], &esp(ends, 0x1001)));
        assert_eq!(counts(&gateway), [4, 0, 0, 0], "{:?}", gateway.drops());
        assert_eq!((gateway.sent(WAN).len(), gateway.sent(LAN).len()), (0, 0));
        gateway.assert_nothing_lost();
    }
}

/// Whatever policies say, and while there are none.
#[test]
fn no_policy_refuses_errors_about_our_esp() {
    let about = error(ROUTER, ENDS.0, (3, 4), &esp(ENDS, 0x1001));
    let changes: [fn(&mut Tables); 3] = [
        |tables| {
            let spec = policy(Direction::In, "0.0.0.0/0", "0.0.0.0/0", Action::Discard);
            tables.add_policy(tables::PolicySpec { priority: 0, ..spec }).unwrap();
        },
        |tables| {
            let spec = policy(
                Direction::In,
                "203.0.113.0/24",
                "192.168.11.0/24",
                Action::Protect(template(ENDS.1, ENDS.0)),
            );
            tables.add_policy(tables::PolicySpec { priority: 0, ..spec }).unwrap();
        },
        |tables| {
            let policies = Direction::ALL.map(|direction| {
                let vrf = tables.vrf(VrfId::MAIN).unwrap();
                vrf.spd.policies(direction).map(|policy| policy.index).collect::<Vec<_>>()
            });
            for index in policies.into_iter().flatten() {
                tables.remove_policy(index).unwrap();
            }
            assert!(tables.vrf(VrfId::MAIN).unwrap().is_closed());
        },
    ];
    for change in changes {
        let mut gateway = gateway(ENDS);
        gateway.change(change);
        gateway.receive(WAN, &about);
        assert_eq!(counts(&gateway), [1, 0, 0, 0]);
        // By the port of the other side as well.
        gateway.receive(LAN, &error("192.168.13.5", ENDS.0, (3, 4), &esp(ENDS, 0x1001)));
        assert_eq!(counts(&gateway), [2, 0, 0, 0]);
        gateway.assert_nothing_lost();
    }
}

/// What quotes another's ESP, or none, is judged by policies as ever.
#[test]
fn forged_errors_are_judged_as_before() {
    let mut gateway = gateway(ENDS);
    let (us, peer) = ENDS;
    let long = packet(ip(us), ip(peer), Protocol::ESP, 9, &[0, 0, 0x10, 1, 0, 0, 0, 7]);
    let forged = [
        // Another SPI: none, and that of the way in.
        error(ROUTER, us, (3, 4), &esp(ENDS, 0x1003)),
        error(ROUTER, us, (3, 4), &esp(ENDS, 0x1002)),
        // Other ends.
        error(ROUTER, us, (3, 4), &esp((us, "203.0.113.7"), 0x1001)),
        error(ROUTER, us, (3, 4), &esp((peer, us), 0x1001)),
        error(ROUTER, us, (3, 4), &esp((peer, us), 0x1002)),
        // To another address of ours than the one that it says has sent it.
        error(ROUTER, "192.168.13.1", (3, 4), &esp(ENDS, 0x1001)),
        // Not ESP, not an error, too short, and a later fragment.
        error(ROUTER, us, (3, 4), &udp(us, peer, (0, 0x1001), 20)),
        error(ROUTER, us, (5, 1), &esp(ENDS, 0x1001)),
        error(ROUTER, us, (3, 4), &long[..23]),
        error(ROUTER, us, (3, 4), &{
            let mut later = long.clone();
            later[7] = 1;
            later
        }),
    ];
    for (number, packet) in forged.iter().enumerate() {
        gateway.receive(WAN, packet);
        assert_eq!(counts(&gateway), [0, 0, number as u64 + 1, 0], "{number}");
    }
    // A policy lets them in: for nothing.
    gateway.change(|tables| {
        _ = tables.add_policy(policy(Direction::In, ROUTER, "0.0.0.0/0", Action::Bypass)).unwrap();
    });
    forged.iter().for_each(|packet| gateway.receive(WAN, packet));
    let count = forged.len() as u64;
    assert_eq!(counts(&gateway), [0, count, count, 0]);
    // The SA goes: it was our ESP, and is no longer; and comes again.
    let about = error(ROUTER, us, (3, 4), &esp(ENDS, 0x1001));
    gateway.receive(WAN, &about);
    gateway.change(|tables| _ = tables.remove_sa(VrfId::MAIN, ip(peer), Spi(0x1001)).unwrap());
    gateway.receive(WAN, &about);
    assert_eq!(counts(&gateway), [1, count + 1, count, 0]);
    gateway.change(|tables| add_sa(tables, us, peer, 0x1001, false));
    gateway.receive(WAN, &about);
    assert_eq!(counts(&gateway), [2, count + 1, count, 0]);
    gateway.assert_nothing_lost();
}

/// Who lies about where it is is not believed in this either.
#[test]
fn sources_are_looked_at_first() {
    let mut gateway = gateway(ENDS);
    gateway.change(|tables| {
        set_side(tables, LAN, Side::Protected);
        let spec = tables.port(WAN).unwrap().spec.clone();
        let spec = tables::PortSpec { reverse_path: ReversePath::Strict, ..spec };
        tables.update_port(WAN, spec).unwrap();
    });
    for source in ["192.168.13.5", "192.168.11.2", ROUTER] {
        gateway.receive(WAN, &error(source, ENDS.0, (3, 4), &esp(ENDS, 0x1001)));
    }
    let dropped = [DropReason::SourceProtected, DropReason::SourceOwn];
    assert_eq!(dropped.map(|reason| gateway.dropped(reason)), [1, 1]);
    assert_eq!(counts(&gateway), [1, 0, 0, 0]);
    gateway.assert_nothing_lost();
}

/// A message of multicast listener discovery.
fn mld(kind: u8, (source, destination): (&str, &str), hop_limit: u8, alert: bool) -> Vec<u8> {
    let (source, destination) = (ip(source), ip(destination));
    let option = if alert { [5, 2, 0, 0, 1, 0] } else { [1, 4, 0, 0, 0, 0] };
    let mut message = vec![kind, 0, 0, 0, 0, 0, 0, 1, 4, 0, 0, 0];
    message.extend([0xff, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9]);
    let sum = checksum::upper(&addresses(source, destination), Protocol::ICMPV6, &message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let rest = [&[Protocol::ICMPV6.0, 0], &option[..], &message].concat();
    packet(source, destination, Protocol::HOP_BY_HOP, hop_limit, &rest)
}

#[test]
fn multicast_listener_discovery_ends_on_the_link() {
    for closed in [false, true] {
        let mut gateway = match closed {
            false => gateway(ENDS),
            true => {
                let mut tables = plain_tables();
                tables.set_ipsec(VrfId::MAIN, Ipsec::Required).unwrap();
                Gateway::new(tables)
            }
        };
        let own = format!("{}", link_local(&gateway, WAN));
        let messages = [
            (130, "fe80::9", "ff02::1"),
            (130, "fe80::9", &own),
            (131, "fe80::9", "ff05::9"),
            (131, "::", "ff05::9"),
            (132, "fe80::9", "ff02::2"),
            (143, "fe80::9", "ff02::16"),
            (143, "::", "ff02::16"),
        ];
        for (kind, from, to) in messages {
            gateway.receive(WAN, &mld(kind, (from, to), 1, true));
        }
        assert_eq!(gateway.drops(), [("mld_ignored", 7)]);
        // What is not of this link: judged as other packets are, and sent on by nobody.
        for packet in [
            mld(143, ("fe80::9", "ff02::16"), 64, true),
            mld(143, ("fe80::9", "ff02::16"), 1, false),
            mld(143, ("fd11::9", "ff02::16"), 1, true),
            mld(130, ("::", "ff02::1"), 1, true),
        ] {
            gateway.receive(WAN, &packet);
        }
        assert_eq!(gateway.dropped(DropReason::MldIgnored), 7);
        assert_eq!((gateway.sent(WAN).len(), gateway.sent(LAN).len()), (0, 0));
        gateway.assert_nothing_lost();
    }
}

/// Out of a tunnel it is of no link.
#[test]
fn decrypted_listener_discovery_is_not_the_links() {
    let mut gateway = gateway(ENDS);
    let inner = mld(143, ("fe80::9", "ff02::16"), 1, true);
    gateway.receive(WAN, &seal(&peer_outbound(0x1002, false), ENDS.1, ENDS.0, &inner));
    assert_eq!(gateway.dropped(DropReason::MldIgnored), 0);
    assert_eq!((gateway.sent(WAN).len(), gateway.sent(LAN).len()), (0, 0));
    gateway.assert_nothing_lost();
}

/// The address that a port has from its Ethernet address.
fn link_local(gateway: &Gateway, port: PortId) -> std::net::IpAddr {
    let tables = gateway.publisher.current();
    tables.port(port).unwrap().source_for(ip("fe80::9")).unwrap()
}
