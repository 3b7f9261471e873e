//! What may come next in a command, as the parsers themselves know it.
//!
//! The parser of a command reads the words that are there, and wherever it comes to their end
//! says what it would take. Each word of that is then given to it, and those that it finds fault
//! with are left out: a key that was given before, or a word that is known and not supported.

use api::Family;
use core::iter::once;

use super::words::Words;
use super::{MAX_WORDS, flow, parse_words};

pub use super::meaning::meaning;

/// What may come next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Offer {
    /// This word.
    Word(String),
    /// This is the beginning of a word, which goes on.
    Part(String),
    /// The name of something that is there.
    Name(Name),
    /// The same behind the beginning of a word, as `in_port=` is.
    NameBehind(String, Name),
    /// A value, as in `a number`.
    Value(String),
}

/// What has names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name {
    /// A port.
    Port,
    /// A VRF.
    Vrf,
    /// A routing table, by number.
    Table,
    /// A policy, by its index.
    Policy,
    /// Policies, by their name.
    PolicyName,
    /// A token bucket, by its handle.
    Handle,
}

/// What may come behind `words`, which begin with the object: `route`, `xfrm` and so on. `last` is
/// the word that is being written, which may be empty.
pub fn offers<S: AsRef<str>>(words: &[S], last: &str, family: Option<Family>) -> Vec<Offer> {
    let words: Vec<&str> = words.iter().take(MAX_WORDS + 1).map(AsRef::as_ref).collect();
    if words.len() >= MAX_WORDS {
        return Vec::new();
    }
    if let Some(flow) = flow::offers(&words, last) {
        return flow;
    }
    let Some(offers) = after(&words, family) else { return Vec::new() };
    let is_right = |word: &str| {
        let longer = words.iter().copied().chain(once(word)).collect::<Vec<_>>();
        after(&longer, family).is_some()
    };
    let mut all: Vec<_> = offers.words.into_iter().filter(|word| is_right(word)).collect();
    let mut seen = std::collections::HashSet::new();
    all.retain(|word| seen.insert(word.clone()));
    let names = offers.names.into_iter().map(Offer::Name);
    let values = offers.values.into_iter().map(Offer::Value);
    all.into_iter().map(Offer::Word).chain(names).chain(values).collect()
}

/// What the parser would take behind `words`; `None` if one of them is wrong.
fn after(words: &[&str], family: Option<Family>) -> Option<Offers> {
    let mut words = Words::to_complete(words.to_vec(), family);
    // That the command is not complete, or would not be carried out, is no matter here.
    let _ = parse_words(&mut words);
    words.into_offers()
}

/// What a parser says it would take.
#[derive(Debug, Default)]
pub(super) struct Offers {
    words: Vec<String>,
    names: Vec<Name>,
    values: Vec<String>,
    /// A word was found fault with.
    pub(super) is_wrong: bool,
}

