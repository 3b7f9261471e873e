mod at_once;
mod examples;
mod never_matching;
mod ports;

use types::VlanTag;

use super::*;

const GOOD: &str = r#"
[gateway]
workers = 2
socket = "/tmp/x.sock"

[[vrf]]
name = "red"
default-out = "accept"

[[port]]
name = "lan"
kind = "memory"
addresses = ["192.168.13.1/24", "2001:db8:13::1/64"]

[[port]]
name = "wan"
kind = "af-packet"
interface = "eth0"
mtu = 1400
addresses = ["192.168.11.2/24"]

[[port]]
name = "red0"
kind = "memory"
vrf = "red"
addresses = ["192.168.13.1/24"]

[[route]]
to = "192.168.12.0/24"
via = "192.168.11.1"

[[route]]
to = "default"
via = "192.168.11.1"
metric = 10

[[neighbour]]
port = "lan"
address = "192.168.13.9"
mac = "02:00:00:00:00:09"

[[sa]]
source = "192.168.11.2"
destination = "192.168.11.1"
spi = 0x1001
reqid = 1
aead = { name = "rfc4106(gcm(aes))", key = "0x000102030405060708090a0b0c0d0e0f10111213" }

[[policy]]
direction = "out"
source = "192.168.13.0/24"
destination = "192.168.12.0-192.168.12.99"
protocol = "udp"
destination-ports = "53"
action = "protect"
template = { destination = "192.168.11.1", reqid = 1 }
"#;

fn errors(text: &str) -> String {
    load("gw.toml", text).unwrap_err().to_string()
}

/// `text` is refused with exactly these errors, one to a line.
#[track_caller]
fn refused(text: &str, told: &[&str]) {
    assert_eq!(errors(text).lines().collect::<Vec<_>>(), told);
}

#[test]
fn a_good_file_is_read() {
    let config = load("gw.toml", GOOD).unwrap();
    assert_eq!(config.gateway.workers, 2);
    assert_eq!(config.vrfs[0].defaults, [(Direction::Out, DefaultAction::Accept)]);
    assert_eq!(config.ports.len(), 3);
    assert_eq!(config.ports[1].kind.interface(), Some("eth0"));
    assert_eq!(config.ports[1].mtu, Some(1400));
    assert_eq!(config.routes[1].destination.to_string(), "0.0.0.0/0");
    assert_eq!(config.states[0].spi, 0x1001);
    assert_eq!(config.states[0].replay_window, 64);
    assert_eq!(
        config.policies[0].selector.destination.unwrap().to_string(),
        "192.168.12.0-192.168.12.99"
    );
}

#[test]
fn an_empty_file_is_refused() {
    refused("", &["gw.toml:1:1: the file asks for no port ([[port]] with name and kind)"]);
}

#[test]
fn all_errors_are_told_at_once_with_their_places() {
    refused(
        r#"
[gateway]
wokers = 2
idle = "lazy"

[[port]]
name = "lan"
kind = "memory"
mtu = "1500"
adresses = ["192.0.2.1/24"]

[[prot]]
name = "wan"

[[route]]
to = "192.0.2.1/24"
via = "192.0.2.1"
"#,
        &[
            "gw.toml:3:1: gateway has no key \"wokers\" (did you mean workers?)",
            "gw.toml:4:8: idle = \"lazy\" (\"sleep\" or \"poll\")",
            "gw.toml:9:7: mtu is a text (a number without quotes)",
            "gw.toml:10:1: port has no key \"adresses\" (did you mean addresses?)",
            "gw.toml:12:3: there is no section \"prot\" (did you mean port?)",
            "gw.toml:16:6: 192.0.2.1/24: bits are set beyond the prefix length (192.0.2.0/24)",
        ],
    );
}

#[test]
fn what_other_programs_do_is_refused_by_name() {
    let router = "hitpath neither sends router advertisements nor takes any";
    let radvd = "radvd or dnsmasq on the interface of the port; docs/interfaces.md says how";
    let dhcp = "hitpath is no DHCP server, relay or client";
    let dnsmasq = "dnsmasq or dhcrelay as a station of the link; docs/interfaces.md says how";
    refused(
        r#"
[[port]]
name = "lan"
kind = "memory"
ra = true
router_advertisement = { lifetime = 1800 }
dhcp-relay = ["192.0.2.9"]
[dhcp]
[[router-advertisement]]
"#,
        &[
            &format!("gw.toml:5:1: port has no key \"ra\": {router} ({radvd})"),
            &format!("gw.toml:6:1: port has no key \"router_advertisement\": {router} ({radvd})"),
            &format!("gw.toml:7:1: port has no key \"dhcp-relay\": {dhcp} ({dnsmasq})"),
            &format!("gw.toml:8:2: there is no section \"dhcp\": {dhcp} ({dnsmasq})"),
            &format!(
                "gw.toml:9:3: there is no section \"router-advertisement\": {router} ({radvd})"
            ),
        ],
    );
}

