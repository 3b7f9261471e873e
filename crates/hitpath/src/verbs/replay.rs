//! `hitpath replay`: capture files through the whole gateway.

use std::path::PathBuf;

use clap::Args;

use crate::cli::Global;
use crate::gateway;
use crate::replay;
use runtime::exit::Exit;
use runtime::output;

/// Put capture files through the whole gateway, in their own time
///
/// Needs no root and touches no interface. Reads pcap and pcapng, compressed by gzip or not, of
/// Ethernet, raw IP, Linux cooked (`tcpdump -i any`) and BSD loopback; writes pcap with
/// nanoseconds. The same files, configuration and seed give the same bytes. Ends with what became of
/// every packet: by port, drop reason, policy and SA. Exits with 1 if an input was damaged; what
/// came before the damage is replayed.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  hitpath replay --config gw.toml --in lan=clear.pcap --out wan=esp.pcap
  hitpath replay --config gw.toml --in wan=esp.pcap --out lan=clear.pcap --assume-neighbours
  hitpath replay -j --config gw.toml --in lan=a.pcapng --in wan=b.pcapng --seed 7
  hitpath replay --config gw.toml --in lan=trunk.pcap.gz --any-mac --skip-vlan --assume-neighbours

Ports without --in are silent; what is sent by ports without --out is counted and discarded.
Frames must be addressed to the port: give it the `mac` that the capture has, or say --any-mac.")]
pub(crate) struct Replay {
    /// The configuration file
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,

    /// A capture that the port receives; once for each port
    #[arg(short, long = "in", value_name = "PORT=FILE", value_parser = port_and_file)]
    input: Vec<(String, PathBuf)>,

    /// A capture of what the port sends; once for each port
    #[arg(short, long = "out", value_name = "PORT=FILE", value_parser = port_and_file)]
    output: Vec<(String, PathBuf)>,

    /// Seeds all randomness: IVs and the secrets of tables
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    seed: u64,

    /// Let every next hop answer, at an Ethernet address made from its IP address
    ///
    /// Without it packets wait for an answer as they do live: from the captures, or from the
    /// configuration's neighbours.
    #[arg(long)]
    assume_neighbours: bool,

    /// Take frames for whatever Ethernet address as if they were for the port
    ///
    /// Those for groups stay what they are. What the port's own station had sent is taken as well.
    #[arg(long)]
    any_mac: bool,

    /// Pass over the VLAN tags of frames, as if they had none
    #[arg(long)]
    skip_vlan: bool,
}

impl Replay {
    pub(crate) fn run(&self, global: &Global) -> anyhow::Result<Exit> {
        let report = replay::Replay {
            config: gateway::load(&self.config)?,
            file: self.config.clone(),
            inputs: self.input.clone(),
            outputs: self.output.clone(),
            seed: self.seed,
            assume_neighbours: self.assume_neighbours,
            any_mac: self.any_mac,
            skip_vlan: self.skip_vlan,
            progress: !global.json,
        }
        .run()?;
        if global.json {
            output::json(&report)?;
        } else {
            output::text(&report.text())?;
        }
        let mut exit = Exit::Done;
        for damage in report.damages() {
            let error = anyhow::anyhow!("only what came before the damage was replayed: {damage}");
            output::report(&error, global.json);
            exit = Exit::Refused;
        }
        Ok(exit)
    }
}

fn port_and_file(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((port, file)) if !port.is_empty() && !file.is_empty() => {
            Ok((port.to_owned(), file.into()))
        }
        _ => Err("say PORT=FILE, as in lan=capture.pcap".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_belongs_to_a_port() {
        assert_eq!(port_and_file("lan=a=b.pcap"), Ok(("lan".into(), "a=b.pcap".into())));
        for wrong in ["lan", "=a.pcap", "lan="] {
            assert!(port_and_file(wrong).is_err(), "{wrong}");
        }
    }
}
