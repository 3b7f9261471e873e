//! Every way of finding a packet's policy finds the same one, while policies change.
//!
//! The numbers of packets and of the seed come from the environment: see docs/testing.md.

use std::collections::BTreeMap;
use std::env;
use std::net::IpAddr;
use std::sync::Arc;

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use tables::{
    Action, Compiled, Direction, Effort, LookupEngine, PolicySpec, Selector, Spd, Tables,
    UpperSelector, Wanted,
};
use types::{FieldsSelector, FlowKey, IpRange, PortRange, Protocol, VrfId};
use workload::rules::{self, Kind};
use workload::trace::{self, Locality};

const DIRECTION: Direction = Direction::Out;

/// Packets that are looked up between changes, at least and at most.
const BETWEEN: (usize, usize) = (1024, 16_384);

/// Changes between packets at most.
const MOST_CHANGES: usize = 120;

/// Times that the policies of one set change.
const ROUNDS: usize = 24;

/// Rules of a set in each family, of which a quarter waits to be added.
const SIZES: [usize; 5] = [400, 50, 3000, 120, 1200];

/// How policies are looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Form {
    /// One after the other, eight at once.
    List,
    /// The index alone.
    Index,
    /// Trees that were built quickly, now and then.
    Quick,
    /// The best of several trees.
    Best,
    /// Trees and what was added and removed since, and a second layer of trees; each used later
    /// than it was built.
    Layers,
}

const FORMS: [Form; 5] = [Form::List, Form::Index, Form::Quick, Form::Best, Form::Layers];

/// A set of rules, of which some are policies.
struct World {
    random: ChaCha8Rng,
    tables: Vec<(Form, Tables)>,
    /// By index.
    policies: BTreeMap<u32, Selector>,
    others: Vec<Selector>,
    /// What was built of [`Form::Layers`] and is not used yet.
    built: Vec<Arc<Compiled>>,
    /// Packets that are looked up between changes.
    between: usize,
    counts: Counts,
}

/// How much was done.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    packets: u64,
    lookups: u64,
    by_oracle: u64,
    found: u64,
    changes: u64,
    installed: u64,
    late: u64,
}

impl World {
    fn new(all: Vec<Selector>, seed: u64, between: usize) -> Self {
        let tables = FORMS.map(|form| {
            let mut tables = Tables::new(1, seed);
            let engine = if form == Form::List { LookupEngine::Linear } else { LookupEngine::Fast };
            tables.set_lookup_engine(engine);
            (form, tables)
        });
        let mut world = Self {
            random: ChaCha8Rng::seed_from_u64(seed),
            tables: tables.into(),
            policies: BTreeMap::new(),
            others: Vec::new(),
            built: Vec::new(),
            between,
            counts: Counts::default(),
        };
        let first = all.len() - all.len() / 4;
        for (priority, selector) in all.into_iter().enumerate() {
            if priority < first {
                world.add(selector, priority as u32);
            } else {
                world.others.push(selector);
            }
        }
        world
    }

    fn spd(tables: &Tables) -> &Spd {
        &tables.vrf(VrfId::MAIN).unwrap().spd
    }

    /// Adds a policy to all tables, or to none if there is one with this selector.
    fn add(&mut self, selector: Selector, priority: u32) {
        let spec = spec(selector, priority);
        let mut indexes = self.tables.iter_mut().map(|(_, tables)| tables.add_policy(spec).ok());
        let index = indexes.next().unwrap();
        assert!(indexes.all(|other| other == index));
        if let Some(index) = index {
            self.policies.insert(index, selector);
        }
        self.counts.changes += 1;
    }

    fn any_policy(&mut self) -> Option<u32> {
        let count = self.policies.len();
        let at = (count > 0).then(|| self.random.random_range(0..count))?;
        self.policies.keys().nth(at).copied()
    }

