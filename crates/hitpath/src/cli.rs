//! The command line: what help, completions and man pages are made from.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use clap::{ArgAction, Args, CommandFactory, Parser, Subcommand};

use crate::{ip_options, suggest, usage, verbs};
use runtime::exit::Exit;
use runtime::log::LogWriter;

/// Where clients look for the daemon unless told otherwise.
const DEFAULT_SOCKET: &str = "/run/hitpath/control.sock";

const EXAMPLES: &str = "\
Start with:
  hitpath demo --memory                      two gateways and a tunnel, in this process, no root
  hitpath check gw.toml                      is this configuration right?
  hitpath run --config gw.toml               run it
  hitpath show ports                         in another terminal: what passes?
  hitpath explain 'udp 192.168.13.5:5000 > 192.168.12.7:53 in lan'

Exit codes:
  0  done, or yes
  1  refused, failed, or no
  2  the command line cannot be understood
  3  no daemon could be reached";

/// A software security gateway: IPsec, VRF routing and a decision made once per flow.
///
/// One binary is the daemon (`run`), its client (`show`, `xfrm`, `route`, ...) and the tools around
/// them.
#[derive(Debug, Parser)]
#[command(name = "hitpath", version, after_help = EXAMPLES, disable_help_subcommand = true, max_term_width = 120)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options of every verb.
#[derive(Args, Debug, Default)]
pub(crate) struct Global {
    /// Print JSON instead of text
    #[arg(short, long, global = true, help_heading = "Options of every verb")]
    pub(crate) json: bool,

    /// The daemon's control socket [default: HITPATH_SOCKET of the environment, or else
    /// /run/hitpath/control.sock, for `run` what the configuration says]
    #[arg(long, global = true, value_name = "PATH", help_heading = "Options of every verb")]
    socket: Option<PathBuf>,

    /// Log more to standard error: -v also says what is done, -vv how
    #[arg(short, long, global = true, action = ArgAction::Count, help_heading = "Options of every verb")]
    pub(crate) verbose: u8,
}

impl Global {
    /// Where clients look for the daemon.
    pub(crate) fn socket(&self) -> &Path {
        self.socket.as_deref().unwrap_or(Path::new(DEFAULT_SOCKET))
    }

    /// Takes what was said of every verb before, unless something else is said now.
    pub(crate) fn inherit(&mut self, before: &Self) {
        self.json |= before.json;
        self.verbose = self.verbose.max(before.verbose);
        if self.socket.is_none() {
            self.socket.clone_from(&before.socket);
        }
    }

    /// Takes what the environment says, unless something else is said.
    fn ask_environment(&mut self) {
        let said = || std::env::var_os("HITPATH_SOCKET").filter(|said| !said.is_empty());
        self.socket = self.socket.take().or_else(|| said().map(PathBuf::from));
    }

    /// Where the daemon is to listen, if the user said so.
    pub(crate) fn socket_override(&self) -> Option<&Path> {
        self.socket.as_deref()
    }
}

/// The verbs, in the order of the help.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(verbs::run::Run),
    Check(verbs::check::Check),
    Reload(verbs::reload::Reload),
    Diff(verbs::diff::Diff),
    Save(verbs::save::Save),
    State(verbs::state::State),
    ReleaseInterfaces(verbs::release_interfaces::ReleaseInterfaces),
    Show(verbs::show::Show),
    Xfrm(verbs::words::Xfrm),
    Route(verbs::words::Route),
    Rule(verbs::words::Rule),
    Neigh(verbs::words::Neigh),
    Addr(verbs::words::Addr),
    Link(verbs::words::Link),
    Vrf(verbs::words::Vrf),
    Qdisc(verbs::words::Qdisc),
    Filter(verbs::words::Filter),
    Flow(verbs::flow::Flow),
    Firewall(verbs::firewall::Firewall),
    Conntrack(Box<verbs::conntrack::Conntrack>),
    Tap(verbs::tap::Tap),
    Trace(verbs::trace::Trace),
    Monitor(verbs::monitor::Monitor),
    Batch(verbs::batch::Batch),
    Explain(verbs::explain::Explain),
    Shell(verbs::shell::Shell),
    Top(verbs::top::Top),
    Replay(verbs::replay::Replay),
    Graph(verbs::graph::Graph),
    Bench(verbs::bench::Bench),
    Demo(verbs::demo::Demo),
    Help(verbs::help::Help),
    #[command(hide = true)]
    Complete(verbs::complete::Complete),
    Completions(verbs::completions::Completions),
    Man(verbs::man::Man),
}

