//! iproute2's options and abbreviations, as the words that clap knows.

use std::ffi::OsString;

use api::Family;
use clap::{Args, Command, CommandFactory, ValueEnum};
use control::render::Options;

use crate::cli::{Cli, refuses_colour};
use crate::exit::Usage;

/// iproute2's options of what is shown. As with `ip`, they may stand in front of the verb.
#[derive(Args, Debug, Default)]
pub(crate) struct ShowOptions {
    /// IPv4 alone
    #[arg(short = '4', overrides_with_all = ["ipv4", "ipv6"])]
    ipv4: bool,

    /// IPv6 alone
    #[arg(short = '6', overrides_with_all = ["ipv4", "ipv6"])]
    ipv6: bool,

    /// A line for each link, port or neighbour (also -br)
    #[arg(long, overrides_with = "brief")]
    brief: bool,

    /// What links have received and sent, what qdiscs have, and what rules of filters have decided
    #[arg(short, long, action = clap::ArgAction::Count)]
    statistics: u8,

    /// What kind of link each is, and its routing table; all of what routes are
    #[arg(short, long, action = clap::ArgAction::Count)]
    details: u8,

    /// A line for each record, with `\\` where lines end otherwise
    #[arg(short, long, overrides_with = "oneline")]
    oneline: bool,

    /// The time in front of what `monitor` prints, in UTC
    #[arg(short, long, visible_alias = "tshort", overrides_with = "timestamp")]
    timestamp: bool,

    /// Colours (also -c): without WHEN and with auto, not where NO_COLOR is set
    #[arg(long, value_name = "WHEN", num_args = 0..=1, require_equals = true)]
    color: Option<Option<Colour>>,

    /// JSON is indented in any case
    #[arg(short, long, hide = true, overrides_with = "pretty")]
    pretty: bool,

    #[arg(long, hide = true)]
    netns: Option<String>,
}

/// When there are colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Colour {
    /// Whatever the output is
    Always,
    /// On a terminal
    Auto,
    /// Not at all
    Never,
}

/// How answers are to look, and of which family they are.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Look {
    pub(crate) family: Option<Family>,
    pub(crate) options: Options,
    pub(crate) colour: bool,
    pub(crate) timestamp: bool,
}

impl ShowOptions {
    /// # Errors
    /// If what they ask for has no meaning here.
    pub(crate) fn look(&self, is_terminal: bool) -> Result<Look, Usage> {
        if let Some(name) = &self.netns {
            return Err(Usage(format!("-n {}: {}", api::shown(name), control::grammar::NETNS)));
        }
        let family = match (self.ipv4, self.ipv6) {
            (true, _) => Some(Family::V4),
            (_, true) => Some(Family::V6),
            _ => None,
        };
        let options = Options {
            brief: self.brief,
            statistics: self.statistics > 0,
            details: self.details > 0,
            oneline: self.oneline,
        };
        let colour = match self.color {
            None | Some(Some(Colour::Never)) => false,
            // Who says always, says it to this command; NO_COLOR is said to all.
            Some(Some(Colour::Always)) => true,
            Some(None) => !refuses_colour(),
            Some(Some(Colour::Auto)) => is_terminal && !refuses_colour(),
        };
        Ok(Look { family, options, colour, timestamp: self.timestamp })
    }
}

