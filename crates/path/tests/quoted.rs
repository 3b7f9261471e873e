//! ICMP errors about translated packets of a tunnel, from routers that no policy knows.

mod fixture;
#[path = "fixture/flows.rs"]
mod flows;

use fixture::*;
use flows::{counts, gateway};
use packet::DropReason;
use tables::{Action, Direction, Side};
use wire::{Mac, Protocol, headers};

const OUTER: (&str, &str) = ("192.168.11.2", "192.168.11.1");
const HERE: &str = "192.168.13.5";
const THERE: &str = "192.168.12.7";
/// What the host here is behind the tunnel, as the source of its packets and for those who reach it.
const OUTSIDE: &str = "192.168.14.9";
const ROUTER: &str = "172.16.0.1";

const FLOWS: &str = "
    priority=200,ip,nw_proto=50,actions=NORMAL
    priority=100,ip,actions=ct(table=1,nat)
    table=1,priority=30,ct_state=+trk+rel-new,ip,actions=NORMAL
    table=1,priority=20,ct_state=+trk+est,ip,actions=NORMAL
    table=1,priority=10,ct_state=+trk+new,ip,in_port=lan,actions=ct(commit,nat(src=192.168.14.9)),NORMAL
    table=1,priority=9,ct_state=+trk+new,ip,nw_dst=192.168.14.9,actions=ct(commit,nat(dst=192.168.13.5)),NORMAL
";

/// The tunnel's selectors have the outside address alone, and no port is inside.
fn translating() -> Gateway {
    let mut translating = gateway(FLOWS);
    let (me, peer) = OUTER;
    translating.change(|tables| {
        add_sa(tables, me, peer, 0x1001, false);
        add_sa(tables, peer, me, 0x1002, false);
        for (from, to, direction, ends) in [
            ("192.168.14.9/32", "192.168.12.0/24", Direction::Out, (me, peer)),
            ("192.168.12.0/24", "192.168.14.9/32", Direction::In, (peer, me)),
        ] {
            let protect = Action::Protect(template(ends.0, ends.1));
            tables.add_policy(policy(direction, from, to, protect)).unwrap();
        }
        set_side(tables, LAN, Side::Unset);
    });
    translating
}

fn unreachable(from: &str, to: &str, quoted: &[u8]) -> Vec<u8> {
    let mut rest = vec![3, 1, 0, 0, 0, 0, 0, 0];
    rest.extend(&quoted[..28]);
    let sum = wire::checksum::checksum(&rest);
    rest[2..4].copy_from_slice(&sum.to_be_bytes());
    packet(ip(from), ip(to), Protocol::ICMP, 64, &rest)
}

/// Source and destination of an error, and of the packet that it quotes.
fn ends(error: &[u8]) -> [std::net::IpAddr; 4] {
    let at = |from: usize| <[u8; 4]>::try_from(&error[from..from + 4]).unwrap().into();
    assert_eq!(error[20], 3, "an ICMP error");
    assert_eq!(wire::checksum::checksum(&error[20..]), 0);
    [at(12), at(16), at(40), at(44)]
}

/// From a router behind the tunnel, about a packet whose source was translated.
#[test]
fn an_error_by_the_tunnel_goes_to_who_has_sent_the_packet() {
    for original in [udp(HERE, THERE, (5000, 53), 20), echo(HERE, THERE, 20)] {
        let mut gateway = translating();
        gateway.receive(LAN, &original);
        let (_, outer) = gateway.sent_one(WAN);
        let went = open(&peer_inbound(0x1001, false), &outer);
        assert_eq!(headers::parse(&went).unwrap().addresses.source(), ip(OUTSIDE));
        let peer = peer_outbound(0x1002, false);
        // Twice, as the first one leaves nothing behind that the second one would find.
        for _ in 0..2 {
            let error = unreachable(ROUTER, OUTSIDE, &went);
            gateway.receive(WAN, &seal(&peer, OUTER.1, OUTER.0, &error));
            let (_, error) = gateway.sent_one(LAN);
            assert_eq!(ends(&error), [ROUTER, HERE, HERE, THERE].map(ip));
        }
        // It has opened nothing, and what is about another packet does not pass.
        assert_eq!(counts(&gateway).connections, 1);
        let strange = udp(OUTSIDE, "172.16.0.9", (5000, 53), 20);
        let error = unreachable(ROUTER, OUTSIDE, &strange);
        gateway.receive(WAN, &seal(&peer, OUTER.1, OUTER.0, &error));
        assert_eq!(gateway.sent(LAN), []);
        assert_eq!(gateway.drops(), [(DropReason::FlowMiss.name(), 1)]);
        gateway.assert_nothing_lost();
    }
}

