//! What explain says of ICMP errors about connections is what becomes of them.

use api::Stage;
use packet::Time;
use wire::ethernet::{self, EtherType};
use wire::quoted::Quoted;
use wire::{Addresses, Upper, headers, tcp};

use super::{DROPPED, Description, OUTCOME, explain};
use crate::gateway::InMemory as World;

/// IPv4 leaves by `wan` with its address; a server inside has a port of that.
const GATEWAY: &str = r#"
    [firewall]
    default = "drop"
    [[firewall.zone]]
    name = "inside"
    ports = ["lan"]
    [[firewall.zone]]
    name = "outside"
    ports = ["wan"]
    masquerade = "ipv4"
    [[firewall.policy]]
    from = ["inside"]
    to = ["outside"]
    action = "accept"
    [[firewall.forward]]
    from = ["outside"]
    service = "tcp/2222"
    to = "10.1.0.6"
    to-port = 22
"#;

const LINES: [&str; 4] = [
    "neigh add 10.1.0.6 lladdr 02:bb:00:00:00:01 dev lan",
    "neigh add 192.0.2.9 lladdr 02:bb:00:00:00:02 dev wan",
    "neigh add 192.0.2.8 lladdr 02:bb:00:00:00:02 dev wan",
    "neigh add fd02::9 lladdr 02:bb:00:00:00:02 dev wan",
];

/// A packet that goes before, and its answer as it comes.
const CONNECTIONS: [[&str; 2]; 5] = [
    ["udp 10.1.0.5:5000 > 192.0.2.9:53 in lan", "udp 192.0.2.9:53 > 192.0.2.1:5000 in wan"],
    [
        "tcp 10.1.0.5:5000 > 192.0.2.9:80 in lan",
        "tcp 192.0.2.9:80 > 192.0.2.1:5000 tcp-flags syn,ack in wan",
    ],
    ["icmp 10.1.0.5 > 192.0.2.9 id 7 in lan", "icmp 192.0.2.9 > 192.0.2.1 type 0 id 7 in wan"],
    [
        "tcp 192.0.2.9:6000 > 192.0.2.1:2222 in wan",
        "tcp 10.1.0.6:22 > 192.0.2.9:6000 tcp-flags syn,ack in lan",
    ],
    ["udp [fd01::5]:5000 > [fd02::9]:53 in lan", "udp [fd02::9]:53 > [fd01::5]:5000 in wan"],
];

/// An error, whom it reaches, and what it quotes then: nothing if it is dropped.
const ERRORS: [(&str, &str, &str); 15] = [
    // From a router outside.
    (
        "icmp 192.0.2.8 > 192.0.2.1 type 3 code 4 about udp 192.0.2.1:5000 > 192.0.2.9:53 in wan",
        "10.1.0.5",
        "udp 10.1.0.5:5000 > 192.0.2.9:53",
    ),
    (
        "icmp 192.0.2.8 > 192.0.2.1 type 3 code 4 about tcp 192.0.2.1:5000 > 192.0.2.9:80 in wan",
        "10.1.0.5",
        "tcp 10.1.0.5:5000 > 192.0.2.9:80",
    ),
    (
        "icmp 192.0.2.8 > 192.0.2.1 type 11 about icmp 192.0.2.1 > 192.0.2.9 id 7 in wan",
        "10.1.0.5",
        "icmp 10.1.0.5 > 192.0.2.9 id 7",
    ),
    (
        "icmp 192.0.2.8 > 192.0.2.1 type 3 about tcp 192.0.2.1:2222 > 192.0.2.9:6000 in wan",
        "10.1.0.6",
        "tcp 10.1.0.6:22 > 192.0.2.9:6000",
    ),
    (
        "icmp fd02::8 > fd01::5 type 2 about udp [fd01::5]:5000 > [fd02::9]:53 in wan",
        "fd01::5",
        "udp [fd01::5]:5000 > [fd02::9]:53",
    ),
    // From inside, about what came in.
    (
        "icmp 10.1.0.5 > 192.0.2.9 type 3 code 3 about udp 192.0.2.9:53 > 10.1.0.5:5000 in lan",
        "192.0.2.9",
        "udp 192.0.2.9:53 > 192.0.2.1:5000",
    ),
    (
        "icmp 10.1.0.7 > 192.0.2.9 type 3 about tcp 192.0.2.9:6000 > 10.1.0.6:22 in lan",
        "192.0.2.9",
        "tcp 192.0.2.9:6000 > 192.0.2.1:2222",
    ),
    (
        "icmp fd01::5 > fd02::9 type 1 code 4 about udp [fd02::9]:53 > [fd01::5]:5000 in lan",
        "fd02::9",
        "udp [fd02::9]:53 > [fd01::5]:5000",
    ),
    // With the number of the first segment.
    (
        "icmp 192.0.2.8 > 192.0.2.1 type 3 about tcp 192.0.2.1:5000 > 192.0.2.9:80 seq 1 in wan",
        "10.1.0.5",
        "tcp 10.1.0.5:5000 > 192.0.2.9:80",
    ),
    // About data that is not on its way, no connection, one as it is inside, somebody else's packet.
    (
        "icmp 192.0.2.8 > 192.0.2.1 type 3 about tcp 192.0.2.1:5000 > 192.0.2.9:80 seq 9 in wan",
        "",
        "",
    ),
    ("icmp 192.0.2.8 > 192.0.2.1 type 3 about udp 192.0.2.1:1 > 192.0.2.9:53 in wan", "", ""),
    ("icmp 192.0.2.8 > 192.0.2.1 type 3 about udp 10.1.0.5:5000 > 192.0.2.9:53 in wan", "", ""),
    ("icmp 192.0.2.8 > 192.0.2.1 type 3 about udp 192.0.2.9:53 > 192.0.2.1:5000 in wan", "", ""),
    ("icmp fd02::8 > fd01::5 type 2 about udp [fd01::5]:5001 > [fd02::9]:53 in wan", "", ""),
    ("icmp 192.0.2.8 > 192.0.2.1 type 3 in wan", "", ""),
];