/// What a word in iproute2's way is for clap. iproute2's options have one dash, whatever their
/// length, and may be abbreviated.
enum IpOption {
    /// This.
    Is(String),
    /// This, with the next word behind it.
    With(&'static str),
}

fn option(word: &str) -> Option<IpOption> {
    let (name, value) = word.split_once('=').unwrap_or((word, ""));
    let is = |full: &str, least: usize| name.len() >= least && full.starts_with(name);
    let known = match () {
        () if is("-color", 2) && word.contains('=') => {
            return Some(IpOption::Is(format!("--color={value}")));
        }
        () if word.contains('=') => return None,
        () if is("-color", 2) || is("-colour", 2) => "--color",
        () if is("-brief", 3) => "--brief",
        () if is("-statistics", 2) || is("-stats", 2) => "--statistics",
        () if is("-details", 2) => "--details",
        () if is("-oneline", 2) => "--oneline",
        () if is("-timestamp", 2) || is("-tshort", 3) => "--timestamp",
        () if is("-pretty", 2) => "--pretty",
        () if is("-json", 3) => "--json",
        () if is("-netns", 2) => return Some(IpOption::With("--netns")),
        () if name == "-4" => "-4",
        () if name == "-6" => "-6",
        () => return None,
    };
    Some(IpOption::Is(known.to_owned()))
}

/// Whether a word is iproute2's `-json`, or an abbreviation of it.
pub(crate) fn is_json(word: &str) -> bool {
    matches!(option(word), Some(IpOption::Is(option)) if option == "--json")
}

const HUMAN: &str = "counters are exact, so leave it out; -h alone, and --help, print the help";

/// Why an option of iproute2's is not here, if it is one of those.
fn refused(word: &str) -> Option<&'static str> {
    let is = |full: &str, least: usize| word.len() >= least && full.starts_with(word);
    Some(match () {
        () if is("-human-readable", 3) => HUMAN,
        () if is("-iec", 2) => "counters are exact: leave it out",
        () if is("-resolve", 2) => "addresses are not looked up: leave it out",
        () if is("-Numeric", 2) => "protocols and scopes have their names: leave it out",
        () if is("-all", 2) => "there are no network namespaces here: leave it out",
        () if is("-loops", 2) => "what is flushed goes in one step: leave it and its number out",
        () if is("-rcvbuf", 3) => "no netlink socket is read: leave it and its size out",
        () if is("-echo", 2) => {
            "what was done is what was asked: leave it out; hitpath monitor prints what changes"
        }
        () if is("-force", 3) => "it is an option of batch: hitpath batch --force FILE",
        () if matches!(word, "-0" | "-B" | "-M") => "the families are -4 and -6",
        () => return None,
    })
}

fn is_negative(word: &str) -> bool {
    word.strip_prefix('-').is_some_and(|rest| rest.starts_with(|it: char| it.is_ascii_digit()))
}

/// Options of one letter or word whose value is the next word.
fn takes_value(word: &OsString) -> bool {
    let is_family = |word: &str| word.len() >= 2 && "-family".starts_with(word);
    word.to_str().is_some_and(|word| {
        let is_number = word.len() >= 2 && "-loops".starts_with(word)
            || word.len() >= 3 && "-rcvbuf".starts_with(word);
        word == "--socket"
            || is_family(word)
            || is_number
            || matches!(option(word), Some(IpOption::With(_)))
    })
}

/// The words of a command line, with iproute2's abbreviations of objects written out, its `-force`
/// as the option that it is of `batch`, and its options in front of the verb, such as `-br`, as those
/// that they are of the verb.
///
/// # Errors
/// If the verb is an object of iproute2's that is not here: why.
pub(crate) fn words(all: impl Iterator<Item = OsString>) -> Result<Vec<OsString>, String> {
    let mut all: Vec<_> = all.collect();
    // iproute2's -batch FILE is an option that stands for a verb.
    if let Some(at) = batch_at(&all) {
        all[at] = "batch".into();
    }
    let Some(verb) = verb_at(&all) else { return Ok(all) };
    // Behind it stands a line as it is written.
    if all[verb] == "complete" {
        return Ok(all);
    }
    if let Some(word) = all[verb].to_str()
        && let Some(name) = written_out(word)?
    {
        all[verb] = name.into();
    }
    let name = all[verb].clone();
    if !name.to_str().is_some_and(has_show_options) {
        return Ok(all);
    }
    let is_batch = name == "batch";
    let (mut words, mut moved) = (Vec::new(), Vec::new());
    let mut at = 0;
    while at < all.len() {
        let is_value = at > 0 && all[at - 1] == "--socket";
        let word = all[at].to_str().filter(|_| !is_value).unwrap_or_default();
        let into = if at < verb { &mut moved } else { &mut words };
        let next = all.get(at + 1).and_then(|next| next.to_str());
        at += 1;
        // Behind the verb -h asks for help.
        let is_human = at <= verb && word.len() >= 2 && "-human-readable".starts_with(word);
        let why = if is_human { Some(HUMAN) } else { refused(word) };
        if let Some(why) = why.filter(|_| !is_batch) {
            return Err(format!("{} is not supported: {why}", word.escape_debug()));
        }
        match (option(word), next) {
            _ if is_batch && word == "-force" => into.push("--force".into()),
            // Two dashes are clap's way to say the same.
            _ if !is_batch && word.len() >= 2 && "-family".starts_with(word) => {
                let known = [("inet", "-4"), ("inet6", "-6")];
                match known.into_iter().find(|(name, _)| Some(*name) == next) {
                    Some((_, option)) => into.push(option.into()),
                    None => {
                        let message = format!(
                            "{word} {}: the families are inet and inet6",
                            api::shown(next.unwrap_or_default())
                        );
                        return Err(message);
                    }
                }
                at += 1;
            }
            (Some(IpOption::With(option)), Some(next)) => {
                into.push(format!("{option}={next}").into());
                at += 1;
            }
            (Some(IpOption::Is(option)), _) => into.push(option.into()),
            // A value, of which the grammar says what is wrong: no option begins with a digit.
            _ if !is_batch && at - 1 > verb && is_negative(word) => {
                if !words.contains(&"--".into()) {
                    words.push("--".into());
                }
                words.push(all[at - 1].clone());
            }
            // As they were: those in front of the verb are of every verb.
            _ => words.push(all[at - 1].clone()),
        }
        if at > verb {
            words.append(&mut moved);
        }
    }
    Ok(words)
}

