//! Opening the ports that a configuration asks for.

use anyhow::bail;
use control::{PortKind, PortSettings};
use io::af_packet::{self, AfPacketOptions};
use io::memory;
use io::tap::{self, TapOptions};
use packet::Port;
use wire::PortId;

use crate::gateway::twin;

/// Frames that a memory port's link holds.
const MEMORY_DEPTH: usize = 1024;

/// Opens a port, with a queue for each of `workers` workers if its kind has queues.
///
/// # Errors
/// Why it cannot be opened, and what would help.
pub(crate) fn open(
    settings: &PortSettings,
    id: PortId,
    workers: usize,
) -> anyhow::Result<Vec<Box<dyn Port>>> {
    let queues = u16::try_from(workers).unwrap_or(u16::MAX);
    match &settings.kind {
        PortKind::Memory { .. } => {
            // The other end of the link is dropped: nothing comes in, and what goes out is counted
            // and lost.
            let (port, _) = memory::port(twin::options(settings, id), MEMORY_DEPTH);
            Ok(vec![Box::new(port)])
        }
        PortKind::Tap { interface, ring } => {
            let options = TapOptions {
                name: settings.name.clone(),
                mac: settings.mac,
                queues,
                mtu: settings.mtu,
                ring_bytes: *ring,
                ..TapOptions::new(interface, id)
            };
            Ok(boxed(tap::open(&options)?))
        }
        PortKind::AfPacket { interface, ring } => {
            let options = AfPacketOptions {
                name: settings.name.clone(),
                mac: settings.mac,
                queues,
                ring_bytes: *ring,
                ..AfPacketOptions::new(interface, id)
            };
            Ok(boxed(af_packet::open(&options)?))
        }
        PortKind::Vlan { parent, .. } => {
            bail!("port {}: a VLAN goes by port {parent}, and is not opened", settings.name)
        }
        PortKind::Pcap { .. } => bail!(
            "port {}: captures have a time of their own, so ports of kind {} are for `hitpath \
            replay`; a running gateway takes kinds: {}",
            settings.name,
            settings.kind.name(),
            PortKind::live_names().collect::<Vec<_>>().join(", ")
        ),
    }
}

fn boxed<P: Port + 'static>(queues: Vec<P>) -> Vec<Box<dyn Port>> {
    queues.into_iter().map(|queue| Box::new(queue) as Box<dyn Port>).collect()
}
