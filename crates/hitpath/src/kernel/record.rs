//! What was taken from the kernel, in the file `interfaces` of the state directory.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, ensure};
use io::links::Link;
use io::rtnetlink::{KernelAddress, KernelNeighbour, KernelRoute};
use serde::{Deserialize, Serialize};
use store::Directory;
use wire::Mac;

/// The file's name.
const NAME: &str = "interfaces";

/// What is said in place of another version.
const VERSION: u32 = 1;

/// All interfaces that were taken over.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Record {
    version: u32,
    /// The system's start and the network namespace in which they were last taken over.
    boot: String,
    namespace: u64,
    pub(super) interfaces: Vec<Taken>,
}

/// An interface as it was before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Taken {
    pub(super) name: String,
    /// Which device it was: names are given anew when the system starts. Earlier records say
    /// nothing of it.
    #[serde(default)]
    pub(super) device: Device,
    /// By their names in a record.
    pub(super) settings: BTreeMap<String, String>,
    pub(super) addresses: Vec<Kept>,
    pub(super) routes: Vec<Kept>,
    /// Permanent and proxy ones. Earlier records have none.
    #[serde(default)]
    pub(super) neighbours: Vec<Kept>,
}

/// What a device is known by.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Device {
    /// The Ethernet address of its hardware, which it keeps.
    permanent: Option<[u8; 6]>,
    /// Its index, which it keeps until the system starts again.
    boot: String,
    index: u32,
}

impl Device {
    /// What the device of `link` is known by.
    ///
    /// # Errors
    /// If the system does not say when it has started.
    pub(super) fn of(link: &Link) -> anyhow::Result<Self> {
        let (boot, _) = here()?;
        Ok(Self { permanent: link.permanent.map(|mac| mac.0), boot, index: link.index })
    }

    /// The place of this device among `links`, which are all there are; `name` is what it was called.
    ///
    /// # Errors
    /// The name is that of another device now.
    pub(super) fn find(
        &self,
        name: &str,
        links: &[(String, Link)],
        boot: &str,
    ) -> Result<Option<usize>, String> {
        let named = links.iter().position(|(other, _)| other == name);
        let is_known = |link: &Link| match (self.permanent, link.permanent) {
            (Some(own), Some(mac)) => own == mac.0,
            (None, None) => self.boot == boot && self.index == link.index,
            _ => false,
        };
        // Of several with one address, the one that has the name.
        if let Some(at) = named.filter(|at| is_known(&links[*at].1)) {
            return Ok(Some(at));
        }
        if let Some(at) = links.iter().position(|(_, link)| is_known(link)) {
            return Ok(Some(at));
        }
        match named.map(|at| links[at].1.permanent) {
            Some(now) if self.permanent.is_some() => {
                let mac = |mac: Option<Mac>| mac.map_or("none".to_owned(), |mac| mac.to_string());
                let was = mac(self.permanent.map(Mac));
                let now = mac(now);
                Err(format!("is another device now (permanent address {now}, it was {was})"))
            }
            // Devices without hardware are made anew under their names.
            _ => Ok(named),
        }
    }
}

/// An address, a route or a neighbour.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Kept {
    /// What it is, for people.
    what: String,
    /// The interface's index then.
    pub(super) index: u32,
    /// When, in seconds since 1970: lifetimes go on meanwhile.
    pub(super) time: u64,
    /// As the kernel described it.
    message: Vec<u8>,
}

impl Record {
    /// What is recorded in `directory`, if something is.
    ///
    /// # Errors
    /// If it cannot be read, or is not what was written.
    pub(super) fn load(directory: &Directory) -> anyhow::Result<Option<Self>> {
        let Some(bytes) = directory.read_record(NAME)? else { return Ok(None) };
        let read = || -> anyhow::Result<Self> {
            let record: Self = serde_json::from_slice(&bytes)?;
            ensure!(record.version == VERSION, "it has version {}, not {VERSION}", record.version);
            for taken in &record.interfaces {
                taken.addresses.iter().try_for_each(|kept| kept.address().map(drop))?;
                taken.routes.iter().try_for_each(|kept| kept.route().map(drop))?;
                taken.neighbours.iter().try_for_each(|kept| kept.neighbour().map(drop))?;
            }
            Ok(record)
        };
        let path = directory.path().join(NAME);
        read().map(Some).with_context(|| format!("{} is not understood", path.display()))
    }

    /// Nothing yet, in this network namespace.
    ///
    /// # Errors
    /// If the system does not say which one that is.
    pub(super) fn new() -> anyhow::Result<Self> {
        let (boot, namespace) = here()?;
        Ok(Self { version: VERSION, boot, namespace, interfaces: Vec::new() })
    }

