//! `hitpath conntrack`: connections, in conntrack-tools' words.

use std::io::BufReader;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};
use api::{
    ConnectionChange, ConnectionChangeKind, ConnectionEvent, ConnectionEventSpec, ConnectionFilter,
    ConnectionPage, ConnectionQuery, MarkBits, Refusal, RefusalCode, Reply, Request, TupleFilter,
};
use clap::{ArgGroup, Args};
use serde_json::json;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::cli::Global;
use crate::client::{self, Next as Read};
use crate::complete::Next;
use crate::exit::Usage;
use crate::view::conntrack::{self, Output};
use runtime::exit::Exit;
use runtime::output;

mod elsewhere;
mod filter;

use elsewhere::Elsewhere;
use filter::{FilterWords, seconds};

/// Connections, as conntrack has them
///
/// Connections are tracked once a flow uses `ct`, or the configuration has `[conntrack]`.
#[derive(Args, Debug)]
#[command(
    group = ArgGroup::new("command").args([
        "list", "get", "delete", "flush", "count", "statistics", "update", "event",
    ]),
    override_usage = "hitpath conntrack [OPTIONS] <-L|-G|-D|-F|-C|-S|-U|-E> [TABLE]",
    after_help = "\
Examples:
  hitpath conntrack -L                       all connections
  hitpath conntrack -L -p tcp --dport 443 --state ESTABLISHED
  hitpath conntrack -L -s 10.1.0.0/16 -o extended,id
  hitpath conntrack -L --src-nat             those whose source is translated
  hitpath conntrack -G -p udp -s 10.1.0.5 -d 10.2.0.7 --sport 5000 --dport 53
  hitpath conntrack -D -s 10.1.0.5           end those of a host
  hitpath conntrack -U -p tcp --dport 22 -m 0x1/0xff
  hitpath conntrack -F                       end all
  hitpath conntrack -E -e NEW,DESTROY        follow them
  hitpath conntrack -C                       how many there are
  hitpath conntrack -S                       what the table has done
  hitpath conntrack -L expect                data connections that helpers expect
  hitpath conntrack -L timeout               how long connections may be unused, zone by zone
  hitpath -j conntrack -L                    as JSON

-G, -D and -U exit with 1 if no connection is meant. The zone of a connection is the number of its VRF,
0 for `main`, unless the flow names another."
)]
pub(crate) struct Conntrack {
    /// List connections
    #[arg(short = 'L', long = "dump")]
    list: bool,
    /// Show the connection of a tuple
    #[arg(short = 'G', long)]
    get: bool,
    /// End connections
    #[arg(short = 'D', long)]
    delete: bool,
    /// End all connections
    #[arg(short = 'F', long)]
    flush: bool,
    /// Say how many connections there are
    #[arg(short = 'C', long)]
    count: bool,
    /// Show what the table has done
    #[arg(short = 'S', long = "stats")]
    statistics: bool,
    /// Change the mark or the timeout of connections
    #[arg(short = 'U', long)]
    update: bool,
    /// Follow what happens to connections
    #[arg(short = 'E', long)]
    event: bool,

    /// The table: `conntrack`; `expect`, connections that helpers expect; `timeout`, how long
    /// connections may be unused
    table: Option<String>,

    #[command(flatten)]
    words: FilterWords,

    /// The mark that is looked for; with -U what the mark becomes
    #[arg(short, long, value_name = "MARK[/MASK]")]
    mark: Option<MarkBits>,
    /// With -U: seconds until the connection ends, if no packet comes
    #[arg(short, long, value_name = "SECONDS", value_parser = seconds, allow_negative_numbers = true)]
    timeout: Option<u32>,
    /// With -E: which events, of NEW, UPDATES, DESTROY
    #[arg(short, long, value_name = "EVENTS", value_delimiter = ',')]
    event_mask: Vec<String>,
    /// What is shown beside: extended, id, timestamp, ktimestamp, labels; json
    #[arg(short, long, value_name = "TYPES", value_delimiter = ',')]
    output: Vec<String>,

