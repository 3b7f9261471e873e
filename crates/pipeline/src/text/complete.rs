//! What may come next in the text of a flow.

use crate::field::Field;

use super::change::Command;
use super::matches::PROTOCOLS;
use super::value::CT_STATES;

/// What may come next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Offer {
    /// This word, alone.
    Word(String),
    /// This key, with what joins its value to it.
    Key(String),
    /// The name of a port.
    Port,
    /// The name of a VRF.
    Vrf,
}

/// What else than conditions there is of a flow, and the commands that take it.
const WORDS: &[(&str, &[Option<Command>])] = &[
    ("vrf=", ANY),
    ("table=", ANY),
    ("priority=", CHANGE),
    ("cookie=", ANY),
    ("idle_timeout=", CHANGE),
    ("hard_timeout=", CHANGE),
    ("check_overlap", &[Some(Command::Add)]),
    ("reset_counts", CHANGE),
    ("out_port=", &[None, Some(Command::Delete)]),
    ("actions=", CHANGE),
];
const ANY: &[Option<Command>] =
    &[None, Some(Command::Add), Some(Command::Modify), Some(Command::Delete)];
const CHANGE: &[Option<Command>] = &[Some(Command::Add), Some(Command::Modify)];

/// Conditions whose field depends on the protocol.
const OPEN: &[&str] = &["tp_src=", "tp_dst="];

/// Actions, with what joins their arguments to them.
const ACTIONS: &[&str] = &[
    "NORMAL",
    "drop",
    "output:",
    "IN_PORT",
    "ct(",
    "ct_clear",
    "resubmit(",
    "goto_table:",
    "set_field:",
    "load:",
    "move:",
    "mod_nw_src:",
    "mod_nw_dst:",
    "mod_nw_tos:",
    "mod_nw_ttl:",
    "mod_tp_src:",
    "mod_tp_dst:",
    "dec_ttl",
    "nptv6(",
    "reject",
    "unrouted",
    "rerouted",
    "log",
    "note:",
];

/// What stands inside of `ct(...)`.
const CT: &[&str] =
    &["commit", "force", "anew", "owner=", "table=", "zone=", "nat", "nat(", "exec(", "alg="];

/// What stands inside of `nat(...)`.
const NAT: &[&str] = &[
    "src=",
    "dst=",
    "persistent",
    "hash",
    "random",
    "twice",
    "endpoint_independent",
    "block=",
    "subscribers=",
];

/// What stands inside of `exec(...)`.
const EXEC: &[&str] = &["set_field:", "load:", "move:"];

/// What may come next in `last`, a word of a flow behind `before`, and from which byte of `last` on.
pub fn complete(before: &str, last: &str, command: Option<Command>) -> (usize, Vec<Offer>) {
    let text = format!("{before}{last}");
    if text.len() > super::LONGEST {
        return (last.len(), Vec::new());
    }
    let is_action = actions_from(&text);
    // The separator may stand in `before`: then all of `last` is what is being written.
    let from = |at: usize| at.saturating_sub(before.len());
    let start = |separators: &[char]| text.rfind(separators).map_or(0, |at| at + 1);
    let Some(actions) = is_action else {
        let key = start(&[',', ' ']);
        return match text[key..].split_once('=') {
            None => (from(key), keys(command)),
            Some(("in_port" | "oif" | "out_port", _)) => (from(start(&['='])), vec![Offer::Port]),
            Some(("vrf", _)) => (from(start(&['='])), vec![Offer::Vrf]),
            Some(("sa", _)) => (from(start(&['='])), ["any", "none", "reqid:"].map(offer).to_vec()),
            Some(("ct_state", _)) => {
                let at = start(&['+', '-', '=']);
                let states = match text[..at].ends_with('=') {
                    true => Vec::new(),
                    false => {
                        CT_STATES.iter().map(|state| Offer::Key((*state).to_owned())).collect()
                    }
                };
                (from(at), states)
            }
            Some(_) => (from(text.len()), Vec::new()),
        };
    };
    let inside = innermost(&text[actions..]);
    let at = start(&[',', ' ', '(']).max(actions);
    let words = match inside {
        _ if text[at..].contains(['=', ':']) => {
            let at = start(&['=', ':']);
            let word = text[..at].trim_end_matches([':', '=']);
            let word = word.rsplit([',', ' ', '(', '=']).next().unwrap_or_default();
            return match word {
                "output" => (from(at), vec![Offer::Port]),
                "alg" => (from(at), vec![offer("ftp"), offer("tftp")]),
                _ => (from(text.len()), Vec::new()),
            };
        }
        None => ACTIONS,
        Some("ct") => CT,
        Some("nat") => NAT,
        Some("exec") => EXEC,
        Some(_) => &[],
    };
    let mut offers: Vec<_> = words.iter().map(|word| offer(word)).collect();
    if matches!(inside, Some("resubmit")) {
        offers.push(Offer::Port);
    }
    (from(at), offers)
}

