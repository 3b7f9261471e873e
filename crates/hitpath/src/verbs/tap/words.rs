//! The words of `hitpath tap`.

use std::path::PathBuf;

use api::{TapPoint, TapTarget};

use crate::complete::Next;

/// What is asked.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Tap {
    Add(Add),
    Delete(u64),
    Show,
}

/// A tap to be added.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Add {
    pub(super) target: TapTarget,
    pub(super) points: Vec<TapPoint>,
    pub(super) snaplen: Option<u32>,
    pub(super) rate: Option<u32>,
    pub(super) filter: Option<String>,
    pub(super) output: Output,
}

/// Where packets go, and how many.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Output {
    /// Standard output if it is none.
    pub(super) file: Option<PathBuf>,
    /// Packets, and then the tap ends.
    pub(super) count: Option<u64>,
    /// Bytes of a file, and then the tap ends or the next file begins.
    pub(super) size: Option<u64>,
    /// How many files are used in turn.
    pub(super) files: Option<u32>,
}

const COMMANDS: &str = "`tap add { vrf | port } NAME FILE`, `tap del ID` or `tap show`";

/// The least size of a file, in bytes: every file begins with a header.
const MIN_SIZE: u64 = 4096;

/// The most files that are used in turn.
const MAX_FILES: u32 = 10_000;

/// What may come behind `words`.
pub(crate) fn next(words: &[&str]) -> Vec<Next> {
    let (command, rest) = match words {
        [] => return COMMAND_WORDS.to_vec(),
        [command, rest @ ..] => (*command, rest),
    };
    match (command, rest) {
        ("add" | "a", rest) => next_of_add(rest),
        ("del" | "delete" | "d", []) => vec![Next::Tap],
        _ => Vec::new(),
    }
}

const COMMAND_WORDS: &[Next] = &[
    Next::Word("add", "copy packets to a file"),
    Next::Word("del", "end a tap"),
    Next::Word("delete", "= del"),
    Next::Word("show", "the taps that there are"),
    Next::Word("list", "= show"),
];

const POINTS: &[Next] = &[
    Next::Word("in", "packets as they come"),
    Next::Word("out", "packets as they leave"),
    Next::Word("drop", "packets that are dropped"),
];

const OPTIONS: &[Next] = &[
    Next::Word("snaplen", "bytes of each packet that are copied"),
    Next::Word("rate", "packets a second at most"),
    Next::Word("count", "packets, and then it ends"),
    Next::Word("size", "bytes of a file"),
    Next::Word("files", "how many files are used in turn"),
];

fn next_of_add(words: &[&str]) -> Vec<Next> {
    let rest = match words {
        [] => {
            return vec![
                Next::Word("port", "packets of a port"),
                Next::Word("dev", "= port"),
                Next::Word("vrf", "packets of a VRF"),
            ];
        }
        ["vrf"] => return vec![Next::Vrf],
        ["port" | "dev"] => return vec![Next::Port],
        [_, _, rest @ ..] => rest,
        _ => return Vec::new(),
    };
    let points = rest.iter().take_while(|word| ["in", "out", "drop"].contains(word)).count();
    let is_open = |next: &&Next| match next {
        Next::Word(word, _) => !rest.contains(word),
        _ => true,
    };
    let Some(options) = rest.get(points + 1..) else {
        let file = [Next::File, Next::Word("-", "standard output")];
        return POINTS.iter().filter(is_open).copied().chain(file).collect();
    };
    let is_option = |word: &str| {
        OPTIONS.iter().any(|next| matches!(next, Next::Word(name, _) if *name == word))
    };
    for pair in options.chunks(2) {
        match pair {
            [option, _] if is_option(option) => {}
            [option] if is_option(option) => return vec![Next::Value("a number")],
            // A filter, which goes to the end.
            _ => return Vec::new(),
        }
    }
    OPTIONS.iter().filter(is_open).copied().chain([Next::Value("a filter of tcpdump's")]).collect()
}

/// Reads a command. `Err` says what is wrong and what would be right.
pub(super) fn parse(words: &[String]) -> Result<Tap, String> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["add" | "a", rest @ ..] => add(rest).map(Tap::Add),
        ["del" | "delete" | "d", id] => {
            let id = id
                .parse()
                .map_err(|_| format!("`{}` is no tap; see `hitpath tap show`", api::shown(id)))?;
            Ok(Tap::Delete(id))
        }
        ["del" | "delete" | "d", ..] => Err("say `tap del ID`; see `hitpath tap show`".to_owned()),
        ["show" | "list" | "s"] => Ok(Tap::Show),
        other => {
            let said = api::shown(&other.join(" "));
            Err(format!("`tap {said}` is not understood; say {COMMANDS}"))
        }
    }
}

