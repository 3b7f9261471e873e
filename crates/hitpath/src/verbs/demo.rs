//! `hitpath demo`: a tunnel at work, without root and without a network.

use std::path::PathBuf;

use clap::Args;

use crate::cli::Global;
use crate::demo;
use runtime::exit::Exit;
use runtime::output;

/// Show a tunnel at work: two gateways and two hosts in this process
///
/// Pings through an ESP tunnel and shows what an eavesdropper between the gateways sees, and what
/// the gateways have counted. Needs no root and touches no interface. Exits with 0 if every ping
/// was answered and nothing passed in the clear.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  hitpath demo --memory
  hitpath demo --memory --packets 100000 --size 1400
  hitpath demo --memory --pcap esp.pcap      look at it with tcpdump or Wireshark")]
pub(crate) struct Demo {
    /// On cables in memory, which is the only way as of now and needs not be said
    #[arg(long)]
    memory: bool,

    /// Echo requests to send
    #[arg(long, value_name = "COUNT", default_value_t = 5000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    packets: u64,

    /// Bytes of payload in each
    #[arg(long, value_name = "BYTES", default_value_t = 56, value_parser = clap::value_parser!(u16).range(20..=1400))]
    size: u16,

    /// Write what passes between the gateways to a capture file
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
}

impl Demo {
    pub(crate) fn run(&self, global: &Global) -> anyhow::Result<Exit> {
        let demo = demo::Demo {
            packets: self.packets,
            size: self.size.into(),
            capture: self.pcap.clone(),
        };
        let report = demo.run()?;
        if global.json {
            output::json(&report)?;
        } else {
            output::text(&report.text())?;
        }
        Ok(if report.is_good() { Exit::Done } else { Exit::Refused })
    }
}
