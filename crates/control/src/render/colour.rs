//! iproute2's colours: what `ip -c` colours, in the same ones.

use std::net::IpAddr;

use types::Mac;

const RED: &str = "\u{1b}[31m";
const GREEN: &str = "\u{1b}[32m";
const YELLOW: &str = "\u{1b}[33m";
const BLUE: &str = "\u{1b}[34m";
const MAGENTA: &str = "\u{1b}[35m";
const CYAN: &str = "\u{1b}[36m";
const NONE: &str = "\u{1b}[0m";

/// `text` with names of links, addresses and states in their colours.
pub fn coloured(text: &str) -> String {
    let mut all = String::with_capacity(text.len() * 2);
    for line in text.split_inclusive('\n') {
        let (mut before, mut is_first) = ("", true);
        for part in line.split_inclusive([' ', '\t', '\n']) {
            let word = part.trim_end_matches([' ', '\t', '\n']);
            match colour(before, word, is_first) {
                Some((colour, length)) => {
                    let (inside, behind) = part.split_at(length);
                    all.extend([colour, inside, NONE, behind]);
                }
                None => all.push_str(part),
            }
            if !word.is_empty() {
                before = word;
                is_first = false;
            }
        }
    }
    all
}

/// The colour of a word behind another one, and how much of it has it.
fn colour(before: &str, word: &str, is_first: bool) -> Option<(&'static str, usize)> {
    let whole = |colour| Some((colour, word.len()));
    // The link of `2: lan@wan:`, and that behind `dev`.
    let is_number = before.strip_suffix(':').is_some_and(|number| number.parse::<u32>().is_ok());
    match before {
        "dev" | "master" | "iif" | "oif" => return whole(CYAN),
        _ if is_number => return whole(CYAN),
        "state" if word == "UP" => return whole(GREEN),
        "state" if word == "DOWN" => return whole(RED),
        _ if is_first => {}
        _ if word == "UP" => return whole(GREEN),
        _ if word == "DOWN" => return whole(RED),
        _ => {}
    }
    if word.parse::<Mac>().is_ok() {
        return whole(YELLOW);
    }
    let address = word.split_once('/').map_or(word, |(address, _)| address);
    match address.parse() {
        Ok(IpAddr::V4(_)) => Some((MAGENTA, address.len())),
        Ok(IpAddr::V6(_)) => Some((BLUE, address.len())),
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_addresses_and_states_are_coloured_and_nothing_else_changes() {
        let text = "2: lan: <UP> mtu 1500 state UP\n    link/ether 02:00:00:00:00:01\n    inet \
            10.1.0.1/24 scope global lan\ndefault via fe80::1 dev wan dead\n";
        let shown = coloured(text);
        for part in [
            "\u{1b}[36mlan:\u{1b}[0m ",
            "state \u{1b}[32mUP\u{1b}[0m\n",
            "\u{1b}[33m02:00:00:00:00:01\u{1b}[0m",
            "\u{1b}[35m10.1.0.1\u{1b}[0m/24",
            "\u{1b}[34mfe80::1\u{1b}[0m dev \u{1b}[36mwan\u{1b}[0m dead\n",
        ] {
            assert!(shown.contains(part), "{part:?} in {shown:?}");
        }
        let mut bare = shown;
        for colour in [RED, GREEN, YELLOW, BLUE, MAGENTA, CYAN, NONE] {
            bare = bare.replace(colour, "");
        }
        assert_eq!(bare, text);
    }
}
