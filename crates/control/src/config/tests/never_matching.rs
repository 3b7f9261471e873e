//! Policies that never match are noted.

use super::*;

/// A policy of `main`, out, with these keys.
fn policy_with(keys: &str) -> String {
    format!("[[policy]]\ndirection = \"out\"\naction = \"bypass\"\n{keys}\n")
}

const PORT: &str = "[[port]]\nname = \"lan\"\nkind = \"memory\"\n";

fn noted(text: &str) -> Vec<(usize, String)> {
    let config = check("gw.toml", text, &|_, _| Ok(Vec::new()), &|_, _| Ok(())).unwrap();
    config
        .notes
        .into_iter()
        .map(|note| (note.line, note.message))
        .filter(|(_, message)| !message.starts_with("VRF "))
        .collect()
}

#[test]
fn policies_that_never_match_are_noted_with_what_covers_them() {
    let text = [
        PORT.to_owned(),
        // Line 4, but tried last.
        policy_with("priority = 9\nsource = \"10.1.2.0/24\"\nprotocol = \"udp\""),
        // Line 10: of another direction.
        policy_with("source = \"10.0.0.0/8\"").replace("out", "in"),
        // Line 14: covers the first.
        policy_with("priority = 3\nsource = \"10.1.0.0-10.1.255.254\""),
        // Line 19: a range that is not within that one.
        policy_with("priority = 5\nsource = \"10.1.255.250-10.1.255.255\""),
        // Line 24: is within.
        policy_with("priority = 5\nsource = \"10.1.255.250-10.1.255.254\"\ndscp = 46"),
    ]
    .concat();
    let message = |line| {
        format!(
            "this policy never matches a packet: the policy on line {line} comes first and \
             matches all that it does"
        )
    };
    assert_eq!(noted(&text), [(4, message(14)), (24, message(14))]);
    assert_eq!(load("gw.toml", &text).unwrap().notes, [], "this is for check alone");
}

#[test]
fn of_many_policies_that_never_match_the_first_are_named_and_the_rest_counted() {
    let mut text = PORT.to_owned() + &policy_with("priority = 1");
    for host in 0..30 {
        text += &policy_with(&format!("priority = 2\nsource = \"10.0.0.{host}\""));
    }
    let notes = noted(&text);
    assert_eq!(notes.len(), 21);
    assert_eq!(notes[20].1, "from here on 10 more policies never match a packet");
}

/// However policies overlap, the search ends soon, and says what it does not know.
#[test]
fn too_much_work_is_given_up() {
    let mut text = PORT.to_owned();
    for number in 0..2000 {
        let ports = format!("{}-{}", number + 1, number + 30_000);
        text += &policy_with(&format!("protocol = \"tcp\"\nsource-ports = \"{ports}\""));
    }
    assert_eq!(noted(&text), []);
    let mut errors = Errors::new(&text);
    let (document, _) = DeTable::parse_recoverable(&text);
    let policies = each(document.get_ref(), "policy", &mut errors, security::policy);
    shadow::note_within(&policies, 100_000, &mut errors);
    let notes = errors.into_notes("gw.toml").0;
    let [note] = &notes[..] else { panic!("{notes:?}") };
    let (unchecked, rest) = note.message.split_once(' ').unwrap();
    assert!((1000..1990).contains(&unchecked.parse().unwrap()), "{unchecked}");
    assert_eq!(
        rest,
        "of 2000 policies overlap too much to find out whether they ever match a packet"
    );
}

#[test]
fn forwards_and_translations_that_never_match_are_noted() {
    let text = r#"[firewall]
[[firewall.zone]]
name = "lan"
ports = ["lan"]
[[firewall.zone]]
name = "wan"
ports = ["wan"]
[[firewall.zone]]
name = "dmz"
ports = ["dmz"]
[[firewall.snat]]
from = ["lan"]
to = ["wan"]
sources = ["10.1.0.0/24"]
addresses = "10.2.0.60"
[[firewall.snat]]
from = ["lan"]
to = ["wan"]
sources = ["10.1.0.128/25"]
[[firewall.snat]]
from = ["dmz", "lan"]
to = ["wan"]
sources = ["10.1.0.128/25"]
[[firewall.snat]]
from = ["lan"]
to = ["wan"]
sources = ["2001:db8::/64"]
[[firewall.forward]]
from = ["wan"]
service = "tcp/80-90"
to = "10.1.0.3"
[[firewall.forward]]
from = ["wan"]
service = "tcp/85"
to = "10.1.0.4"
[[firewall.forward]]
from = ["wan"]
service = "tcp/85"
addresses = ["192.0.2.7"]
to = "10.1.0.5"
[[firewall.forward]]
from = ["wan"]
service = "tcp/85-86"
addresses = ["192.0.2.7", "192.0.2.8"]
to = "10.1.0.6"
[[firewall.forward]]
from = ["wan"]
service = "tcp/86"
sources = ["198.51.100.0/24"]
addresses = ["192.0.2.8"]
to = "10.1.0.6"
# The first is for addresses of `wan` alone, for `dmz` as well.
[[firewall.forward]]
from = ["wan"]
hairpin = ["dmz"]
service = "tcp/7000"
to = "10.1.0.3"
[[firewall.forward]]
from = ["dmz"]
service = "tcp/7000"
to = "10.1.0.4"
"#;
    let (_, notes) = load_firewall("fw.toml", text).unwrap();
    let notes: Vec<_> = notes.into_iter().map(|note| (note.line, note.message)).collect();
    let message = |what, line| {
        format!(
            "this {what} never matches a packet: the one on line {line} comes first and matches all \
             that it does"
        )
    };
    let line = |text_of: &str, number: usize| {
        let mut lines = (1..).zip(text.lines()).filter(|(_, line)| *line == text_of);
        lines.nth(number).unwrap().0
    };
    let [snat, forward] = ["[[firewall.snat]]", "[[firewall.forward]]"];
    assert_eq!(
        notes,
        [
            (line(snat, 1), message("snat", line(snat, 0))),
            (line(forward, 1), message("forward", line(forward, 0))),
            (line(forward, 4), message("forward", line(forward, 3))),
        ]
    );
}

