//! `hitpath flow`: match-action flows, in ovs-ofctl's words.

use std::io::Read;

use anyhow::{Context, bail};
use api::{FlowChanges, FlowFilter, Refusal, Request};
use clap::Args;
use control::render::Options;

use crate::cli::Global;
use crate::exit::Usage;
use crate::{client, view};
use runtime::exit::Exit;
use runtime::output;

/// Match-action flows, as ovs-ofctl has them
///
/// A VRF without flows routes. Once it has one, a packet goes by its flows, from table 0 on, and is
/// dropped where it matches none.
#[derive(Args, Debug)]
#[command(after_help = "\
Commands:
  hitpath flow add FLOW                      add a flow, or replace the same match and priority
  hitpath flow add-flows FILE|-              the same of a file, a line for each, all or none
  hitpath flow mod [--strict] FLOW           change the actions of flows; add one if there is none
  hitpath flow del [--strict] MATCH          remove flows: those that match this or more
  hitpath flow del-all                       remove the flows of all VRFs: they route again
  hitpath flow replace FILE|-                have these flows and no others, in one step
  hitpath flow show [MATCH]                  the flows
  hitpath flow dump [MATCH]                  the flows, with what they have counted

FLOW := [vrf=NAME,][table=N,][priority=N,][cookie=N,][idle_timeout=S,][hard_timeout=S,]MATCH
        actions=ACTIONS

The words are those of ovs-ofctl(8), ovs-fields(7) and ovs-actions(7); ports have their names.
In a file, `modify`, `modify_strict`, `delete` or
`delete_strict` in front of a line is done instead of adding;
`#` begins a comment. --strict names one flow by its match and priority.

Flows see ARP as well: without one that lets it in, the gateway learns no neighbour. They do not see
neighbour discovery for the gateway itself.

Examples, what begins in lan may go out and be answered:
  hitpath flow add 'table=0,priority=200,arp actions=NORMAL'
  hitpath flow add 'table=0,priority=1 actions=drop'
  hitpath flow add 'table=0,priority=100,ip,ct_state=-trk actions=ct(table=1)'
  hitpath flow add 'table=1,in_port=lan,ip,ct_state=+trk+new actions=ct(commit),NORMAL'
  hitpath flow add 'table=1,ip,ct_state=+trk+est actions=NORMAL'
  hitpath flow dump table=1
  hitpath flow del --strict 'table=0,priority=1'
  hitpath -j flow show")]
pub(crate) struct Flow {
    /// The command
    #[arg(value_name = "WORD", required = true)]
    words: Vec<String>,

    /// Name one flow by its match and priority
    #[arg(long)]
    strict: bool,

    /// Do not wait until a change is on the disk: it is in force, and lost with power
    #[arg(long)]
    no_sync: bool,
}

/// The longest file.
const MAX_FILE: u64 = api::MAX_BATCH_BYTES as u64;

impl Flow {
    pub(crate) fn run(&self, global: &Global) -> anyhow::Result<Exit> {
        let words: Vec<&str> = self.words.iter().map(String::as_str).collect();
        let (command, rest) = words.split_first().unwrap_or((&"show", &[]));
        let request = match (*command, rest) {
            ("add-flows" | "replace" | "replace-flows", [file]) => {
                if self.strict {
                    bail!(Usage("--strict belongs to mod and del".to_owned()));
                }
                let replace = *command != "add-flows";
                let changes = control::grammar::flow::file(&read(file)?)
                    .map_err(|refusal| Usage(refusal.to_string()))?;
                if changes.is_empty() {
                    let hint = if replace { "; del-all removes all flows" } else { "" };
                    bail!(Usage(format!("{file}: there is no flow in it{hint}")));
                }
                Request::FlowChange(FlowChanges { changes, replace })
            }
            ("add-flows" | "replace" | "replace-flows", _) => {
                bail!(Usage(format!("flow {command} FILE, or - for standard input")));
            }
            ("add" | "add-flow", ["-"]) => {
                let changes = control::grammar::flow::file(&read("-")?)
                    .map_err(|refusal| Usage(refusal.to_string()))?;
                Request::FlowChange(FlowChanges { changes, replace: false })
            }
            _ => {
                let strict = self.strict.then_some("--strict");
                let words: Vec<&str> =
                    ["flow"].into_iter().chain(words.iter().copied()).chain(strict).collect();
                control::grammar::parse(&words).map_err(|refusal| Usage(refusal.to_string()))?
            }
        };
        let body = serde_json::to_vec(&request)?;
        let is_long = body.len() > api::MAX_REQUEST_BYTES;
        let path = if is_long { api::BATCH_PATH } else { api::PATH };
        let path = client::path(path, !self.no_sync);
        let reply = client::ask_in_parts(global.socket(), &path, &[&body]);
        let reply = reply.map_err(|error| match global.json {
            true => error,
            false => with_flow(error, &request),
        })?;
        let statistics = command.starts_with("dump");
        let options = Options { statistics, ..Options::default() };
        view::print_with(&request, &reply, global.json, options)?;
        Ok(Exit::Done)
    }
}

/// Shows where a flow is wrong, under its text, if it is the only one.
fn with_flow(error: anyhow::Error, request: &Request) -> anyhow::Error {
    let flow = match request {
        Request::FlowChange(FlowChanges { changes, .. }) if changes.len() == 1 => &changes[0].flow,
        Request::FlowList(FlowFilter { flow }) => flow,
        _ => return error,
    };
    let column = error.downcast_ref::<Refusal>().and_then(|refusal| {
        let (_, rest) = refusal.message.split_once("column ")?;
        rest.split(':').next()?.parse::<usize>().ok()
    });
    // Otherwise the mark would stand elsewhere, or below a key.
    let is_as_shown = flow.len() < 200
        && flow.bytes().all(|it| it.is_ascii() && !it.is_ascii_control())
        && api::without_keys(flow) == flow.as_str();
    if let Some(column) = column.filter(|_| is_as_shown) {
        output::say(flow);
        output::say(&format!("{:>column$}", "^"));
    }
    error
}

fn read(name: &str) -> anyhow::Result<String> {
    let mut text = String::new();
    let read = match name {
        "-" => std::io::stdin().lock().take(MAX_FILE + 1).read_to_string(&mut text),
        name => std::fs::File::open(name)
            .and_then(|file| file.take(MAX_FILE + 1).read_to_string(&mut text)),
    };
    read.with_context(|| format!("reading {name}"))?;
    if text.len() as u64 > MAX_FILE {
        bail!("{name} has more than {MAX_FILE} bytes");
    }
    Ok(text)
}