fn offer(word: &str) -> Offer {
    match word.ends_with([':', '=', '(']) {
        true => Offer::Key(word.to_owned()),
        false => Offer::Word(word.to_owned()),
    }
}

/// Where the actions begin.
fn actions_from(text: &str) -> Option<usize> {
    let begins = |at: usize| at == 0 || text[..at].ends_with([',', ' ']);
    ["actions=", "action="]
        .iter()
        .filter_map(|word| {
            text.match_indices(word).find(|(at, _)| begins(*at)).map(|(at, _)| at + word.len())
        })
        .min()
}

/// The word in front of the last parenthesis that is open.
fn innermost(text: &str) -> Option<&str> {
    let mut open = Vec::new();
    for (at, character) in text.char_indices() {
        match character {
            '(' => open.push(at),
            ')' => _ = open.pop(),
            _ => {}
        }
    }
    let before = &text[..open.pop()?];
    before.rsplit([',', ' ', '(']).next()
}

fn keys(command: Option<Command>) -> Vec<Offer> {
    let words = WORDS.iter().filter(|(_, commands)| commands.contains(&command));
    let words = words.map(|(word, _)| offer(word));
    let protocols = PROTOCOLS.iter().map(|(name, ..)| offer(name));
    let fields = Field::ALL.iter().filter(|field| **field != Field::Decrypted);
    let fields = fields.map(|field| Offer::Key(format!("{}=", field.name())));
    let open = OPEN.iter().map(|key| offer(key));
    words.chain(protocols).chain(fields).chain(open).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::{Names, parse_change, parse_criteria};
    use types::{PortId, VrfId};

    struct One;

    impl Names for One {
        fn port(&self, name: &str) -> Option<PortId> {
            (name == "lan").then_some(PortId(0))
        }
        fn port_name(&self, _: PortId) -> Option<String> {
            Some("lan".to_owned())
        }
        fn vrf(&self, name: &str) -> Option<VrfId> {
            (name == "main").then_some(VrfId::MAIN)
        }
        fn vrf_name(&self, _: VrfId) -> Option<String> {
            Some("main".to_owned())
        }
    }

    fn offered(text: &str, command: Option<Command>) -> Vec<String> {
        let (start, offers) = complete("", text, command);
        assert!(start <= text.len());
        let word = |offer| match offer {
            Offer::Word(word) | Offer::Key(word) => word,
            Offer::Port => "PORT".to_owned(),
            Offer::Vrf => "VRF".to_owned(),
        };
        offers.into_iter().map(word).collect()
    }

    /// What the parser has against a word that it does not know.
    const UNKNOWN: [&str; 4] = ["there is no", "is not supported", "not expected", "not known"];

    #[test]
    fn the_parser_takes_what_is_offered() {
        for command in [None, Some(Command::Add), Some(Command::Modify), Some(Command::Delete)] {
            for word in offered("", command) {
                let text = format!("{word}1");
                let text = if word.ends_with('=') { text } else { word };
                let error = match command {
                    Some(command) => parse_change(command, &text, &One).err(),
                    None => parse_criteria(&text, &One).err(),
                };
                // A port or VRF of the name `1` is another matter.
                let error = error.map(|error| error.what).unwrap_or_default();
                let is_name = ["VRF", "port", "SA"].iter().any(|kind| error.contains(kind));
                let is_unknown = UNKNOWN.iter().any(|says| error.contains(says));
                assert!(is_name || !is_unknown, "{command:?} {text}: {error}");
            }
        }
        for (before, after) in
            [("", ""), ("ct(", ")"), ("ct(commit,nat(", "))"), ("ct(commit,exec(", "))")]
        {
            let offers = offered(&format!("actions={before}"), Some(Command::Add));
            assert!(offers.len() > 2, "{before}");
            for word in offers {
                let close = if word.ends_with('(') { ")" } else { "" };
                let text = format!("ip,actions={before}{word}{close}{after}");
                let error = parse_change(Command::Add, &text, &One).err();
                let error = error.map(|error| error.what).unwrap_or_default();
                assert!(!UNKNOWN.iter().any(|says| error.contains(says)), "{text}: {error}");
            }
        }
    }

    #[test]
    fn what_the_parser_knows_is_offered() {
        let mut all = offered("", Some(Command::Add));
        all.extend(offered("", Some(Command::Delete)));
        for inside in ["", "ct(", "ct(nat(", "ct(exec(", "ct(alg="] {
            all.extend(offered(&format!("actions={inside}"), Some(Command::Add)));
        }
        let all: Vec<_> =
            all.iter().map(|word| word.trim_end_matches(['=', ':', '(']).to_lowercase()).collect();
        // Written by `flow dump`, and passed over; errors; and other names of what is offered.
        let not = [
            "duration",
            "n_packets",
            "n_bytes",
            "idle_age",
            "hard_age",
            "id",
            "owner",
            "-1",
            "any",
            "none",
            "all",
            "exact",
            "icmp_type",
            "icmp_code",
            // Refused, with what to do instead.
            "timeout",
            // Of flows that [firewall] makes.
            "limit",
        ];
        let sources = [
            include_str!("actions.rs"),
            include_str!("change.rs"),
            include_str!("ct.rs"),
            include_str!("matches.rs"),
        ];
        let mut count = 0;
        for line in sources
            .iter()
            .flat_map(|source| source.lines().take_while(|line| *line != "#[cfg(test)]"))
        {
            let Some((arm, _)) = line.split_once(" =>").or_else(|| line.split_once(" if ")) else {
                continue;
            };
            for word in
                arm.trim().split(" | ").filter_map(|part| part.strip_prefix('"')?.strip_suffix('"'))
            {
                count += 1;
                assert!(all.iter().any(|one| one == word) || not.contains(&word), "{word}: {line}");
            }
        }
        assert!(count > 40, "{count}");
    }

    #[test]
    fn values_and_nested_words_are_offered_where_they_stand() {
        let add = Some(Command::Add);
        assert_eq!(offered("table=0,in_port=", add), ["PORT"]);
        assert_eq!(offered("vrf=m", add), ["VRF"]);
        assert!(offered("ip,ct_state=+trk-", add).contains(&"new".to_owned()));
        assert!(offered("ip,actions=ct(commit,", add).contains(&"alg=".to_owned()));
        assert!(offered("ip,actions=ct(commit),", add).contains(&"NORMAL".to_owned()));
        assert_eq!(offered("ip,actions=output:l", add), ["PORT"]);
        assert_eq!(offered("ip,nw_src=10.", add), Vec::<String>::new());
        assert!(!offered("", Some(Command::Delete)).contains(&"actions=".to_owned()));
        assert_eq!(complete("table=0 ", "ip,n", add).0, 3);
        assert_eq!(complete("", "ü,actions=ct(é", add).0, "ü,actions=ct(".len());
    }
}