    #[command(flatten)]
    elsewhere: Elsewhere,
}

/// The tables that there are.
pub(crate) const TABLES: &[Next] = &[
    Next::Word("conntrack", "connections"),
    Next::Word("expect", "connections that helpers expect"),
    Next::Word("timeout", "how long connections may be unused"),
];

/// The values of an argument, if they are some words.
pub(crate) fn values(argument: &str) -> Option<&'static [&'static str]> {
    Some(match argument {
        "output" => &["extended", "id", "timestamp", "ktimestamp", "labels", "json"],
        "event_mask" => &["ALL", "NEW", "UPDATES", "DESTROY"],
        "status" => &["EXPECTED", "SEEN_REPLY", "ASSURED", "SRC_NAT", "DST_NAT", "UNREPLIED"],
        "family" => &["ipv4", "ipv6"],
        "protonum" => &["tcp", "udp", "icmp", "ipv6-icmp", "sctp", "dccp", "gre"],
        "state" => control::connections::STATE_NAMES,
        _ => return None,
    })
}

/// Whether several values, with commas between, may be said of it.
pub(crate) fn is_list(argument: &str) -> bool {
    matches!(argument, "output" | "event_mask" | "status")
}

/// How long it takes at most until a signal is heeded.
const PERIOD: Duration = Duration::from_millis(200);

/// Longer lines are none of the daemon's.
const MAX_LINE: u64 = 1 << 20;

impl Conntrack {
    pub(crate) fn run(&self, global: &Global) -> anyhow::Result<Exit> {
        if let Some(why) = self.elsewhere.refusal() {
            bail!(Usage(why.to_owned()));
        }
        let commands = [self.list, self.get, self.delete, self.flush, self.count, self.statistics];
        if !commands.contains(&true) && !self.update && !self.event {
            let why = "what is to be done? -L, -G, -D, -F, -C, -S, -U or -E; --help explains them";
            bail!(Usage(why.to_owned()));
        }
        match self.table.as_deref() {
            None | Some("conntrack" | "expect" | "timeout") => {}
            Some(other @ ("dying" | "unconfirmed")) => {
                bail!(Usage(format!(
                    "the table `{other}` is not supported; conntrack, expect or timeout"
                )));
            }
            Some(other) => {
                let other = api::shown(other);
                bail!(Usage(format!("there is no table `{other}`; conntrack, expect or timeout")));
            }
        }
        if self.timeout.is_some() && !self.update {
            bail!(Usage("-t SECONDS is for -U".to_owned()));
        }
        if !self.event_mask.is_empty() && !self.event {
            bail!(Usage("-e EVENTS is for -E".to_owned()));
        }
        let (shown, as_json) = self.shown()?;
        let printer = Printer { output: shown, as_json: as_json || global.json };
        let mut filter = self.words.filter(global.socket())?;
        if self.table.as_deref() == Some("expect") {
            return self.expectations(global.socket(), filter, &printer);
        }
        if self.table.as_deref() == Some("timeout") {
            return self.timeout_policies(global.socket(), &filter, &printer);
        }
        if !self.update {
            filter.mark = self.mark;
        }
        let socket = global.socket();
        if self.event {
            let spec = ConnectionEventSpec { filter, kinds: self.kinds()?, expectations: false };
            return follow(socket, &spec, &printer);
        }
        if self.count || self.statistics {
            return self.say_counts(socket, &filter, &printer);
        }
        if self.flush {
            if filter != ConnectionFilter::default() {
                bail!(Usage("-F ends all connections; -D takes conditions".to_owned()));
            }
            let delete = |from| query(&filter, from, Request::ConnectionDelete);
            let count = each_page(socket, delete, |_| Ok(()))?;
            if printer.as_json {
                output::json(&json!({ "ended": count }))?;
            }
            output::say("connection tracking table has been emptied.");
            return Ok(Exit::Done);
        }
        if self.get {
            self.check_get(&filter)?;
            let got = client::ask(socket, &Request::ConnectionGet(filter)).map_err(in_words)?;
            let Reply::Connections(page) = got else {
                bail!("the daemon's answer does not fit the question");
            };
            return printer.pages(|show| {
                show(&page)?;
                Ok(page.connections.len())
            });
        }
        if self.update && self.mark.is_none() && self.timeout.is_none() {
            bail!(Usage("what is to be changed? -m MARK[/MASK] or -t SECONDS".to_owned()));
        }
        let request = |from| match () {
            () if self.delete => query(&filter, from, Request::ConnectionDelete),
            () if self.update => Request::ConnectionUpdate(ConnectionChange {
                filter: filter.clone(),
                from,
                mark: self.mark,
                timeout: self.timeout,
            }),
            () => query(&filter, from, Request::ConnectionList),
        };
        let mut count = 0;
        printer.pages(|show| {
            count = each_page(socket, request, show)?;
            Ok(count)
        })?;
        let done = match () {
            () if self.delete => "deleted",
            () if self.update => "updated",
            () => "shown",
        };
        output::say(&format!("{count} flow entries have been {done}."));
        Ok(if count == 0 && !self.list { Exit::Refused } else { Exit::Done })
    }

