//! `hitpath tap`: copies of packets, as a pcapng file.

mod blocks;
mod words;

use std::process::Command;

use anyhow::{Context, bail};
use api::{Reply, Request, TapPoint, TapSpec, TapTarget, TapView};
use clap::Args;

use crate::cli::Global;
use crate::client;
use crate::exit::Usage;
use crate::view;
use runtime::exit::Exit;
use runtime::output;
use words::{Add, Tap as Asked};

pub(crate) use words::next;

/// Copy packets of a port or a VRF into a pcapng file, or a pipe that Wireshark reads
///
/// A tap lasts as long as this command, which writes the file. Packets begin with their IP header;
/// each has in its comment the VRF and what was decided.
#[derive(Args, Debug)]
#[command(after_help = "\
Commands:
  hitpath tap add { vrf | port } NAME [ in ] [ out ] [ drop ] { FILE | - }
                  [ snaplen BYTES ] [ rate N/s ] [ count N ] [ size BYTES [ files N ] ]
                  [ FILTER ... ]
  hitpath tap del ID
  hitpath tap show

Examples:
  hitpath tap add port wan wan.pcapng
  hitpath tap add vrf blue drop drops.pcapng
  hitpath tap add port wan in - host 192.0.2.1 and udp | wireshark -k -i -
  hitpath tap add vrf main all.pcapng size 100M files 10 rate 1000/s

FILTER is as tcpdump has it (pcap-filter(7)), for packets without an Ethernet header. tcpdump has to
be installed where this command runs: it translates the filter.")]
pub(crate) struct Tap {
    /// The command
    #[arg(value_name = "WORD", required = true)]
    words: Vec<String>,
}

impl Tap {
    pub(crate) fn run(&self, global: &Global) -> anyhow::Result<Exit> {
        match words::parse(&self.words).map_err(Usage)? {
            Asked::Add(add) => copy(add, global),
            Asked::Delete(id) => {
                client::ask(global.socket(), &Request::TapDelete { id }).map(|_| Exit::Done)
            }
            Asked::Show => {
                let request = Request::TapList;
                let reply = client::ask(global.socket(), &request)?;
                let Reply::Taps(views) = &reply else { return Err(client::unexpected(&reply)) };
                match global.json {
                    true => view::print(&request, &reply, true)?,
                    false => output::text(&table(views))?,
                }
                Ok(Exit::Done)
            }
        }
    }
}

/// What is wrong with words, for tests of examples.
#[cfg(test)]
pub(crate) fn is_wrong(words: &[&str]) -> Option<String> {
    words::parse(&words.iter().map(ToString::to_string).collect::<Vec<_>>()).err()
}

fn copy(add: Add, global: &Global) -> anyhow::Result<Exit> {
    let program = match &add.filter {
        Some(filter) => compile(filter)?,
        None => Vec::new(),
    };
    let spec = TapSpec {
        id: 0,
        target: add.target,
        points: add.points,
        snaplen: add.snaplen,
        rate: add.rate,
        count: add.output.count,
        filter: add.filter,
        program,
    };
    let body = serde_json::to_vec(&spec)?;
    let stream = client::stream(global.socket(), api::TAP_PATH, &body)?;
    let outcome = blocks::copy(stream, &add.output)?;
    let lost = match outcome.lost {
        0 => String::new(),
        lost => format!(", {lost} lost"),
    };
    output::say(&format!("{} packets{lost}: {}", outcome.packets, outcome.why));
    Ok(if outcome.is_broken { Exit::Refused } else { Exit::Done })
}

/// The program of a filter, by libpcap: tcpdump prints it.
pub(super) fn compile(filter: &str) -> anyhow::Result<Vec<(u16, u8, u8, u32)>> {
    let tcpdump = Command::new("tcpdump").args(["-ddd", "-y", "RAW", "--", filter]).output();
    let printed = match tcpdump {
        Ok(printed) => printed,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => bail!(
            "a filter needs tcpdump on this machine, which translates it (Debian: apt install \
            tcpdump)"
        ),
        Err(error) => return Err(error).context("running tcpdump, which translates the filter"),
    };
    if !printed.status.success() {
        let why = String::from_utf8_lossy(&printed.stderr);
        let why = why.lines().rfind(|line| line.starts_with("tcpdump: ")).unwrap_or("no reason");
        return Err(Usage(format!(
            "the filter `{}` is not understood: {}",
            api::shown(filter),
            api::without_keys(why)
        ))
        .into());
    }
    let text = String::from_utf8_lossy(&printed.stdout);
    program(&text).with_context(|| format!("tcpdump printed something else than a program: {text}"))
}

/// Reads what `tcpdump -ddd` prints: how many instructions, and four numbers for each.
fn program(text: &str) -> Option<Vec<(u16, u8, u8, u32)>> {
    let mut lines = text.lines();
    let count: usize = lines.next()?.trim().parse().ok()?;
    let instruction = |line: &str| {
        let mut numbers = line.split_whitespace();
        let all = (
            numbers.next()?.parse().ok()?,
            numbers.next()?.parse().ok()?,
            numbers.next()?.parse().ok()?,
            numbers.next()?.parse().ok()?,
        );
        numbers.next().is_none().then_some(all)
    };
    let program: Vec<_> = lines.map(instruction).collect::<Option<_>>()?;
    (program.len() == count).then_some(program)
}

fn table(views: &[TapView]) -> String {
    let or_dash = |number: Option<u32>| number.map_or_else(|| "-".to_owned(), |it| it.to_string());
    let row = |view: &TapView| {
        let points = match view.tap.points.as_slice() {
            [] => "in,out".to_owned(),
            points => points.iter().map(word).collect::<Vec<_>>().join(","),
        };
        vec![
            view.id.to_string(),
            match &view.tap.target {
                TapTarget::Port(name) => format!("port {name}"),
                TapTarget::Vrf(name) => format!("vrf {name}"),
            },
            points,
            or_dash(view.tap.snaplen),
            or_dash(view.tap.rate),
            view.copied.to_string(),
            view.limited.to_string(),
            view.lost.to_string(),
            view.ended.clone().unwrap_or_else(|| "running".to_owned()),
            view.tap.filter.clone().unwrap_or_else(|| "-".to_owned()),
        ]
    };
    let heading = [
        "ID", "TARGET", "POINTS", "SNAPLEN", "RATE", "COPIED", "LIMITED", "LOST", "STATE", "FILTER",
    ];
    view::table(&heading, &views.iter().map(row).collect::<Vec<_>>())
}

const fn word(point: &TapPoint) -> &'static str {
    match point {
        TapPoint::In => "in",
        TapPoint::Out => "out",
        TapPoint::Drop => "drop",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_tcpdump_prints_is_read() {
        assert_eq!(program("2\n48 0 0 9\n6 0 0 262144\n").unwrap()[1], (6, 0, 0, 262_144));
        for wrong in ["", "2\n6 0 0 0\n", "1\n6 0 0\n", "1\n6 0 0 0 0\n", "1\n6 256 0 0\n", "x\n"] {
            assert_eq!(program(wrong), None, "{wrong:?}");
        }
    }
}
