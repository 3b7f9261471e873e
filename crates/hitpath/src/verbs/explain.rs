//! `hitpath explain`: what would happen to a packet, and why.

use std::path::PathBuf;

use api::{Reply, Request, Stage};
use clap::Args;
use packet::Time;

use crate::cli::Global;
use crate::client;
use crate::exit::Usage;
use crate::explain::{self, DROPPED, Description, GRAMMAR, OUTCOME, QUOTED};
use crate::gateway::{self, Gateway};
use crate::view;
use runtime::exit::Exit;

/// Say what would happen to a packet, step by step, and send nothing
///
/// Runs the very code that decides about packets, on the tables of the running daemon, or on those
/// of a configuration file.
#[derive(Args, Debug)]
#[command(after_help = format!("\
A packet is described by:
  {GRAMMAR}

An ICMP error is about QUOTED, the packet that it quotes:
  {QUOTED}

Examples:
  hitpath explain 'udp 192.168.13.5:5000 > 192.168.12.7:53 in lan'
  hitpath explain 'icmp 10.0.0.1 > 10.0.0.2 type 8 code 0 in lan'
  hitpath explain 'tcp [fd00::1]:1234 > [fd00::2]:443 in lan size 1500'
  hitpath explain 'udp 192.168.13.5 > 192.168.12.7 df size 1500 in lan'
  hitpath explain 'tcp 192.168.13.5:1 > 192.168.13.1:22 in lan'   to the gateway itself
  hitpath explain 'esp 192.0.2.1 > 192.0.2.2 spi 0x1001 in wan'
  hitpath explain 'udp 10.2.0.1:53 > 10.1.0.1:5000 in sa 1'   decrypted by reqid 1
  hitpath explain 'icmp 192.0.2.9 > 192.0.2.1 type 3 code 4 about tcp 192.0.2.1:4000 > 192.0.2.9:443 in wan'
  hitpath explain --config gw.toml 'udp 10.0.0.1 > 10.2.0.1 fragment later in lan'

With -j each stage is an object with members of its own instead of a sentence.
Exits with 0 where the packet would be sent on, answered or taken, with 1 where it would be dropped."))]
pub(crate) struct Explain {
    /// Use the tables of this configuration instead of the daemon's
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// The packet
    #[arg(required = true, value_name = "PACKET")]
    words: Vec<String>,
}

impl Explain {
    pub(crate) fn run(&self, global: &Global) -> anyhow::Result<Exit> {
        let packet = self.words.join(" ");
        // Here already, so that words which make no sense are the user's error and not the daemon's
        // refusal.
        Description::parse(&packet).map_err(|error| Usage(error.to_string()))?;
        let request = Request::Explain { packet };
        let reply = match &self.config {
            None => client::ask(global.socket(), &request)?,
            Some(file) => Reply::Explained(self.offline(file)?),
        };
        let Reply::Explained(stages) = &reply else { return Err(client::unexpected(&reply)) };
        view::print(&request, &reply, global.json)?;
        let is_drop = |stage: &Stage| {
            stage.stage == OUTCOME && stage.members.get("fate").is_some_and(|fate| fate == DROPPED)
        };
        let dropped = stages.iter().any(is_drop);
        Ok(if dropped { Exit::Refused } else { Exit::Done })
    }

    fn offline(&self, file: &std::path::Path) -> anyhow::Result<Vec<Stage>> {
        let gateway = Gateway::without_packets(gateway::load(file)?)?;
        Ok(explain::explain(&self.words.join(" "), &gateway.handler().control, Time(0))?)
    }
}
