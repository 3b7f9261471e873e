//! Taking interfaces over from the kernel, and putting them back.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;

use ::io::links::{Link, Links};
use ::io::rtnetlink::{KernelAddress, KernelNeighbour, KernelRoute, Rtnetlink};
use anyhow::{Context, bail, ensure};
use control::PortSettings;
use nix::errno::Errno;
use runtime::privileges;
use serde::Serialize;
use store::Directory;

use super::record::{Device, Kept, Record, Taken};
use super::sockets;
use super::sysctl::{DISABLE_IPV6, OWNED, Setting, Sysctls};

/// The most sockets and routes that are named.
const NAMED: usize = 20;

/// Who made a route, by rtnetlink(7): the kernel, for an address; a redirect; a router's
/// advertisement. They come back by themselves.
const PASSING: [u8; 3] = [2, 1, 9];

/// What a route does that forwards packets, by rtnetlink(7).
const UNICAST: u8 = 1;

/// What has to be there to look at interfaces and change them.
struct System {
    links: Links,
    netlink: Rtnetlink,
    sysctls: Sysctls,
}

/// An interface as it is, which is to be taken over.
struct Interface {
    name: String,
    index: u32,
    device: Device,
    settings: BTreeMap<String, String>,
    addresses: Vec<KernelAddress>,
    routes: Vec<KernelRoute>,
    /// Those that go with the addresses.
    neighbours: Vec<KernelNeighbour>,
}

/// An interface that is to be put back.
struct Present {
    taken: Taken,
    /// What it is called now.
    name: String,
    index: u32,
    /// What is not as it was.
    failed: Vec<String>,
    /// Routes that the kernel refuses for now: places in `taken`, and why.
    waiting: Vec<(usize, String)>,
    /// What is not put back and does not keep the interface recorded: routes that can never be,
    /// and neighbours.
    lost: Vec<String>,
}

/// What came of putting interfaces back.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Released {
    /// The interfaces that are as they were.
    pub(crate) released: Vec<String>,
    /// What is not as it was and will not be.
    pub(crate) notes: Vec<String>,
    /// What is not as it was, and why. It is recorded still, unless it says that it is not.
    pub(crate) failed: Vec<String>,
}

/// What would be lost if the interfaces of `ports` were taken over.
///
/// # Errors
/// If the system does not say it.
pub(crate) fn losses(ports: &[PortSettings]) -> anyhow::Result<Vec<String>> {
    let mut system = System::open()?;
    let mut interfaces = Vec::new();
    for (_, name) in super::shared(ports) {
        if let Some(link) = system.links.named(name)? {
            interfaces.push(system.interface(name, &link)?);
        }
    }
    Ok(losses_of(&interfaces)?)
}

/// The interfaces that are the gateway's alone, by name.
#[derive(Debug)]
pub(crate) struct Owned {
    directory: Directory,
    names: BTreeSet<String>,
}

impl Owned {
    /// Whether the interface of a port is one of them.
    pub(crate) fn has(&self, port: &PortSettings) -> bool {
        super::interface(port).is_some_and(|name| self.names.contains(name))
    }

    /// Sees to it that the interface of a port is the gateway's alone still: it may have been made
    /// anew since. Returns the index of that which is, if there is one.
    ///
    /// # Errors
    /// As [`take_over`].
    pub(crate) fn keep(&self, port: &PortSettings) -> anyhow::Result<Option<u32>> {
        let Some(name) = super::interface(port) else { return Ok(None) };
        let mut system = System::open()?;
        let Some(link) = system.links.named(name)? else { return Ok(None) };
        if !system.interface(name, &link)?.is_taken() {
            take(std::slice::from_ref(port), &self.directory)?;
        }
        Ok(Some(link.index))
    }
}

/// Makes the interfaces of `ports` the gateway's alone: the kernel has no address on them, forwards
/// nothing that comes by them and answers nothing. What was before is recorded in `directory`
/// first, and is put back by [`release`] alone.
///
/// # Errors
/// If that cannot be; then nothing was changed, or what was changed is recorded.
pub(crate) fn take_over(ports: &[PortSettings], directory: &Directory) -> anyhow::Result<Owned> {
    check_rights("--own-interfaces")?;
    let names = take(ports, directory)?;
    Ok(Owned { directory: directory.clone(), names })
}

