//! What follows from what becomes of the interfaces that ports are on.

use std::time::Duration;

use anyhow::Context;
use control::SeenInterface;
use packet::Time;
use wire::PortId;

use super::ControlThread;
use crate::daemon::interfaces::{GONE, Look};
use crate::daemon::ports;
use crate::kernel::seen;

/// Whoever makes an interface gives it addresses, and udev settings of /etc/sysctl.d, in steps: so
/// long after it was taken over it is looked at once more.
const SETTLES: Duration = Duration::from_secs(2);

const NOT_TAKEN: &str = "the interface has come and cannot be taken over, so that the kernel may \
    forward what comes by it";
const NOT_TAKEN_AGAIN: &str = "the interface was made anew and cannot be taken over again, so that \
    the kernel may forward what comes by it";

impl ControlThread {
    /// A worker has lost a port. It is opened again as soon as that is possible.
    pub(super) fn lose(&mut self, id: PortId, error: &str) {
        let Some(port) = self.name_of(id) else { return };
        tracing::error!("{error}; the port is down until its interface is back");
        self.audit().link(&port, "lost", Some(error.to_owned()));
        self.pool.detach(id);
        self.interfaces.lost(id, self.clock.now());
        self.see(id, &port, &GONE);
    }

    /// Looks at the addresses of the system, and has the tables know them.
    pub(in crate::daemon) fn look_at_addresses(&mut self) {
        let addresses = self.interfaces.addresses();
        self.handler.control.system_addresses(addresses);
    }

    /// Looks at the interfaces of `ports`, and does what follows from it.
    pub(super) fn look_at_interfaces(&mut self, ports: Vec<PortId>) {
        for id in ports {
            let Some(port) = self.name_of(id) else { continue };
            match self.interfaces.look(id, self.clock.now()) {
                Look::Same => {}
                Look::Open => self.open(id, &port),
                Look::Gone => {
                    self.pool.detach(id);
                    self.see(id, &port, &GONE);
                }
                Look::Changed(seen) => {
                    self.pool.set_mtu(id, seen.mtu);
                    self.see(id, &port, &seen);
                }
            }
        }
    }

    /// Opens a port whose interface has come, is back or was exchanged. One that was taken over from the
    /// kernel is taken over again before: nothing else would keep the kernel from forwarding what
    /// comes by a new one.
    fn open(&mut self, id: PortId, port: &str) {
        let Some(settings) = self.interfaces.settings(id).cloned() else { return };
        let before = self.interfaces.opened_on(id);
        let owned = self.owned.as_ref().filter(|owned| owned.has(&settings));
        let kept = owned.map(|owned| owned.keep(&settings)).transpose();
        self.pool.detach(id);
        let not_taken = if before.is_some() { NOT_TAKEN_AGAIN } else { NOT_TAKEN };
        let opened = kept.context(not_taken).and_then(|kept| {
            let queues = ports::open(&settings, id, self.pool.size())?;
            Ok((kept, queues))
        });
        match opened {
            Ok((kept, queues)) => {
                let (text, state) = match before {
                    Some(_) => ("opened again", "opened-again"),
                    None => ("opened, as its interface has come", "opened"),
                };
                tracing::info!(port, "{text}");
                self.audit().link(port, state, None);
                self.attach(&settings, id, queues);
                let now = self.interfaces.opened_on(id);
                match kept {
                    // It was exchanged once more meanwhile.
                    Some(kept) if kept != now => self.interfaces.lost(id, self.clock.now()),
                    Some(_) => _ = self.settling.insert(id, self.clock.now() + SETTLES),
                    None if before != now => seen::warn(std::slice::from_ref(&settings)),
                    _ => {}
                }
            }
            Err(error) => self.close(id, port, &error),
        }
    }

    /// Takes over once more what was given to the kernel since interfaces were taken over again.
    pub(super) fn look_at_settling(&mut self, now: Time) {
        let due: Vec<PortId> =
            self.settling.iter().filter(|(_, due)| **due <= now).map(|(id, _)| *id).collect();
        for id in due {
            self.settling.remove(&id);
            let settings = self.interfaces.settings(id);
            if let (Some(owned), Some(settings)) = (&self.owned, settings)
                && let Err(error) = owned.keep(settings).context(NOT_TAKEN_AGAIN)
            {
                let port = settings.name.clone();
                self.close(id, &port, &error);
            }
        }
    }

    /// Closes a port until it can be opened again.
    fn close(&mut self, id: PortId, port: &str, error: &anyhow::Error) {
        self.pool.detach(id);
        self.interfaces.close(id, self.clock.now());
        let again = if self.interfaces.opened_on(id).is_some() { " again" } else { "" };
        tracing::warn!(port, "cannot be opened{again}, and is tried each second: {error:#}");
        self.see(id, port, &GONE);
    }

    /// Has the tables follow what was seen of a port's interface.
    pub(super) fn see(&mut self, id: PortId, port: &str, seen: &SeenInterface) {
        let before = self.handler.control.why_down(id);
        if let Err(refusal) = self.handler.control.interface(id, seen) {
            tracing::error!(port, "the port cannot be what its interface is: {refusal}");
        }
        let why = self.handler.control.why_down(id);
        if why != before {
            match why {
                Some(why) => {
                    tracing::warn!(port, "the port is down: {why}");
                    self.audit().link(port, "down", Some(why));
                }
                None => {
                    tracing::info!(port, "the port is up");
                    self.audit().link(port, "up", None);
                }
            }
        }
    }
}
