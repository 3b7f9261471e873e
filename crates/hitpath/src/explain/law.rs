//! What explain says of a description is what becomes of the packet that it describes.

use ::packet::Time;
use api::{Request, Stage};
use serde_json::Value;

use super::{Description, OUTCOME, explain};
use crate::gateway::InMemory as World;

/// How the gateways of the laws begin: the port `lan` is inside, and `wan` outside.
const BEGINNING: &str = r#"
    [gateway]
    buffers = 1024
    [[port]]
    kind = "memory"
    name = "lan"
    addresses = ["10.1.0.1/24", "fd01::1/64"]
    side = "protected"
    [[port]]
    kind = "memory"
    name = "wan"
    addresses = ["192.0.2.1/24", "fd02::1/64"]
"#;

const GATEWAY: &str = r#"
    [[port]]
    kind = "memory"
    name = "narrow"
    addresses = ["10.3.0.1/24", "fd03::1/64"]
    mtu = 1300
    side = "protected"
    [[route]]
    to = "10.2.0.0/16"
    via = "192.0.2.2"
    [[route]]
    to = "10.7.0.0/16"
    via = "192.0.2.2"
    [[route]]
    to = "fd07::/64"
    via = "fd02::2"
    [[route]]
    to = "10.4.0.0/16"
    via = "10.3.0.5"
    [[route]]
    to = "fd04::/64"
    via = "fd03::5"
    [[route]]
    to = "10.9.0.0/16"
    via = "10.3.0.9"
    [[route]]
    to = "10.8.0.0/16"
    kind = "unreachable"
"#;

/// The neighbour that both have.
const NEIGHBOUR: [&str; 2] = [
    "neigh add 10.1.0.5 lladdr 02:bb:00:00:00:01 dev lan",
    "neigh add fd01::5 lladdr 02:bb:00:00:00:01 dev lan",
];

const LINES: [&str; 10] = [
    "neigh add 192.0.2.2 lladdr 02:bb:00:00:00:02 dev wan",
    "neigh add 10.3.0.5 lladdr 02:bb:00:00:00:03 dev narrow",
    "neigh add fd03::5 lladdr 02:bb:00:00:00:03 dev narrow",
    "xfrm state add src 192.0.2.1 dst 192.0.2.2 proto esp spi 0x1001 reqid 1 mode tunnel aead \
     rfc4106(gcm(aes)) 0x000102030405060708090a0b0c0d0e0f10111213 128",
    "xfrm state add src 192.0.2.2 dst 192.0.2.1 proto esp spi 0x1002 reqid 1 mode tunnel aead \
     rfc4106(gcm(aes)) 0x100102030405060708090a0b0c0d0e0f10111213 128",
    "xfrm policy add src 10.1.0.0/24 dst 10.2.0.0/16 dir out tmpl src 192.0.2.1 dst 192.0.2.2 \
     proto esp mode tunnel reqid 1",
    "xfrm policy add src fd01::/64 dst fd07::/64 dir out tmpl src 192.0.2.1 dst 192.0.2.2 proto \
     esp mode tunnel reqid 1",
    "xfrm policy add src 10.1.0.0/24 dst 10.7.0.0/16 dir out tmpl src 192.0.2.1 dst 192.0.2.2 \
     proto esp mode tunnel reqid 9",
    "xfrm policy add src 10.1.0.0/24 dst 10.99.0.0/16 dir out",
    "xfrm policy add src 0.0.0.0/0 dst 10.1.0.0/24 dir in action block",
];

/// A packet by the port `lan`, its outcome, and what some stage says by a member.
type Case = (&'static str, &'static str, &'static [(&'static str, &'static str, &'static str)]);