    fn change(&mut self) {
        let priority = self.random.random_range(0..2 * self.policies.len() as u32 + 1);
        let other = self.random.random_range(0..self.others.len());
        match self.random.random_range(0..5) {
            0 | 1 => {
                let selector = self.others.swap_remove(other);
                self.add(selector, priority);
                if self.others.is_empty() {
                    self.others.push(selector);
                }
            }
            2 | 3 => {
                let Some(index) = self.any_policy() else { return };
                self.others.extend(self.policies.remove(&index));
                for (_, tables) in &mut self.tables {
                    tables.remove_policy(index).unwrap();
                }
                self.counts.changes += 1;
            }
            _ => {
                let Some(index) = self.any_policy() else { return };
                let spec = spec(self.others[other], priority);
                let mut done = self
                    .tables
                    .iter_mut()
                    .map(|(_, tables)| tables.update_policy(index, spec).is_ok());
                let first = done.next().unwrap();
                assert!(done.all(|other| other == first));
                if first {
                    let before = self.policies.insert(index, spec.selector).unwrap();
                    self.others[other] = before;
                }
                self.counts.changes += 1;
            }
        }
    }

    /// Builds and uses trees, as each form does.
    fn build(&mut self, round: usize) {
        for (form, tables) in &mut self.tables {
            let spd = Self::spd(tables);
            let (effort, every) = match form {
                Form::List | Form::Index => continue,
                Form::Quick => (Effort::Quick, 6),
                Form::Best => (Effort::Best, 16),
                Form::Layers => {
                    let compiled = match spd.wants_compiling(DIRECTION) {
                        Some(Wanted::Added) => Compiled::of_added(spd, DIRECTION),
                        Some(Wanted::All) if round.is_multiple_of(3) => {
                            Some(Compiled::new(spd, DIRECTION, Effort::Quick))
                        }
                        _ => None,
                    };
                    self.built.extend(compiled.map(Arc::new));
                    continue;
                }
            };
            if round.is_multiple_of(every) {
                let compiled = Arc::new(Compiled::new(spd, DIRECTION, effort));
                tables.install_compiled(VrfId::MAIN, DIRECTION, &compiled);
            }
        }
    }

    /// Uses what was built before policies changed.
    fn install(&mut self) {
        let (_, tables) = self.tables.iter_mut().find(|(form, _)| *form == Form::Layers).unwrap();
        for compiled in self.built.drain(..) {
            let is_used = tables.install_compiled(VrfId::MAIN, DIRECTION, &compiled);
            *(if is_used { &mut self.counts.installed } else { &mut self.counts.late }) += 1;
        }
    }

    /// Looks packets of one family up in all ways.
    fn look_up(&mut self, keys: &[FlowKey]) {
        let policies = self.policies.len().max(1);
        // What is slow with many policies is asked about fewer packets.
        let (by_list, by_oracle) = (1 + policies / 512, 1 + policies / 64);
        let mut wanted = vec![None; keys.len()];
        let (_, index) = self.tables.iter().find(|(form, _)| *form == Form::Index).unwrap();
        Self::spd(index).lookup_keys(DIRECTION, keys, &mut wanted);
        let wanted: Vec<_> = wanted.into_iter().map(|found| found.map(|one| one.index)).collect();
        for (form, tables) in &self.tables {
            let spd = Self::spd(tables);
            let every = if *form == Form::List { by_list } else { 1 };
            let part = keys.len().div_ceil(every);
            let (keys, wanted) = (&keys[..part], &wanted[..part]);
            if *form != Form::Index {
                let mut found = vec![None; part];
                spd.lookup_keys(DIRECTION, keys, &mut found);
                for ((key, found), wanted) in keys.iter().zip(found).zip(wanted) {
                    let found = found.map(|policy| policy.index);
                    assert_eq!(found, *wanted, "{form:?}, together, and the index: {key:?}");
                }
                self.counts.lookups += part as u64;
            }
            for (key, wanted) in keys.iter().zip(wanted).step_by(8) {
                let found = spd.lookup(DIRECTION, key).map(|policy| policy.index);
                assert_eq!(found, *wanted, "{form:?}, alone, and the index: {key:?}");
                self.counts.lookups += 1;
            }
        }
        let spd = Self::spd(&self.tables[0].1);
        for (key, wanted) in keys.iter().zip(&wanted).step_by(by_oracle) {
            let right = spd.lookup_linear(DIRECTION, key).map(|(_, policy)| policy.index);
            assert_eq!(*wanted, right, "the index, and one after the other: {key:?}");
            self.counts.by_oracle += 1;
        }
        self.counts.packets += keys.len() as u64;
        self.counts.lookups += keys.len() as u64;
        self.counts.found += wanted.iter().flatten().count() as u64;
    }