#[test]
fn rules_on_one_line_are_told_by_their_columns() {
    let text = |rules: &str| {
        let zone = |name| format!("[[firewall.zone]]\nname = \"{name}\"\nports = [\"{name}\"]\n");
        format!(
            "[firewall]\n{}{}[[firewall.policy]]\nfrom = [\"lan\"]\nto = [\"wan\"]\n{rules}\n",
            zone("lan"),
            zone("wan")
        )
    };
    let noted = |rules: &str| {
        let (_, notes) = load_firewall("fw.toml", &text(rules)).unwrap();
        notes.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let [low, high, all] = ["tcp/1-100", "tcp/101-65535", "tcp/22-443"]
        .map(|service| format!("{{ services = [\"{service}\"], action = \"drop\" }}"));
    assert_eq!(
        noted(&format!("rules = [{low}, {high}, {all}]")),
        [
            "fw.toml:11:108: this rule never matches a packet: those at 11:10 and 11:57 come first and \
          together match all that it does"
        ]
    );
    assert_eq!(
        noted(&format!("rules = [{all}, {all}]")),
        [
            "fw.toml:11:58: this rule never matches a packet: the one at 11:10 comes first and matches \
          all that it does"
        ]
    );
    assert_eq!(
        noted(&format!("rules = [\n{low},\n{high},\n{all}\n]")),
        [
            "fw.toml:14:1: this rule never matches a packet: those on lines 12 and 13 come first and \
          together match all that it does"
        ]
    );
}

#[test]
fn what_a_policy_does_with_no_packet_is_told() {
    let noted = |policy: &str| {
        let zone = |name| format!("[[firewall.zone]]\nname = \"{name}\"\nports = [\"{name}\"]\n");
        let text = format!(
            "[firewall]\n{}{}[[firewall.policy]]\nfrom = [\"lan\"]\nto = [\"wan\"]\n{policy}\n",
            zone("lan"),
            zone("wan")
        );
        let (_, notes) = load_firewall("fw.toml", &text).unwrap();
        notes.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let (all, some) = ("{ action = \"drop\" }", "{ services = [\"tcp/22\"], action = \"drop\" }");
    let halves = ["0.0.0.0-127.255.255.255", "128.0.0.0-255.255.255.255", "::/0"]
        .map(|range| format!("{{ sources = [\"{range}\"], action = \"accept\" }}"));
    assert_eq!(
        noted(&format!("action = \"accept\"\nrules = [{all}]")),
        ["fw.toml:11:10: this `action` is of no packet: the rule on line 12 matches every packet"]
    );
    assert_eq!(
        noted(&format!(
            "log = \"rest\"\nrules = [\n{},\n{},\n{}]",
            halves[0], halves[1], halves[2]
        )),
        [
            "fw.toml:11:7: this `log` is of no packet: the rules on lines 13, 14 and 15 together match \
          every packet"
        ]
    );
    assert_eq!(
        noted(&format!("action = \"accept\"\nrules = [{some}, {all}]")),
        [
            "fw.toml:11:10: this `action` is of no packet: the rules at 12:10 and 12:54 together match \
          every packet"
        ]
    );
    // Without it there is nothing that a reader would take for something else.
    assert!(noted(&format!("rules = [{all}]")).is_empty());
    assert!(noted(&format!("action = \"accept\"\nrules = [{some}]")).is_empty());
    let left = format!("action = \"accept\"\nrules = [{}, {}]", halves[0], halves[1]);
    assert!(noted(&left).is_empty(), "IPv6 is left");
}
