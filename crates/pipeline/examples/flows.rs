//! Reads flows, and takes packets through them, for comparisons with other programs. Ports are
//! numbers here.
//!
//! `flows parse`: each line of the standard input is a flow, or begins with `mod`, `del` and the
//! like. It is written as it was understood, or why it was refused.
//!
//! `flows trace FILE`: FILE has flows. Each line of the standard input is a packet, written as a
//! match. What becomes of it is written.

use std::io::{self, BufRead, Write};
use std::{env, fs, process};

use conntrack::CtState;
use pipeline::text::{Command, Names, ShownFields, ShownFlow, ShownMatch, parse_change};
use pipeline::{
    Change, CtFields, Exit, Fields, NatEnd, NatSpec, Outcome, Owner, Pipeline, To, Track,
};
use types::{PortId, VrfId};

/// Everything is called by its number.
struct Numbers;

impl Names for Numbers {
    fn port(&self, name: &str) -> Option<PortId> {
        name.parse().ok().map(PortId)
    }

    fn port_name(&self, port: PortId) -> Option<String> {
        Some(port.0.to_string())
    }

    fn vrf(&self, name: &str) -> Option<VrfId> {
        name.parse().ok().map(VrfId)
    }

    fn vrf_name(&self, vrf: VrfId) -> Option<String> {
        Some(vrf.0.to_string())
    }
}

/// Says of every packet that it opens a connection, and translates it to the first address and
/// port of a range, as `ofproto/trace` does.
struct New;

impl Track for New {
    fn exit(&mut self, fields: &Fields) -> Exit {
        fields.exit()
    }

    fn track(&mut self, _: u16, _: bool, fields: &Fields, nat: Option<&NatSpec>) -> CtFields {
        let new = nat.and_then(|nat| nat.new.as_ref());
        let translated = new.zip(fields.tuple()).and_then(|(new, tuple)| {
            let address = new.addresses?.first();
            let port = |own| new.ports.map_or(own, |(first, _)| first);
            match new.end {
                NatEnd::Source => tuple.with_source(address, port(tuple.source)),
                NatEnd::Destination => tuple.with_destination(address, port(tuple.destination)),
            }
        });
        let state = CtState::NEW | CtState::TRK;
        CtFields { state, translated, ..CtFields::default() }
    }
}

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match arguments[..] {
        ["parse"] => parse(),
        ["trace", file] => trace(file),
        _ => {
            eprintln!("usage: flows parse | flows trace FILE");
            process::exit(2);
        }
    };
    if let Err(why) = done {
        eprintln!("flows: {why}");
        process::exit(1);
    }
}

fn parse() -> io::Result<()> {
    let mut out = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let line = line?;
        let (command, text) = match line.split_once(' ') {
            Some(("mod", text)) => (Command::Modify, text),
            Some(("mod-strict", text)) => (Command::ModifyStrict, text),
            Some(("del", text)) => (Command::Delete, text),
            Some(("del-strict", text)) => (Command::DeleteStrict, text),
            _ => (Command::Add, &*line),
        };
        match parse_change(command, text, &Numbers) {
            Ok(Change::Add { flow, .. } | Change::Modify { flow, .. }) => {
                writeln!(out, "{}", ShownFlow(&flow, &Numbers))?;
            }
            Ok(Change::Delete { criteria }) => {
                writeln!(out, "{}", ShownMatch(&criteria.matches, &Numbers))?;
            }
            Err(why) => writeln!(out, "error: {why}")?,
        }
    }
    Ok(())
}

fn trace(file: &str) -> io::Result<()> {
    let mut pipeline = Pipeline::new();
    for line in fs::read_to_string(file)?.lines() {
        let change = parse_change(Command::Add, line, &Numbers);
        let change = change.map_err(|why| io::Error::other(format!("{line}: {why}")))?;
        let done = pipeline.apply(change, Owner::User);
        done.map_err(|why| io::Error::other(format!("{line}: {why}")))?;
    }
    let mut out = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let line = line?;
        let change = parse_change(Command::Delete, &line, &Numbers);
        let Ok(Change::Delete { criteria }) = change else {
            return Err(io::Error::other(format!("{line}: {change:?}")));
        };
        let fields = criteria.matches.example(VrfId::MAIN);
        let outcome = pipeline.evaluate(&fields, &mut New, &mut ());
        writeln!(out, "{}", shown(&outcome))?;
    }
    Ok(())
}

/// Where a packet goes, or why it goes nowhere; and what it is like in the end.
fn shown(outcome: &Outcome) -> String {
    let mut words = Vec::new();
    for end in &outcome.ends {
        let to = match end.to {
            To::Port(port) => port.0.to_string(),
            To::InPort => "in_port".to_owned(),
            To::Normal => "normal".to_owned(),
            To::Unrouted => "unrouted".to_owned(),
            To::Rerouted { ends } => format!("rerouted({ends})"),
        };
        words.push(format!("{to}[{}]", ShownFields(outcome.fields_of(end).0, &Numbers)));
    }
    if let Some(why) = outcome.drop {
        words.push(format!("drop:{why:?}"));
    }
    for commit in &outcome.commits {
        words.push(format!(
            "commit(zone={},mark={:#x}/{:#x})",
            commit.zone, commit.mark.0, commit.mark.1
        ));
    }
    format!("{} final[{}]", words.join(" "), ShownFields(&outcome.fields, &Numbers))
}
