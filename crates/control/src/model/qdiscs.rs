//! Queueing disciplines on ports and VRFs.

use std::collections::{BTreeMap, BTreeSet};

use api::{
    ChangeKind, FlowQueueStatistics, Origin, QdiscFilter, QdiscId, QdiscOptions, QdiscSpec,
    QdiscView, Refusal, RefusalCode,
};
use tables::{QdiscDevice, QdiscNode, Tables};
use types::qdisc::{FqCodel, Pfifo, Qdisc, QdiscHandle, Tbf};
use types::{LinkKind, VlanId};

use super::Draft;
use super::desired::{Desired, DesiredPort};
use super::refuse::refusal;
use super::reload::Notes;
use crate::config::{Config, qdisc_spec};
use crate::describe;

/// A port or VRF by its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Device {
    Port(String),
    Vrf(String),
}

/// A discipline, and who asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DesiredQdisc {
    pub(super) handle: QdiscHandle,
    pub(super) qdisc: Qdisc,
    pub(super) origin: Origin,
}

/// What stands on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DesiredTree {
    pub(super) root: DesiredQdisc,
    /// Under a token bucket.
    pub(super) child: Option<DesiredQdisc>,
}

/// How a discipline is put where it is to stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// There must be none.
    Add,
    /// In place of the one that is there, if one is.
    Replace,
    /// There must be one; what is not said of it stays.
    Change,
}

impl Device {
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Port(name) | Self::Vrf(name) => name,
        }
    }

    /// In the tables.
    fn in_tables(&self, desired: &Desired) -> Result<QdiscDevice, Refusal> {
        Ok(match self {
            Self::Port(name) => QdiscDevice::Port(desired.port(name)?.id),
            Self::Vrf(name) => QdiscDevice::Vrf(desired.vrf(name)?),
        })
    }
}

impl DesiredTree {
    /// The nodes with what each stands under, the root first.
    pub(super) fn nodes(
        &self,
    ) -> impl DoubleEndedIterator<Item = (Option<QdiscHandle>, &DesiredQdisc)> {
        let child = self.child.as_ref().map(|child| (Some(self.root.handle), child));
        core::iter::once((None, &self.root)).chain(child)
    }
}

impl Desired {
    /// The port or VRF of this name.
    fn device(&self, name: &str) -> Result<Device, Refusal> {
        if self.ports.contains_key(name) {
            return Ok(Device::Port(name.to_owned()));
        }
        if self.vrfs.contains_key(name) {
            return Ok(Device::Vrf(name.to_owned()));
        }
        let known = self.ports.keys().chain(self.vrfs.keys()).map(String::as_str);
        let message = format!("there is no port or VRF '{}'", api::shown(name));
        let refusal = Refusal::new(RefusalCode::NotFound, message);
        Err(match crate::config::nearest(name, known) {
            Some(near) => refusal.with_hint(format!("did you mean {near}?")),
            None => refusal,
        })
    }

    /// What stood on a device goes with it.
    pub(super) fn forget_qdisc(&mut self, device: &Device) {
        if self.qdiscs.contains_key(device) {
            self.qdiscs.remove(device);
        }
    }

    /// The longest frame that leaves by a device.
    fn longest_frame(&self, device: &Device) -> u32 {
        let frame = |port: &DesiredPort| {
            let tags = self.family(port).count() - 1;
            let header = match port.found.link {
                LinkKind::Ethernet => 14 + tags * VlanId::TAG_LENGTH,
                LinkKind::Ip => 0,
            };
            u32::from(port.own_mtu().min(self.most_mtu(port))) + header as u32
        };
        let all = self.ports.iter();
        let is_on = |port: &DesiredPort| match device {
            Device::Port(device) => self.family(port).any(|it| it.settings.name == *device),
            Device::Vrf(device) => port.vrf == *device,
        };
        all.filter(|(_, port)| is_on(port)).map(|(_, port)| frame(port)).max().unwrap_or(0)
    }
}

