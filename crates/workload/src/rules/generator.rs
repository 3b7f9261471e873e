//! Draws the rules of a set, in no order yet.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::collections::{HashMap, HashSet};

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use tables::{FieldsSelector, Selector, UpperSelector};
use types::IpRange;

use super::around::Around;
use super::lengths::{Pair, quotas};
use super::profile::Profile;
use super::trie::Trie;
use super::upper::{self, Class, Layer};
use super::{Kind, Options, low_bits};

pub(super) struct Generator {
    kind: Kind,
    v6: bool,
    profile: Profile,
    /// Of sources and of destinations.
    tries: [Trie; 2],
    around: Around,
    random: ChaCha8Rng,
    rules: Vec<Selector>,
    /// What the rules of each address pair say above addresses.
    layers: HashMap<(IpRange, IpRange), HashSet<Layer>>,
    /// How many rules there are of [`Class::AnyProtocol`] and of [`Class::Range`].
    classes: [usize; 2],
    /// How many have an address range that is no prefix.
    misaligned: usize,
}

impl Generator {
    pub(super) fn new(options: &Options) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(options.seed);
        let mut profile = Profile::of(options.kind, options.count);
        profile.misaligned = options.misaligned.unwrap_or(profile.misaligned).clamp(0.0, 1.0);
        let tries = [(); 2].map(|()| Trie::new(random.random(), options.v6));
        let around = Around::new(options, &tries, &mut random);
        Self {
            kind: options.kind,
            v6: options.v6,
            profile,
            tries,
            around,
            random,
            rules: Vec::with_capacity(options.count),
            layers: HashMap::new(),
            classes: [0; 2],
            misaligned: 0,
        }
    }

    pub(super) fn rules(mut self, count: usize) -> Vec<Selector> {
        // One address pair gets the most rules that any may have; the others follow from chance.
        let mut largest = Some(self.profile.most);
        let mut left = 0;
        for (pair, quota) in quotas(self.kind, self.v6, &self.profile, count) {
            let first = largest.take_if(|most| *most <= quota && pair != (0, 0));
            left += self.fill(pair, quota, first);
        }
        // Short prefixes are few; what did not fit goes where there is room. Pairs of hosts out of
        // the tries never run out.
        let width = self.tries[0].width();
        left = self.fill((width, width), left, None);
        self.around = Around::Nothing;
        while left > 0 {
            left = self.fill((width, width), left, None);
        }
        self.rules
    }

    /// Adds `quota` rules whose prefix lengths are `pair`, and returns how many did not fit. The
    /// first addresses get `first` rules.
    fn fill(&mut self, pair: Pair, quota: usize, mut first: Option<usize>) -> usize {
        let mut left = quota;
        let mut failures = 0;
        while left > 0 && failures < 200 {
            let addresses = self.addresses(pair);
            let together = first.take().unwrap_or_else(|| self.together()).min(left);
            let before = left;
            for _ in 0..together {
                left -= usize::from(self.add(addresses));
            }
            failures = if left < before { 0 } else { failures + 1 };
        }
        left
    }

    /// A source and a destination of these prefix lengths, or inside of such prefixes.
    fn addresses(&mut self, pair: Pair) -> (IpRange, IpRange) {
        let [source, destination] = self.around.draw(pair, &self.tries, &mut self.random);
        // Any address, and fewer than eight of them, stay a prefix.
        let width = if self.v6 { 128 } else { 32 };
        let [at_source, at_destination] =
            [source, destination].map(|(_, length)| length > 0 && width - length >= 3);
        let misaligned =
            self.profile.misaligned > 0.0 && self.random.random_bool(self.chance_of_misaligned());
        let (at_source, at_destination) = match misaligned {
            true if at_source && at_destination && self.random.random() => (true, false),
            true if at_destination => (false, true),
            misaligned => (misaligned && at_source, false),
        };
        (self.range(source, at_source), self.range(destination, at_destination))
    }

    /// The likelihood of a range that is no prefix: the greater, the more the set lags behind the
    /// share that it is to have.
    fn chance_of_misaligned(&self) -> f64 {
        let share = self.profile.misaligned;
        let lag = share * self.rules.len() as f64 - self.misaligned as f64;
        (share * (1.0 + 0.1 * lag)).clamp(0.0, 1.0)
    }

    /// The prefix, or a range that begins in its first and ends in its last quarter but is no
    /// prefix.
    fn range(&mut self, (prefix, length): (u128, u32), misaligned: bool) -> IpRange {
        let width = if self.v6 { 128 } else { 32 };
        let (mut first, mut last) = (prefix, prefix | low_bits(width - length));
        if misaligned {
            let quarter = 1u128 << (width - length - 2);
            first += self.random.random_range(1..quarter);
            last -= self.random.random_range(0..quarter);
        }
        let [first, last] = [first, last].map(|bits| match self.v6 {
            true => IpAddr::V6(Ipv6Addr::from_bits(bits)),
            false => IpAddr::V4(Ipv4Addr::from_bits(bits as u32)),
        });
        IpRange::new(first, last).expect("the first quarter is before the last")
    }

    /// How many rules to give to one address pair: usually one, and `n` or more with a probability
    /// that falls with a power of `n`.
    fn together(&mut self) -> usize {
        let power = match self.kind {
            Kind::Fw4 => 1.0,
            Kind::Chains => 1.2,
            _ => 1.6,
        };
        let most = self.profile.most as f64;
        self.random.random::<f64>().max(f64::MIN_POSITIVE).powf(-1.0 / power).min(most) as usize
    }

    /// Adds a rule for these addresses, unless they have as many as they may.
    fn add(&mut self, (source, destination): (IpRange, IpRange)) -> bool {
        let anywhere =
            [IpRange::ALL_V4, IpRange::ALL_V6].contains(&source) && source == destination;
        let layers = self.layers.entry((source, destination)).or_default();
        if layers.len() >= self.profile.most {
            return false;
        }
        // One rule for any protocol is all that an address pair can have, and none that matches
        // every packet is wanted. Chance makes up for that: the further a class lags behind its
        // share, the likelier it is.
        let total = self.rules.len() as f64;
        let [any, range] =
            [(self.profile.any_protocol, 0), (self.profile.ranges, 1)].map(|(share, class)| {
                let lag = share * total - self.classes[class] as f64;
                if share == 0.0 { 0.0 } else { (share * (1.0 + 0.1 * lag)).clamp(0.0, 1.0) }
            });
        let any = if anywhere || layers.contains(&(None, UpperSelector::Any)) { 0.0 } else { any };
        let draw = self.random.random::<f64>();
        let class = match () {
            () if draw < any => Class::AnyProtocol,
            () if draw < any + range => Class::Range,
            () => Class::Plain,
        };
        for attempt in 0..64 {
            let layer = match attempt {
                0..12 => upper::draw(self.kind, class, self.v6, &mut self.random),
                _ => upper::draw_rare(class, &mut self.random),
            };
            if layers.insert(layer) {
                match Class::of(&layer) {
                    Class::AnyProtocol => self.classes[0] += 1,
                    Class::Range => self.classes[1] += 1,
                    Class::Plain => {}
                }
                let is_prefix = source.as_prefix().is_some() && destination.as_prefix().is_some();
                self.misaligned += usize::from(!is_prefix);
                self.rules.push(Selector {
                    source,
                    destination,
                    protocol: layer.0,
                    upper: layer.1,
                    fields: FieldsSelector::ANY,
                });
                return true;
            }
        }
        false
    }
}
