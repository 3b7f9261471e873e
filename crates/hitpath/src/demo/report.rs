//! What the demonstration has shown.

use std::time::Duration;

use serde::Serialize;

use crate::demo::Topology;
use crate::demo::wire_tap::Seen;
use crate::gateway::Counted;
use crate::view;

const PICTURE: &str = "
               192.168.13.1  192.168.11.2     192.168.11.1  192.168.12.1
  host-a ------------- gw-a ================= gw-b ------------- host-b
  192.168.13.5          ESP, AES-128-GCM, tunnel mode          192.168.12.5
";

/// What was sent, seen and counted.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    sent: u64,
    answered: u64,
    seconds: f64,
    between: Seen,
    #[serde(skip)]
    described: String,
    #[serde(rename = "gw-a")]
    gateway_a: Counted,
    #[serde(rename = "gw-b")]
    gateway_b: Counted,
}

impl Report {
    /// What `topology` has shown, whose pings took so long.
    ///
    /// # Errors
    /// None that is known: what is asked can always be answered.
    pub(super) fn of(mut topology: Topology, took: Duration) -> anyhow::Result<Self> {
        Ok(Self {
            sent: topology.host_a.sent,
            answered: topology.host_a.answered,
            seconds: took.as_secs_f64(),
            between: topology.tap.seen,
            described: topology.tap.described,
            gateway_a: Counted::at(topology.gateway_a.handler_mut(), topology.now)?,
            gateway_b: Counted::at(topology.gateway_b.handler_mut(), topology.now)?,
        })
    }

    /// Whether every ping was answered and nothing but ESP and ARP was between the gateways.
    pub(crate) fn is_good(&self) -> bool {
        self.sent > 0
            && self.answered == self.sent
            && self.between.clear == 0
            && self.between.secret == 0
            && self.between.esp == 2 * self.sent
    }

    /// For people.
    pub(crate) fn text(&self) -> String {
        let Seen { esp, arp, clear, secret } = self.between;
        let crossings = 2.0 * self.answered.saturating_sub(1) as f64;
        let drops = |counted: &Counted| view::drops(&counted.drops, false);
        format!(
            "{PICTURE}\n\
             The first frames between the gateways:\n{}\n\
             {} echo requests were sent and {} answered in {:.3} s: {:.0} packets/s encrypted by one gateway and decrypted by\n\
             the other, everything on one thread.\n\
             Between the gateways were seen: {esp} ESP packets, {arp} ARP packets, {clear} others. The pings' text was seen {secret} times.\n\n\
             gw-a has counted:\n{}\n{}\n{}\n{}\n\
             gw-b: {}\n{}\n",
            self.described,
            self.sent,
            self.answered,
            self.seconds,
            crossings / self.seconds.max(f64::EPSILON),
            view::ports(&self.gateway_a.ports),
            view::policies(&self.gateway_a.policies),
            view::states(&self.gateway_a.sas),
            drops(&self.gateway_a),
            drops(&self.gateway_b),
            if self.is_good() {
                "Every ping was answered, and nothing passed in the clear."
            } else {
                "That is not what it should be."
            },
        )
    }
}