impl Draft<'_> {
    pub(super) fn put_qdisc(
        &mut self,
        spec: &QdiscSpec,
        how: How,
        origin: Origin,
    ) -> Result<(), Refusal> {
        let device = self.desired.device(&spec.dev)?;
        self.check_device(&device)?;
        let tree = self.desired.qdiscs.get(&device).copied();
        let tree = self.with_qdisc(&device, tree, spec, how, origin)?;
        self.place_qdiscs(&device, &tree)?;
        self.desired.qdiscs.insert(device.clone(), tree);
        let node = match spec.parent {
            None => Some(&tree.root),
            Some(_) => tree.child.as_ref(),
        };
        if let Some(node) = node {
            let text =
                describe::qdisc(&qdisc_spec(device.name(), spec.parent, node.handle, &node.qdisc));
            let origin = node.origin;
            self.note(|journal| journal.note(origin, format_args!("qdisc replace {text}")));
        }
        Ok(())
    }

    /// Whether packets leave by a device as frames, which a discipline could hold back.
    fn check_device(&self, device: &Device) -> Result<(), Refusal> {
        let Device::Port(name) = device else { return Ok(()) };
        match self.desired.port(name)?.settings.kind.xfrm() {
            None => Ok(()),
            Some((dev, _)) => {
                let message = format!(
                    "{name} is an xfrm link: its packets leave by other ports, encrypted, and meet \
                    the queueing disciplines there"
                );
                let hint = format!("a qdisc on {dev}, say");
                Err(Refusal::new(RefusalCode::Unsupported, message).with_hint(hint))
            }
        }
    }

    /// `tree` with the discipline that is asked for.
    fn with_qdisc(
        &self,
        device: &Device,
        tree: Option<DesiredTree>,
        spec: &QdiscSpec,
        how: How,
        origin: Origin,
    ) -> Result<DesiredTree, Refusal> {
        let dev = device.name();
        if let Some(parent) = spec.parent {
            check_parent(dev, tree.as_ref(), parent, &spec.kind)?;
        }
        let is = tree.and_then(|tree| match spec.parent {
            None => Some(tree.root),
            Some(_) => tree.child,
        });
        let place = spec.parent.map_or("root".to_owned(), |parent| format!("parent {parent}"));
        let is_same = |is: &DesiredQdisc| {
            is.qdisc.kind() == spec.kind && spec.handle.is_none_or(|handle| handle == is.handle)
        };
        match (how, &is) {
            (How::Add, Some(is)) => {
                let message =
                    format!("{dev} {place} has the qdisc {} {}", is.qdisc.kind(), is.handle);
                return Err(Refusal::new(RefusalCode::Exists, message)
                    .with_hint("replace or change, or delete it first"));
            }
            (How::Change, None) => {
                let message = format!("{dev} {place} has no qdisc");
                return Err(Refusal::new(RefusalCode::NotFound, message).with_hint("add"));
            }
            (How::Change, Some(is)) if !is_same(is) => {
                let message = format!(
                    "{dev} {place} has the qdisc {} {}, which cannot be changed to {}{}",
                    is.qdisc.kind(),
                    is.handle,
                    spec.kind,
                    spec.handle.map_or_else(String::new, |handle| format!(" {handle}"))
                );
                return Err(Refusal::new(RefusalCode::Invalid, message).with_hint("replace"));
            }
            _ => {}
        }
        let same = is.filter(is_same);
        let before = same.map(|is| is.qdisc).filter(|_| how == How::Change);
        let qdisc = crate::check::qdisc::qdisc(spec, before.as_ref())?;
        if let Qdisc::Tbf(Tbf { burst, limit, .. }) = qdisc {
            let longest = self.desired.longest_frame(device);
            // The MTU may have become more after it was set.
            for (name, bytes) in [("burst", burst), ("limit", limit)] {
                if bytes < longest && !self.is_restoring {
                    let message =
                        format!("{name} of {bytes} bytes: {dev} sends frames of {longest}");
                    let hint = format!("{name} {longest}b or more");
                    return Err(Refusal::new(RefusalCode::Invalid, message).with_hint(hint));
                }
            }
        }
        let other = match (tree, spec.parent) {
            (Some(tree), None) => tree.child.map(|child| child.handle),
            (Some(tree), Some(_)) => Some(tree.root.handle),
            (None, _) => None,
        };
        let stays = same.is_some() && matches!(qdisc, Qdisc::Tbf(_));
        let handle = match spec.handle.or(same.map(|is| is.handle)) {
            Some(handle) if Some(handle) == other && (spec.parent.is_some() || stays) => {
                let message = format!("another qdisc of {dev} has the handle {handle}");
                return Err(Refusal::new(RefusalCode::Exists, message));
            }
            Some(handle) => handle,
            None => free_handle(other)?,
        };
        // What configuration has asked for stays its own, so that a reload finds it there.
        let origin = same.map_or(origin, |is| is.origin);
        let node = DesiredQdisc { handle, qdisc, origin };
        Ok(match (tree, spec.parent) {
            (Some(tree), Some(_)) => DesiredTree { child: Some(node), ..tree },
            // What stands under a token bucket stays while that is the same.
            (Some(tree), None) if stays => DesiredTree { root: node, ..tree },
            _ => DesiredTree { root: node, child: None },
        })
    }

    /// Makes the tables have what is to stand on a device.
    fn place_qdiscs(&mut self, device: &Device, tree: &DesiredTree) -> Result<(), Refusal> {
        let device = device.in_tables(self.desired)?;
        let node = |node: &DesiredQdisc| (node.handle, node.qdisc);
        let (root, child) = (node(&tree.root), tree.child.as_ref().map(node));
        let known = |node: &QdiscNode| (node.handle, node.qdisc);
        let is = self.tables.qdiscs().on(device);
        if is.is_some_and(|is| known(&is.root) == root && is.child.as_ref().map(known) == child) {
            return Ok(());
        }
        self.tables.set_qdisc(device, root, child).map_err(|error| refusal(&error))
    }

    pub(super) fn delete_qdisc(&mut self, id: &QdiscId) -> Result<(), Refusal> {
        let device = self.desired.device(&id.dev)?;
        let dev = device.name();
        let missing = |what: String| Refusal::new(RefusalCode::NotFound, what);
        let Some(mut tree) = self.desired.qdiscs.get(&device).copied() else {
            return Err(missing(format!("{dev} has no qdisc")));
        };
        let node = match id.parent {
            None => tree.root,
            Some(parent) => {
                check_parent(dev, Some(&tree), parent, "")?;
                tree.child
                    .take()
                    .ok_or_else(|| missing(format!("{dev} parent {parent} has no qdisc")))?
            }
        };
        if let Some(handle) = id.handle.filter(|handle| *handle != node.handle) {
            let hint = format!("the qdisc there is {} {}", node.qdisc.kind(), node.handle);
            return Err(missing(format!("{dev} has no qdisc {handle} there")).with_hint(hint));
        }
        let place = match id.parent {
            Some(parent) => {
                self.place_qdiscs(&device, &tree)?;
                self.desired.qdiscs.insert(device, tree);
                format!("parent {parent}")
            }
            None => {
                let placed = device.in_tables(self.desired)?;
                self.tables.remove_qdisc(placed).map_err(|error| refusal(&error))?;
                self.desired.qdiscs.remove(&device);
                "root".to_owned()
            }
        };
        let dev = &id.dev;
        self.note(|journal| {
            journal.note(Origin::Runtime, format_args!("qdisc delete dev {dev} {place}"));
        });
        Ok(())
    }

    /// Makes disciplines what a configuration says. Those that commands have added stay, where
    /// their port or VRF does and the file says nothing else of it.
    pub(super) fn reconcile_qdiscs(
        &mut self,
        config: &Config,
        notes: &mut Notes,
    ) -> Result<(), Refusal> {
        let wanted = self.wanted_qdiscs(config, &notes.others)?;
        let is = core::mem::take(&mut self.desired.qdiscs);
        for (device, tree) in &is {
            let name = device.name();
            let now = wanted.get(device);
            for (parent, node) in tree.nodes() {
                let is_kept = now.is_some_and(|tree| node_at(tree, parent).is_some());
                if !is_kept {
                    let text = describe::qdisc(&qdisc_spec(name, parent, node.handle, &node.qdisc));
                    notes.note(ChangeKind::Removed, "qdisc", text);
                }
            }
            // The device may be gone, with what stood on it.
            if now.is_none()
                && let Ok(device) = device.in_tables(self.desired)
            {
                self.tables.remove_qdisc(device).map_err(|error| refusal(&error))?;
            }
        }
        for (device, tree) in &wanted {
            self.place_qdiscs(device, tree)?;
            for (parent, node) in tree.nodes() {
                let text = |node: &DesiredQdisc| {
                    describe::qdisc(&qdisc_spec(device.name(), parent, node.handle, &node.qdisc))
                };
                match is.get(device).and_then(|tree| node_at(tree, parent)) {
                    None => notes.note(ChangeKind::Added, "qdisc", text(node)),
                    Some(before) if text(before) != text(node) => {
                        let change = format!("{} -> {}", text(before), text(node));
                        notes.note(ChangeKind::Modified, "qdisc", change);
                    }
                    Some(_) => {}
                }
            }
        }
        self.desired.qdiscs = wanted.into();
        Ok(())
    }

    /// What the file says, and what commands have put on VRFs and ports but on `others`.
    fn wanted_qdiscs(
        &mut self,
        config: &Config,
        others: &BTreeSet<String>,
    ) -> Result<BTreeMap<Device, DesiredTree>, Refusal> {
        let mut wanted: BTreeMap<Device, DesiredTree> = BTreeMap::new();
        let (roots, children): (Vec<_>, Vec<_>) =
            config.qdiscs.iter().partition(|spec| spec.parent.is_none());
        for spec in roots.into_iter().chain(children) {
            let device = self.desired.device(&spec.dev)?;
            self.check_device(&device)?;
            let tree = wanted.get(&device).copied();
            // One whose handle is not said keeps the one that it has.
            let named = QdiscSpec {
                handle: spec.handle.or_else(|| self.handle_of(&device, spec)),
                ..spec.clone()
            };
            let tree = self.with_qdisc(&device, tree, &named, How::Add, Origin::Configuration)?;
            wanted.insert(device, tree);
        }
        for (device, tree) in &self.desired.qdiscs {
            let is_another = matches!(device, Device::Port(name) if others.contains(name));
            if is_another || device.in_tables(self.desired).is_err() {
                continue;
            }
            match wanted.get_mut(device) {
                None if tree.root.origin == Origin::Runtime => {
                    let child = tree.child.filter(|child| child.origin == Origin::Runtime);
                    wanted.insert(device.clone(), DesiredTree { root: tree.root, child });
                }
                Some(said)
                    if said.child.is_none()
                        && matches!(said.root.qdisc, Qdisc::Tbf(_))
                        && said.root.handle == tree.root.handle =>
                {
                    said.child = tree.child.filter(|child| child.origin == Origin::Runtime);
                }
                _ => {}
            }
        }
        Ok(wanted)
    }

    fn handle_of(&self, device: &Device, spec: &QdiscSpec) -> Option<QdiscHandle> {
        let node = node_at(self.desired.qdiscs.get(device)?, spec.parent)?;
        (node.qdisc.kind() == spec.kind).then_some(node.handle)
    }
}