/// Takes interfaces over, with the rights that there are. Returns their names, and those of interfaces
/// that are not there.
fn take(ports: &[PortSettings], directory: &Directory) -> anyhow::Result<BTreeSet<String>> {
    let mut system = System::open()?;
    let mut record = match Record::load(directory)? {
        None => Record::new()?,
        Some(mut record) => {
            record.check_namespace(directory)?;
            record
        }
    };
    // Everything that can be refused is, before anything is changed.
    let (mut interfaces, mut absent) = (Vec::new(), Vec::new());
    for (_, name) in super::shared(ports) {
        // It is taken over when it comes, before its port is opened.
        let Some(link) = system.links.named(name)? else {
            absent.push(name.to_owned());
            continue;
        };
        for (setting, _) in OWNED {
            system.sysctls.check(setting, name).context("taking interfaces over")?;
        }
        let interface = system.interface(name, &link)?;
        interface.check_routes()?;
        interfaces.push(interface);
    }
    for loss in losses_of(&interfaces)? {
        tracing::warn!("taking the interfaces over ends {loss}");
    }
    let (links, boot) = (system.all()?, super::record::here()?.0);
    interfaces.iter().for_each(|interface| record.add(&interface.taken(), &links, &boot));
    record.save(directory).context("nothing was taken over, as it cannot be recorded")?;
    for interface in &interfaces {
        let Interface { name, addresses, routes, .. } = interface;
        system.take(interface).with_context(|| {
            let path = directory.path().display();
            format!("taking interface {name} over (`hitpath release-interfaces {path}` undoes it)")
        })?;
        tracing::info!(
            addresses = addresses.len(),
            routes = routes.len(),
            "interface {name} is the gateway's alone, until `hitpath release-interfaces`"
        );
    }
    Ok(interfaces.into_iter().map(|interface| interface.name).chain(absent).collect())
}

/// The interfaces that are recorded in `directory`.
///
/// # Errors
/// If there are none, or the record cannot be read or is of another network namespace.
pub(crate) fn taken(directory: &Directory) -> anyhow::Result<Vec<String>> {
    let record = recorded(directory)?;
    Ok(record.interfaces.into_iter().map(|taken| taken.name).collect())
}

/// Drops the record of `directory` if it is of another network namespace, which may be gone. Returns
/// `None` if it is of this one.
///
/// # Errors
/// If the record cannot be read or removed.
pub(crate) fn forget_elsewhere(directory: &Directory) -> anyhow::Result<Option<Released>> {
    let Some(mut record) = Record::load(directory)? else { return Ok(None) };
    if !record.is_elsewhere()? {
        return Ok(None);
    }
    let notes = vec![record.describe_elsewhere()];
    record.interfaces.clear();
    record.save(directory)?;
    Ok(Some(Released { notes, ..Released::default() }))
}

/// Puts everything back that [`take_over`] has recorded in `directory`. What others have done to
/// the interfaces since stays, unless it is in the way. With `forget`, interfaces that are gone and
/// routes that the kernel refuses are not recorded any more.
///
/// # Errors
/// If nothing is recorded, or the system refuses everything.
pub(crate) fn release(directory: &Directory, forget: bool) -> anyhow::Result<Released> {
    check_rights("release-interfaces")?;
    let mut record = recorded(directory)?;
    let mut system = System::open()?;
    let mut result = Released::default();
    let (mut left, mut present) = (Vec::new(), Vec::new());
    let (links, boot) = (system.all()?, super::record::here()?.0);
    let places = record.places(&links, &boot);
    for (taken, place) in std::mem::take(&mut record.interfaces).into_iter().zip(places) {
        let name = &taken.name;
        let why = match place {
            Ok(Some(at)) => {
                let (now, link) = &links[at];
                if now != name {
                    result.notes.push(format!("interface {name} is called {now} now"));
                }
                let (name, index) = (now.clone(), link.index);
                let (failed, waiting, lost) = (Vec::new(), Vec::new(), Vec::new());
                present.push(Present { taken, name, index, failed, waiting, lost });
                continue;
            }
            Ok(None) => "is not there".to_owned(),
            Err(why) => why,
        };
        if forget {
            result.notes.push(format!("interface {name} {why}, and is forgotten"));
        } else {
            result.failed.push(format!(
                "interface {name} {why}: say it again when it is back, or --forget it"
            ));
            left.push(taken);
        }
    }
    system.put_back(&mut present, &mut result.notes);
    for one in present {
        let Present { mut taken, failed, waiting, lost, .. } = one;
        let name = taken.name.clone();
        let told = |what| format!("interface {name}: {what}");
        result.failed.extend(lost.into_iter().map(told));
        if failed.is_empty() && (waiting.is_empty() || forget) {
            let forgotten = waiting.into_iter().map(|(_, why)| format!("{why}; it is forgotten"));
            result.notes.extend(forgotten.map(told));
            result.released.push(taken.name);
            continue;
        }
        // What is there again, or never will be, is not needed any more.
        let kept = waiting.iter().map(|(place, _)| taken.routes[*place].clone()).collect();
        taken.routes = kept;
        result.failed.extend(failed.into_iter().map(told));
        let again = waiting
            .into_iter()
            .map(|(_, why)| format!("{why}: say it again once it can be, or --forget it"));
        result.failed.extend(again.map(told));
        left.push(taken);
    }
    record.interfaces = left;
    record.save(directory)?;
    Ok(result)
}

