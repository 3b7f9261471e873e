//! A cell with many policies.
//!
//! Policies that share a pair of prefixes mostly differ in protocol and ports. Those that name one
//! destination port, or else one source port, are found by it; the others are tried one after the
//! other.

use classifier::Observer;

use super::cells::{Best, Entry};
use super::ordered::Ordered;
use super::sizes::Sizes;
use crate::map::Map;
use crate::spd::Place;
use crate::spd::selector::{Address, Compact, PORTS, Probe};

#[derive(Clone)]
pub(super) struct Fat<A> {
    length: usize,
    /// By [`port_key`].
    by_port: Map<u32, Ordered<A>>,
    /// Of `by_port`, for each of the two ports.
    sizes: Sizes,
    /// Policies that name no port.
    others: Ordered<A>,
}

/// Which port a policy names alone.
#[derive(Clone, Copy)]
enum Named {
    Destination,
    Source,
}

impl<A: Address> Fat<A> {
    pub(super) fn new(secret: u64) -> Self {
        Self {
            length: 0,
            by_port: Map::new(secret),
            sizes: Sizes::new(secret),
            others: Ordered::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.length
    }

    /// How many policies one lookup may have to compare.
    pub(super) fn cost(&self) -> u32 {
        self.others.len()
            + self.sizes.largest(Named::Destination as u8)
            + self.sizes.largest(Named::Source as u8)
    }

    /// Finds the first that matches, unless one before it is known.
    pub(super) fn first<'a>(
        &'a self,
        probe: &Probe<A>,
        best: &mut Best<'a, A>,
        observer: &mut impl Observer,
    ) {
        let (kind, source, destination) = probe.upper;
        if kind == PORTS {
            for key in [
                port_key(Named::Destination, probe.protocol, destination),
                port_key(Named::Source, probe.protocol, source),
            ] {
                if let Some(policies) = self.by_port.get(&key) {
                    policies.first(probe, best, observer);
                }
            }
        }
        self.others.first(probe, best, observer);
    }

    /// The first policy's place, where it is not much work to find.
    pub(super) fn first_place(&self) -> Option<Place> {
        const MANY: usize = 256;
        let lists =
            self.by_port.iter().map(|(_, policies)| policies).take(MANY).chain([&self.others]);
        let first =
            lists.filter_map(|policies| policies.iter().next()).map(|entry| entry.place).min();
        first.filter(|_| self.by_port.len() <= MANY)
    }

    /// Every policy, those of one port in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Entry<A>> {
        self.by_port.iter().flat_map(|(_, policies)| policies.iter()).chain(self.others.iter())
    }

    pub(super) fn insert(&mut self, entry: Entry<A>) {
        self.length += 1;
        let Some((named, key)) = named(&entry.selector) else {
            self.others.insert(entry);
            return;
        };
        let mut policies = self.by_port.get(&key).cloned().unwrap_or_else(Ordered::new);
        self.sizes.change(named as u8, policies.len(), policies.len() + 1);
        policies.insert(entry);
        self.by_port.insert(key, policies);
    }

    /// Takes out a policy, which is there and has this selector.
    pub(super) fn remove(&mut self, selector: &Compact<A>, place: Place) {
        self.length -= 1;
        let Some((named, key)) = named(selector) else {
            self.others.remove(place);
            return;
        };
        let Some(policies) = self.by_port.get_mut(&key) else { return };
        policies.remove(place);
        let left = policies.len();
        if left == 0 {
            self.by_port.remove(&key);
        }
        self.sizes.change(named as u8, left + 1, left);
    }
}

/// The port that a selector names, and its key.
fn named<A: Address>(selector: &Compact<A>) -> Option<(Named, u32)> {
    let [source, destination] = selector.upper;
    if !selector.names_ports() || selector.protocol_mask == 0 {
        None
    } else if destination.width == 0 {
        Some((
            Named::Destination,
            port_key(Named::Destination, selector.protocol, destination.first),
        ))
    } else if source.width == 0 {
        Some((Named::Source, port_key(Named::Source, selector.protocol, source.first)))
    } else {
        None
    }
}

fn port_key(named: Named, protocol: u8, port: u16) -> u32 {
    (named as u32) << 24 | u32::from(protocol) << 16 | u32::from(port)
}
