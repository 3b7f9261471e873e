//! What is wished for.

use core::fmt;

use api::{Difference, Refusal, Reply, Request};
use packet::{LinkKind, Time};
use tables::{Event, Probe, Shared};
use wire::{Mac, PortId};

use crate::config::Config;
use crate::settings::{GatewaySettings, PortSettings};

/// The single writer: it keeps what is wished for, and publishes the snapshots that follow.
#[derive(Debug)]
pub struct Control {}

/// A port that was opened, and what was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenedPort {
    /// The name in [`PortSettings`].
    pub name: String,
    /// The number that the caller gave it: not one in use.
    pub id: PortId,
    /// Its Ethernet address.
    pub mac: Mac,
    /// The largest IP packet in bytes that it takes.
    pub mtu: u16,
    /// What its frames begin with.
    pub link: LinkKind,
}

/// How to come from what runs to what a configuration file says.
#[derive(Clone, Debug)]
pub struct Plan {}

impl Plan {
    /// Ports to open before the plan is applied. Where one cannot be opened, drop the plan: nothing has changed.
    pub fn ports_to_open(&self) -> &[PortSettings] {
        todo!()
    }

    /// Ports to close once the plan has been applied.
    pub fn ports_to_close(&self) -> &[PortId] {
        todo!()
    }

    /// What would change.
    pub fn difference(&self) -> &Difference {
        todo!()
    }
}

/// The difference, a line for each change.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.difference().fmt(f)
    }
}

impl Control {
    /// Nothing but the VRF `main`. `seed` is randomness: it keys the hash tables of the snapshots, and starts the IVs of SAs. Live, it must be
    /// fresh from the system; with one seed and the same calls at the same times, everything is the same.
    pub fn new(workers: usize, seed: [u8; 32]) -> Self {
        let _ = (workers, seed);
        todo!()
    }

    /// What workers read from.
    pub fn shared(&self) -> Shared {
        todo!()
    }

    /// The settings that are in force: those of the first configuration applied.
    pub fn gateway(&self) -> &GatewaySettings {
        todo!()
    }

    /// How to come from what runs to what `config` says. What commands have added stays.
    pub fn plan(&self, config: Config) -> Plan {
        let _ = config;
        todo!()
    }

    /// Carries a plan out, all of it or, where that is refused, nothing. `opened` are the ports of [`Plan::ports_to_open`].
    ///
    /// # Errors
    /// Something was changed since the plan was made and does not fit any more, or a table is full.
    pub fn apply(&mut self, plan: Plan, opened: &[OpenedPort], now: Time) -> Result<Difference, Refusal> {
        let _ = (plan, opened, now);
        todo!()
    }

    /// Carries a request out. Those that are about the process (version, workers, drops, reload, explain) are the caller's to answer, and so are
    /// the statistics of ports.
    ///
    /// # Errors
    /// Why it was refused. Nothing was changed.
    pub fn handle(&mut self, request: Request, now: Time) -> Result<Reply, Refusal> {
        let _ = (request, now);
        todo!()
    }

    /// Takes note of what a worker reports.
    pub fn event(&mut self, event: Event, now: Time) {
        let _ = (event, now);
        todo!()
    }

    /// Does what is due, and answers which neighbours to ask whether they are still there. To be called about ten times a second.
    pub fn tick(&mut self, now: Time) -> Vec<Probe> {
        let _ = now;
        todo!()
    }
}