fn recorded(directory: &Directory) -> anyhow::Result<Record> {
    let Some(mut record) = Record::load(directory)? else {
        bail!(
            "nothing is recorded in {}: no interface was taken over, or all were put back",
            directory.path().display()
        );
    };
    record.check_namespace(directory)?;
    Ok(record)
}

fn check_rights(who: &str) -> anyhow::Result<()> {
    ensure!(
        privileges::may_change_network(),
        "{who} needs CAP_NET_ADMIN: run it as root, or with that capability"
    );
    Ok(())
}

fn losses_of(interfaces: &[Interface]) -> io::Result<Vec<String>> {
    let addresses: BTreeSet<IpAddr> =
        interfaces.iter().flat_map(|one| &one.addresses).map(|own| own.address).collect();
    let mut sockets = match addresses.is_empty() {
        true => Vec::new(),
        false => sockets::all(|socket| socket.needs(&addresses))?,
    };
    sockets.sort_by_key(sockets::Socket::is_of_all);
    let mut count = sockets.len();
    sockets.truncate(NAMED);
    let programs = sockets::programs(&sockets);
    let mut losses: Vec<String> = sockets.iter().map(|one| one.describe(&programs)).collect();
    for Interface { name, routes, neighbours, .. } in interfaces {
        count += routes.len() + neighbours.len();
        let routes = routes.iter().map(|route| format!("the kernel's route {route} on {name}"));
        let neighbours = neighbours.iter().map(|one| format!("the kernel's {one} on {name}"));
        losses.extend(routes.chain(neighbours).take(NAMED.saturating_sub(losses.len())));
    }
    if count > losses.len() {
        losses.push(format!("{} more", count - losses.len()));
    }
    Ok(losses)
}

impl Interface {
    /// Refuses routes that could not be put back.
    fn check_routes(&self) -> anyhow::Result<()> {
        let mut refused = self.routes.iter().filter(|route| route.nexthop.is_some());
        let Some(route) = refused.next() else { return Ok(()) };
        let more = match refused.count() {
            0 => String::new(),
            count => format!("; {count} more are like it"),
        };
        let unknown = match route.interfaces.is_empty() {
            true => " (by which interface is known with net.ipv4.nexthop_compat_mode=1 alone)",
            false => "",
        };
        bail!(
            "interface {}: the kernel's route {route} goes by a nexthop object{unknown}, and \
            could not be put back: remove it before, by `ip {}`{more}",
            self.name,
            route.removal()
        )
    }

    /// Whether the kernel has nothing on it that [`System::take`] would take.
    fn is_taken(&self) -> bool {
        let Self { settings, addresses, routes, index, .. } = self;
        OWNED
            .iter()
            .all(|(setting, value)| settings.get(&setting.key()).is_none_or(|is| is == value))
            && addresses.iter().all(|own| own.address.is_ipv6())
            && routes.iter().all(|route| route.interfaces != [*index])
    }