/// The discipline at the root, or under its token bucket.
pub(super) fn node_at(tree: &DesiredTree, parent: Option<QdiscHandle>) -> Option<&DesiredQdisc> {
    match parent {
        None => Some(&tree.root),
        Some(parent) => tree.child.as_ref().filter(|_| parent == tree.root.handle),
    }
}

/// Whether something of `kind` can stand under `parent`.
fn check_parent(
    dev: &str,
    tree: Option<&DesiredTree>,
    parent: QdiscHandle,
    kind: &str,
) -> Result<(), Refusal> {
    let Some(tree) = tree else {
        let message = format!("{dev} has no qdisc {parent}");
        let hint = format!("qdisc add dev {dev} root handle {parent} tbf ... first");
        return Err(Refusal::new(RefusalCode::NotFound, message).with_hint(hint));
    };
    let found = tree.nodes().map(|(_, node)| node).find(|node| node.handle == parent);
    let Some(found) = found else {
        let message = format!("{dev} has no qdisc {parent}");
        let hint = format!("its root is {} {}", tree.root.qdisc.kind(), tree.root.handle);
        return Err(Refusal::new(RefusalCode::NotFound, message).with_hint(hint));
    };
    if !matches!(found.qdisc, Qdisc::Tbf(_)) {
        let message = format!("{} {parent} takes no qdisc under it", found.qdisc.kind());
        return Err(Refusal::new(RefusalCode::Invalid, message).with_hint("tbf takes one"));
    }
    if kind == "tbf" {
        let message = "tbf cannot stand under another tbf";
        return Err(Refusal::new(RefusalCode::Unsupported, message)
            .with_hint("fq_codel or pfifo; the lower rate alone has the same effect"));
    }
    Ok(())
}