#[test]
fn features_that_are_not_here_are_refused_by_name_with_what_does_them() {
    let ike = "hitpath negotiates no keys (strongSwan or another IKE daemon, whose keys go to \
        `hitpath xfrm state add`; or [[sa]] with keys of your own)";
    let routing = "hitpath speaks no routing protocol (FRR or BIRD, whose routes go to `hitpath \
        route` or `hitpath batch`; or [[route]])";
    let failover = "hitpath hands neither addresses nor connections over to another gateway \
        (keepalived, whose scripts call `hitpath addr` and `hitpath route`)";
    let nat64 = "hitpath translates no IPv6 to IPv4 (Jool or TAYGA as a station of a link; NAT \
        within a family is [firewall] and flows)";
    refused(
        r#"
[gateway]
vrrp = { id = 1 }
[[port]]
name = "lan"
kind = "memory"
OSPF = "area 0"
[ike]
psk = "secret"
[[bgp.neighbor]]
address = "192.0.2.9"
[nat64]
prefix = "64:ff9b::/96"
[ha]
peer = "192.0.2.9"
"#,
        &[
            &format!("gw.toml:3:1: gateway has no key \"vrrp\": {failover}"),
            &format!("gw.toml:7:1: port has no key \"OSPF\": {routing}"),
            &format!("gw.toml:8:2: there is no section \"ike\": {ike}"),
            &format!("gw.toml:10:3: there is no section \"bgp\": {routing}"),
            &format!("gw.toml:12:2: there is no section \"nat64\": {nat64}"),
            &format!("gw.toml:14:2: there is no section \"ha\": {failover}"),
        ],
    );
}

/// A name that is one of ours is no other program's.
#[test]
fn no_section_or_key_is_refused_as_a_feature() {
    for section in SECTIONS {
        assert_eq!(elsewhere::section(section.name), None, "[{}]", section.name);
        for key in section.keys {
            assert_eq!(elsewhere(key.name), None, "{}", key.name);
        }
    }
}

#[test]
fn an_unknown_port_is_told_beside_other_errors() {
    refused(
        r#"
[[port]]
name = "lan"
kind = "memory"
addresses = ["192.0.2.1/33"]
[[neighbour]]
port = "lan"
address = "192.0.2.8"
mac = "02:00:00:00:00:08"
[[neighbour]]
port = "upstream"
address = "192.0.2.9"
mac = "02:00:00:00:00:09"
[[policy]]
vrf = "red"
direction = "out"
action = "bypass"
"#,
        &[
            "gw.toml:5:14: \"192.0.2.1/33\": the prefix length must be 0 to 32 for IPv4, 0 to 128 \
            for IPv6 (as in \"192.0.2.1/24\")",
            "gw.toml:11:8: there is no port \"upstream\" ([[port]] with name = \"upstream\")",
            "gw.toml:15:7: there is no VRF \"red\" ([[vrf]] with name = \"red\")",
        ],
    );
}

#[test]
fn an_unknown_port_is_told_where_there_is_none_at_all() {
    refused(
        "[[neighbour]]\nport = \"lan\"\naddress = \"192.0.2.9\"\nmac = \"02:00:00:00:00:09\"\n",
        &[
            "gw.toml:1:1: the file asks for no port ([[port]] with name and kind)",
            "gw.toml:2:8: there is no port \"lan\" ([[port]] with name = \"lan\")",
        ],
    );
}

#[test]
fn names_are_not_missed_where_one_could_not_be_read() {
    let told = errors(
        "[[port]]\nnmae = \"lan\"\n[[neighbour]]\nport = \"lan\"\naddress = \"192.0.2.9\"\nmac = \
        \"02:00:00:00:00:09\"\n",
    );
    assert!(told.contains("nmae") && !told.contains("there is no port"), "{told}");
}

#[test]
fn broken_toml_does_not_hide_other_errors() {
    let told = errors("[gateway]\nworkers = = 2\nidle = \"lazy\"\n");
    assert!(told.starts_with("gw.toml:2:11: "), "{told}");
    assert!(told.contains("gw.toml:3:8: idle = \"lazy\""), "{told}");
}

