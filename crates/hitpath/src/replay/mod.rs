//! Capture files through the whole gateway, in the captures' own time.
//!
//! The code is that of the live gateway; only the ports and the clock differ. Time is the
//! captures': packets of all inputs come in the order of their timestamps, and whatever is due
//! between two packets happens between them. So the same files with the same seed give the same
//! bytes.

mod neighbours;
mod port;
mod report;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use api::{NeighbourSpec, Request};
use control::{Config, PortSettings};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use io::pcap::{LinkType, PcapOptions, PcapPort, PcapReader, PcapWriter};
use packet::{LinkKind, Time};
use wire::PortId;

use crate::exit::Usage;
use crate::gateway::{Gateway, TICK, twin};
use port::Tap;

pub(crate) use report::Report;

/// How far time goes on behind the last packet, at most, for packets that still wait inside:
/// fragments wait longest.
const AFTERWARDS: Duration = Duration::from_secs(120);

/// A silence longer than this is passed in ever larger steps, so that a capture of one packet a
/// year takes no year.
const SILENCE: Duration = Duration::from_secs(60);

/// Rounds between two looks at the progress.
const ROUNDS_PER_LOOK: u32 = 4096;

/// What is to be replayed.
#[derive(Debug)]
pub(crate) struct Replay {
    /// The gateway.
    pub(crate) config: Config,
    /// The file that says so.
    pub(crate) file: PathBuf,
    /// Captures to receive, by port name.
    pub(crate) inputs: Vec<(String, PathBuf)>,
    /// Captures to write, by port name.
    pub(crate) outputs: Vec<(String, PathBuf)>,
    /// All of the gateway's randomness.
    pub(crate) seed: u64,
    /// Whether neighbours answer that the captures do not have.
    pub(crate) assume_neighbours: bool,
    /// Whether frames for whatever Ethernet address are taken.
    pub(crate) any_mac: bool,
    /// Whether VLAN tags are passed over.
    pub(crate) skip_vlan: bool,
    /// Whether to show how far it is.
    pub(crate) progress: bool,
}

impl Replay {
    /// Replays.
    ///
    /// # Errors
    /// If a name or a file is wrong, or an output cannot be written. A damaged input is in the
    /// report instead.
    pub(crate) fn run(&self) -> anyhow::Result<Report> {
        let taps = self.open()?;
        let mut config = self.config.clone();
        // A capture without Ethernet headers makes a port without neighbours.
        config.neighbours.retain(|neighbour| {
            taps.get(&neighbour.port).is_none_or(|tap| tap.link() == LinkKind::Ethernet)
        });
        let begin = taps.values().filter_map(Tap::next_time).min().unwrap_or_default();
        let mut seed = [0; 32];
        seed[..8].copy_from_slice(&self.seed.to_be_bytes());
        let bar = self.bar(&taps);

        let gateway = Gateway::new(config, seed, begin, |settings, id| {
            let tap = taps.get(&settings.name).context("a port without a capture")?;
            tap.port(id).context("a port that is closed already")
        })?;
        let mut running = Running { gateway, taps, now: begin, last_packet: begin };
        running.run(&bar)?;
        bar.finish_and_clear();
        running.finish(begin)
    }

    /// Opens the captures of every port. A port without an input receives nothing. What a port
    /// without an output sends is counted and lost.
    fn open(&self) -> anyhow::Result<BTreeMap<String, Tap>> {
        let inputs = by_port("--in", &self.inputs, &self.config)?;
        let outputs = by_port("--out", &self.outputs, &self.config)?;
        refuse_overwriting(&self.file, &inputs, &outputs)?;
        let mut taps = BTreeMap::new();
        // Inputs first: nothing is written over if one of them is wrong.
        let mut readers = BTreeMap::new();
        for settings in &self.config.ports {
            let (configured, _) = settings.kind.captures();
            if let Some(path) = inputs.get(settings.name.as_str()).copied().or(configured) {
                readers.insert(settings.name.as_str(), PcapReader::open(path)?);
            }
        }
        for settings in &self.config.ports {
            let reader = readers.remove(settings.name.as_str());
            let link = reader
                .as_ref()
                .and_then(PcapReader::link)
                .and_then(LinkType::kind)
                .unwrap_or(settings.kind.link());
            let (_, configured) = settings.kind.captures();
            let writer = match outputs.get(settings.name.as_str()).copied().or(configured) {
                None => None,
                Some(path) => Some(
                    PcapWriter::create(path, link)
                        .with_context(|| format!("making {}", path.display()))?,
                ),
            };
            let port = PcapPort::new(self.options(settings, link), reader, writer)?;
            taps.insert(settings.name.clone(), Tap::new(port, self.assume_neighbours));
        }
        Ok(taps)
    }