impl Offers {
    /// Of these words one. Those in capitals stand for values.
    pub(super) fn words<'n>(&mut self, words: impl Iterator<Item = &'n str>) {
        for word in words {
            let is_value = word.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'/');
            match is_value {
                true => self.values.push(word.to_owned()),
                false => self.words.push(word.to_owned()),
            }
        }
    }

    pub(super) fn name(&mut self, name: Name) {
        if !self.names.contains(&name) {
            self.names.push(name);
        }
    }

    pub(super) fn value(&mut self, what: &str) {
        if self.words.is_empty() && self.names.is_empty() {
            self.values.push(what.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::super::parse;
    use super::*;

    const OBJECTS: [&str; 11] = [
        "address",
        "route",
        "rule",
        "neighbour",
        "link",
        "xfrm",
        "vrf",
        "qdisc",
        "filter",
        "flow",
        "firewall",
    ];

    /// Values that are tried where one is expected.
    const VALUES: [&str; 14] = [
        "192.0.2.0/24",
        "192.0.2.1",
        "1",
        "blue",
        "02:00:00:00:00:02",
        "0x00112233",
        "1:",
        "10mbit",
        "10ms",
        "32kb",
        "ef",
        "syn/syn,ack",
        "0xb8/0xfc",
        "1000",
    ];

    fn words_of(words: &[&str]) -> Vec<String> {
        let word = |offer| match offer {
            Offer::Word(word) => Some(word),
            _ => None,
        };
        offers(words, "", None).into_iter().filter_map(word).collect()
    }

    /// Goes wherever offers lead. Each word is entered once behind each command.
    fn walk(words: &mut Vec<String>, seen: &mut BTreeMap<String, BTreeSet<String>>) {
        let head = words[..words.len().min(if words[0] == "xfrm" { 3 } else { 2 })].join(" ");
        let before = words.clone();
        let all: Vec<&str> = before.iter().map(String::as_str).collect();
        let found = offers(&all, "", None);
        let mut is_value_wanted = false;
        for offer in found {
            match offer {
                Offer::Word(word) => {
                    if seen.entry(head.clone()).or_default().insert(word.clone()) {
                        words.push(word);
                        walk(words, seen);
                        words.pop();
                    }
                }
                Offer::Name(_) | Offer::Value(_) => is_value_wanted = true,
                Offer::Part(_) | Offer::NameBehind(..) => {}
            }
        }
        // Beyond a value other words may come.
        if is_value_wanted && words.len() < 24 {
            let right = VALUES.iter().filter(|value| {
                let longer: Vec<&str> = all.iter().copied().chain(once(**value)).collect();
                let new = |word: &String| !seen.get(&head).is_some_and(|seen| seen.contains(word));
                after(&longer, None).is_some() && words_of(&longer).iter().any(new)
            });
            for value in right.map(|value| (*value).to_owned()).collect::<Vec<_>>() {
                words.push(value);
                walk(words, seen);
                words.pop();
            }
        }
    }

    fn everything() -> BTreeMap<String, BTreeSet<String>> {
        let mut seen = BTreeMap::new();
        for object in OBJECTS {
            walk(&mut vec![object.to_owned()], &mut seen);
        }
        seen
    }

    #[test]
    fn every_keyword_of_the_parsers_is_offered_and_every_offer_means_something() {
        let seen = everything();
        let offered: BTreeSet<&str> = seen.values().flatten().map(String::as_str).collect();
        // Read, and refused with what to say instead; numbers beside names; tables of the kernel.
        let not = BTreeSet::from([
            "50",
            "ah",
            "beet",
            "comp",
            "hao",
            "in_trigger",
            "iptfs",
            "ro",
            "route2",
            "clsact",
            "invisible",
            "transport",
            "--strict",
            "icmp_type",
            "icmp_code",
            "local",
            "index",
            "cache",
            "cached",
            // Abbreviations.
            "t",
            "ta",
            "tab",
            "tabl",
            "protoc",
            "protoco",
            // Behind a word and a value that this walk does not put together.
            "valid_lft",
            "preferred_lft",
        ]);
        let sources = [
            include_str!("address.rs"),
            include_str!("filter.rs"),
            include_str!("link.rs"),
            include_str!("neighbour.rs"),
            include_str!("qdisc.rs"),
            include_str!("route.rs"),
            include_str!("rule.rs"),
            include_str!("xfrm_policy.rs"),
            include_str!("xfrm_selector.rs"),
            include_str!("xfrm_state.rs"),
        ];
        let mut missing = Vec::new();
        let mut count = 0;
        for line in sources.iter().flat_map(|source| source.lines()) {
            let line = line.trim();
            let (arm, guard) = line.split_once(" if ").unwrap_or((line, ""));
            let is_arm = line.contains(" =>") || guard.contains(" =>");
            let arm = arm.split(" =>").next().unwrap_or_default();
            if !is_arm {
                continue;
            }
            for part in arm.split(" | ") {
                let part = part.trim_start_matches("Some(").trim_start_matches("key @ ");
                let Some(word) = part.strip_prefix('"').and_then(|rest| rest.split('"').next())
                else {
                    continue;
                };
                count += 1;
                if !offered.contains(word) && !not.contains(word) {
                    missing.push(word);
                }
            }
        }
        assert!(count > 100, "{count}");
        assert_eq!(missing, Vec::<&str>::new());
        // Choices that speak for themselves.
        let plain = |word: &str| {
            word.contains(['(', '_', '.', '-', '+', '1', '2', '5'])
                || PLAIN.split_whitespace().any(|plain| plain == word)
        };
        let mut unclear = Vec::new();
        for (head, words) in &seen {
            let object = head.split(' ').next().unwrap_or_default();
            for word in words {
                if meaning(object, word).is_none() && !plain(word) {
                    unclear.push(format!("{head}: {word}"));
                }
            }
        }
        assert_eq!(unclear, Vec::<String>::new());
    }

    /// Words that mean what they say.
    const PLAIN: &str = "tcp udp icmp sctp esp gre ospf any all off auto required bypass policy \
        main sub use allow block accept link global unicast broadcast blackhole unreachable prohibit \
        permanent reachable probe strict loose feasible protected unprotected pmtu ip ipv6 ipv4 \
        reject pass drop protect discard lo pipe nopmtudisc unset none \
        memory pcap tap vlan xfrm vrf up down host label nodad arp rarp icmp6 icmpv6 ip4 ip6 mpls mplsm \
        sctp6 tcp6 udp6 proto state";

    #[test]
    fn the_parser_takes_every_word_that_is_offered() {
        for (head, words) in everything() {
            for word in &words {
                assert!(!word.is_empty() && !word.contains(' '), "{head} {word}");
            }
        }
        for (line, word) in [("route add 10.0.0.0/8", "via"), ("neigh add dev lan", "lladdr")] {
            let words: Vec<&str> = line.split(' ').collect();
            assert!(words_of(&words).contains(&word.to_owned()), "{line}");
        }
        for offered in words_of(&["route", "add", "10.0.0.0/8"]) {
            let refusal = parse(&["route", "add", "10.0.0.0/8", &offered]).err();
            let message = refusal.map(|refusal| refusal.message).unwrap_or_default();
            assert!(!message.contains("not expected"), "{offered}: {message}");
        }
    }

    #[test]
    fn orders_for_queueing_disciplines_are_completed_whatever_stands_first() {
        let words = |line: &str| words_of(&line.split(' ').collect::<Vec<_>>());
        assert_eq!(words("qdisc add"), ["dev", "root", "parent", "handle"]);
        assert_eq!(words("qdisc add handle 1: root"), ["dev"]);
        let kinds = ["tbf", "fq_codel", "pfifo"];
        assert_eq!(words("qdisc add handle 1: root dev wan"), kinds);
        assert_eq!(words("qdisc add parent 1: dev wan"), [&["handle"], &kinds[..]].concat());
        assert_eq!(words("qdisc del dev wan parent 1:"), ["handle"]);
        let tbf = "qdisc replace root dev wan tbf latency 50ms";
        assert_eq!(words(tbf), ["rate", "burst", "buffer", "maxburst"]);
        assert_eq!(words(&format!("{tbf} burst 32kb")), ["rate"]);
        let codel = words("qdisc add parent 1:1 dev wan fq_codel ecn limit 5");
        assert!(codel.contains(&"target".to_owned()) && !codel.contains(&"noecn".to_owned()));
        assert_eq!(offers(&["qdisc", "add", "parent"], "", None)[0], Offer::Name(Name::Handle));
    }

    #[test]
    fn keys_that_were_given_and_words_of_no_support_are_not_offered() {
        let words = words_of(&["route", "add", "default", "via", "192.0.2.1"]);
        assert!(words.contains(&"dev".to_owned()));
        for not in ["via", "default", "blackhole", "tos"] {
            assert!(!words.contains(&not.to_owned()), "{not}");
        }
        assert!(!words_of(&["route"]).contains(&"append".to_owned()));
        assert!(offers(&["route", "nonsense"], "", None).is_empty());
        for (line, refused) in [
            ("link show lan", "dev"),
            ("addr show lan", "dev"),
            ("addr add 10.0.0.1/24", "local"),
            ("route add 10.0.0.0/8", "to"),
            ("neigh show 10.0.0.0/8", "to"),
        ] {
            let words: Vec<&str> = line.split(' ').collect();
            assert!(!words_of(&words).iter().any(|word| word == refused), "{line}");
        }
        assert!(words_of(&["xfrm", "state", "add", "flag"]).contains(&"noecn".to_owned()));
        assert!(offers(&["route", "add", "dev"], "", None) == [Offer::Name(Name::Port)]);
        assert!(offers(&vec!["x"; 100_000], "", None).is_empty());
    }
}