    fn taken(&self) -> Taken {
        let of_route = |route| Kept::of_route(route, self.index);
        Taken {
            name: self.name.clone(),
            device: self.device.clone(),
            settings: self.settings.clone(),
            addresses: self.addresses.iter().map(Kept::of_address).collect(),
            routes: self.routes.iter().map(of_route).collect(),
            neighbours: self.neighbours.iter().map(Kept::of_neighbour).collect(),
        }
    }
}

impl System {
    fn open() -> anyhow::Result<Self> {
        Ok(Self {
            links: Links::open().context("opening a netlink socket")?,
            netlink: Rtnetlink::open().context("opening a netlink socket")?,
            sysctls: Sysctls::of_system(),
        })
    }

    /// All interfaces by name.
    fn all(&mut self) -> anyhow::Result<Vec<(String, Link)>> {
        let names = nix::net::if_::if_nameindex().context("listing the interfaces")?;
        let mut links = Vec::new();
        for name in &names {
            let name = name.name().to_string_lossy().into_owned();
            links.extend(self.links.named(&name)?.map(|link| (name, link)));
        }
        Ok(links)
    }

    /// An interface as it is now.
    fn interface(&mut self, name: &str, link: &Link) -> anyhow::Result<Interface> {
        let (index, device) = (link.index, Device::of(link)?);
        let mut settings = BTreeMap::new();
        for (setting, _) in OWNED {
            let value = self.sysctls.read(setting, name)?;
            settings.extend(value.map(|value| (setting.key(), value)));
        }
        let mut addresses = self.netlink.addresses().context("listing the kernel's addresses")?;
        addresses.retain(|address| address.index == index);
        let own: BTreeSet<IpAddr> = addresses.iter().map(|own| own.address).collect();
        let routes = self
            .netlink
            .routes(|route| {
                let goes = route.interfaces.contains(&index)
                    || route.source.is_some_and(|source| own.contains(&source));
                // The kernel lists no interfaces of nexthop objects if
                // net.ipv4.nexthop_compat_mode is off: it may be any.
                let may_go =
                    route.nexthop.is_some() && route.interfaces.is_empty() && route.kind == UNICAST;
                (goes || may_go) && !PASSING.contains(&route.protocol)
            })
            .context("listing the kernel's routes")?;
        let mut neighbours =
            self.netlink.neighbours(index).context("listing the kernel's neighbours")?;
        // Those of IPv4 go with its last address, those of IPv6 when it is switched off.
        let has_ipv4 = addresses.iter().any(|own| own.address.is_ipv4());
        let has_ipv6 = settings.get(&DISABLE_IPV6.key()).is_some_and(|value| value == "0");
        neighbours.retain(|one| if one.address.is_ipv4() { has_ipv4 } else { has_ipv6 });
        let name = name.to_owned();
        Ok(Interface { name, index, device, settings, addresses, routes, neighbours })
    }

    /// Makes an interface the gateway's alone. Only what is recorded is removed, so that an address
    /// that has come in the last moment is not lost; the kernel removes those of IPv6 itself.
    fn take(&mut self, interface: &Interface) -> anyhow::Result<()> {
        let Interface { name, index, settings, addresses, routes, .. } = interface;
        for (setting, value) in OWNED {
            if settings.contains_key(&setting.key()) {
                self.sysctls.write(setting, name, value)?;
            }
        }
        for address in addresses.iter().filter(|own| own.address.is_ipv4()) {
            // The kernel removes a secondary address with its primary one.
            passing_over(Errno::EADDRNOTAVAIL, self.netlink.remove_address(address))
                .with_context(|| format!("removing address {address}"))?;
        }
        for route in routes.iter().filter(|route| route.interfaces == [*index]) {
            // Most have gone with the addresses.
            passing_over(Errno::ESRCH, self.netlink.remove_route(route))
                .with_context(|| format!("removing route {route}"))?;
        }
        Ok(())
    }

    /// Puts interfaces back. Whatever fails does not hold up the rest.
    fn put_back(&mut self, interfaces: &mut [Present], notes: &mut Vec<String>) {
        for interface in &mut *interfaces {
            // First of all: without IPv6 there can be no addresses of it. The kernel gives a router
            // the anycast address of a prefix when an address is ready; if forwarding is switched
            // on in the same moment, it may miss that.
            self.set_back(interface, Setting::is_ipv6);
            self.addresses_back(interface, notes);
            self.neighbours_back(interface);
        }
        self.routes_back(interfaces);
        for interface in interfaces {
            // The kernel forwards again once it knows where to.
            self.set_back(interface, |setting| !setting.is_ipv6());
        }
    }