    fn options(&self, settings: &PortSettings, link: LinkKind) -> PcapOptions {
        // The gateway gives it its number.
        let twin = twin::options(settings, PortId(0));
        PcapOptions {
            name: twin.name,
            id: twin.id,
            link,
            mac: twin.mac,
            mtu: twin.mtu,
            any_mac: self.any_mac,
            skip_vlan: self.skip_vlan,
        }
    }

    fn bar(&self, taps: &BTreeMap<String, Tap>) -> ProgressBar {
        let total: u64 = taps.values().filter_map(Tap::bytes_in_all).sum();
        let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::hidden());
        if self.progress {
            let style = ProgressStyle::with_template(
                "{bar:40} {percent:>3} % of {total_bytes}, {eta} to go",
            );
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            // Hides itself if standard error is no terminal.
            bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        bar
    }
}

/// A replay on its way.
struct Running {
    gateway: Gateway,
    taps: BTreeMap<String, Tap>,
    now: Time,
    last_packet: Time,
}

impl Running {
    fn run(&mut self, bar: &ProgressBar) -> anyhow::Result<()> {
        let mut rounds = 0_u32;
        while let Some(next) = self.taps.values().filter_map(Tap::next_time).min() {
            // Captures of several ports may disagree about the time; it never runs backwards.
            let next = next.max(self.now);
            self.pass_time(next)?;
            self.last_packet = next;
            self.round()?;
            rounds = rounds.wrapping_add(1);
            if rounds.is_multiple_of(ROUNDS_PER_LOOK) {
                bar.set_position(self.taps.values().map(Tap::bytes_read).sum());
            }
        }
        let end = self.now + AFTERWARDS;
        while self.gateway.held() > 0 && self.now < end {
            self.now = self.due().min(end);
            self.round()?;
        }
        Ok(())
    }

    /// Does what is due before `next`.
    fn pass_time(&mut self, next: Time) -> anyhow::Result<()> {
        let silent_since = self.now;
        let mut step = TICK;
        while self.due() < next {
            self.now = self.due();
            if self.now.since(silent_since) > SILENCE {
                step = step.saturating_mul(2);
                self.now = (self.now + step).min(next);
            }
            self.round()?;
        }
        self.now = next;
        Ok(())
    }

    /// When something is due though no packet comes; always later than now, so that time goes on.
    fn due(&self) -> Time {
        let soon = self.now + Duration::from_nanos(1);
        self.gateway.next_deadline().unwrap_or(self.now + TICK).max(soon)
    }

    fn round(&mut self) -> anyhow::Result<()> {
        self.gateway.step(self.now)?;
        let mut answered = false;
        for (name, tap) in &self.taps {
            for address in tap.questions() {
                let neighbour =
                    NeighbourSpec { port: name.clone(), address, mac: neighbours::mac(address) };
                // A full neighbour table leaves the question open, and the packets are dropped with
                // that reason.
                let answer = self
                    .gateway
                    .handler_mut()
                    .handle(Request::NeighbourReplace(neighbour), self.now);
                answered |= answer.is_ok();
            }
        }
        if answered {
            self.gateway.step(self.now)?;
        }
        Ok(())
    }

    fn finish(mut self, begin: Time) -> anyhow::Result<Report> {
        let mut report = Report::of(&mut self.gateway, begin, self.last_packet, self.now)?;
        for (name, tap) in &self.taps {
            let (skipped, damage) = tap.finish()?;
            report.add_capture(name, skipped, damage.as_ref());
        }
        Ok(report)
    }
}

fn by_port<'a>(
    option: &str,
    files: &'a [(String, PathBuf)],
    config: &Config,
) -> anyhow::Result<BTreeMap<&'a str, &'a Path>> {
    let mut found = BTreeMap::new();
    for (name, path) in files {
        if !config.ports.iter().any(|port| port.name == *name) {
            let names: Vec<_> = config.ports.iter().map(|port| port.name.as_str()).collect();
            bail!(Usage(format!(
                "{option} {name}={}: the configuration has no port `{name}`; it has: {}",
                path.display(),
                names.join(", ")
            )));
        }
        if found.insert(name.as_str(), path.as_path()).is_some() {
            bail!(Usage(format!(
                "{option} {name}={}: port `{name}` has a file already",
                path.display()
            )));
        }
    }
    Ok(found)
}

/// An output that is also an input would be emptied before it is read, one file cannot hold two
/// outputs, and the configuration is no output.
fn refuse_overwriting(
    configuration: &Path,
    inputs: &BTreeMap<&str, &Path>,
    outputs: &BTreeMap<&str, &Path>,
) -> anyhow::Result<()> {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let mut taken: Vec<PathBuf> =
        inputs.values().copied().chain([configuration]).map(real).collect();
    for (name, path) in outputs {
        let path_taken = real(path);
        if path_taken.is_file() || !path_taken.exists() {
            if taken.contains(&path_taken) {
                bail!(Usage(format!(
                    "--out {name}={}: the file is in use by another --in or --out, or is the \
                    configuration",
                    path.display()
                )));
            }
            taken.push(path_taken);
        }
    }
    Ok(())
}
