//! What was taken from the kernel, in the file `interfaces` of the state directory.

use std::collections::{BTreeMap, BTreeSet};
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
        Ok(Self { permanent: permanent(link), boot, index: link.index })
    }

    /// Whether `link` is the same one, as long as the system runs.
    fn is_same(&self, link: &Link, boot: &str) -> bool {
        self.boot == boot && self.index == link.index && self.permanent == permanent(link)
    }

    /// Whether the hardware is the same, or one of those that share an address.
    fn is_hardware(&self, link: &Link) -> bool {
        self.permanent.is_some() && self.permanent == permanent(link)
    }
}

/// The Ethernet address of a link's hardware.
fn permanent(link: &Link) -> Option<[u8; 6]> {
    link.permanent.map(|mac| mac.0)
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

    /// The place of each recorded device among `links`, which are all there are, whatever they are
    /// called now. An error says that its name is that of another device.
    pub(super) fn places(
        &self,
        links: &[(String, Link)],
        boot: &str,
    ) -> Vec<Result<Option<usize>, String>> {
        // The surest first, so that none is taken for another one: by its index, by its hardware,
        // of which several may have one address, and by its name alone. Devices without hardware
        // are made anew under their names.
        let matches = |sure: usize, Taken { name, device, .. }: &Taken, (now, link): &_| match sure
        {
            0 => device.is_same(link, boot),
            1 => device.is_hardware(link) && name == now,
            2 => device.is_hardware(link),
            _ => device.permanent.is_none() && name == now,
        };
        let mut places: Vec<Option<usize>> = vec![None; self.interfaces.len()];
        let mut free: BTreeSet<usize> = (0..links.len()).collect();
        for sure in 0..4 {
            for (taken, place) in self.interfaces.iter().zip(&mut places) {
                if place.is_none() {
                    *place = free.iter().copied().find(|at| matches(sure, taken, &links[*at]));
                    place.inspect(|at| _ = free.remove(at));
                }
            }
        }
        let or_why = |(taken, place): (&Taken, Option<usize>)| {
            let named = || links.iter().find(|(name, _)| *name == taken.name);
            match (place, taken.device.permanent) {
                (None, Some(was)) => named().map_or(Ok(None), |(_, link)| {
                    let now = link.permanent.map_or("none".to_owned(), |mac| mac.to_string());
                    let was = Mac(was);
                    Err(format!("is another device now (permanent address {now}, it was {was})"))
                }),
                _ => Ok(place),
            }
        };
        self.interfaces.iter().zip(places).map(or_why).collect()
    }

    /// Takes note of an interface, one of `links`, which are all there are. If its device is noted
    /// already, that keeps its settings of before, and whatever is not on it any more; what is on
    /// it again is noted as it is now.
    pub(super) fn add(&mut self, new: &Taken, links: &[(String, Link)], boot: &str) {
        let mut known = None;
        for (at, place) in self.places(links, boot).into_iter().enumerate() {
            let Ok(Some(place)) = place else { continue };
            let (name, link) = &links[place];
            if new.device.is_same(link, boot) {
                known = Some(at);
            } else if self.interfaces[at].name == new.name {
                // Another one that has left its name to this one.
                self.interfaces[at].name.clone_from(name);
            }
        }
        let Some(known) = known.map(|at| &mut self.interfaces[at]) else {
            self.interfaces.push(new.clone());
            return;
        };
        known.name.clone_from(&new.name);
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

    /// Which start of the system it is.
    const BOOT: &str = "now";

    fn link(index: u32, permanent: Option<u8>) -> Link {
        Link {
            index,
            mac: Mac([0; 6]),
            permanent: permanent.map(|octet| Mac([2, 0, 0, 0, 0, octet])),
            mtu: 1500,
            is_up: true,
            has_carrier: true,
            carrier_changes: 0,
            counters: LinkCounters::default(),
        }
    }

    fn links(all: &[(&str, Link)]) -> Vec<(String, Link)> {
        all.iter().map(|(name, link)| (name.to_string(), *link)).collect()
    }

    /// An interface without addresses.
    fn bare(name: &str, link: &Link, forwarding: &str) -> Taken {
        let device =
            Device { permanent: permanent(link), boot: BOOT.to_owned(), index: link.index };
        Taken {
            name: name.to_owned(),
            device,
            addresses: Vec::new(),
            ..taken(forwarding, &[kept(1, 1)])
        }
    }

    fn kept(octet: u8, index: u32) -> Kept {
        let mut message = vec![2, 24, 0, 0, index as u8, 0, 0, 0];
        message.extend([8, 0, 2, 0, 192, 0, 2, octet]);
        Kept::of_address(&KernelAddress::from_message(&message).unwrap())
    }

    fn taken(forwarding: &str, addresses: &[Kept]) -> Taken {
        Taken {
            name: "wan".to_owned(),
            device: Device { permanent: None, boot: BOOT.to_owned(), index: addresses[0].index },
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
        record.add(
            &taken("1", &[kept(1, 3), kept(2, 3)]),
            &[("wan".to_owned(), link(3, None))],
            BOOT,
        );
        record.save(&directory).unwrap();

        // Taken over already, and one of the addresses is back on an interface made anew.
        let mut record = Record::load(&directory).unwrap().unwrap();
        record.check_namespace(&directory).unwrap();
        let links = [("wan".to_owned(), link(9, None))];
        record.add(&taken("0", &[kept(2, 9), kept(3, 9)]), &links, BOOT);
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
        let found = |device: Link, boot: &str, now: &[(&str, Link)]| {
            let mut record = Record::new().unwrap();
            record.interfaces.push(bare("wan", &device, "1"));
            record.places(&links(now), boot).remove(0)
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
        assert_eq!(found(one, "now", &[("lan", one), ("wan", twin)]), Ok(Some(0)));
        assert_eq!(found(one, "later", &[("lan", one), ("wan", twin)]), Ok(Some(1)));
        // What the kernel has made keeps its index, until the system starts.
        let (one, other) = (link(2, None), link(3, None));
        assert_eq!(found(one, "now", &[("wan", other), ("lan", one)]), Ok(Some(1)));
        assert_eq!(found(one, "later", &[("wan", other), ("lan", one)]), Ok(Some(0)));
        assert_eq!(found(one, "now", &[("wan", other)]), Ok(Some(0)));
        assert_eq!(found(one, "now", &[("lan", other)]), Ok(None));
    }

    #[test]
    fn a_device_with_another_name_is_recorded_once() {
        let all = [link(2, None), link(3, None), link(4, Some(1)), link(5, Some(1))];
        let names = ["one", "other", "card", "twin"];
        // Each has settings of its own; those of the second time are ours.
        let take = |record: &mut Record, now: &[(&str, Link)], forwarding: &[&str]| {
            for ((name, link), forwarding) in now.iter().zip(forwarding) {
                record.add(&bare(name, link, forwarding), &links(now), BOOT);
            }
        };
        let told = |record: &Record| -> Vec<(String, u32, String)> {
            let told = |taken: &Taken| {
                let forwarding = taken.settings["ipv4.forwarding"].clone();
                (taken.name.clone(), taken.device.index, forwarding)
            };
            record.interfaces.iter().map(told).collect()
        };
        let first: Vec<_> = names.into_iter().zip(all).collect();
        for renamed in [
            ["wan0", "other", "lan0", "twin"],
            ["other", "one", "twin", "card"],
            ["other", "card", "twin", "one"],
        ] {
            let mut record = Record::new().unwrap();
            take(&mut record, &first, &["1", "2", "3", "4"]);
            let now: Vec<_> = renamed.into_iter().zip(all).collect();
            take(&mut record, &now, &["0"; 4]);
            let expected =
                (0..4).map(|at| (renamed[at].to_owned(), all[at].index, (at + 1).to_string()));
            assert_eq!(told(&record), expected.collect::<Vec<_>>());
            let places = record.places(&links(&now), BOOT);
            assert_eq!(places, [Ok(Some(0)), Ok(Some(1)), Ok(Some(2)), Ok(Some(3))]);
        }
        // One that is not taken again gives up its name, too: after a start of the system devices
        // without hardware are known by it alone.
        let mut record = Record::new().unwrap();
        take(&mut record, &first[..2], &["1", "2"]);
        let now = links(&[("other", all[0]), ("one", all[1])]);
        record.add(&bare("other", &all[0], "0"), &now, BOOT);
        let expected =
            [("other".to_owned(), 2, "1".to_owned()), ("one".to_owned(), 3, "2".to_owned())];
        assert_eq!(told(&record), expected);
        let later = links(&[("one", link(7, None)), ("other", link(8, None))]);
        assert_eq!(record.places(&later, "later"), [Ok(Some(1)), Ok(Some(0))]);

        // One that is gone leaves its name to one that is made anew, but not to one that is
        // recorded itself.
        let mut record = Record::new().unwrap();
        take(&mut record, &first[..2], &["1", "2"]);
        let now = links(&[("one", all[1])]);
        assert_eq!(record.places(&now, BOOT), [Ok(None), Ok(Some(0))]);
        record.add(&bare("one", &all[1], "0"), &now, BOOT);
        assert_eq!(told(&record)[1], ("one".to_owned(), 3, "2".to_owned()));
        let anew = links(&[("one", link(9, None)), ("left", all[1])]);
        assert_eq!(record.places(&anew, BOOT), [Ok(Some(0)), Ok(Some(1))]);
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

        record.add(&taken("1", &[Kept { message: vec![2, 24], ..kept(1, 3) }]), &[], BOOT);
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
