//! Errors of one kind do not hide those of another.

use super::*;

const FIREWALL: &str = "\
[firewall]
[[firewall.zone]]
name = \"inside\"
ports = [\"lan\"]
[[firewall.policy]]
from = [\"inside\"]
to = [\"outside\"]
action = \"accept\"
";

const PORT: &str = "[[port]]\nname = \"lan\"\nkind = \"memory\"\nmtu = 9000\n";

/// What was said, without places.
fn messages(text: &str) -> Vec<String> {
    let all = load("gw.toml", text).unwrap_err();
    all.0.into_iter().map(|wrong| wrong.message).collect()
}

#[test]
fn a_rule_hides_no_route_and_says_which_key_is_wrong() {
    let text = format!(
        "{PORT}addresses = [\"10.1.0.1/24\"]\n\
        [[rule]]\npriority = 1\nfrom = \"10.1.0.0/33\"\ndport = \"x\"\nfwmark = \"y\"\n\
        [[route]]\nto = \"10.9.0.0/16\"\nvia = \"10.99.3.4\"\n\
        [[rule]]\npriority = 2\nfrom = \"10.1.0.0/8\"\ntable = 5\n\
        [[rule]]\npriority = 3\ngoto = 2\n\
        [[rule]]\npriority = 4\ntable = 5\nvrf = \"main\"\n\
        [[rule]]\npriority = 5\ntable = 255\n"
    );
    let told = load("gw.toml", &text).unwrap_err();
    let places: Vec<_> = told.0.iter().map(|wrong| (wrong.line, wrong.column)).collect();
    let right = [(6, 1), (8, 8), (9, 9), (10, 10), (13, 7), (16, 8), (20, 8), (24, 7), (27, 9)];
    assert_eq!(places, right, "{told}");
    assert!(!told.to_string().contains("rule add"), "{told}");
}

#[test]
fn a_firewall_is_checked_beside_what_is_wrong_elsewhere() {
    let no_zone = "there is no zone \"outside\"";
    let says = |text: &str, wanted: &[&str]| {
        let all = messages(text);
        let is_there = |wanted: &&str| all.iter().any(|message| message.contains(*wanted));
        assert!(wanted.iter().all(is_there) && all.len() == wanted.len(), "{all:?}");
    };
    // A key that cannot be read, buffers, and a zone.
    let text = format!("[gateway]\nlarge-buffers = 0\n{PORT}sid = \"protected\"\n{FIREWALL}");
    says(&text, &["port has no key \"sid\"", "large-buffers = 0", no_zone]);
    // Names that are not there, and a zone.
    let text = format!("{PORT}{FIREWALL}[[route]]\nto = \"default\"\nport = \"wan\"\n");
    says(&text, &["there is no port \"wan\"", no_zone]);
    // A port that is nowhere is told once.
    let right = FIREWALL.replace("[\"outside\"]", "[\"inside\"]");
    says(&format!("{PORT}vrf = \"red\"\n{right}"), &["there is no VRF \"red\""]);
}
