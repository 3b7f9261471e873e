//! The system's interfaces that ports are on, followed by netlink.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::mpsc::SyncSender;
use std::thread;
use std::time::Duration;

use ::io::links::{Link, LinkChanges, Links};
use ::io::promiscuous::Promiscuous;
use ::io::rtnetlink::Rtnetlink;
use anyhow::Context;
use api::{DeviceStatistics, InterfaceState};
use control::{PortKind, PortSettings, SeenInterface};
use packet::Time;
use tables::SystemAddresses;
use wire::{Mac, PortId};

use crate::daemon::Message;

/// How long a TAP device that was deleted, and a port that could not be opened, are left alone.
const RETRY: Duration = Duration::from_secs(1);

/// The shortest time between two looks at the interfaces, however often they change.
const PAUSE: Duration = Duration::from_millis(10);

/// Asks the system for an interface by its name.
type Named = Box<dyn FnMut(&str) -> io::Result<Option<Link>> + Send>;

/// The interfaces of all ports that are on one.
pub(crate) struct Interfaces {
    named: Named,
    rtnetlink: Rtnetlink,
    followed: BTreeMap<PortId, Followed>,
}

struct Followed {
    settings: PortSettings,
    /// The port's Ethernet address as it was opened, which a TAP device's port keeps.
    mac: Mac,
    /// The MTU that it last had.
    mtu: u16,
    /// Whether the port is open.
    is_open: bool,
    /// Whether the last look failed, so that nothing is known of what has happened since the one before.
    is_unread: bool,
    /// As it was at the last look, if there was one.
    link: Option<Link>,
    /// The index of the interface that the port was last opened on.
    opened_on: Option<u32>,
    /// When a port that is not open may be opened again.
    retry: Time,
    /// The index of the interface that was to receive frames for all stations, and what has it do so,
    /// unless the system refused.
    promiscuous: Option<(u32, Option<Promiscuous>)>,
}

/// What a look at an interface has shown.
pub(crate) enum Look {
    /// Nothing new.
    Same,
    /// It is another one than the port was opened on, or the port is not open: open it.
    Open,
    /// It is gone: close the port.
    Gone,
    /// It has changed.
    Changed(SeenInterface),
}

impl Interfaces {
    /// Follows no interface yet.
    ///
    /// # Errors
    /// If the system gives no netlink socket.
    pub(crate) fn new() -> anyhow::Result<Self> {
        let mut links = Links::open().context("opening a netlink socket")?;
        let rtnetlink = Rtnetlink::open().context("opening a netlink socket")?;
        let named: Named = Box::new(move |interface| links.named(interface));
        Ok(Self { named, rtnetlink, followed: BTreeMap::new() })
    }

    /// The addresses of the system's own stack.
    pub(crate) fn addresses(&mut self) -> SystemAddresses {
        match self.rtnetlink.addresses() {
            Ok(all) => SystemAddresses::Known(all.into_iter().map(|it| it.address).collect()),
            Err(error) => {
                tracing::error!(
                    "the system's addresses cannot be read, so that nobody is told where nobody \
                    listens: {error}"
                );
                SystemAddresses::Unknown
            }
        }
    }

    /// Follows the interface of a port that was just opened, with this Ethernet address and MTU.
    /// Returns what it is like, unless the port is on no interface.
    pub(crate) fn follow(
        &mut self,
        id: PortId,
        settings: &PortSettings,
        (mac, mtu): (Mac, u16),
    ) -> Option<SeenInterface> {
        let interface = settings.kind.interface()?;
        let link = self.look_at(interface);
        let opened = Followed {
            settings: settings.clone(),
            mac,
            mtu,
            is_open: true,
            is_unread: false,
            link,
            opened_on: link.map(|link| link.index),
            retry: Time::default(),
            promiscuous: None,
        };
        let seen = opened.seen(true);
        self.followed.insert(id, opened);
        Some(seen)
    }

    /// Follows the interface of a port that could not be opened, as the interface is not there.
    pub(crate) fn follow_absent(&mut self, id: PortId, settings: &PortSettings) {
        let absent = Followed {
            settings: settings.clone(),
            mac: Mac([0; 6]),
            mtu: 0,
            is_open: false,
            is_unread: false,
            link: None,
            opened_on: None,
            retry: Time::default(),
            promiscuous: None,
        };
        self.followed.insert(id, absent);
    }

