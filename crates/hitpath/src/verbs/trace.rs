//! `hitpath trace`: what became of real packets, stage by stage.

use std::io::{BufRead, BufReader};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use api::{
    Reply, Request, Stage, TraceEvent, TraceLosses, TraceSpec, TraceView, TracedLater, TracedPacket,
};
use clap::Args;
use serde_json::json;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::cli::Global;
use crate::client::{self, Next};
use crate::complete::Next as Word;
use crate::exit::Usage;
use crate::view;
use runtime::exit::Exit;
use runtime::output;

/// Show what becomes of real packets, stage by stage
///
/// For each packet that comes: where its decision came from (a hit in the decision cache, or a miss
/// and why), VRF, rule, route, policies, filters and SA, what was done, and how it ended. Packets
/// that are decrypted are shown once more inside, and errors about a packet with the packet.
#[derive(Args, Debug)]
#[command(after_help = "\
Commands:
  hitpath trace add [ FILTER ... ] [ count N ] [ rate N/s ]
  hitpath trace del ID
  hitpath trace show

Examples:
  hitpath trace add
  hitpath trace add host 10.1.0.2 and icmp count 5
  hitpath trace add esp count 1 -j

A packet that waits for a neighbour or in a queueing discipline is shown at once, and again under its
number, as `later`, when it has left or was dropped.

The trace ends after `count` packets (50 without, 10000 at most), or with this command. `rate` is
1000/s without. There may be 8 traces at once.

FILTER is as tcpdump has it (pcap-filter(7)), for packets without an Ethernet header. It is held
against packets as they came, and as they were decrypted. tcpdump has to be installed where this
command runs: it translates the filter.

To read a packet: `cache` says where the decision came from, `verdict` what was decided, and the lines
behind it what was done. Those in between are how it was decided, in the words of `hitpath explain`.")]
pub(crate) struct Trace {
    /// The command
    #[arg(value_name = "WORD", required = true)]
    words: Vec<String>,
}

/// A command.
#[derive(Debug, PartialEq, Eq)]
enum Asked {
    Add(Add),
    Delete(u64),
    Show,
}

/// What is asked.
#[derive(Debug, Default, PartialEq, Eq)]
struct Add {
    filter: Option<String>,
    count: Option<u32>,
    rate: Option<u32>,
}

/// How long it takes at most until a signal is heeded.
const PERIOD: Duration = Duration::from_millis(200);

/// Longer lines are none of the daemon's.
const MAX_LINE: u64 = 1 << 20;

impl Trace {
    pub(crate) fn run(&self, global: &Global) -> anyhow::Result<Exit> {
        let words: Vec<&str> = self.words.iter().map(String::as_str).collect();
        match parse(&words).map_err(Usage)? {
            Asked::Add(add) => Self::add(add, global),
            Asked::Delete(id) => {
                client::ask(global.socket(), &Request::TraceDelete { id }).map(|_| Exit::Done)
            }
            Asked::Show => {
                let request = Request::TraceList;
                let reply = client::ask(global.socket(), &request)?;
                let Reply::Traces(views) = &reply else { return Err(client::unexpected(&reply)) };
                match global.json {
                    true => view::print(&request, &reply, true)?,
                    false => output::text(&table(views))?,
                }
                Ok(Exit::Done)
            }
        }
    }

    fn add(add: Add, global: &Global) -> anyhow::Result<Exit> {
        let program = match &add.filter {
            Some(filter) => super::tap::compile(filter)?,
            None => Vec::new(),
        };
        let Add { filter, count, rate } = add;
        let spec = TraceSpec { id: 0, count, rate, filter, program };
        let body = serde_json::to_vec(&spec)?;
        let stopped = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&stopped)).context("heeding signals")?;
        }
        let stream = client::stream(global.socket(), api::TRACE_PATH, &body)?;
        stream.set_read_timeout(Some(PERIOD))?;
        let show = |shown: Shown<'_>| match (shown, global.json) {
            (Shown::Packet(packet), true) => output::line(&object(packet)),
            (Shown::Later(later), true) => output::line(&later_object(later)),
            (Shown::Packet(packet), false) => output::text(&block(packet)),
            (Shown::Later(later), false) => output::text(&later_block(later)),
        };
        let outcome = follow(BufReader::new(stream), &stopped, show)?;
        output::say(&outcome.to_string());
        Ok(if outcome.is_broken { Exit::Refused } else { Exit::Done })
    }
}