const CASES: [Case; 59] = [
    // For the gateway itself.
    ("icmp 10.1.0.5 > 10.1.0.1", "answered", &[("host", "delivery", "\"answered\"")]),
    ("icmp 10.1.0.5 > 192.0.2.1 size 1500", "answered", &[("generated", "length", "1500")]),
    ("icmp fd01::5 > fd01::1", "answered", &[]),
    ("icmp 10.1.0.99 > 10.1.0.1", "answered", &[("wait", "for", "\"neighbour\"")]),
    ("icmp 10.1.0.5 > 10.1.0.1 type 0", "dropped", &[("outcome", "reason", "\"local_icmp\"")]),
    ("icmp 10.1.0.5 > 10.1.0.1 type 3 code 1", "dropped", &[]),
    (
        "tcp 10.1.0.5:1 > 10.1.0.1:22",
        "dropped",
        &[
            ("outcome", "reason", "\"local_no_listener\""),
            ("told", "message", "\"a TCP reset\""),
            ("told", "from", "\"10.1.0.1\""),
            ("generated", "length", "40"),
        ],
    ),
    ("tcp 10.1.0.5:1 > 10.1.0.1:22 tcp-flags rst", "dropped", &[("told", "why", "\"kind\"")]),
    ("tcp [fd01::5]:1 > [fd01::1]:22", "dropped", &[("told", "told", "true")]),
    (
        "udp 10.1.0.5:1 > 10.1.0.1:53",
        "dropped",
        &[("told", "type", "3"), ("told", "code", "3"), ("host", "delivery", "\"refused\"")],
    ),
    ("udp [fd01::5]:1 > [fd01::1]:53", "dropped", &[("told", "type", "1"), ("told", "code", "4")]),
    ("udplite 10.1.0.5:1 > 10.1.0.1:53", "dropped", &[("told", "code", "3")]),
    ("sctp 10.1.0.5:1 > 10.1.0.1:53", "dropped", &[("told", "code", "2")]),
    ("47 10.1.0.5 > 10.1.0.1", "dropped", &[("told", "type", "3"), ("told", "code", "2")]),
    ("47 fd01::5 > fd01::1", "dropped", &[("told", "type", "4"), ("told", "code", "1")]),
    (
        "udp 10.1.0.5:500 > 10.1.0.1:500",
        "left-to-system",
        &[("outcome", "reason", "\"local_ike\"")],
    ),
    ("udp 10.1.0.5:500 > 192.0.2.1:4500", "left-to-system", &[]),
    ("esp 10.1.0.5 > 192.0.2.1 spi 7", "dropped", &[("outcome", "reason", "\"esp_no_sa\"")]),
    ("udp 10.1.0.5 > 10.1.0.1 fragment first", "reassembled", &[("wait", "seconds", "30")]),
    ("udp 10.1.0.5 > 10.1.0.1 fragment later", "reassembled", &[("wait", "for", "\"fragments\"")]),
    ("udp fd01::5 > fd01::1 fragment first", "reassembled", &[("wait", "seconds", "60")]),
    ("udp 10.1.0.5:1 > 10.1.0.255:9", "dropped", &[("outcome", "reason", "\"not_unicast\"")]),
    ("udp 10.1.0.5:1 > 10.3.0.1:9 ttl 1", "dropped", &[("told", "code", "3")]),
    // Sizes.
    ("udp 10.1.0.5:1 > 10.3.0.5:9 size 1300", "sent-in-clear", &[("size", "fit", "\"whole\"")]),
    (
        "udp 10.1.0.5:1 > 10.3.0.5:9 size 1500",
        "sent-in-clear",
        &[("size", "fragments", "[1300,220]"), ("size", "mtu", "1300")],
    ),
    (
        "udp 10.1.0.5:1 > 10.3.0.5:9 size 1500 df",
        "dropped",
        &[("told", "message", "\"fragmentation needed\""), ("told", "mtu", "1300")],
    ),
    (
        "udp [fd01::5]:1 > [fd04::5]:9 size 1500",
        "dropped",
        &[("told", "message", "\"packet too big\""), ("told", "mtu", "1300")],
    ),
    (
        "udp 10.1.0.5:1 > 10.2.0.5:9 size 1446",
        "sent-encrypted",
        &[("size", "encrypted", "1500"), ("size", "overhead", "54"), ("size", "mtu", "1500")],
    ),
    (
        "udp 10.1.0.5:1 > 10.2.0.5:9 size 1447",
        "sent-encrypted",
        &[("size", "fit", "\"cut\""), ("size", "fragments", "[1444,23]")],
    ),
    ("udp 10.1.0.5:1 > 10.2.0.5:9 size 1447 df", "dropped", &[("told", "mtu", "1446")]),
    ("udp [fd01::5]:1 > [fd07::5]:9 size 1447", "dropped", &[("told", "mtu", "1446")]),
    (
        "udp 10.1.0.5:1 > 10.2.0.5:9",
        "sent-encrypted",
        &[
            ("policy", "action", "\"protect\""),
            ("policy", "selector", "\"src 10.1.0.0/24 dst 10.2.0.0/16\""),
        ],
    ),
    // Nothing is known yet.
    (
        "udp 10.1.0.5:1 > 10.9.0.5:9",
        "sent-once-resolved",
        &[("wait", "address", "\"10.3.0.9\""), ("wait", "asked", "true"), ("wait", "told", "true")],
    ),
    ("udp 10.1.0.5:1 > 10.3.0.77:9", "sent-once-resolved", &[("wait", "address", "\"10.3.0.77\"")]),
    (
        "udp 10.1.0.5:1 > 10.7.0.5:9",
        "dropped",
        &[
            ("outcome", "reason", "\"esp_no_outbound_sa\""),
            ("wait", "for", "\"sa\""),
            ("wait", "reqid", "9"),
            ("wait", "seconds", "0"),
        ],
    ),
    // Others.
    (
        "udp 10.1.0.5:1 > 10.3.0.5:9 ttl 1",
        "dropped",
        &[("told", "type", "11"), ("hop-limit", "ttl", "1")],
    ),
    ("udp [fd01::5]:1 > [fd04::5]:9 ttl 1", "dropped", &[("told", "message", "\"time exceeded\"")]),
    ("udp 10.1.0.5:1 > 10.99.0.5:9", "dropped", &[("told", "message", "\"network unreachable\"")]),
    ("udp 10.1.0.5:1 > 10.8.0.5:9", "dropped", &[("told", "message", "\"host unreachable\"")]),
    ("icmp 10.1.0.5 > 10.99.0.5 type 3 code 1", "dropped", &[("told", "why", "\"kind\"")]),
    ("udp 10.1.0.1:1 > 10.3.0.5:9", "dropped", &[("outcome", "reason", "\"source_own\"")]),
    ("udp 127.0.0.1:1 > 10.3.0.5:9", "dropped", &[("parse", "packet", "\"malformed\"")]),
    (
        "icmp fe80::9 > ff02::16 type 143 ttl 1",
        "dropped",
        &[("outcome", "reason", "\"mld_ignored\"")],
    ),
    // Neighbour discovery.
    ("icmp fe80::9 > ff02::2 type 133", "dropped", NOT_FOR_US),
    ("icmp :: > ff02::2 type 133 code 0", "dropped", NOT_FOR_US),
    ("icmp fe80::9 > ff02::1 type 134", "dropped", NOT_FOR_US),
    ("icmp fe80::9 > ff02::1 type 134 ttl 64 size 96", "dropped", NOT_FOR_US),
    ("icmp fd01::5 > fd01::1 type 135", "delivered", DISCOVERY),
    ("icmp fd01::5 > fd01::1 type 135 size 72", "delivered", DISCOVERY),
    ("icmp fd01::5 > ff02::1:ff00:1 type 135", "delivered", DISCOVERY),
    ("icmp :: > ff02::1:ff00:1 type 135", "delivered", DISCOVERY),
    ("icmp fd01::5 > ff02::1 type 135", "dropped", NOT_FOR_US),
    ("icmp fd01::5 > fd01::1 type 135 ttl 64", "dropped", ND_MALFORMED),
    ("icmp fd01::5 > fd01::1 type 135 code 1", "dropped", ND_MALFORMED),
    ("icmp fd01::5 > fd01::1 type 136", "delivered", DISCOVERY),
    ("icmp fd01::5 > ff02::1 type 136", "delivered", DISCOVERY),
    ("icmp fd01::1 > ff02::1 type 136", "dropped", CONFLICT),
    ("icmp fd01::1 > ff02::1:ff00:1 type 135", "dropped", CONFLICT),
    ("icmp fd01::5 > fd01::1 type 137", "dropped", NOT_FOR_US),
];

