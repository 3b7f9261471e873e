//! Which taps copy a packet, and in which queueing disciplines it waits, for users.

use core::fmt;

use tables::{FilterTarget, PlacedQdisc, QdiscDevice, Tables, TapSet, TapSpec};
use wire::PortId;

use crate::members::Members;
use crate::outputs::Objects;
use crate::stage::queue;

/// The taps that copy a packet.
#[derive(Clone, Copy, Debug)]
pub struct Taps<'a> {
    /// Which.
    pub set: TapSet,
    /// Where they are, and the names of ports and VRFs.
    pub tables: &'a Tables,
}

/// The queueing disciplines on the way of a frame.
#[derive(Clone, Copy, Debug)]
pub struct Queues<'a> {
    /// By which port it leaves.
    pub port: PortId,
    /// Where they are, and the names of ports and VRFs.
    pub tables: &'a Tables,
}

impl Taps<'_> {
    /// Of each its number, whose packets it copies, when, and whether only some of them.
    fn each(&self) -> impl Iterator<Item = (&TapSpec, Vec<&'static str>)> {
        let TapSet { ingress, egress, encrypted, drop } = self.set;
        let when = move |place: u32| {
            let is_in = |set: u32| set & place != 0;
            let all = [(ingress, "in"), (egress, "out"), (encrypted, "encrypted"), (drop, "drop")];
            all.into_iter().filter(|(set, _)| is_in(*set)).map(|(_, word)| word).collect()
        };
        let places = (0..u32::BITS)
            .map(|at| 1 << at)
            .filter(move |place| (ingress | egress | encrypted | drop) & place != 0);
        places.filter_map(move |place| {
            let spec = &self.tables.taps_in(place).next()?.spec;
            Some((spec, when(place)))
        })
    }

    pub(crate) fn members(&self) -> Members {
        let one = |(spec, when): (&TapSpec, Vec<&'static str>)| {
            named(spec.target, self.tables)
                .with("id", spec.id)
                .with("when", when)
                .with("filtered", spec.program.is_some())
        };
        Members::default().with("taps", self.each().map(one).collect::<Vec<_>>())
    }
}

impl fmt::Display for Taps<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (spec, when)) in self.each().enumerate() {
            let before = if at == 0 { "copied by" } else { "," };
            let of = shown(spec.target, self.tables);
            let when = when.join(" ").replace("drop", "if dropped");
            write!(f, "{before} tap {} of {of} ({when})", spec.id)?;
            if spec.program.is_some() {
                f.write_str(" if its filter matches")?;
            }
        }
        Ok(())
    }
}

impl<'a> Queues<'a> {
    /// In order.
    fn each(&self) -> impl Iterator<Item = (QdiscDevice, &'a PlacedQdisc)> {
        queue::on_the_way(self.port, Objects::new(self.tables, 0))
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.each().next().is_none()
    }

    pub(crate) fn each_as_members(&self) -> Vec<Members> {
        let one = |(device, placed): (QdiscDevice, &PlacedQdisc)| {
            named(target(device), self.tables)
                .with("kind", placed.root.qdisc.kind())
                .shown("handle", placed.root.handle)
                .some("child", placed.child.as_ref().map(|child| child.qdisc.kind()))
        };
        self.each().map(one).collect()
    }
}

impl fmt::Display for Queues<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (device, placed)) in self.each().enumerate() {
            let before = if at == 0 { "" } else { ", then " };
            let (kind, handle) = (placed.root.qdisc.kind(), placed.root.handle);
            write!(f, "{before}{kind} {handle} of {}", shown(target(device), self.tables))?;
            if let Some(child) = &placed.child {
                write!(f, " with {} {} under it", child.qdisc.kind(), child.handle)?;
            }
        }
        Ok(())
    }
}

const fn target(device: QdiscDevice) -> FilterTarget {
    match device {
        QdiscDevice::Port(port) => FilterTarget::Port(port),
        QdiscDevice::Vrf(vrf) => FilterTarget::Vrf(vrf),
    }
}

/// `wan`, or `vrf blue`.
fn shown(target: FilterTarget, tables: &Tables) -> String {
    match target {
        FilterTarget::Port(port) => port_name(port, tables).to_owned(),
        FilterTarget::Vrf(vrf) => format!("vrf {}", tables.vrf_name(vrf).unwrap_or("?")),
    }
}

fn named(target: FilterTarget, tables: &Tables) -> Members {
    match target {
        FilterTarget::Port(port) => Members::default().with("port", port_name(port, tables)),
        FilterTarget::Vrf(vrf) => {
            Members::default().with("vrf", tables.vrf_name(vrf).unwrap_or("?"))
        }
    }
}

fn port_name(port: PortId, tables: &Tables) -> &str {
    tables.port(port).map_or("?", |port| &port.spec.name)
}