struct Errors(World);

impl Errors {
    fn with_connections() -> Self {
        let mut errors = Self(World::beginning_with(GATEWAY, &LINES));
        for packet in CONNECTIONS.as_flattened() {
            let left = errors.sent(packet);
            assert_eq!(left.len(), 1, "{packet}");
        }
        errors
    }

    /// The packets that leave when the described one comes by its port.
    fn sent(&mut self, text: &str) -> Vec<Vec<u8>> {
        let mut packet = Description::parse(text).unwrap().packet().unwrap();
        if text.contains("syn,ack") {
            // It acknowledges the number that a description has.
            packet[28..32].copy_from_slice(&2_u32.to_be_bytes());
            let addresses = headers::parse(&packet).unwrap().addresses;
            tcp::fill_checksum(&addresses, &mut packet[20..]);
        }
        let port = usize::from(text.ends_with("in wan"));
        let tables = self.0.gateway.handler().tables();
        let header = ethernet::Header {
            destination: tables.ports().nth(port).unwrap().spec.mac,
            source: World::STATION,
            ether_type: EtherType::of_ip(&packet).unwrap(),
        };
        assert!(self.0.ports[port].push(&[&header.to_bytes()[..], &packet].concat()));
        let left = self.0.pass(&[], Time(1));
        left.into_iter().map(|(_, frame)| frame[14..].to_vec()).collect()
    }

    fn explain(&self, packet: &str) -> Vec<Stage> {
        let control = &self.0.gateway.handler().control;
        explain(packet, control, Time(1)).unwrap_or_else(|why| panic!("{packet}: {why}"))
    }
}

/// The addresses and upper-layer fields that an error quotes.
fn quoted(error: &[u8]) -> (Addresses, Upper) {
    let quoted = Quoted::read(error, &headers::parse(error).unwrap()).unwrap();
    (quoted.addresses, quoted.upper)
}

#[test]
fn an_error_about_a_connection_fares_as_explained() {
    let mut errors = Errors::with_connections();
    for (text, to, about) in ERRORS {
        let stages = errors.explain(text);
        let told = stages.iter().map(|it| format!("{} {} {:?}", it.stage, it.text, it.members));
        let told = format!("{text}: {:#?}", told.collect::<Vec<_>>());
        let fate = &stages.last().unwrap().members["fate"];
        let is_dropped = fate.as_str() == Some(DROPPED);
        assert_eq!(stages.last().unwrap().stage, OUTCOME);
        assert_eq!(is_dropped, to.is_empty(), "{told}");
        let states = stages.iter().filter_map(|stage| stage.members.get("ct_state"));
        let word = if is_dropped { "inv" } else { "rel" };
        let is_said = states.map(|state| state.as_str().unwrap()).all(|it| it.contains(word));
        assert!(is_said, "{told}");

        let left = errors.sent(text);
        assert_eq!(left.len(), usize::from(!is_dropped), "{told}");
        let Some(error) = left.first() else { continue };
        let read = headers::parse(error).unwrap();
        assert_eq!(read.addresses.destination(), to.parse::<std::net::IpAddr>().unwrap(), "{told}");
        let expected = Description::parse(&format!("{about} in host")).unwrap();
        assert_eq!(quoted(error), (expected.addresses, expected.upper), "{told}");
    }
}