const DISCOVERY: &[(&str, &str, &str)] = &[("parse", "packet", "\"neighbour-discovery\"")];
const NOT_FOR_US: &[(&str, &str, &str)] =
    &[DISCOVERY[0], ("outcome", "reason", "\"nd_not_for_us\"")];
const ND_MALFORMED: &[(&str, &str, &str)] =
    &[DISCOVERY[0], ("outcome", "reason", "\"nd_malformed\"")];
const CONFLICT: &[(&str, &str, &str)] =
    &[DISCOVERY[0], ("outcome", "reason", "\"address_conflict\"")];

impl World {
    fn described() -> Self {
        Self::beginning_with(GATEWAY, &LINES)
    }

    /// What the laws have in common, and this.
    pub(super) fn beginning_with(gateway: &str, lines: &[&str]) -> Self {
        let text = format!("{BEGINNING}{gateway}");
        let mut world = Self::new(control::config::load("law", &text).unwrap());
        for line in NEIGHBOUR.iter().chain(lines) {
            world.run(line, Time(0)).unwrap_or_else(|why| panic!("{line}: {why}"));
        }
        world
    }

    fn explain(&self, packet: &str) -> Vec<Stage> {
        let control = &self.gateway.handler().control;
        explain(packet, control, Time(1)).unwrap_or_else(|why| panic!("{packet}: {why}"))
    }