#[test]
fn names_that_do_not_exist_are_told_with_the_nearest() {
    refused(
        r#"
[[vrf]]
name = "red"
[[port]]
name = "lan"
kind = "memory"
vrf = "rde"
addresses = ["192.0.2.1/24"]
[[route]]
to = "10.0.0.0/8"
via = "192.0.2.9"
port = "lam"
[[neighbour]]
port = "upstream"
address = "192.0.2.9"
mac = "02:00:00:00:00:09"
"#,
        &[
            "gw.toml:7:7: there is no VRF \"rde\" (did you mean red?)",
            "gw.toml:12:8: there is no port \"lam\" (did you mean lan?)",
            "gw.toml:14:8: there is no port \"upstream\" ([[port]] with name = \"upstream\")",
        ],
    );
}

#[test]
fn what_is_said_twice_is_told_with_the_first_place() {
    let doubled = |part: &str| {
        let table = format!("[[{part}]]");
        let start = GOOD.find(&table).unwrap();
        let end = GOOD[start + 2..].find("[[").map_or(GOOD.len(), |end| start + 2 + end);
        errors(&format!("{GOOD}\n{}", &GOOD[start..end]))
    };
    assert!(
        doubled("vrf").contains("VRF red is given twice (the first is on line 6)"),
        "{}",
        doubled("vrf")
    );
    assert!(doubled("port").contains("port lan is given twice (the first is on line 10)"));
    assert!(
        doubled("route").contains(
            "route 192.168.12.0/24 with metric 0 is given twice (the first is on line 28)"
        )
    );
    assert!(doubled("neighbour").contains("neighbour 192.168.13.9 of port lan is given twice"));
    assert!(doubled("sa").contains("the SA to 192.168.11.1 with SPI 0x1001 is given twice"));
    assert!(
        doubled("policy").contains("a policy of direction out with this selector is given twice")
    );
}

#[test]
fn what_is_said_twice_is_told_beside_other_errors() {
    let told = errors(&format!(
        "{GOOD}\n[[route]]\nto = \"192.168.12.0/24\"\nvia = \"10.99.0.1\"\n[[vrf]]\nname = \
        \"red\"\n[[port]]\nname = \"dmz\"\nkind = \"memory\"\naddresses = [\"10.99.0.9/33\"]\n"
    ));
    let told: Vec<_> = told.lines().collect();
    assert!(
        told.iter().any(|line| line.contains("route 192.168.12.0/24 with metric 0 is given twice")),
        "{told:?}"
    );
    assert!(told.iter().any(|line| line.contains("VRF red is given twice")), "{told:?}");
    // The next hop may be on the link whose address is wrong.
    assert_eq!(told.len(), 3, "{told:?}");
}

#[test]
fn keys_are_never_told() {
    let secret = "00112233445566778899aabbccddeeffgg";
    for (field, value) in [
        ("key", format!("\"0x{secret}\"")),
        ("key", format!("\"{secret}\"")),
        ("key", "17".to_owned()),
    ] {
        let sa = format!(
            "[[sa]]\nsource = \"192.0.2.1\"\ndestination = \"192.0.2.2\"\nspi = 1\naead = {{ name \
            = \"rfc4106(gcm(aes))\", {field} = {value} }}\n"
        );
        let told = errors(&sa);
        assert!(!told.contains("2233") && !told.contains("17"), "{told}");
    }
    let syntax =
        errors(&format!("[[sa]]\nencryption = {{ name = \"cbc(aes)\", key = 0x{secret} }}\n"));
    assert!(!syntax.contains("2233"), "{syntax}");
}

#[test]
fn wrong_lengths_of_keys_are_told_with_the_right_ones() {
    let told = errors(
        "[[sa]]\nsource = \"192.0.2.1\"\ndestination = \"192.0.2.2\"\nspi = 1\naead = { name = \
        \"rfc4106(gcm(aes))\", key = \"0x0011\" }\n",
    );
    assert!(told.starts_with("gw.toml:5:8: ") && told.contains("20 or 36 bytes"), "{told}");
}

