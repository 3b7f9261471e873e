//! Opening the ports that a configuration asks for.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, bail};
use control::{PortKind, PortSettings};
use io::af_packet::{self, AfPacketOptions};
use io::tap::{self, TapOptions};
use io::{OpenError, memory};
use packet::Port;
use runtime::claims::{ClaimError, Claims};
use runtime::privileges::User;
use wire::PortId;

use crate::daemon::protection::FOLDER;
use crate::gateway::twin;

/// Frames that a memory port's link holds.
const MEMORY_DEPTH: usize = 1024;

/// What claims of interfaces begin with.
pub(super) const CLAIM: &str = "interface-";

/// Claims the interface of each of `ports`. Returns what is new, to be released if the ports are not
/// opened after all.
///
/// # Errors
/// If another daemon has one of them. Nothing new is claimed then.
pub(crate) fn claim(ports: &[PortSettings], claims: &mut Claims) -> anyhow::Result<Vec<String>> {
    let mut new = Vec::new();
    for settings in ports {
        let Some(name) = claim_name(settings)? else { continue };
        match claims.claim(&name) {
            Ok(true) => new.push(name),
            Ok(false) => {}
            Err(ClaimError::Held { holder }) => {
                new.iter().for_each(|name| claims.release(name));
                bail!(
                    "port {}: another daemon has interface {}: {holder}; stop that one first",
                    settings.name,
                    settings.kind.interface().unwrap_or_default()
                );
            }
            Err(error) => tracing::warn!(
                port = %settings.name,
                "whether another daemon has the interface is not known: {error}"
            ),
        }
    }
    Ok(new)
}

/// Gives back the interfaces that none of `ports` is on.
pub(crate) fn release_others(ports: &[PortSettings], claims: &mut Claims) -> anyhow::Result<()> {
    let names = ports
        .iter()
        .filter_map(|port| claim_name(port).transpose())
        .collect::<Result<Vec<_>, _>>()?;
    claims.retain(CLAIM, |name| names.iter().any(|kept| kept == name));
    Ok(())
}

/// The user that claims are of, if this process is root's and it is another.
///
/// # Errors
/// If the system does not say whose they are.
pub(crate) fn keeper_of_claims() -> anyhow::Result<Option<User>> {
    match Path::new(FOLDER).exists() {
        true => User::other_owner(Path::new(FOLDER)),
        false => Ok(None),
    }
}

/// Claims interfaces for a command that changes them.
///
/// # Errors
/// If a daemon has one of them.
pub(crate) fn claim_interfaces(interfaces: &[String]) -> anyhow::Result<Claims> {
    let holder = format!("pid {}, a command that changes interfaces", std::process::id());
    let mut claims = Claims::new(Path::new(FOLDER), holder)
        .with_context(|| format!("seeing which daemons run, in {FOLDER}"))?;
    for interface in interfaces {
        match claims.claim(&name_of_claim(interface)?) {
            Err(ClaimError::Held { holder }) => {
                bail!("a daemon has interface {interface}: {holder}; stop that one first")
            }
            other => other.context("seeing which daemons run")?,
        };
    }
    Ok(claims)
}

/// The name of the claim of a port's interface.
fn claim_name(settings: &PortSettings) -> anyhow::Result<Option<String>> {
    settings.kind.interface().map(name_of_claim).transpose()
}

/// The name has the network namespace in it: others have interfaces of the same names.
fn name_of_claim(interface: &str) -> anyhow::Result<String> {
    let namespace =
        fs::metadata("/proc/thread-self/ns/net").context("finding the network namespace")?;
    Ok(format!("{CLAIM}{}-{interface}", namespace.ino()))
}

/// Opens a port as [`open`] does. Returns no queues if its interface is not there: it may come later.
///
/// # Errors
/// As [`open`], for other reasons.
pub(crate) fn open_if_there(
    settings: &PortSettings,
    id: PortId,
    workers: usize,
) -> anyhow::Result<Vec<Box<dyn Port>>> {
    open(settings, id, workers).or_else(|error| {
        let is_absent = error.downcast_ref::<OpenError>().is_some_and(OpenError::is_absent);
        let comes_by_itself = matches!(settings.kind, PortKind::AfPacket { .. });
        if is_absent && comes_by_itself { Ok(Vec::new()) } else { Err(error) }
    })
}

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
        PortKind::Xfrm { .. } => {
            bail!("port {}: an xfrm link has no frames, and is not opened", settings.name)
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