/// Where the verb is: the first word that is neither an option nor the value of one.
fn verb_at(all: &[OsString]) -> Option<usize> {
    first_behind_options(all, |_| false)
}

/// Where `-batch` is, or an abbreviation of it, in front of where a verb would be.
fn batch_at(all: &[OsString]) -> Option<usize> {
    let is_batch = |word: &str| word == "--batch" || word.len() >= 2 && "-batch".starts_with(word);
    let at = first_behind_options(all, is_batch)?;
    all[at].to_str().is_some_and(is_batch).then_some(at)
}

/// The first word that is neither an option nor the value of one, or is an option that `ends` them.
fn first_behind_options(all: &[OsString], ends: impl Fn(&str) -> bool) -> Option<usize> {
    let mut at = 1;
    while let Some(word) = all.get(at) {
        match word.to_str() {
            Some(option) if option.starts_with('-') && option.len() > 1 && !ends(option) => {
                at += if takes_value(word) { 2 } else { 1 };
            }
            _ => return Some(at),
        }
    }
    None
}

/// The verb that iproute2's users mean by a word that is none.
fn written_out(word: &str) -> Result<Option<&'static str>, String> {
    let cli = Cli::command();
    if cli.find_subcommand(word).is_some() {
        return Ok(None);
    }
    // `tc` is that program, and no abbreviation.
    if let Some(instead) = of_others(word) {
        return Err(format!("hitpath has no verb `{word}`: {instead}"));
    }
    match control::grammar::verb(word) {
        None => Ok(None),
        Some(Ok(verb)) => Ok(Some(verb)),
        // A verb of our own is nearer than an object that is not here.
        Some(Err(_)) if cli.get_subcommands().any(|it| it.get_name().starts_with(word)) => Ok(None),
        Some(Err(refusal)) => Err(refusal.to_string()),
    }
}

/// The verb below `of` that a word names or, as one of iproute2's, abbreviates.
pub(crate) fn find_verb<'c>(of: &'c Command, word: &str) -> Option<&'c Command> {
    let meant = || of.find_subcommand(control::grammar::verb(word)?.ok()?);
    of.find_subcommand(word).or_else(|| meant().filter(|_| of.get_name() == "hitpath"))
}

/// What to say instead of a verb that other programs have.
fn of_others(word: &str) -> Option<&'static str> {
    const OTHERS: &[(&[&str], &str)] = &[
        (&["ip"], "leave it out, as in `hitpath route show`"),
        (&["tc"], "leave it out, as in `hitpath qdisc show`"),
        (&["ovs-ofctl"], "`hitpath flow` has its words, as in `hitpath flow dump`"),
        (
            &["nft", "iptables", "ip6tables", "pf", "acl"],
            "`hitpath firewall` has zones and policies, `hitpath filter` rules of ports and VRFs, \
             `hitpath flow` match-action tables",
        ),
        (&["nat"], "`hitpath show nat` has its pools, `hitpath firewall show` what is translated"),
        (
            &["wg", "ipsec", "swanctl", "setkey"],
            "`hitpath show sas` and `hitpath show policies` list, `hitpath xfrm` changes them",
        ),
        (
            &["ping", "traceroute", "packet-tracer"],
            "`hitpath explain` says what would become of a packet, `hitpath trace` what becomes of \
             real ones",
        ),
        (&["tcpdump", "capture", "pcap"], "`hitpath tap` copies packets to a file or to Wireshark"),
        (&["ss", "netstat", "sessions"], "`hitpath conntrack -L` lists connections"),
        (&["vppctl", "grcli", "configure", "cli"], "`hitpath shell` is the interactive one"),
        (&["version"], "`hitpath --version`, and of the daemon `hitpath show daemon`"),
        (
            &["start", "stop", "restart", "status", "enable", "disable"],
            "the service is systemd's: `systemctl status hitpath`; `hitpath show daemon` says what \
             runs",
        ),
        (
            &["log", "logs", "audit"],
            "`journalctl -u hitpath`, and `journalctl -t hitpath-audit` for who changed what",
        ),
        (
            &["metrics"],
            "`curl --unix-socket /run/hitpath/control.sock http://hitpath/metrics`; docs/metrics.md",
        ),
        (
            &["commit", "write", "wr"],
            "changes are kept at once; `hitpath save` writes a file of them",
        ),
        (&["interface", "interfaces", "int"], "`hitpath show ports`, or `hitpath link show`"),
    ];
    OTHERS.iter().find(|(words, _)| words.contains(&word)).map(|(_, instead)| *instead)
}