    /// What names one connection, and nothing beside: as with conntrack, the rest is not looked at.
    fn check_get(&self, filter: &ConnectionFilter) -> Result<(), Usage> {
        let given = [
            (filter.mark.is_some(), "-m"),
            (!filter.status.is_empty() || filter.unreplied, "-u"),
            (filter.state.is_some(), "--state"),
            (filter.source_nat.is_some(), "--src-nat"),
            (filter.destination_nat.is_some(), "--dst-nat"),
            (filter.any_nat.is_some(), "--any-nat"),
        ];
        if let Some((_, option)) = given.into_iter().find(|(is, _)| *is) {
            let why =
                format!("-G names a connection by its tuple, without {option}; -L takes that");
            return Err(Usage(why));
        }
        let TupleFilter { source, destination, .. } = filter.original;
        let TupleFilter { source: reply_source, destination: reply_destination, .. } = filter.reply;
        let mut prefixes = [source, destination, reply_source, reply_destination].into_iter();
        match prefixes.find_map(|prefix| prefix.filter(|prefix| !prefix.is_host())) {
            Some(prefix) => {
                Err(Usage(format!("-G takes whole addresses, not {prefix}; -L takes prefixes")))
            }
            None => Ok(()),
        }
    }

    fn say_counts(
        &self,
        socket: &Path,
        filter: &ConnectionFilter,
        printer: &Printer,
    ) -> anyhow::Result<Exit> {
        if *filter != ConnectionFilter::default() {
            bail!(Usage("-C and -S take no conditions; -L does".to_owned()));
        }
        let request = match self.count {
            true => Request::ConnectionCount,
            false => Request::ConnectionStatistics,
        };
        match client::ask(socket, &request)? {
            Reply::Count(count) => output::line(&count.to_string())?,
            Reply::ConnectionStatistics(counted) if printer.as_json => {
                output::json(&serde_json::to_value(counted)?)?;
            }
            Reply::ConnectionStatistics(counted) => {
                output::text(&conntrack::statistics(&counted))?;
            }
            other => return Err(client::unexpected(&other)),
        }
        Ok(Exit::Done)
    }

    /// What is shown, and whether as JSON.
    fn shown(&self) -> Result<(Output, bool), Usage> {
        let (mut shown, mut as_json) = (Output::default(), false);
        for word in &self.output {
            match word.as_str() {
                "extended" => shown.extended = true,
                "id" => shown.id = true,
                "timestamp" => shown.timestamp = true,
                "ktimestamp" => shown.age = true,
                "labels" => shown.labels = true,
                "json" => as_json = true,
                other => {
                    let other = api::shown(other);
                    return Err(Usage(format!(
                        "-o {other} is not supported; extended, id, timestamp, ktimestamp, labels, \
                        json"
                    )));
                }
            }
        }
        Ok((shown, as_json))
    }

