//! The SPD's lookups against the plainest reading of what a policy is, with rule sets like real
//! ones that change all the time.

use std::collections::BTreeMap;

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use tables::{Action, Direction, PolicySpec, Selector, Tables};
use types::{FlowKey, VrfId};
use workload::rules::{self, Kind};
use workload::trace::{self, Locality};

/// The policies of one direction, beside a model of them.
struct Twins {
    tables: Tables,
    /// By priority, then by when they were added: the index, which grows.
    model: BTreeMap<(u32, u32), Selector>,
}

impl Twins {
    fn add(&mut self, priority: u32, selector: Selector) {
        let (vrf, direction, action) = (VrfId::MAIN, Direction::Out, Action::Bypass);
        let index = self
            .tables
            .add_policy(PolicySpec { vrf, direction, if_id: None, priority, selector, action })
            .unwrap();
        self.model.insert((priority, index), selector);
    }

    fn remove(&mut self, at: usize) -> Selector {
        let place = *self.model.keys().nth(at).unwrap();
        self.tables.remove_policy(place.1).unwrap();
        self.model.remove(&place).unwrap()
    }

    fn compare(&self, headers: &[FlowKey], what: &str) {
        let spd = &self.tables.vrf(VrfId::MAIN).unwrap().spd;
        let mut batch = vec![None; headers.len()];
        spd.lookup_keys(Direction::Out, headers, &mut batch);
        for (header, batched) in headers.iter().zip(batch) {
            let expected =
                self.model.iter().enumerate().find(|(_, (_, selector))| selector.matches(header));
            let expected = expected.map(|(at, ((_, index), _))| (at + 1, *index));
            let linear = spd
                .lookup_linear(Direction::Out, header)
                .map(|(position, policy)| (position, policy.index));
            assert_eq!(linear, expected, "{what}: linear, {header:?}");
            let index = expected.map(|(_, index)| index);
            assert_eq!(
                spd.lookup(Direction::Out, header).map(|policy| policy.index),
                index,
                "{what}: {header:?}"
            );
            assert_eq!(batched.map(|policy| policy.index), index, "{what}: in a batch, {header:?}");
        }
    }
}

#[test]
fn every_way_to_look_up_finds_the_first_that_matches() {
    for kind in Kind::ALL {
        for v6 in [false, true] {
            for (count, changes) in [(7, 20), (100, 100), (1500, 1000)] {
                let selectors = rules::generate(&rules::Options {
                    kind,
                    v6,
                    count,
                    seed: 21,
                    misaligned: None,
                });
                let options = trace::Options {
                    headers: 1200,
                    seed: 22,
                    locality: Locality::None,
                    unmatched: 0.1,
                };
                let headers = trace::headers(&selectors, &options);
                let mut random = ChaCha8Rng::seed_from_u64(23);
                let mut twins = Twins { tables: Tables::new(1, 24), model: BTreeMap::new() };
                // Ties are common, so that the order of adding matters too.
                for (at, selector) in (0u32..).zip(selectors) {
                    twins.add(at / 3, selector);
                }
                twins.compare(&headers, &format!("{kind:?} {count} v6 {v6}"));

                // Half of what was removed comes back elsewhere in the order, and then all that is
                // left is removed.
                let mut removed = Vec::new();
                for change in 0..changes {
                    if change % 3 != 0 && !twins.model.is_empty() {
                        removed.push(twins.remove(random.random_range(0..twins.model.len())));
                    } else if !removed.is_empty() {
                        let selector = removed.swap_remove(random.random_range(0..removed.len()));
                        twins.add(random.random_range(0..count as u32), selector);
                    }
                    if change % 100 == 0 {
                        let some = &headers[random.random_range(0..headers.len() - 60)..][..60];
                        twins.compare(
                            some,
                            &format!("{kind:?} {count} v6 {v6} after {change} changes"),
                        );
                    }
                }
                twins.compare(
                    &headers[..300],
                    &format!("{kind:?} {count} v6 {v6} after all changes"),
                );
                while !twins.model.is_empty() {
                    twins.remove(twins.model.len() / 2);
                }
                twins.compare(&headers[..60], "emptied");
            }
        }
    }
}