/// What is wrong with words, for tests of examples.
#[cfg(test)]
pub(crate) fn is_wrong(words: &[&str]) -> Option<String> {
    parse(words).err()
}

/// What may come behind `words`.
pub(crate) fn next(words: &[&str]) -> Vec<Word> {
    const OPTIONS: &[Word] = &[
        Word::Word("count", "packets, and then it ends"),
        Word::Word("rate", "packets a second at most"),
    ];
    match words {
        [] => vec![
            Word::Word("add", "show what becomes of packets"),
            Word::Word("del", "end a trace"),
            Word::Word("delete", "= del"),
            Word::Word("show", "the traces that there are"),
            Word::Word("list", "= show"),
        ],
        ["del" | "delete" | "d", ..] if words.len() == 1 => vec![Word::Trace],
        ["add" | "a", .., "count" | "rate"] => vec![Word::Value("a number")],
        ["add" | "a", rest @ ..] => {
            let is_open = |next: &&Word| match next {
                Word::Word(word, _) => !rest.contains(word),
                _ => true,
            };
            let filter = [Word::Value("a filter of tcpdump's")];
            OPTIONS.iter().filter(is_open).copied().chain(filter).collect()
        }
        _ => Vec::new(),
    }
}

/// What is shown.
enum Shown<'a> {
    Packet(&'a TracedPacket),
    Later(&'a TracedLater),
}

/// What came of a trace.
#[derive(Debug, Default, PartialEq, Eq)]
struct Outcome {
    packets: u64,
    losses: TraceLosses,
    why: String,
    /// Whether the daemon went away without a word.
    is_broken: bool,
}

impl core::fmt::Display for Outcome {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} packets", self.packets)?;
        let TraceLosses { limited, lost } = self.losses;
        if limited > 0 {
            write!(f, ", {limited} left out because of the rate")?;
        }
        if lost > 0 {
            write!(f, ", {lost} lost")?;
        }
        write!(f, ": {}", self.why)
    }
}