    /// The packet that explain takes for described.
    fn described_packet(&self, text: &str) -> Vec<u8> {
        let mut reader = self.gateway.handler().control.shared().reader();
        let mut described = Description::parse(text).unwrap();
        described.choose_target(reader.load().port_named("lan").unwrap());
        described.packet().unwrap()
    }

    /// How many frames leave, but questions for neighbours, if the packet comes by the LAN.
    fn answers(&mut self, packet: &[u8]) -> usize {
        let frames = self.pass(&[self.frame(packet)], Time(1));
        let is_question = |frame: &[u8]| frame[12..14] == [8, 6] || frame.get(54) == Some(&135);
        frames.iter().filter(|(_, frame)| !is_question(frame)).count()
    }

    fn counters(&mut self) -> (Vec<String>, impl Fn(&str) -> u64 + use<>) {
        let mut ask = |request| self.gateway.handler_mut().handle(request, Time(1)).unwrap();
        let (api::Reply::Drops(drops), api::Reply::Workers(workers)) =
            (ask(Request::Drops), ask(Request::Workers))
        else {
            panic!("other replies");
        };
        let drops = drops.into_iter().filter(|drop| drop.packets > 0).map(|drop| drop.reason);
        let counted = move |name: &str| {
            let counter = workers[0].counters.iter().find(|counter| counter.name == name);
            counter.unwrap_or_else(|| panic!("{name}")).value
        };
        (drops.collect(), counted)
    }
}

fn member<'s>(stages: &'s [Stage], stage: &str, name: &str) -> Vec<&'s Value> {
    let of = stages.iter().filter(|it| it.stage == stage);
    of.filter_map(|stage| stage.members.get(name)).collect()
}