fn add(words: &[&str]) -> Result<Add, String> {
    let mut words = words.iter().copied();
    let missing = |what: &str| format!("{what} is missing; say {COMMANDS}");
    let target = match (words.next(), words.next()) {
        (Some("vrf"), Some(name)) => TapTarget::Vrf(name.to_owned()),
        (Some("port" | "dev"), Some(name)) => TapTarget::Port(name.to_owned()),
        (Some("vrf" | "port" | "dev"), None) => return Err(missing("a name")),
        (Some(other), _) => {
            let other = api::shown(other);
            return Err(format!("`{other}` stands where `vrf` or `port` should"));
        }
        (None, _) => return Err(missing("`vrf` or `port`")),
    };
    let mut points = Vec::new();
    let file = loop {
        points.push(match words.next() {
            Some("in") => TapPoint::In,
            Some("out") => TapPoint::Out,
            Some("drop") => TapPoint::Drop,
            Some("-") => break None,
            Some(file) => break Some(PathBuf::from(file)),
            None => return Err(missing("a file, or `-`,")),
        });
    };
    let (mut output, mut snaplen, mut rate) = (Output { file, ..Output::default() }, None, None);
    let mut filter = Vec::new();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("a number is missing behind {word}"));
        match word {
            "snaplen" => snaplen = Some(number(word, value()?, 1, 65_535)? as u32),
            "rate" => {
                let rate_word = value()?;
                let per_second = rate_word.strip_suffix("/s").unwrap_or(rate_word);
                rate = Some(number(word, per_second, 1, u32::MAX.into())? as u32);
            }
            "count" => output.count = Some(number(word, value()?, 1, u64::MAX)?),
            "size" => output.size = Some(number(word, value()?, MIN_SIZE, u64::MAX)?),
            "files" => output.files = Some(number(word, value()?, 2, MAX_FILES.into())? as u32),
            word => {
                filter.push(word);
                filter.extend(words.by_ref());
            }
        }
    }
    if output.files.is_some() && (output.size.is_none() || output.file.is_none()) {
        return Err("`files N` needs a file and its `size BYTES`".to_owned());
    }
    let filter = (!filter.is_empty()).then(|| filter.join(" "));
    Ok(Add { target, points, snaplen, rate, filter, output })
}

/// A number with K, M or G behind it for powers of 1024.
fn number(what: &str, word: &str, least: u64, most: u64) -> Result<u64, String> {
    let (digits, shift) = match word.as_bytes().last() {
        Some(b'k' | b'K') => (&word[..word.len() - 1], 10),
        Some(b'm' | b'M') => (&word[..word.len() - 1], 20),
        Some(b'g' | b'G') => (&word[..word.len() - 1], 30),
        _ => (word, 0),
    };
    let number = digits.parse().ok().and_then(|number: u64| number.checked_mul(1 << shift));
    number.filter(|number| (least..=most).contains(number)).ok_or_else(|| {
        format!("`{what} {}` is not possible; it is {least} to {most}", api::shown(word))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Tap, String> {
        parse(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn all_words_are_understood() {
        let line = "add vrf blue in drop a.pcapng snaplen 128 size 2M files 3 rate 500/s count 9 \
                    udp and host 192.0.2.1";
        let output = Output {
            file: Some("a.pcapng".into()),
            count: Some(9),
            size: Some(2 << 20),
            files: Some(3),
        };
        let add = Add {
            target: TapTarget::Vrf("blue".into()),
            points: vec![TapPoint::In, TapPoint::Drop],
            snaplen: Some(128),
            rate: Some(500),
            filter: Some("udp and host 192.0.2.1".into()),
            output,
        };
        assert_eq!(read(line), Ok(Tap::Add(add)));
        let Ok(Tap::Add(add)) = read("add port wan - tcp") else { panic!("not understood") };
        assert_eq!((add.output.file, add.filter.as_deref()), (None, Some("tcp")));
        assert_eq!(read("del 7"), Ok(Tap::Delete(7)));
        assert_eq!(read("show"), Ok(Tap::Show));
    }

    #[test]
    fn what_is_offered_is_understood_and_all_of_it_is_offered() {
        let offered = |line: &str| -> Vec<&str> {
            let words: Vec<&str> = line.split_whitespace().collect();
            let word = |next| if let Next::Word(word, _) = next { Some(word) } else { None };
            next(&words).into_iter().filter_map(word).collect()
        };
        let lines = [
            ("", ["", " port wan f", " 7"].as_slice()),
            ("add", &[" wan f"]),
            ("add port wan", &[" f", ""]),
            ("add port wan f", &[" 5000", " 5000 size 5000"]),
        ];
        let mut all = Vec::new();
        for (line, rests) in lines {
            for word in offered(line) {
                let reads = |rest| read(format!("{line} {word}{rest}").trim()).is_ok();
                assert!(rests.iter().any(reads), "{line} {word}");
                all.push(word);
            }
        }
        let source = include_str!("words.rs").split("#[cfg(test)]").next().unwrap();
        let arms = source.lines().filter_map(|line| line.trim().strip_prefix('"'));
        for arm in arms.filter(|line| line.contains(" =>")) {
            let word = arm.split('"').next().unwrap();
            assert!(all.contains(&word), "{word}");
        }
        assert_eq!(offered("add port wan in"), ["out", "drop", "-"]);
        assert_eq!(next(&["add", "vrf"]), [Next::Vrf]);
        assert!(offered("add port wan f udp and").is_empty());
    }

    #[test]
    fn wrong_words_are_refused_with_what_would_be_right() {
        for (line, says) in [
            ("", "tap add"),
            ("sing", "tap show"),
            ("del", "tap del ID"),
            ("del x", "no tap"),
            ("add", "is missing"),
            ("add link wan f", "`vrf` or `port`"),
            ("add port", "a name is missing"),
            ("add port wan", "a file"),
            ("add port wan in", "a file"),
            ("add port wan f snaplen", "behind snaplen"),
            ("add port wan f snaplen 0", "1 to 65535"),
            ("add port wan f snaplen 65536", "1 to 65535"),
            ("add port wan f rate 0/s", "rate"),
            ("add port wan f count x", "count"),
            ("add port wan f size 10", "4096"),
            ("add port wan f size 99999999999999G", "size"),
            ("add port wan f files 3", "size BYTES"),
            ("add port wan - size 1M files 3", "needs a file"),
        ] {
            let error = read(line).unwrap_err();
            assert!(error.contains(says), "{line}: {error}");
        }
    }
}