/// The first handle for a discipline for which none is said.
fn free_handle(other: Option<QdiscHandle>) -> Result<QdiscHandle, Refusal> {
    let first = QdiscHandle::FIRST_OWN;
    let free = if Some(first) == other { first.next() } else { Some(first) };
    free.ok_or_else(|| Refusal::new(RefusalCode::Full, "all handles are in use"))
}

/// What a gateway that was started with a configuration would have, by device.
pub(super) fn said(config: &Config) -> BTreeMap<&str, DesiredTree> {
    let mut trees: BTreeMap<&str, DesiredTree> = BTreeMap::new();
    let (roots, children): (Vec<_>, Vec<_>) =
        config.qdiscs.iter().partition(|spec| spec.parent.is_none());
    for spec in roots.into_iter().chain(children) {
        let Ok(qdisc) = crate::check::qdisc::qdisc(spec, None) else { continue };
        let tree = trees.get(spec.dev.as_str()).copied();
        let other = tree.map(|tree| tree.root.handle);
        let Ok(handle) = spec.handle.map_or_else(|| free_handle(other), Ok) else { continue };
        let node = DesiredQdisc { handle, qdisc, origin: Origin::Configuration };
        let tree = match (spec.parent, tree) {
            (None, _) => DesiredTree { root: node, child: None },
            (Some(_), Some(tree)) => DesiredTree { child: Some(node), ..tree },
            (Some(_), None) => continue,
        };
        trees.insert(&spec.dev, tree);
    }
    trees
}