/// From a router here, about a packet whose destination was translated: it quotes what was sent.
#[test]
fn an_error_into_the_tunnel_goes_as_answers_go() {
    let mut gateway = translating();
    let original = udp(THERE, OUTSIDE, (53, 5000), 20);
    let sealed = seal(&peer_outbound(0x1002, false), OUTER.1, OUTER.0, &original);
    gateway.receive(WAN, &sealed);
    let (_, came) = gateway.sent_one(LAN);
    assert_eq!(headers::parse(&came).unwrap().addresses.destination(), ip(HERE));
    gateway.receive(LAN, &unreachable(ROUTER, THERE, &came));
    let (_, outer) = gateway.sent_one(WAN);
    let error = open(&peer_inbound(0x1001, false), &outer);
    // As with Linux, it comes from the address that the packet was sent to.
    assert_eq!(ends(&error), [OUTSIDE, THERE, THERE, OUTSIDE].map(ip));
    assert_eq!(counts(&gateway).connections, 1);
    assert_eq!(gateway.drops(), []);
    gateway.assert_nothing_lost();
}

/// The flow that lets it pass has counted it once, though policies were asked twice.
#[test]
fn flows_count_it_once() {
    let mut gateway = translating();
    gateway.receive(LAN, &udp(HERE, THERE, (5000, 53), 20));
    let (_, outer) = gateway.sent_one(WAN);
    let went = open(&peer_inbound(0x1001, false), &outer);
    let error = unreachable(ROUTER, OUTSIDE, &went);
    gateway.receive(WAN, &seal(&peer_outbound(0x1002, false), OUTER.1, OUTER.0, &error));
    assert_eq!(gateway.sent(LAN).len(), 1);
    let tables = gateway.publisher.current();
    let sorted = tables.pipeline().sorted();
    let related = sorted.iter().find(|entry| entry.flow.priority == 30).unwrap();
    assert_eq!(tables.flow_meter(related.id).unwrap().counters.read().0, 1);
}

/// And so do the policies, also if one refuses the error itself: it is for another SA's packets.
#[test]
fn policies_count_it_once() {
    let mut gateway = translating();
    gateway.change(|tables| {
        let protect = Action::Protect(template(OUTER.0, "192.168.11.3"));
        let other = policy(Direction::In, "172.16.0.1/32", "0.0.0.0/0", protect);
        tables.add_policy(other).unwrap();
    });
    gateway.receive(LAN, &udp(HERE, THERE, (5000, 53), 20));
    let (_, outer) = gateway.sent_one(WAN);
    let went = open(&peer_inbound(0x1001, false), &outer);
    let error = unreachable(ROUTER, OUTSIDE, &went);
    gateway.receive(WAN, &seal(&peer_outbound(0x1002, false), OUTER.1, OUTER.0, &error));
    assert_eq!((gateway.sent(LAN).len(), gateway.drops()), (1, vec![]));
    let tables = gateway.publisher.current();
    let counted = |index| Some(tables.policy_of_index(index)?.counters.read().0);
    let all: Vec<_> = (0..4096).filter_map(counted).collect();
    assert_eq!(all, [1, 1, 0]);
}

/// A VRF whose only policy lets out what is from one network to one host, and does what `actions` say.
fn bypassing(actions: &str) -> Gateway {
    let mut gateway = gateway(&format!(
        "priority=100,ip,actions={actions}
        priority=300,arp,in_port=lan,actions=output:wan
        priority=300,arp,in_port=wan,actions=output:lan"
    ));
    gateway.change(|tables| {
        let bypass = policy(Direction::Out, "192.168.12.0/24", "198.51.100.77/32", Action::Bypass);
        tables.add_policy(bypass).unwrap();
        set_side(tables, WAN, Side::Unprotected);
        set_side(tables, LAN, Side::Protected);
    });
    gateway
}