    fn kinds(&self) -> Result<Vec<ConnectionChangeKind>, Usage> {
        let mut kinds = Vec::new();
        for word in &self.event_mask {
            match word.to_ascii_uppercase().as_str() {
                "ALL" => return Ok(Vec::new()),
                "NEW" => kinds.push(ConnectionChangeKind::New),
                "UPDATE" | "UPDATES" => kinds.push(ConnectionChangeKind::Update),
                "DESTROY" => kinds.push(ConnectionChangeKind::Destroy),
                _ => {
                    let word = api::shown(word);
                    return Err(Usage(format!("there is no event {word}; NEW,UPDATES,DESTROY")));
                }
            }
        }
        Ok(kinds)
    }

    /// How long connections may be unused.
    fn timeout_policies(
        &self,
        socket: &Path,
        filter: &ConnectionFilter,
        printer: &Printer,
    ) -> anyhow::Result<Exit> {
        if *filter != ConnectionFilter::default() || self.mark.is_some() {
            bail!(Usage("the table `timeout` takes no conditions".to_owned()));
        }
        if !self.list {
            bail!(Usage(
                "of the table `timeout` there is -L; [conntrack] of the configuration sets it"
                    .to_owned()
            ));
        }
        let Reply::TimeoutPolicies(all) = client::ask(socket, &Request::TimeoutList)? else {
            bail!("the daemon's answer does not fit the question");
        };
        if printer.as_json {
            output::json(&serde_json::to_value(&all)?)?;
            return Ok(Exit::Done);
        }
        if all.is_empty() {
            output::say("no connections are tracked");
        }
        let lines = all.iter().map(|view| conntrack::timeout_policy(view) + "\n");
        output::text(&lines.collect::<String>())?;
        Ok(Exit::Done)
    }

    /// Connections that are expected.
    fn expectations(
        &self,
        socket: &Path,
        filter: ConnectionFilter,
        printer: &Printer,
    ) -> anyhow::Result<Exit> {
        if filter != ConnectionFilter::default() || self.mark.is_some() {
            bail!(Usage("the table `expect` takes no conditions".to_owned()));
        }
        if self.event {
            let spec = ConnectionEventSpec { filter, kinds: self.kinds()?, expectations: true };
            return follow(socket, &spec, printer);
        }
        if self.flush {
            return match client::ask(socket, &Request::ExpectationFlush)? {
                Reply::Count(count) => {
                    if printer.as_json {
                        output::json(&json!({ "ended": count }))?;
                    }
                    output::say("expectation table has been emptied.");
                    Ok(Exit::Done)
                }
                other => Err(client::unexpected(&other)),
            };
        }
        if !self.list && !self.count {
            bail!(Usage("of the table `expect` there are -L, -C, -E and -F".to_owned()));
        }
        let Reply::Expectations(all) = client::ask(socket, &Request::ExpectationList)? else {
            bail!("the daemon's answer does not fit the question");
        };
        if self.count {
            output::line(&all.len().to_string())?;
            return Ok(Exit::Done);
        }
        if printer.as_json {
            output::json(&serde_json::to_value(&all)?)?;
            return Ok(Exit::Done);
        }
        let lines = all.iter().map(|view| conntrack::expectation(view) + "\n");
        output::text(&lines.collect::<String>())?;
        output::say(&format!("{} expectations have been shown.", all.len()));
        Ok(Exit::Done)
    }
}

/// A question that names no connection is one that was asked wrongly, not one for a connection that is not
/// there.
fn in_words(error: anyhow::Error) -> anyhow::Error {
    match error.downcast_ref::<Refusal>() {
        Some(refusal) if refusal.code == RefusalCode::Invalid => Usage(refusal.to_string()).into(),
        _ => error,
    }
}