    fn set_back(&self, interface: &mut Present, wanted: impl Fn(Setting) -> bool) {
        let Present { taken: Taken { settings, .. }, name, .. } = interface;
        let mut failed = Vec::new();
        for (setting, _) in OWNED.iter().filter(|(setting, _)| wanted(*setting)) {
            let Some(value) = settings.get(&setting.key()) else { continue };
            if let Err(error) = self.sysctls.write(*setting, name, value) {
                failed.push(error.to_string());
            }
        }
        interface.failed.append(&mut failed);
    }

    fn addresses_back(&mut self, interface: &mut Present, notes: &mut Vec<String>) {
        let Present { taken, index, failed, .. } = interface;
        let mut addresses: Vec<(KernelAddress, u32)> = Vec::new();
        for kept in &taken.addresses {
            match kept.address() {
                Ok(address) => addresses.push((address, kept.age())),
                Err(error) => failed.push(error.to_string()),
            }
        }
        // The kernel lists IPv4 addresses in the order in which they were added, and those of IPv6
        // the other way round.
        let (ipv4, ipv6): (Vec<_>, Vec<_>) =
            addresses.into_iter().partition(|(own, _)| own.address.is_ipv4());
        for (address, age) in ipv4.iter().chain(ipv6.iter().rev()) {
            match self.netlink.restore_address(address, *index, *age) {
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                    let name = &taken.name;
                    let over =
                        format!("interface {name}: the lifetime of address {address} is over");
                    notes.push(over);
                }
                outcome => {
                    if let Err(error) = passing_over(Errno::EEXIST, outcome) {
                        failed.push(format!("address {address}: {error}"));
                    }
                }
            }
        }
    }

    fn neighbours_back(&mut self, interface: &mut Present) {
        let Present { taken, index, lost, .. } = interface;
        for kept in &taken.neighbours {
            let outcome = kept.neighbour().and_then(|neighbour| {
                let restored = self.netlink.restore_neighbour(&neighbour, *index);
                passing_over(Errno::EEXIST, restored).with_context(|| neighbour.to_string())
            });
            lost.extend(outcome.err().map(|error| format!("{error:#}: add it by hand")));
        }
    }

    /// Puts routes back. One may need another, so those that fail are tried again as long as some
    /// succeed. What left by an interface that was made anew since leaves by the new one.
    fn routes_back(&mut self, interfaces: &mut [Present]) {
        let mut indices = BTreeMap::new();
        let mut waiting = Vec::new();
        for (at, Present { taken, index, lost, .. }) in interfaces.iter_mut().enumerate() {
            indices.extend(
                taken.addresses.iter().chain(&taken.routes).map(|kept| (kept.index, *index)),
            );
            for (place, kept) in taken.routes.iter().enumerate() {
                match kept.route() {
                    Ok(route) if route.nexthop.is_some() => lost.push(format!(
                        "route {route} went by a nexthop object, and cannot be put back: add it \
                        by hand. It is not recorded any more"
                    )),
                    Ok(route) => waiting.push((at, place, route, None)),
                    Err(error) => lost.push(error.to_string()),
                }
            }
        }
        loop {
            let before = waiting.len();
            waiting.retain_mut(|(_, _, route, why)| {
                let outcome = self.netlink.restore_route(route, &indices);
                *why = passing_over(Errno::EEXIST, outcome).err();
                why.is_some()
            });
            if waiting.len() == before {
                break;
            }
        }
        for (at, place, route, why) in waiting {
            let why = why.map_or_else(String::new, |why| format!(": {why}"));
            interfaces[at].waiting.push((place, format!("route {route}{why}")));
        }
    }
}

fn passing_over(errno: Errno, outcome: io::Result<()>) -> io::Result<()> {
    outcome.or_else(|error| match error.raw_os_error() {
        Some(code) if code == errno as i32 => Ok(()),
        _ => Err(error),
    })
}