/// Shows packets until either side ends it.
fn follow(
    stream: impl BufRead,
    stopped: &AtomicBool,
    mut show: impl FnMut(Shown<'_>) -> anyhow::Result<()>,
) -> anyhow::Result<Outcome> {
    let (mut outcome, mut line, mut stream) = (Outcome::default(), Vec::new(), stream);
    loop {
        if stopped.load(Ordering::Relaxed) || output::has_gone() {
            outcome.why = "stopped".to_owned();
            return Ok(outcome);
        }
        // What came before the time was up stays in the line.
        match client::next_line(&mut stream, &mut line, MAX_LINE, "trace")? {
            Next::Waits => continue,
            Next::Line => {}
            Next::Gone => {
                (outcome.is_broken, outcome.why) = (true, "the daemon has gone".to_owned());
                return Ok(outcome);
            }
        }
        match serde_json::from_slice(&line).context("what the daemon sends is no trace")? {
            TraceEvent::Packet(packet) => {
                outcome.packets += 1;
                show(Shown::Packet(&packet))?;
            }
            TraceEvent::Later(later) => show(Shown::Later(&later))?,
            TraceEvent::Status(losses) => outcome.losses = losses,
            TraceEvent::End { why, losses } => {
                (outcome.why, outcome.losses) = (why, losses);
                return Ok(outcome);
            }
        }
        line.clear();
    }
}

/// A packet for people: a line for each step.
fn block(packet: &TracedPacket) -> String {
    let TracedPacket { number, time, worker, stages, .. } = packet;
    lines(&format!("Packet {number}, {} UTC, worker {worker}", clock(*time)), stages)
}

/// What became of a packet that waited, for people.
fn later_block(of: &TracedLater) -> String {
    let TracedLater { number, time, worker, later } = of;
    match time {
        // Nothing was heard of it.
        0 => lines(&format!("Packet {number}, later"), later),
        _ => {
            lines(&format!("Packet {number}, later, {} UTC, worker {worker}", clock(*time)), later)
        }
    }
}

/// Time of the day, of nanoseconds since 1970.
fn clock(time: u64) -> String {
    let (seconds, nanoseconds) = (time / 1_000_000_000, time % 1_000_000_000);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{hour:02}:{minute:02}:{second:02}.{:06}", nanoseconds / 1000)
}

/// A packet as an object for programs: stages by their members.
fn object(packet: &TracedPacket) -> String {
    let TracedPacket { number, time, worker, port, length, stages } = packet;
    let stages: Vec<_> = stages.iter().map(Stage::as_object).collect();
    json!({
        "number": number, "time": time, "worker": worker, "port": port, "length": length,
        "stages": stages,
    })
    .to_string()
}

fn later_object(later: &TracedLater) -> String {
    let TracedLater { number, time, worker, later } = later;
    let later: Vec<_> = later.iter().map(Stage::as_object).collect();
    json!({ "number": number, "time": time, "worker": worker, "later": later }).to_string()
}

fn lines(heading: &str, stages: &[Stage]) -> String {
    let mut text = format!("{heading}\n");
    for stage in stages {
        text += &format!("  {:<11} {}\n", stage.stage, stage.text);
    }
    text.push('\n');
    text
}

fn table(views: &[TraceView]) -> String {
    let row = |view: &TraceView| {
        vec![
            view.id.to_string(),
            view.told.to_string(),
            view.trace.count.unwrap_or(api::DEFAULT_TRACE_COUNT).to_string(),
            view.trace.rate.unwrap_or(api::DEFAULT_TRACE_RATE).to_string(),
            view.waiting.to_string(),
            view.losses.limited.to_string(),
            view.losses.lost.to_string(),
            view.ended.clone().unwrap_or_else(|| "running".to_owned()),
            view.trace.filter.clone().unwrap_or_else(|| "-".to_owned()),
        ]
    };
    let heading = ["ID", "TOLD", "COUNT", "RATE", "WAITING", "LIMITED", "LOST", "STATE", "FILTER"];
    view::table(&heading, &views.iter().map(row).collect::<Vec<_>>())
}

/// Reads a command. `Err` says what is wrong and what would be right.
fn parse(words: &[&str]) -> Result<Asked, String> {
    let right =
        "`trace add [ FILTER ... ] [ count N ] [ rate N/s ]`, `trace del ID` or `trace show`";
    let mut rest = match words {
        ["add" | "a", rest @ ..] => rest,
        ["show" | "list"] => return Ok(Asked::Show),
        ["del" | "delete", id] => {
            let wrong = |_| {
                format!("`{}` is no number of a trace; see `hitpath trace show`", api::shown(id))
            };
            return id.parse().map(Asked::Delete).map_err(wrong);
        }
        other => {
            let said = api::shown(&other.join(" "));
            return Err(format!("`trace {said}` is not understood; say {right}"));
        }
    };
    let mut add = Add::default();
    // In front of the filter or behind it.
    loop {
        match rest {
            [word @ ("count" | "rate"), value, left @ ..] => {
                add.take(word, value)?;
                rest = left;
            }
            [left @ .., word @ ("count" | "rate"), value] => {
                add.take(word, value)?;
                rest = left;
            }
            [.., word @ ("count" | "rate")] => {
                return Err(format!("a number is missing behind {word}; say {right}"));
            }
            _ => break,
        }
    }
    add.filter = (!rest.is_empty()).then(|| rest.join(" "));
    Ok(Asked::Add(add))
}

impl Add {
    fn take(&mut self, word: &str, value: &str) -> Result<(), String> {
        let (place, digits, most) = match word {
            "count" => (&mut self.count, value, api::MAX_TRACE_COUNT),
            _ => (&mut self.rate, value.strip_suffix("/s").unwrap_or(value), u32::MAX),
        };
        let number = digits.parse().ok().filter(|number| (1..=most).contains(number));
        let Some(number) = number else {
            return Err(format!(
                "`{word} {}` is not possible; it is 1 to {most}",
                api::shown(value)
            ));
        };
        match place.replace(number) {
            None => Ok(()),
            Some(_) => Err(format!("`{word}` stands there twice")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Asked, String> {
        parse(&line.split_whitespace().collect::<Vec<_>>())
    }

    #[test]
    fn all_words_are_understood_in_front_of_the_filter_and_behind_it() {
        assert_eq!(read("add"), Ok(Asked::Add(Add::default())));
        assert_eq!(read("show"), Ok(Asked::Show));
        assert_eq!(read("del 7"), Ok(Asked::Delete(7)));
        let filter = Some("udp and host 192.0.2.1".to_owned());
        let wanted = Ok(Asked::Add(Add { filter, count: Some(9), rate: Some(5) }));
        for line in [
            "add udp and host 192.0.2.1 count 9 rate 5/s",
            "add count 9 rate 5 udp and host 192.0.2.1",
            "add rate 5/s udp and host 192.0.2.1 count 9",
        ] {
            assert_eq!(read(line), wanted, "{line}");
        }
    }

    #[test]
    fn wrong_words_are_refused_with_what_would_be_right() {
        for (line, says) in [
            ("", "say `trace add"),
            ("sing", "say `trace add"),
            ("show all", "say `trace add"),
            ("del x", "no number of a trace"),
            ("del", "`trace del ID`"),
            ("add count", "missing behind count"),
            ("add count 0", "1 to 10000"),
            ("add udp count 10001", "1 to 10000"),
            ("add rate x/s", "`rate x/s`"),
            ("add count 1 udp count 2", "twice"),
        ] {
            let error = read(line).unwrap_err();
            assert!(error.contains(says), "{line}: {error}");
        }
    }

    fn packet() -> TracedPacket {
        let step = |stage: &str, text: &str| Stage {
            stage: stage.into(),
            text: text.into(),
            members: [("length".to_owned(), 98.into())].into_iter().collect(),
        };
        TracedPacket {
            number: 3,
            time: 3_723_000_004_000,
            worker: 1,
            port: "wan".into(),
            length: 98,
            stages: vec![step("received", "98 bytes by wan"), step("drop", "no_route: no route")],
        }
    }

    #[test]
    fn a_packet_is_a_block_with_a_line_for_each_step() {
        let wanted = "Packet 3, 01:02:03.000004 UTC, worker 1\n  received    98 bytes by wan\n  \
                      drop        no_route: no route\n\n";
        assert_eq!(block(&packet()), wanted);
        let TracedPacket { number, time, worker, stages, .. } = packet();
        let wanted = wanted.replacen(", ", ", later, ", 1);
        assert_eq!(later_block(&TracedLater { number, time, worker, later: stages }), wanted);
    }

    #[test]
    fn a_packet_is_an_object_with_an_object_for_each_stage() {
        assert_eq!(
            object(&packet()),
            r#"{"length":98,"number":3,"port":"wan","stages":[{"length":98,"stage":"received"},{"length":98,"stage":"drop"}],"time":3723000004000,"worker":1}"#
        );
    }

    #[test]
    fn it_ends_with_its_end_or_with_the_daemon() {
        let losses = TraceLosses { limited: 2, lost: 1 };
        let end = TraceEvent::End { why: "that many were wanted".into(), losses };
        let line = |event: &TraceEvent| serde_json::to_string(event).unwrap() + "\n";
        let one = line(&TraceEvent::Packet(packet()));
        let run = |text: &str| {
            let mut shown = 0;
            let show = |_: Shown<'_>| {
                shown += 1;
                Ok(())
            };
            let outcome = follow(text.as_bytes(), &AtomicBool::new(false), show);
            outcome.map(|outcome| (shown, outcome))
        };
        let (shown, outcome) = run(&(one.clone() + &line(&end))).unwrap();
        let said = "1 packets, 2 left out because of the rate, 1 lost: that many were wanted";
        assert_eq!((shown, &outcome.to_string()[..], outcome.is_broken), (1, said, false));
        let (shown, outcome) = run(&one).unwrap();
        assert_eq!((shown, outcome.is_broken), (1, true));
        assert!(run("nonsense\n").is_err());
        assert!(run(&"x".repeat(MAX_LINE as usize + 1)).is_err());
    }
}