    /// Has the interfaces of these ports receive frames for all stations, and those of no others: a
    /// network card passes on what is for itself, and flows send frames on that are for others.
    pub(crate) fn receive_all(&mut self, ports: impl Iterator<Item = PortId>) {
        let wanted: BTreeSet<PortId> = ports.collect();
        for (id, followed) in &mut self.followed {
            let link = followed.link.filter(|_| wanted.contains(id) && !followed.is_tap());
            let Some(index) = link.map(|link| link.index) else {
                followed.promiscuous = None;
                continue;
            };
            if followed.promiscuous.as_ref().is_some_and(|(of, _)| *of == index) {
                continue;
            }
            let name = &followed.settings.name;
            let made = Promiscuous::new(index).inspect_err(|error| {
                tracing::error!(
                    port = name,
                    "the interface cannot be made promiscuous, so that flows do not see all frames \
                    that they output: {error}"
                );
            });
            followed.promiscuous = Some((index, made.ok()));
        }
    }

    /// Follows the interface of a port no longer.
    pub(crate) fn forget(&mut self, id: PortId) {
        self.followed.remove(&id);
    }

    /// Takes the settings that a reload brought.
    pub(crate) fn set(&mut self, settings: &PortSettings) {
        for followed in self.followed.values_mut() {
            if followed.settings.name == settings.name {
                followed.settings = settings.clone();
                followed.retry = Time::default();
            }
        }
    }

    /// The ports whose interfaces are followed.
    pub(crate) fn ports(&self) -> Vec<PortId> {
        self.followed.keys().copied().collect()
    }

    /// The ports to look at though nothing was said of their interfaces: those that are not open, and those
    /// whose interfaces could not be read.
    pub(crate) fn due(&self) -> Vec<PortId> {
        let is_due = |followed: &Followed| !followed.is_open || followed.is_unread;
        self.followed.iter().filter(|(_, it)| is_due(it)).map(|(id, _)| *id).collect()
    }

    /// What a port is opened with.
    pub(crate) fn settings(&self, id: PortId) -> Option<&PortSettings> {
        self.followed.get(&id).map(|followed| &followed.settings)
    }

    /// The index of the interface that a port was last opened on.
    pub(crate) fn opened_on(&self, id: PortId) -> Option<u32> {
        self.followed.get(&id)?.opened_on
    }

    /// Takes note that an open port was lost. A TAP device that was deleted may be made again by
    /// whoever deleted it.
    pub(crate) fn lost(&mut self, id: PortId, now: Time) {
        if let Some(followed) = self.followed.get_mut(&id) {
            followed.is_open = false;
            followed.retry = if followed.is_tap() { now + RETRY } else { now };
        }
    }

    /// Takes note that a port is not open, and is not to be opened before a moment has passed.
    pub(crate) fn close(&mut self, id: PortId, now: Time) {
        if let Some(followed) = self.followed.get_mut(&id) {
            followed.is_open = false;
            followed.retry = now + RETRY;
        }
    }

    /// Looks at the interface of a port.
    pub(crate) fn look(&mut self, id: PortId, now: Time) -> Look {
        let interface = |followed: &Followed| followed.settings.kind.interface().map(str::to_owned);
        let Some(interface) = self.followed.get(&id).and_then(interface) else { return Look::Same };
        let link = (self.named)(&interface);
        let Some(followed) = self.followed.get_mut(&id) else { return Look::Same };
        let link = match link {
            Ok(link) => link,
            // It is as it was, for all that is known, and is looked at again soon.
            Err(error) => {
                if !followed.is_unread {
                    tracing::error!(interface, "the interface's state cannot be read: {error}");
                }
                followed.is_unread = true;
                return Look::Same;
            }
        };
        followed.is_unread = false;
        let before = std::mem::replace(&mut followed.link, link);
        let mtu = link.and_then(|link| u16::try_from(link.mtu).ok());
        followed.mtu = mtu.unwrap_or(followed.mtu).min(packet::MAX_MTU);
        if !followed.is_open {
            // Opening a TAP device makes it.
            let can_open = link.is_some() || followed.is_tap();
            return if can_open && followed.retry <= now { Look::Open } else { Look::Same };
        }
        // A TAP device that was deleted says so itself. Its interface may be in another network
        // namespace.
        if !followed.is_tap() {
            match (before, link) {
                (_, None) => {
                    followed.is_open = false;
                    followed.retry = now;
                    return Look::Gone;
                }
                (Some(before), Some(link)) if before.index == link.index => {}
                _ => return Look::Open,
            }
        }
        let stations = |link: Link| (link.carrier_changes, link.mac);
        let rest = |link: Link| (link.is_up, link.has_carrier, link.mtu);
        let is_other_link = before.map(stations) != link.map(stations);
        match is_other_link || before.map(rest) != link.map(rest) {
            true => Look::Changed(followed.seen(is_other_link)),
            false => Look::Same,
        }
    }

    /// What the interface of a port has counted itself.
    pub(crate) fn counters(&mut self, id: PortId) -> Option<DeviceStatistics> {
        let interface = self.followed.get(&id)?.settings.kind.interface()?.to_owned();
        let counted = self.look_at(&interface)?.counters;
        Some(DeviceStatistics {
            rx_packets: counted.rx_packets,
            rx_bytes: counted.rx_bytes,
            rx_errors: counted.rx_errors,
            rx_dropped: counted.rx_dropped,
            rx_missed: counted.rx_missed,
            tx_packets: counted.tx_packets,
            tx_bytes: counted.tx_bytes,
            tx_errors: counted.tx_errors,
            tx_dropped: counted.tx_dropped,
        })
    }