    /// Refuses a record of another network namespace, whose interfaces have the same names. Which
    /// number a namespace has is not known across a restart of the system.
    ///
    /// # Errors
    /// If it is one.
    pub(super) fn check_namespace(&mut self, directory: &Directory) -> anyhow::Result<()> {
        let (boot, namespace) = here()?;
        ensure!(
            !self.is_elsewhere()?,
            "the interfaces were taken over in another network namespace (net:[{}]); this is \
            net:[{namespace}]. Say it there; if that namespace is gone, as with a container that \
            was started again, `hitpath release-interfaces --forget {}` drops the record",
            self.namespace,
            directory.path().display()
        );
        (self.boot, self.namespace) = (boot, namespace);
        Ok(())
    }

    /// Whether it is of another network namespace of this start of the system.
    ///
    /// # Errors
    /// If the system does not say which one this is.
    pub(super) fn is_elsewhere(&self) -> anyhow::Result<bool> {
        let (boot, namespace) = here()?;
        Ok(self.boot == boot && self.namespace != namespace)
    }

    /// What is said of a record of another network namespace that is dropped.
    pub(super) fn describe_elsewhere(&self) -> String {
        let names: Vec<&str> = self.interfaces.iter().map(|taken| taken.name.as_str()).collect();
        format!(
            "the record of {} in network namespace net:[{}] is dropped",
            names.join(", "),
            self.namespace
        )
    }

    /// Takes note of an interface. One that is noted already keeps its settings of before, and
    /// whatever is not on it any more; what is on it again is noted as it is now.
    pub(super) fn add(&mut self, new: &Taken) {
        let is_known = |known: &&mut Taken| {
            known.name == new.name && known.device.permanent == new.device.permanent
        };
        let Some(known) = self.interfaces.iter_mut().find(is_known) else {
            self.interfaces.push(new.clone());
            return;
        };
        known.device = new.device.clone();
        for (key, value) in &new.settings {
            known.settings.entry(key.clone()).or_insert_with(|| value.clone());
        }
        for new in &new.addresses {
            known.addresses.retain(|kept| kept.what != new.what);
            known.addresses.push(new.clone());
        }
        for new in &new.routes {
            // Two that are told alike may differ in their metric or table.
            known.routes.retain(|kept| kept.message != new.message);
            known.routes.push(new.clone());
        }
        for new in &new.neighbours {
            known.neighbours.retain(|kept| kept.what != new.what);
            known.neighbours.push(new.clone());
        }
    }

    /// Writes it, or removes the file if there is nothing to write. Returns once that is durable.
    ///
    /// # Errors
    /// If the system refuses.
    pub(super) fn save(&self, directory: &Directory) -> anyhow::Result<()> {
        if self.interfaces.is_empty() {
            directory.remove_record(NAME)?;
        } else {
            directory.write_record(NAME, &serde_json::to_vec(self)?)?;
        }
        Ok(())
    }
}

impl Kept {
    /// An address of the interface that it is on.
    pub(super) fn of_address(address: &KernelAddress) -> Self {
        Self {
            what: address.to_string(),
            index: address.index,
            time: now(),
            message: address.message().to_vec(),
        }
    }

    /// A route that was there because of the interface `index`.
    pub(super) fn of_route(route: &KernelRoute, index: u32) -> Self {
        Self { what: route.to_string(), index, time: now(), message: route.message().to_vec() }
    }

    /// A neighbour on the interface that it is on.
    pub(super) fn of_neighbour(neighbour: &KernelNeighbour) -> Self {
        Self {
            what: neighbour.to_string(),
            index: neighbour.index,
            time: now(),
            message: neighbour.message().to_vec(),
        }
    }

    /// The address that it is.
    pub(super) fn address(&self) -> anyhow::Result<KernelAddress> {
        KernelAddress::from_message(&self.message).context("an address is damaged")
    }

    /// The route that it is.
    pub(super) fn route(&self) -> anyhow::Result<KernelRoute> {
        KernelRoute::from_message(&self.message).context("a route is damaged")
    }

    /// The neighbour that it is.
    pub(super) fn neighbour(&self) -> anyhow::Result<KernelNeighbour> {
        KernelNeighbour::from_message(&self.message).context("a neighbour is damaged")
    }

    /// For how many seconds it has been kept. A clock that was set back is no reason for a longer
    /// lifetime than was left.
    pub(super) fn age(&self) -> u32 {
        u32::try_from(now().saturating_sub(self.time)).unwrap_or(u32::MAX)
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The start of the system, and the network namespace.
///
/// # Errors
/// If the system does not say which namespace it is.
pub(super) fn here() -> anyhow::Result<(String, u64)> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let namespace =
        fs::metadata("/proc/thread-self/ns/net").context("finding the network namespace")?;
    Ok((boot.trim().to_owned(), namespace.ino()))
}

#[cfg(test)]
mod tests {
    use io::links::LinkCounters;

    use super::*;

    fn kept(octet: u8, index: u32) -> Kept {
        let mut message = vec![2, 24, 0, 0, index as u8, 0, 0, 0];
        message.extend([8, 0, 2, 0, 192, 0, 2, octet]);
        Kept::of_address(&KernelAddress::from_message(&message).unwrap())
    }

