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