#[test]
fn vrfs_with_reserved_names_and_sources_of_others_are_told_with_their_lines() {
    let vrf = |name: &str| format!("{GOOD}\n[[vrf]]\nname = \"{name}\"\n");
    let lines = GOOD.lines().count();
    for (name, means) in [
        ("lo", "the gateway itself in policy rules"),
        ("all", "all routing tables"),
        ("local", "a routing table of Linux"),
        ("default", "a routing table of Linux"),
        ("l3mdev", "the table of a packet's own VRF in policy rules"),
        ("77", "a number, as routing tables have"),
        ("0x1f", "a number, as routing tables have"),
    ] {
        let told =
            format!("gw.toml:{}:8: '{name}' is {means} (another name, as in blue)", lines + 3);
        refused(&vrf(name), &[&told]);
    }
    let file = format!(
        "{GOOD}\n[[port]]\nname = \"lo\"\nkind = \"memory\"\n[[rule]]\niif = \"lo\"\naction = \"blackhole\"\npriority = 5\n"
    );
    let notes = load("gw.toml", &file).unwrap().notes;
    let lo = crate::check::LO_IS_NO_PORT;
    assert!(notes.iter().any(|note| note.message == lo), "{notes:?}");
    let route = |src: &str| {
        format!(
            "{GOOD}\n[[route]]\nto = \"10.9.0.0/16\"\nvia = \"192.168.11.1\"\nsrc = \"{src}\"\n"
        )
    };
    assert_eq!(load("gw.toml", &route("192.168.11.2")).err(), None);
    let told = format!(
        "gw.toml:{}:7: src 192.168.11.1 is no address of a port of VRF main (an address of the \
        gateway in the route's VRF)",
        lines + 5
    );
    refused(&route("192.168.11.1"), &[&told]);
}

#[test]
fn what_only_the_tables_know_is_told_too() {
    let nested = GOOD.replace(
        "[\"192.168.11.2/24\"]",
        "[\"192.168.11.2/24\", \"192.168.0.1/16\", \"192.168.12.255/16\"]",
    );
    assert_eq!(load("gw.toml", &nested).err(), None);
    let broadcast =
        GOOD.replace("[\"192.168.11.2/24\"]", "[\"192.168.11.2/24\", \"192.168.13.255/16\"]");
    let told = errors(&broadcast);
    assert!(told.starts_with("gw.toml:1:1: ") && told.contains("broadcast address"), "{told}");
}

#[test]
fn a_file_that_is_too_large_is_not_even_read() {
    let text = " ".repeat(MAX_FILE + 1);
    assert!(errors(&text).contains("67108864 bytes at most"));
}

proptest::proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "\\PC{0,200}") {
        let _ = load("x", &text);
    }

    #[test]
    fn any_damage_to_a_good_file_is_read_or_refused(
        cuts in proptest::collection::vec((0..GOOD.len(), 0..40usize, "[ -~\n]{0,6}"), 1..4),
    ) {
        let mut text = GOOD.to_owned();
        for (at, length, put) in cuts {
            let at = at.min(text.len());
            let end = (at + length).min(text.len());
            text.replace_range(at..end, &put);
        }
        if let Err(told) = load("x", &text) {
            assert!(!told.0.is_empty());
            assert!(told.0.iter().all(|one| one.line >= 1 && one.column >= 1));
        }
    }
}

#[test]
fn wrong_fields_of_packets_are_told_what_is_right() {
    let policy = |keys: &str| {
        let text = format!("[[policy]]\ndirection = \"out\"\naction = \"discard\"\n{keys}\n");
        load("x", &text).map(drop).unwrap_err().to_string()
    };
    for (keys, wrong, right) in [
        (
            "dscp = \"gold\"",
            "x:4:8: dscp = \"gold\": expected a number from 0 to 63",
            "as in \"ef\"",
        ),
        ("dscp = 64", "x:4:8: dscp = 64: expected a number", "as in \"ef\""),
        (
            "protocol = 6\ntcp-flags = \"syn\"",
            "x:5:13: tcp-flags = \"syn\": expected FLAGS/MASK",
            "as in",
        ),
        (
            "tcp-flags = \"syn/syn\"",
            "only TCP has flags to select by, not any protocol",
            "protocol tcp",
        ),
        ("ttl = 256", "x:4:7: ttl = 256", "0 to 255"),
    ] {
        let error = policy(keys);
        assert!(error.contains(wrong) && error.contains(right), "{keys}: {error}");
    }
}