pub(super) fn list(
    tables: &Tables,
    desired: &Desired,
    filter: &QdiscFilter,
) -> Result<Vec<QdiscView>, Refusal> {
    let only = filter.dev.as_ref().map(|name| desired.device(name)).transpose()?;
    let mut views = Vec::new();
    for (device, tree) in &desired.qdiscs {
        if only.as_ref().is_some_and(|only| only != device) {
            continue;
        }
        let Some(placed) = tables.qdiscs().on(device.in_tables(desired)?) else { continue };
        let back_pressure = matches!(tree.root.qdisc, Qdisc::Tbf(_));
        let (not_handed_over, _) = placed.not_handed_over.read();
        let root = QdiscView { root: true, not_handed_over, ..view(device, &placed.root) };
        views.push(QdiscView { back_pressure, origin: tree.root.origin, ..root });
        if let (Some(child), Some(node)) = (&placed.child, &tree.child) {
            let parent = Some(format!("{}1", tree.root.handle));
            let child = view(device, child);
            views.push(QdiscView { parent, back_pressure, origin: node.origin, ..child });
        }
    }
    let class = filter.parent.map(|parent| format!("{parent}1"));
    views.retain(|view| {
        !filter.ingress
            && (view.root || !filter.root)
            && filter.handle.is_none_or(|handle| handle == view.handle)
            && (class.is_none() || class == view.parent)
    });
    Ok(views)
}

fn view(device: &Device, node: &QdiscNode) -> QdiscView {
    let counters = &node.counters;
    let flows = matches!(node.qdisc, Qdisc::FqCodel(_)).then(|| FlowQueueStatistics {
        maxpacket: counters.maxpacket.read(),
        drop_overlimit: counters.drop_overlimit.read(),
        new_flow_count: counters.new_flow_count.read(),
        ecn_mark: counters.ecn_mark.read(),
        ce_mark: counters.ce_mark.read(),
        memory_used: counters.memory_used.read(),
        drop_overmemory: counters.drop_overmemory.read(),
        new_flows_len: counters.new_flows_len.read(),
        old_flows_len: counters.old_flows_len.read(),
    });
    QdiscView {
        kind: node.qdisc.kind().to_owned(),
        handle: node.handle,
        dev: device.name().to_owned(),
        is_vrf: matches!(device, Device::Vrf(_)),
        root: false,
        parent: None,
        options: options(&node.qdisc),
        bytes: counters.bytes.read(),
        packets: counters.packets.read(),
        drops: counters.drops.read(),
        overlimits: counters.overlimits.read(),
        requeues: 0,
        backlog: counters.backlog.read(),
        qlen: counters.queued.read(),
        flows,
        not_handed_over: 0,
        back_pressure: false,
        origin: Origin::Runtime,
    }
}

fn options(qdisc: &Qdisc) -> QdiscOptions {
    match *qdisc {
        Qdisc::Tbf(Tbf { rate, burst, limit }) => {
            let waiting = u64::from(limit.saturating_sub(burst));
            QdiscOptions::Tbf { rate, burst, lat: waiting * 1_000_000 / rate.max(1), limit }
        }
        Qdisc::FqCodel(FqCodel {
            limit,
            flows,
            target,
            interval,
            quantum,
            ecn,
            ce_threshold,
            memory_limit,
        }) => QdiscOptions::FqCodel {
            limit,
            flows,
            quantum,
            target,
            ce_threshold,
            interval,
            memory_limit,
            ecn,
            // As RFC 8290 has it; not to be changed.
            drop_batch: 64,
        },
        Qdisc::Pfifo(Pfifo { limit }) => QdiscOptions::Pfifo { limit },
    }
}