    fn look_at(&mut self, interface: &str) -> Option<Link> {
        (self.named)(interface).unwrap_or_else(|error| {
            tracing::error!(interface, "the interface's state cannot be read: {error}");
            None
        })
    }
}

/// What is known of an interface that is not there.
pub(crate) const GONE: SeenInterface =
    SeenInterface { state: InterfaceState::Gone, mac: Mac([0; 6]), mtu: 0, is_other_link: true };

impl Followed {
    fn is_tap(&self) -> bool {
        matches!(self.settings.kind, PortKind::Tap { .. })
    }

    /// What is known of the interface of an open port.
    fn seen(&self, is_other_link: bool) -> SeenInterface {
        let Some(link) = self.link else {
            // A TAP device whose interface is elsewhere; or an interface that went away after it
            // was opened, which is seen at the next look.
            let (state, mac, mtu) = (InterfaceState::Up, self.mac, self.mtu);
            return SeenInterface { state, mac, mtu, is_other_link };
        };
        // The interface of a TAP device is the other end of the port's link.
        let mac = if self.is_tap() { self.mac } else { self.settings.mac.unwrap_or(link.mac) };
        let state = match (link.is_up, link.has_carrier) {
            (false, _) => InterfaceState::Down,
            (true, false) => InterfaceState::NoCarrier,
            (true, true) => InterfaceState::Up,
        };
        SeenInterface { state, mac, mtu: self.mtu, is_other_link }
    }
}

/// Starts a thread that says when interfaces or addresses change.
///
/// # Errors
/// If the system gives no netlink socket or no thread.
pub(crate) fn watch(control: SyncSender<Message>) -> anyhow::Result<()> {
    let mut changes = LinkChanges::open().context("listening to netlink")?;
    let watch = move || {
        let mut is_told = false;
        loop {
            if let Err(error) = changes.wait() {
                if !is_told {
                    tracing::error!(
                        "the system says no more when interfaces change, so that all are looked at \
                        each second: {error}"
                    );
                }
                is_told = true;
                thread::sleep(RETRY);
            }
            if control.send(Message::Interfaces).is_err() {
                return;
            }
            thread::sleep(PAUSE);
        }
    };
    thread::Builder::new().name("netlink".to_owned()).spawn(watch)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use ::io::links::LinkCounters;

    use super::*;

    fn settings() -> PortSettings {
        let text = "[[port]]\nname = \"wan\"\nkind = \"af-packet\"\ninterface = \"eth0\"\n";
        let config = control::config::load("gw.toml", text).unwrap();
        config.ports[0].clone()
    }

    /// One interface, of which the system says this.
    fn interfaces(said: &Arc<Mutex<Result<Option<Link>, i32>>>) -> Interfaces {
        let said = Arc::clone(said);
        let named: Named =
            Box::new(move |_| said.lock().unwrap().map_err(io::Error::from_raw_os_error));
        let rtnetlink = Rtnetlink::open().unwrap();
        Interfaces { named, rtnetlink, followed: BTreeMap::new() }
    }

    #[test]
    fn an_interface_that_cannot_be_read_is_as_it_was() {
        let link = Link {
            index: 7,
            mac: Mac([2, 0, 0, 0, 0, 1]),
            permanent: None,
            mtu: 1500,
            is_up: true,
            has_carrier: true,
            carrier_changes: 1,
            counters: LinkCounters::default(),
        };
        let said = Arc::new(Mutex::new(Ok(Some(link))));
        let mut interfaces = interfaces(&said);
        let (id, now) = (PortId(3), Time::default());
        interfaces.follow(id, &settings(), (link.mac, 1500)).unwrap();
        assert!(matches!(interfaces.look(id, now), Look::Same));
        assert_eq!(interfaces.due(), []);
        *said.lock().unwrap() = Err(105);
        for _ in 0..3 {
            assert!(matches!(interfaces.look(id, now), Look::Same));
            assert_eq!(interfaces.due(), [id], "nobody says when it can be read");
        }
        // What has happened meanwhile is seen.
        *said.lock().unwrap() = Ok(Some(Link { has_carrier: false, ..link }));
        let Look::Changed(seen) = interfaces.look(id, now) else { panic!("it has no carrier") };
        assert_eq!(seen.state, InterfaceState::NoCarrier);
        assert_eq!(interfaces.due(), []);
        *said.lock().unwrap() = Ok(None);
        assert!(matches!(interfaces.look(id, now), Look::Gone));
    }
}