#[test]
fn a_wrong_firewall_is_refused_with_its_place() {
    let text = |firewall: &str| {
        format!(
            "[[port]]\nname = \"lan\"\nkind = \"memory\"\n[[port]]\nname = \"wan\"\n\
             kind = \"memory\"\n[firewall]\n[[firewall.zone]]\nname = \"in\"\n\
             ports = [\"lan\"]\n[[firewall.zone]]\nname = \"out\"\nports = [\"wan\"]\n{firewall}"
        )
    };
    for (firewall, message) in [
        (
            "[[firewall.zone]]\nname = \"x\"\n",
            "14:1: zone x has no member (ports, vrfs or networks)",
        ),
        (
            "[[firewall.zone]]\nports = [\"lam\"]\n",
            "14:1: zone without name (name = \"...\", a name)",
        ),
        (
            "[[firewall.policy]]\nto = [\"in\"]\n",
            "14:1: policy without from (from = [...], a list of zones)",
        ),
        (
            "[[firewall.zone]]\nname = \"x\"\nports = [\"lam\"]\nmasquerade = true\n",
            "17:14: masquerade is true or false (\"ipv4\", \"ipv6\" or \"both\")",
        ),
        (
            "[[firewall.zone]]\nname = \"x\"\nports = [\"lan\"]\n",
            "16:9: port lan is in zone in already (one zone for each member)",
        ),
        (
            "[[firewall.zone]]\nname = \"x\"\nports = [\"lam\"]\n",
            "16:9: there is no port \"lam\" (did you mean lan?)",
        ),
        (
            "[[firewall.zone]]\nname = \"x\"\nnetworks = [\"0.0.0.0/0\"]\n",
            "16:12: network 0.0.0.0/0 would be all others, too (the networks behind the tunnel, or \
             an xfrm link as port)",
        ),
        (
            "[[firewall.zone]]\nname = \"x\"\nnetworks = [\"10.2.0.0/16\"]\nmasquerade = \"ipv4\"\n",
            "17:14: zone x has no port whose address sources would get ([[firewall.snat]] with addresses, \
             for what goes to networks)",
        ),
        (
            "[[firewall.policy]]\nfrom = [\"gateway\"]\nto = [\"in\"]\n",
            "15:8: what the gateway itself sends does not enter the firewall (another zone; `to` \
             may be gateway)",
        ),
        (
            "[[firewall.snat]]\nfrom = [\"in\"]\nto = [\"gateway\"]\n",
            "16:6: sources of packets for the gateway itself are not translated (zones that packets \
             leave to)",
        ),
        (
            "[[firewall.snat]]\nfrom = [\"gateway\"]\nto = [\"out\"]\n",
            "15:8: what the gateway itself sends does not enter the firewall (another zone)",
        ),
        (
            "[[firewall.policy]]\nfrom = [\"in\"]\nto = [\"out\"]\n\
             [[firewall.policy]]\nfrom = [\"in\"]\nto = [\"gateway\", \"out\"]\n",
            "19:6: policy 1 is from in to out already (one policy from a zone to another)",
        ),
        (
            "[[firewall.policy]]\nfrom = [\"in\"]\nto = [\"out\"]\nrules = [{ sources = \
             [\"10.0.0.0/8\"], destinations = [\"::/0\"], action = \"drop\" }]\n",
            "17:10: no packet matches the rule: its sources, destinations and services are of no one \
             family (both of IPv4 or both of IPv6)",
        ),
        (
            "[[firewall.forward]]\nfrom = [\"out\"]\nservice = \"tcp/80-81\"\nto = \"10.0.0.1\"\n\
             to-port = 8\n",
            "18:11: several ports would become port 8 (one port in `service`, or no to-port)",
        ),
        (
            "[[firewall.forward]]\nfrom = [\"out\"]\nservice = \"ping\"\nto = \"10.0.0.1\"\n",
            "16:11: service ping has no ports to forward (tcp/8080 or udp/5000-5010)",
        ),
        (
            "[[firewall.snat]]\nfrom = [\"in\"]\nto = [\"out\"]\nsources = [\"fd00::/8\"]\n\
             addresses = \"10.0.0.1\"\n",
            "18:13: fd00::/8 is of another family than 10.0.0.1/32 (one family; NAT64 is not \
             supported)",
        ),
    ] {
        let told = load("fw.toml", &text(firewall)).unwrap_err().to_string();
        assert_eq!(told, format!("fw.toml:{message}"));
    }
}

#[test]
fn a_rule_says_what_it_does() {
    let file = |keys: &str| {
        format!("[[vrf]]\nname = \"blue\"\n{GOOD}\n[[rule]]\npriority = 7\niif = \"blue\"\n{keys}")
    };
    let place = file("").lines().position(|line| line == "[[rule]]").unwrap() + 1;
    let told = load("gw.toml", &file("")).unwrap_err().to_string();
    let right =
        format!("gw.toml:{place}:1: rule without table, vrf, goto or action (vrf = \"NAME\"");
    assert!(told.starts_with(&right), "{told}");
    for keys in ["table = 5", "vrf = \"main\"", "goto = 9", "action = \"prohibit\""] {
        assert_eq!(load("gw.toml", &file(keys)).err(), None, "{keys}");
    }
}