/// RFC 4301 section 6.2: an error answers a packet only if it goes to who has sent that.
#[test]
fn an_error_that_flows_send_elsewhere_is_no_answer() {
    let quoted = udp("198.51.100.77", THERE, (5000, 53), 20);
    let error = unreachable(ROUTER, "198.51.100.77", &quoted);
    for actions in ["NORMAL", "output:wan"] {
        let mut gateway = bypassing(actions);
        gateway.receive(LAN, &error);
        assert_eq!(gateway.sent(WAN).len(), 1, "{actions}");
        let mut gateway = bypassing(&format!("mod_nw_dst:198.51.100.88,{actions}"));
        gateway.receive(LAN, &error);
        assert_eq!(gateway.sent(WAN), [], "{actions}");
        assert_eq!(gateway.drops(), [(DropReason::PolicyNoMatch.name(), 1)], "{actions}");
        gateway.assert_nothing_lost();
    }
}

/// What is for another station is routed neither as itself nor as an answer.
#[test]
fn an_error_for_another_station_is_not_routed() {
    let mut gateway = bypassing("NORMAL");
    let quoted = udp("198.51.100.77", THERE, (5000, 53), 20);
    let error = unreachable(ROUTER, "198.51.100.77", &quoted);
    assert!(gateway.lan.push(&frame(Mac([2, 9, 9, 9, 9, 9]), HOST_MAC, &error)));
    gateway.poll();
    assert_eq!(gateway.sent(WAN), []);
    assert_eq!(gateway.drops(), [(DropReason::LinkNotForUs.name(), 1)]);
}

/// It leaves in fragments no longer than those that it came in, whoever lets it pass.
#[test]
fn an_error_in_fragments_leaves_in_such() {
    let quoted = udp("198.51.100.77", THERE, (5000, 53), 1800);
    for from in [ROUTER, "192.168.12.9"] {
        let flows = "priority=100,ip,actions=ct(table=1)
            table=1,ip,actions=output:wan";
        let mut gateway = gateway(flows);
        gateway.change(|tables| {
            let bypass =
                policy(Direction::Out, "192.168.12.0/24", "198.51.100.77/32", Action::Bypass);
            tables.add_policy(bypass).unwrap();
            set_side(tables, WAN, Side::Unprotected);
            set_side(tables, LAN, Side::Protected);
        });
        let mut rest = vec![3, 1, 0, 0, 0, 0, 0, 0];
        rest.extend(&quoted);
        let sum = wire::checksum::checksum(&rest);
        rest[2..4].copy_from_slice(&sum.to_be_bytes());
        let mut whole = packet(ip(from), ip("198.51.100.77"), Protocol::ICMP, 64, &rest);
        whole[6] = 0;
        wire::ipv4::fill_checksum(&mut whole);
        let mut came = Vec::new();
        for piece in wire::fragment::plan(&whole, 700).unwrap() {
            let mut bytes = vec![0; piece.total_length()];
            wire::fragment::write(&whole, &piece, &mut bytes).unwrap();
            came.push(bytes.len());
            gateway.receive(LAN, &bytes);
        }
        let left: Vec<_> = gateway.sent(WAN).iter().map(|(_, packet)| packet.len()).collect();
        assert_eq!(left, came, "from {from}: {:?}", gateway.drops());
        gateway.assert_nothing_lost();
    }
}

/// Flows may count hops and mark classes of what connections translate, with the quoted packet.
#[test]
fn an_error_that_flows_write_into_is_translated_inside_too() {
    for write in ["", "dec_ttl,", "mod_nw_tos:40,"] {
        let mut gateway = gateway(&format!(
            "priority=100,ip,actions=ct(table=1,nat)
            table=1,priority=30,ct_state=+trk+rel-new,ip,actions={write}NORMAL
            table=1,priority=20,ct_state=+trk+est,ip,actions={write}NORMAL
            table=1,priority=10,ct_state=+trk+new,ip,in_port=lan,\
            actions=ct(commit,nat(src=192.168.14.9)),{write}NORMAL"
        ));
        gateway.receive(LAN, &echo(HERE, "198.51.100.77", 20));
        let (_, went) = gateway.sent_one(WAN);
        assert_eq!(headers::parse(&went).unwrap().addresses.source(), ip(OUTSIDE), "{write}");
        gateway.receive(WAN, &unreachable(ROUTER, OUTSIDE, &went));
        let (_, error) = gateway.sent_one(LAN);
        assert_eq!(ends(&error), [ROUTER, HERE, HERE, "198.51.100.77"].map(ip), "{write}");
        let is_marked = write.starts_with("mod_nw_tos");
        assert_eq!(error[1], if is_marked { 40 } else { 0 }, "{write}");
        gateway.assert_nothing_lost();
    }
}