/// Each packet fares as explain says, and as is written here.
#[test]
fn a_described_packet_fares_as_explained() {
    for (packet, outcome, says) in CASES {
        let text = format!("{packet} in lan");
        let mut world = World::described();
        let stages = world.explain(&text);
        let told = stages.iter().map(|it| format!("{} {} {:?}", it.stage, it.text, it.members));
        let told = format!("{text}: {:#?}", told.collect::<Vec<_>>());
        let fate = member(&stages, OUTCOME, "fate");
        assert_eq!(fate, [&Value::from(outcome)], "{told}");
        for (stage, name, value) in says {
            let found = member(&stages, stage, name);
            let value: Value = serde_json::from_str(value).unwrap();
            assert!(found.contains(&&value), "{stage} {name}: {told}");
        }

        let frames = world.answers(&world.described_packet(&text));
        let held = world.gateway.held();
        let (drops, counted) = world.counters();
        let reason = member(&stages, OUTCOME, "reason");
        let reasons: Vec<_> = reason.iter().map(|it| it.as_str().unwrap().to_owned()).collect();
        assert_eq!(drops, reasons, "{told}");
        let said = match reasons.first().filter(|_| outcome == "dropped") {
            Some(reason) => format!("dropped ({reason})"),
            None => outcome.to_owned(),
        };
        assert_eq!(stages.last().unwrap().text, said);
        let senders = counted("icmp_errors") + counted("tcp_resets");
        let is_told = member(&stages, "told", "told").contains(&&Value::Bool(true));
        assert_eq!(senders, u64::from(is_told), "{told}");
        let waits = member(&stages, "wait", "for").iter().any(|it| **it != "sa");
        assert_eq!(held > 0, waits, "{told}");
        let pieces = member(&stages, "size", "fragments");
        let pieces = pieces.first().map_or(1, |pieces| pieces.as_array().unwrap().len());
        let leave = match outcome {
            "sent-in-clear" | "sent-encrypted" => pieces,
            "answered" => usize::from(!waits),
            // The advertisement that answers a solicitation.
            "delivered" => usize::from(packet.contains("type 135")),
            // The address is defended by an advertisement.
            "dropped" if reasons == ["address_conflict"] => 1,
            "dropped" => usize::from(is_told),
            _ => 0,
        };
        assert_eq!(frames, leave, "{told}");
        assert_eq!(counted("echo_replies"), u64::from(outcome == "answered"), "{told}");
        let is_sealed = outcome == "sent-encrypted";
        assert_eq!(counted("encrypted") as usize, if is_sealed { pieces } else { 0 }, "{told}");
        assert_eq!(counted("fragmented") > 0, pieces > 1, "{told}");
    }
}

/// Nothing is changed by asking.
#[test]
fn explain_sends_and_counts_nothing() {
    let mut world = World::described();
    for (packet, ..) in CASES {
        world.explain(&format!("{packet} in lan"));
    }
    while world.gateway.step(Time(1)).unwrap() > 0 {}
    let (drops, counted) = world.counters();
    assert_eq!((drops, counted("generated"), world.gateway.held()), (vec![], 0, 0));
    assert!(world.ports.iter_mut().all(|port| port.pop().is_none()));
    let sas = world.gateway.handler_mut().handle(Request::StateList(<_>::default()), Time(1));
    let Ok(api::Reply::States(sas)) = sas else { panic!("no SAs") };
    assert!(sas.iter().all(|sa| sa.sent_sequence == 0 && sa.traffic.packets == 0));
}

/// Every stage is an object whose members are named, and no sentence stands in the place of one.
#[test]
fn stages_have_members() {
    let world = World::described();
    for (packet, ..) in CASES {
        for stage in world.explain(&format!("{packet} in lan")) {
            assert!(!stage.members.is_empty(), "{packet}: {stage:?}");
            assert!(!stage.members.contains_key("text") && !stage.members.contains_key("stage"));
            for (name, value) in &stage.members {
                let is_sentence = value.as_str().is_some_and(|it| it.contains(' '));
                let is_for_people =
                    ["meaning", "message", "flow", "action", "unused", "describe", "selector"];
                assert!(!is_sentence || is_for_people.contains(&&**name), "{packet}: {stage:?}");
            }
        }
    }
}