/// Whether a verb takes iproute2's grammar.
pub(crate) fn is_verb(word: &str) -> bool {
    !["batch", "monitor"].contains(&word) && has_show_options(word)
}

/// Whether a verb takes iproute2's options, or some of them.
fn has_show_options(word: &str) -> bool {
    if word == "monitor" {
        return true;
    }
    let mut cli = Cli::command();
    let found = cli.find_subcommand_mut(word);
    found.is_some_and(|verb| verb.get_arguments().any(|argument| argument.get_id() == "oneline"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::Command;

    fn read(line: &str) -> Vec<String> {
        let words = words(line.split(' ').map(OsString::from)).expect(line);
        words.into_iter().map(|word| word.into_string().unwrap()).collect()
    }

    #[test]
    fn force_may_be_said_as_iproute2_says_it() {
        assert_eq!(read("hitpath batch -force x"), ["hitpath", "batch", "--force", "x"]);
        assert_eq!(read("hitpath -j batch x -force"), ["hitpath", "-j", "batch", "x", "--force"]);
        assert_eq!(read("hitpath show -force"), ["hitpath", "show", "-force"]);
        let cli = Cli::try_parse_from(read("hitpath batch -force x")).unwrap();
        assert!(matches!(cli.command, Command::Batch(_)));
        assert!(Cli::try_parse_from(read("hitpath batch --atomic --force x")).is_err());
        assert!(Cli::try_parse_from(read("hitpath batch -f x")).is_ok());
    }

    #[test]
    fn batch_may_be_said_as_iproute2_says_it() {
        for (line, is) in [
            ("hitpath -batch x", "hitpath batch x"),
            ("hitpath -b -", "hitpath batch -"),
            ("hitpath -j --batch x", "hitpath -j batch x"),
            ("hitpath -force -ba x", "hitpath batch --force x"),
            ("hitpath -b x -force", "hitpath batch x --force"),
            ("hitpath --socket -b -batch x", "hitpath --socket -b batch x"),
            ("hitpath -br link", "hitpath link --brief"),
        ] {
            assert_eq!(read(line).join(" "), is, "{line}");
        }
        assert!(Cli::try_parse_from(read("hitpath -force -b x")).is_ok());
    }

    #[test]
    fn a_value_below_nothing_is_no_option() {
        let line = "hitpath -s qdisc add dev wan root tbf rate -1mbit burst -5";
        let words = read(line);
        let before = "hitpath qdisc --statistics add dev wan root tbf rate -- -1mbit burst -5";
        assert_eq!(words.join(" "), before);
        assert!(Cli::try_parse_from(words).is_ok());
        assert_eq!(read("hitpath route -6 show").join(" "), "hitpath route -6 show");
    }

    #[test]
    fn options_stand_anywhere_and_may_be_abbreviated() {
        for (line, is) in [
            ("hitpath -s -br link", "hitpath link --statistics --brief"),
            ("hitpath route -6 show", "hitpath route -6 show"),
            ("hitpath -s show ports", "hitpath -s show ports"),
            ("hitpath --socket link -d vrf", "hitpath --socket link vrf --details"),
            ("hitpath -json -o x s", "hitpath xfrm --json --oneline s"),
            ("hitpath -j -c=auto a", "hitpath -j a --color=auto"),
            ("hitpath -col -ones r", "hitpath -ones r --color"),
            ("hitpath -n blue r", "hitpath r --netns=blue"),
            ("hitpath r -netns blue", "hitpath r --netns=blue"),
            ("hitpath -f inet6 ro s", "hitpath ro -6 s"),
            ("hitpath ro -family inet s", "hitpath ro -4 s"),
        ] {
            assert_eq!(read(line).join(" "), is, "{line}");
        }
        for line in
            ["hitpath -s -s -d -d l", "hitpath -4 -4 a", "hitpath -o -o -br -br n", "hitpath -c r"]
        {
            assert!(Cli::try_parse_from(read(line)).is_ok(), "{line}");
        }
        // As with iproute2, the last one counts.
        for (line, family) in [
            ("hitpath -4 -6 r", Family::V6),
            ("hitpath -6 -4 r", Family::V4),
            ("hitpath -f inet6 r -4 -6 -4", Family::V4),
        ] {
            let Command::Route(route) = Cli::try_parse_from(read(line)).unwrap().command else {
                panic!("{line}")
            };
            assert_eq!(route.show.look(false).unwrap().family, Some(family), "{line}");
            let monitor = line.replace(" r", " monitor");
            assert!(Cli::try_parse_from(read(&monitor)).is_ok(), "{monitor}");
        }
        let wrong = words(["hitpath", "-f", "mpls", "r"].map(OsString::from).into_iter());
        assert_eq!(wrong.unwrap_err(), "-f mpls: the families are inet and inet6");
    }

    #[test]
    fn other_options_of_iproute2_are_refused_by_name() {
        for (line, says) in [
            ("hitpath -h -s link", "-h is not supported: counters are exact"),
            ("hitpath -human -s link", "-human is not"),
            ("hitpath -r route", "-r is not supported: addresses are not looked up"),
            ("hitpath -resolve n", "not looked up"),
            ("hitpath -N route", "have their names"),
            ("hitpath -iec -s link", "counters are exact"),
            ("hitpath -a link", "no network namespaces"),
            ("hitpath -l 5 addr flush dev lan", "in one step"),
            ("hitpath -rc 4096 monitor", "leave it and its size out"),
            ("hitpath -echo route add default via 10.1.0.2", "hitpath monitor prints"),
            ("hitpath -e link", "-e is not supported"),
            ("hitpath -0 link", "-4 and -6"),
            ("hitpath -force link", "hitpath batch --force FILE"),
        ] {
            let why = words(line.split(' ').map(OsString::from)).unwrap_err();
            assert!(why.contains(says), "{line}: {why}");
        }
        for line in ["hitpath -h", "hitpath link -h", "hitpath -h show", "hitpath batch -force x"] {
            read(line);
        }
    }

    #[test]
    fn objects_may_be_abbreviated_as_with_iproute2() {
        for (word, verb) in [
            ("x", "xfrm"),
            ("xfr", "xfrm"),
            ("ne", "neigh"),
            ("neighbo", "neigh"),
            ("rou", "route"),
            ("rul", "rule"),
            ("ad", "addr"),
            ("li", "link"),
            ("v", "vrf"),
            // Verbs of our own, and nothing that anybody knows.
            ("sh", "sh"),
            ("qd", "qd"),
            ("tap", "tap"),
            ("nonsense", "nonsense"),
        ] {
            assert_eq!(read(&format!("hitpath {word}"))[1], verb, "{word}");
        }
        for (word, says) in [("netns", "no network namespace"), ("nexthop", "parts of routes")] {
            let refused = words(["hitpath", word].map(OsString::from).into_iter()).unwrap_err();
            assert!(refused.contains(word) && refused.contains(says), "{refused}");
        }
    }

    #[test]
    fn a_network_namespace_is_refused_by_name() {
        let options = ShowOptions { netns: Some("blue".to_owned()), ..ShowOptions::default() };
        let why = options.look(false).unwrap_err().to_string();
        assert!(why.starts_with("-n blue: "), "{why}");
    }

    #[test]
    fn verbs_of_other_programs_are_refused_with_what_to_say_instead() {
        for (line, says) in [
            ("hitpath ip route", "leave it out, as in `hitpath route show`"),
            ("hitpath -j nft list ruleset", "`hitpath firewall`"),
            ("hitpath tc qdisc show", "leave it out, as in `hitpath qdisc show`"),
            ("hitpath version", "`hitpath --version`"),
            ("hitpath ping 192.0.2.1", "`hitpath explain`"),
        ] {
            let why = words(line.split(' ').map(OsString::from)).unwrap_err();
            assert!(why.contains(says), "{line}: {why}");
        }
        // What clap knows, or nobody, is left to it.
        for line in ["hitpath show ports", "hitpath nonsense", "hitpath help ip"] {
            read(line);
        }
    }
}
