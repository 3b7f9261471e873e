//! What a replay did with every packet.

use api::Refusal;
use io::pcap::Skipped;
use packet::{PortError, Time};
use serde::Serialize;

use crate::gateway::{Counted, Gateway};
use crate::view;

/// The counters of a gateway after a replay, and what its captures were like.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// The first packet's time in nanoseconds since 1970.
    begin_ns: u64,
    /// The last packet's.
    end_ns: u64,
    /// How long the gateway went on afterwards for packets that waited inside.
    afterwards_ns: u64,
    #[serde(flatten)]
    counted: Counted,
    /// Packets that still wait inside.
    held: usize,
    captures: Vec<Capture>,
}

/// What was wrong with a port's input.
#[derive(Debug, Serialize)]
struct Capture {
    port: String,
    skipped_truncated: u64,
    skipped_too_long: u64,
    skipped_link_type: u64,
    skipped_not_ip: u64,
    /// Where the file could not be read on.
    #[serde(skip_serializing_if = "Option::is_none")]
    damage: Option<String>,
}

impl Report {
    /// What `gateway` has counted.
    ///
    /// # Errors
    /// None that is known: what is asked can always be answered.
    pub(crate) fn of(
        gateway: &mut Gateway,
        begin: Time,
        last_packet: Time,
        now: Time,
    ) -> Result<Self, Refusal> {
        let held = gateway.held();
        Ok(Self {
            begin_ns: begin.0,
            end_ns: last_packet.0,
            afterwards_ns: now.0 - last_packet.0,
            counted: Counted::at(gateway.handler_mut(), now)?,
            held,
            captures: Vec::new(),
        })
    }

    /// Notes what the input of `port` was like.
    pub(crate) fn add_capture(&mut self, port: &str, skipped: Skipped, damage: Option<&PortError>) {
        if skipped != Skipped::default() || damage.is_some() {
            self.captures.push(Capture {
                port: port.to_owned(),
                skipped_truncated: skipped.truncated,
                skipped_too_long: skipped.too_long,
                skipped_link_type: skipped.link_type,
                skipped_not_ip: skipped.not_ip,
                damage: damage.map(ToString::to_string),
            });
        }
    }

    /// What was wrong with inputs that were damaged.
    pub(crate) fn damages(&self) -> impl Iterator<Item = &str> {
        self.captures.iter().filter_map(|capture| capture.damage.as_deref())
    }

    /// As tables for people. What did not happen is left out.
    pub(crate) fn text(&self) -> String {
        let mut parts = vec![
            view::ports(&self.counted.ports),
            view::drops(&self.counted.drops, false),
            view::counters(&self.counted.counters),
        ];
        if !self.counted.policies.is_empty() {
            parts.push(view::policies(&self.counted.policies));
        }
        if !self.counted.sas.is_empty() {
            parts.push(view::states(&self.counted.sas));
        }
        let mut text = parts.join("\n");
        if self.held > 0 {
            text.push_str(&format!("\n{} packets still wait inside\n", self.held));
        }
        for capture in &self.captures {
            let Capture { port, skipped_truncated, skipped_too_long, skipped_link_type, .. } =
                capture;
            let skipped_not_ip = capture.skipped_not_ip;
            let skipped = skipped_truncated + skipped_too_long + skipped_link_type + skipped_not_ip;
            if skipped > 0 {
                text.push_str(&format!(
                    "\n{port}: {skipped} captured packets were skipped: {skipped_truncated} cut \
                    off by the capture, {skipped_too_long} longer \
                     than a buffer, {skipped_link_type} of another link type, {skipped_not_ip} that \
                    are no IP packets\n"
                ));
            }
        }
        if self.counted.dropped("link_not_for_us") > 0 {
            text.push_str(
                "\nFrames were dropped because they are addressed to another station: --any-mac \
                takes them all, or give the port the `mac` that the capture's frames are \
                addressed to.\n",
            );
        }
        if self.counted.dropped("vlan_unknown") > 0 {
            text.push_str(
                "\nFrames were dropped because of their VLAN tags: --skip-vlan passes over tags, or \
                configure the VLANs as ports.\n",
            );
        }
        if self.counted.dropped("neighbour_unresolved") > 0 {
            text.push_str(
                "\nNext hops did not answer: --assume-neighbours makes them up, or configure them \
                as neighbours.\n",
            );
        }
        text
    }
}