/// Follows events until either side ends it.
fn follow(socket: &Path, spec: &ConnectionEventSpec, printer: &Printer) -> anyhow::Result<Exit> {
    let stopped = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stopped)).context("heeding signals")?;
    }
    let stream = client::stream(socket, api::CONNTRACK_PATH, &serde_json::to_vec(spec)?)?;
    stream.set_read_timeout(Some(PERIOD))?;
    let (mut stream, mut line) = (BufReader::new(stream), Vec::new());
    let (mut count, mut all_lost) = (0u64, 0);
    let end = |count: u64, lost: u64| {
        let lost = if lost > 0 { format!(", {lost} were lost") } else { String::new() };
        output::say(&format!("{count} flow events have been shown{lost}."));
    };
    loop {
        if stopped.load(Ordering::Relaxed) || output::has_gone() {
            end(count, all_lost);
            return Ok(Exit::Done);
        }
        match client::next_line(&mut stream, &mut line, MAX_LINE, "event")? {
            Read::Waits => continue,
            Read::Line => {}
            Read::Gone => {
                end(count, all_lost);
                output::say("the daemon has gone");
                return Ok(Exit::Refused);
            }
        }
        let event: ConnectionEvent =
            serde_json::from_slice(&line).context("what the daemon sends is no event")?;
        line.clear();
        match event {
            ConnectionEvent::Change { kind, time, connection } => {
                count += 1;
                if printer.as_json {
                    let event = ConnectionEvent::Change { kind, time, connection };
                    output::line(&serde_json::to_string(&event)?)?;
                } else {
                    let line = conntrack::event(kind, time, &connection, printer.output);
                    output::line(&line)?;
                }
            }
            ConnectionEvent::Expectation { kind, time, expectation } => {
                count += 1;
                if printer.as_json {
                    let event = ConnectionEvent::Expectation { kind, time, expectation };
                    output::line(&serde_json::to_string(&event)?)?;
                } else {
                    let output = printer.output;
                    let line = conntrack::expectation_event(kind, time, &expectation, output);
                    output::line(&line)?;
                }
            }
            ConnectionEvent::Status { lost } => all_lost = lost,
        }
    }
}

fn query(
    filter: &ConnectionFilter,
    from: u32,
    request: impl Fn(ConnectionQuery) -> Request,
) -> Request {
    request(ConnectionQuery { filter: filter.clone(), from })
}

/// Asks for one page after the other. Returns how many connections there were.
fn each_page(
    socket: &Path,
    request: impl Fn(u32) -> Request,
    mut show: impl FnMut(&ConnectionPage) -> anyhow::Result<()>,
) -> anyhow::Result<usize> {
    let (mut from, mut count) = (0, 0);
    loop {
        let page = match client::ask(socket, &request(from))? {
            Reply::Connections(page) => page,
            other => return Err(client::unexpected(&other)),
        };
        show(&page)?;
        count += page.connections.len();
        match page.next {
            // A daemon that leads back is none.
            Some(next) if next > from => from = next,
            Some(_) => bail!("the daemon's answer leads back"),
            None => return Ok(count),
        }
    }
}

struct Printer {
    output: Output,
    as_json: bool,
}

/// Shows a page.
type Show<'s> = &'s mut dyn FnMut(&ConnectionPage) -> anyhow::Result<()>;

impl Printer {
    /// Prints pages as they come; of JSON one list.
    fn pages(&self, pages: impl FnOnce(Show<'_>) -> anyhow::Result<usize>) -> anyhow::Result<Exit> {
        let mut is_first = true;
        let mut show = |page: &ConnectionPage| {
            let mut text = String::new();
            for view in &page.connections {
                if self.as_json {
                    text += if core::mem::take(&mut is_first) { "[\n" } else { ",\n" };
                    text += &serde_json::to_string(view)?;
                } else {
                    text += &conntrack::connection(view, self.output);
                    text.push('\n');
                }
            }
            output::text(&text)
        };
        let count = pages(&mut show)?;
        if self.as_json {
            output::line(if count == 0 { "[]" } else { "\n]" })?;
        }
        Ok(Exit::Done)
    }
}
