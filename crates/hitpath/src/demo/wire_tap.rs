//! The eavesdropper on the cable between the gateways.

use std::fmt::Write;
use std::path::Path;

use anyhow::Context;
use io::pcap::PcapWriter;
use packet::{LinkKind, Time};
use serde::Serialize;
use wire::ethernet::{self, EtherType};
use wire::{Protocol, esp, headers};

use crate::demo::host::SECRET;

/// Frames described in words.
const DESCRIBED: usize = 6;

/// What an eavesdropper has seen.
#[derive(Debug, Default, Serialize)]
pub(super) struct Seen {
    /// ESP packets.
    pub(super) esp: u64,
    /// ARP packets: the gateways look for each other.
    pub(super) arp: u64,
    /// Anything else, which should not be there.
    pub(super) clear: u64,
    /// Frames in which the pings' text can be read.
    pub(super) secret: u64,
}

/// Sees every frame on a cable.
pub(super) struct WireTap {
    pub(super) seen: Seen,
    /// The first frames in words.
    pub(super) described: String,
    capture: Option<PcapWriter>,
    failure: Option<std::io::Error>,
}

impl WireTap {
    /// A tap that also writes a capture, if `file` says so.
    ///
    /// # Errors
    /// If the file cannot be made.
    pub(super) fn new(file: Option<&Path>) -> anyhow::Result<Self> {
        let capture = match file {
            None => None,
            Some(path) => {
                let made = PcapWriter::create(path, LinkKind::Ethernet);
                Some(made.with_context(|| format!("making {}", path.display()))?)
            }
        };
        Ok(Self { seen: Seen::default(), described: String::new(), capture, failure: None })
    }

    /// Looks at a frame that `from` sends.
    pub(super) fn look(&mut self, from: &str, now: Time, frame: &[u8]) {
        let total = self.seen.esp + self.seen.arp + self.seen.clear;
        let packet = frame.get(ethernet::HEADER_LENGTH..).unwrap_or_default();
        let text = match ethernet::Header::parse(frame).map(|header| header.ether_type) {
            Some(EtherType::ARP) => {
                self.seen.arp += 1;
                "ARP".to_owned()
            }
            _ => match headers::parse(packet) {
                Ok(found) if found.protocol == Protocol::ESP => {
                    self.seen.esp += 1;
                    let (source, destination) =
                        (found.addresses.source(), found.addresses.destination());
                    let sequence = esp::Header::parse(found.upper_bytes(packet))
                        .map_or(0, |header| header.sequence);
                    match found.upper {
                        wire::Upper::Spi(spi) => {
                            format!(
                                "{source} > {destination} ESP spi {spi} seq {sequence}, {} bytes",
                                packet.len()
                            )
                        }
                        _ => "ESP".to_owned(),
                    }
                }
                _ => {
                    self.seen.clear += 1;
                    "IN THE CLEAR".to_owned()
                }
            },
        };
        self.seen.secret += u64::from(frame.windows(SECRET.len()).any(|window| window == SECRET));
        if total < DESCRIBED as u64 {
            // Writing to a string cannot fail.
            let _ = writeln!(self.described, "  {from}  {text}");
            for line in frame.chunks(32).take(3).filter(|_| text.contains("ESP")) {
                let _ = write!(self.described, "       ");
                line.iter().for_each(|byte| {
                    let _ = write!(self.described, "{byte:02x}");
                });
                self.described.push('\n');
            }
        }
        if let Some(capture) = &mut self.capture
            && let Err(error) = capture.write(now, frame)
        {
            self.failure = self.failure.take().or(Some(error));
        }
    }

    /// Closes the capture.
    ///
    /// # Errors
    /// If it could not be written.
    pub(super) fn finish(&mut self) -> anyhow::Result<()> {
        if let Some(error) = self.failure.take() {
            return Err(error).context("writing the capture");
        }
        self.capture.take().map_or(Ok(()), PcapWriter::finish).context("writing the capture")
    }
}