    fn taken(forwarding: &str, addresses: &[Kept]) -> Taken {
        Taken {
            name: "wan".to_owned(),
            device: Device { permanent: None, boot: "now".to_owned(), index: addresses[0].index },
            settings: [("ipv4.forwarding".to_owned(), forwarding.to_owned())].into(),
            addresses: addresses.to_vec(),
            routes: Vec::new(),
            neighbours: Vec::new(),
        }
    }

    #[test]
    fn what_was_before_the_first_time_is_put_back() {
        let folder = tempfile::tempdir().unwrap();
        let directory = Directory::open(&folder.path().join("state"), "").unwrap();
        assert!(Record::load(&directory).unwrap().is_none());
        let mut record = Record::new().unwrap();
        record.add(&taken("1", &[kept(1, 3), kept(2, 3)]));
        record.save(&directory).unwrap();

        // Taken over already, and one of the addresses is back on an interface made anew.
        let mut record = Record::load(&directory).unwrap().unwrap();
        record.check_namespace(&directory).unwrap();
        record.add(&taken("0", &[kept(2, 9), kept(3, 9)]));
        let expected = taken("1", &[kept(1, 3), kept(2, 9), kept(3, 9)]);
        let same = |kept: &Kept| (kept.what.clone(), kept.index, kept.message.clone());
        let [known] = record.interfaces.as_slice() else { panic!("{record:?}") };
        assert_eq!(known.settings, expected.settings);
        let known: Vec<_> = known.addresses.iter().map(same).collect();
        assert_eq!(known, expected.addresses.iter().map(same).collect::<Vec<_>>());

        record.interfaces.clear();
        record.save(&directory).unwrap();
        assert!(Record::load(&directory).unwrap().is_none());
    }

    #[test]
    fn a_device_is_found_under_another_name() {
        let link = |index, permanent: Option<u8>| Link {
            index,
            mac: Mac([0; 6]),
            permanent: permanent.map(|octet| Mac([2, 0, 0, 0, 0, octet])),
            mtu: 1500,
            is_up: true,
            has_carrier: true,
            carrier_changes: 0,
            counters: LinkCounters::default(),
        };
        let found = |device: Link, boot: &str, now: &[(&str, Link)]| {
            let permanent = device.permanent.map(|mac| mac.0);
            let device = Device { permanent, boot: "now".to_owned(), index: device.index };
            let links: Vec<_> = now.iter().map(|(name, link)| (name.to_string(), *link)).collect();
            device.find("wan", &links, boot)
        };
        let (one, other) = (link(2, Some(1)), link(3, Some(2)));
        // Cards keep their address, whatever they are called after a start of the system.
        for boot in ["now", "later"] {
            assert_eq!(found(one, boot, &[("lan", other), ("wan", one)]), Ok(Some(1)));
            assert_eq!(found(one, boot, &[("wan", other), ("lan", one)]), Ok(Some(1)));
            assert_eq!(found(one, boot, &[("lan", other)]), Ok(None));
            for now in [other, link(2, None)] {
                let error = found(one, boot, &[("wan", now)]).unwrap_err();
                assert!(error.contains("another device now"), "{error}");
                assert!(error.contains("it was 02:00:00:00:00:01"), "{error}");
            }
        }
        // Two ports of one card.
        let twin = link(9, Some(1));
        assert_eq!(found(one, "now", &[("lan", one), ("wan", twin)]), Ok(Some(1)));
        // What the kernel has made keeps its index, until the system starts.
        let (one, other) = (link(2, None), link(3, None));
        assert_eq!(found(one, "now", &[("wan", other), ("lan", one)]), Ok(Some(1)));
        assert_eq!(found(one, "later", &[("wan", other), ("lan", one)]), Ok(Some(0)));
        assert_eq!(found(one, "now", &[("wan", other)]), Ok(Some(0)));
        assert_eq!(found(one, "now", &[("lan", other)]), Ok(None));
    }

    #[test]
    fn a_record_that_is_not_ours_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let directory = Directory::open(&folder.path().join("state"), "").unwrap();
        let mut record = Record::new().unwrap();
        record.namespace += 1;
        let error = record.check_namespace(&directory).unwrap_err().to_string();
        assert!(error.contains("another network namespace"), "{error}");
        assert!(error.contains("release-interfaces --forget"), "{error}");
        assert!(record.is_elsewhere().unwrap());
        "an earlier start of the system".clone_into(&mut record.boot);
        record.namespace += 1;
        record.check_namespace(&directory).unwrap();

        record.add(&taken("1", &[Kept { message: vec![2, 24], ..kept(1, 3) }]));
        record.save(&directory).unwrap();
        let error = format!("{:#}", Record::load(&directory).unwrap_err());
        assert!(error.contains("interfaces is not understood: an address is damaged"), "{error}");
        directory.write_record(NAME, br#"{"version":2}"#).unwrap();
        Record::load(&directory).unwrap_err();
    }

    #[test]
    fn an_age_is_never_negative() {
        let kept = Kept { time: now() + 1000, ..kept(1, 3) };
        assert_eq!(kept.age(), 0);
        assert_eq!(Kept { time: 0, ..kept }.age(), u32::try_from(now()).unwrap_or(u32::MAX));
    }
}