impl Command {
    /// Does what the verb says.
    pub(crate) fn run(&self, global: &Global) -> anyhow::Result<Exit> {
        match self {
            Self::Run(verb) => verb.run(global),
            Self::Check(verb) => verb.run(global),
            Self::Reload(verb) => verb.run(global),
            Self::Diff(verb) => verb.run(global),
            Self::Save(verb) => verb.run(global),
            Self::State(verb) => verb.run(global),
            Self::ReleaseInterfaces(verb) => verb.run(global),
            Self::Show(verb) => verb.run(global),
            Self::Xfrm(verb) => verb.run(global),
            Self::Route(verb) => verb.run(global),
            Self::Rule(verb) => verb.run(global),
            Self::Neigh(verb) => verb.run(global),
            Self::Addr(verb) => verb.run(global),
            Self::Link(verb) => verb.run(global),
            Self::Vrf(verb) => verb.run(global),
            Self::Qdisc(verb) => verb.run(global),
            Self::Filter(verb) => verb.run(global),
            Self::Flow(verb) => verb.run(global),
            Self::Firewall(verb) => verb.run(global),
            Self::Conntrack(verb) => verb.run(global),
            Self::Tap(verb) => verb.run(global),
            Self::Trace(verb) => verb.run(global),
            Self::Monitor(verb) => verb.run(global),
            Self::Batch(verb) => verb.run(global),
            Self::Explain(verb) => verb.run(global),
            Self::Shell(verb) => verb.run(global),
            Self::Top(verb) => verb.run(global),
            Self::Replay(verb) => verb.run(global),
            Self::Graph(verb) => verb.run(global),
            Self::Bench(verb) => verb.run(),
            Self::Demo(verb) => verb.run(global),
            Self::Help(verb) => verb.run(global),
            Self::Complete(verb) => verb.run(global),
            Self::Completions(verb) => verb.run(),
            Self::Man(verb) => verb.run(),
        }
    }
}

impl Cli {
    /// What the process was called with. Ends it if that cannot be understood, or help was asked
    /// for.
    pub(crate) fn from_command_line() -> Self {
        let mut cli = Self::read();
        cli.global.ask_environment();
        cli
    }

    fn read() -> Self {
        let words = ip_options::words(std::env::args_os()).unwrap_or_else(|refusal| {
            let as_json = usage::asks_for_json(&std::env::args_os().collect::<Vec<_>>());
            usage::end(Self::command().error(ErrorKind::InvalidSubcommand, refusal), as_json)
        });
        // Options after `bench` belong to another program and are not read here.
        if let Some(arguments) = verbs::bench::arguments(&words) {
            return Self { global: Global::default(), command: Command::Bench(arguments) };
        }
        suggest::read(&words).unwrap_or_else(|error| {
            // Without a verb, somebody at a terminal wants to talk.
            if error.kind() == ErrorKind::MissingSubcommand
                || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
            {
                let with_verb = words.iter().cloned().chain([OsString::from("shell")]);
                if crate::shell::is_possible()
                    && let Ok(cli) = Self::try_parse_from(with_verb)
                {
                    return cli;
                }
            }
            usage::end(error, usage::asks_for_json(&words))
        })
    }

    /// Sends logs to standard error. The daemon logs from level info up, the other verbs from level
    /// warn.
    pub(crate) fn start_logging(&self) {
        use tracing::level_filters::LevelFilter;
        let daemon = u8::from(matches!(self.command, Command::Run(_)));
        let level = match self.global.verbose + daemon {
            0 => LevelFilter::WARN,
            1 => LevelFilter::INFO,
            2 => LevelFilter::DEBUG,
            _ => LevelFilter::TRACE,
        };
        tracing_subscriber::fmt()
            .with_max_level(level)
            .with_writer(LogWriter::default)
            .log_internal_errors(false)
            .with_target(false)
            .with_ansi(std::io::stderr().is_terminal() && !refuses_colour())
            .init();
    }
}

/// Whether the user wants no colours (<https://no-color.org>).
pub(crate) fn refuses_colour() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definitions_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_verb_teaches_by_example() {
        let mut cli = Cli::command();
        cli.build();
        for verb in cli.get_subcommands_mut() {
            let help = verb.render_long_help().to_string();
            assert!(help.contains(&format!("hitpath {}", verb.get_name())), "{help}");
        }
    }

    #[test]
    fn options_of_every_verb_may_stand_anywhere() {
        for line in [
            "hitpath -j show ports",
            "hitpath show -j ports",
            "hitpath show ports -j",
            "hitpath xfrm state -j list",
        ] {
            let cli = Cli::try_parse_from(line.split(' ')).expect(line);
            assert!(cli.global.json, "{line}");
        }
    }
}