    /// Packets of policies and of rules that are none at present, by family.
    fn keys(&mut self) -> [Vec<FlowKey>; 2] {
        let all: Vec<_> = self.policies.values().chain(&self.others).copied().collect();
        [false, true].map(|v6| {
            let of: Vec<_> = all.iter().filter(|rule| rule.source.is_v6() == v6).copied().collect();
            let seed = self.random.random();
            let options = trace::Options {
                headers: self.between / 2,
                seed,
                locality: Locality::None,
                unmatched: 0.1,
            };
            trace::headers(&of, &options)
        })
    }

    fn run(mut self) -> Counts {
        for round in 0..ROUNDS {
            self.build(round);
            for _ in 0..self.random.random_range(0..MOST_CHANGES) {
                self.change();
            }
            if self.random.random() {
                self.install();
            }
            for keys in self.keys() {
                self.look_up(&keys);
            }
        }
        self.counts
    }
}

fn spec(selector: Selector, priority: u32) -> PolicySpec {
    PolicySpec {
        vrf: VrfId::MAIN,
        direction: DIRECTION,
        if_id: None,
        priority,
        selector,
        action: Action::Bypass,
    }
}

/// Rules of both families, mixed. Of no kind: ranges of addresses and ports that overlap anyhow.
fn set(kind: Option<Kind>, count: usize, random: &mut ChaCha8Rng) -> Vec<Selector> {
    let mut all: Vec<Selector> = Vec::new();
    for v6 in [false, true] {
        match kind {
            Some(kind) => {
                let seed = random.random();
                all.extend(rules::generate(&rules::Options {
                    kind,
                    v6,
                    count,
                    seed,
                    misaligned: None,
                }));
            }
            // More of these defeat every way of looking up, and take their time.
            None => all.extend((0..count.min(600)).map(|_| overlapping(v6, random))),
        }
    }
    for at in (1..all.len()).rev() {
        // Not the order of one family's rules, which is from the special to the general.
        let other = random.random_range(at.saturating_sub(8)..=at);
        all.swap(at, other);
    }
    all
}

fn overlapping(v6: bool, random: &mut ChaCha8Rng) -> Selector {
    let mut range = || {
        let [a, b] = [random.random_range(0..1 << 16), random.random_range(0..1 << 16)];
        let address = |number: u32| match v6 {
            true => IpAddr::V6((u128::from(number) << 60 | u128::from(number)).into()),
            false => IpAddr::V4((number << 9).into()),
        };
        IpRange::new(address(a.min(b)), address(a.max(b))).unwrap()
    };
    let (source, destination) = (range(), range());
    let mut ports = || {
        let [a, b] = [random.random::<u16>(), random.random()];
        PortRange::new(a.min(b), a.max(b)).unwrap()
    };
    let upper = UpperSelector::Ports { source: ports(), destination: ports() };
    let (protocol, fields) = (Some(Protocol::UDP), FieldsSelector::ANY);
    Selector { source, destination, protocol, upper, fields }
}

fn number(name: &str, otherwise: u64) -> u64 {
    let text = env::var(name).unwrap_or_default().replace('_', "");
    if text.is_empty() { otherwise } else { text.parse().expect(name) }
}

#[test]
fn every_way_of_looking_up_finds_the_same() {
    let packets = number("HITPATH_TEST_LOOKUPS", 1_000_000);
    let seed = number("HITPATH_TEST_SEED", 1);
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut sum = Counts::default();
    // Each kind in two sizes, at least.
    let between = (packets as usize).div_ceil(2 * (Kind::ALL.len() + 1) * ROUNDS) + 1;
    let between = between.clamp(BETWEEN.0, BETWEEN.1);
    let kinds = || Kind::ALL.into_iter().map(Some).chain([None]);
    let mut sets = SIZES.into_iter().flat_map(|size| kinds().map(move |kind| (kind, size))).cycle();
    while sum.packets < packets {
        let (kind, size) = sets.next().unwrap();
        let world_seed = random.random();
        let world = World::new(set(kind, size, &mut random), world_seed, between);
        let counts = world.run();
        sum.packets += counts.packets;
        sum.lookups += counts.lookups;
        sum.by_oracle += counts.by_oracle;
        sum.found += counts.found;
        sum.changes += counts.changes;
        sum.installed += counts.installed;
        sum.late += counts.late;
        println!("seed {seed}: {kind:?} {size}: {sum:?}");
    }
    assert!(sum.found > sum.packets / 3 && sum.installed > 0, "{sum:?}");
}
