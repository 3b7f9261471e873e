//! Rules, forwards and translations that can never match, as earlier ones, perhaps several together, match
//! all that they do.

use std::net::IpAddr;

use types::IpRange;

use super::services::{Service, Type};
use super::{Firewall, Part, Rule, matches, parts};

/// Protocol, port or type, source, destination: a range of each, both ends inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Box4([(u128, u128); 4]);

/// Packets that only what is about the same can match: of one family, and of these zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kind<'z> {
    v6: bool,
    from: u16,
    to: u16,
    /// The zones for whose ports' addresses they are, whichever these are; `None` if they are for those
    /// that are said.
    ports_of: Option<&'z [u16]>,
}

impl Kind<'_> {
    /// Of a policy, whose rules are all about the same zones.
    const fn of(v6: bool) -> Self {
        Self { v6, from: 0, to: 0, ports_of: None }
    }

    /// Whether packets of this kind may be matched by what is about others.
    fn may_be(self, other: Self) -> bool {
        let is_within = match (self.ports_of, other.ports_of) {
            (None, None) => true,
            (Some(own), Some(others)) => own.iter().all(|zone| others.contains(zone)),
            _ => false,
        };
        (self.v6, self.from, self.to) == (other.v6, other.from, other.to) && is_within
    }
}

/// The most pieces that a rule may fall into before it is given up.
const MAX_PIECES: usize = 4_096;

/// What [`shadowed`] has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shadowed {
    /// Rules that never match, each with the earlier ones that match what it would, in order.
    pub(crate) rules: Vec<(usize, Vec<usize>)>,
    /// Rules that were not looked at, as that is too much work.
    pub(crate) unchecked: usize,
}

/// Finds the rules of a policy that never match. `work` is how many pieces may be compared.
pub(crate) fn shadowed(rules: &[Rule], work: &mut usize) -> Shadowed {
    find(&pieces(rules), work)
}

/// The packets that each rule of a policy is for.
fn pieces(rules: &[Rule]) -> Vec<Vec<(Kind<'static>, Box4)>> {
    let pieces = |rule| matches(rule).map(|part: Part| (Kind::of(part.v6), part.of())).collect();
    rules.iter().map(pieces).collect()
}

/// The rules of a policy that together match every packet, so that none is left for its action; none if
/// some are left, `None` if that is too much work.
pub(crate) fn matching_all(rules: &[Rule], work: &mut usize) -> Option<Vec<usize>> {
    let all = [false, true].map(|v6| {
        let part = Part { v6, service: None, source: None, destination: None };
        (Kind::of(v6), part.of())
    });
    covered(&all, &pieces(rules), work)
}

impl Firewall {
    /// Finds the forwards that never match.
    pub(crate) fn shadowed_forwards(&self, work: &mut usize) -> Shadowed {
        let forwards = self.spec.forwards.iter().zip(&self.forwards).zip(&self.forward_zones);
        let all: Vec<Vec<_>> = forwards
            .map(|((spec, services), (outside, hairpin))| {
                let destinations: Vec<_> =
                    spec.addresses.iter().filter_map(|to| IpRange::new(*to, *to).ok()).collect();
                let ports_of = destinations.is_empty().then_some(&outside[..]);
                let zones = outside.iter().chain(hairpin);
                let pieces = zones.flat_map(|zone| {
                    // As table 241 has it.
                    let sources: &[_] = if outside.contains(zone) { &spec.sources } else { &[] };
                    let all: Vec<_> = parts(services, sources, &destinations)
                        .filter(|part| part.v6 == spec.to.is_ipv6())
                        .map(|part| {
                            let kind = Kind { v6: part.v6, from: *zone, to: 0, ports_of };
                            (kind, part.of())
                        })
                        .collect();
                    all
                });
                pieces.collect()
            })
            .collect();
        find(&all, work)
    }

    /// Finds the translations of sources that never match.
    pub(crate) fn shadowed_snats(&self, work: &mut usize) -> Shadowed {
        let all: Vec<Vec<_>> = (self.spec.snats.iter().zip(&self.snats))
            .map(|(spec, zones)| {
                let pairs =
                    zones.from.iter().flat_map(|from| zones.to.iter().map(move |to| (*from, *to)));
                let pieces = pairs.flat_map(|(from, to)| {
                    let all: Vec<_> = parts(&[], &spec.sources, &spec.destinations)
                        .filter(|part| spec.addresses.is_none_or(|it| it.is_v6() == part.v6))
                        .map(|part| (Kind { v6: part.v6, from, to, ports_of: None }, part.of()))
                        .collect();
                    all
                });
                pieces.collect()
            })
            .collect();
        find(&all, work)
    }
}

/// Finds what never matches, of pieces of packets that each is for.
fn find(all: &[Vec<(Kind<'_>, Box4)>], work: &mut usize) -> Shadowed {
    let mut found = Shadowed::default();
    for (number, own) in all.iter().enumerate() {
        match covered(own, &all[..number], work) {
            Some(by) if !by.is_empty() => found.rules.push((number, by)),
            Some(_) => {}
            None => found.unchecked += 1,
        }
    }
    found
}

/// The earlier rules that together match all that a rule does; none if something is left of it,
/// `None` if that is too much work.
fn covered(
    own: &[(Kind<'_>, Box4)],
    earlier: &[Vec<(Kind<'_>, Box4)>],
    work: &mut usize,
) -> Option<Vec<usize>> {
    let mut left = own.to_vec();
    let mut by = Vec::new();
    for (number, cuts) in earlier.iter().enumerate() {
        let mut has_cut = false;
        for (kind, cut) in cuts {
            let mut rest = Vec::with_capacity(left.len());
            *work = work.checked_sub(left.len())?;
            for (of, piece) in left {
                match of.may_be(*kind) && piece.meets(cut) {
                    true => {
                        has_cut = true;
                        piece.without(cut, |piece| rest.push((of, piece)));
                    }
                    false => rest.push((of, piece)),
                }
            }
            if rest.len() > MAX_PIECES {
                return None;
            }
            left = rest;
        }
        if has_cut {
            by.push(number);
        }
        if left.is_empty() {
            return Some(by);
        }
    }
    Some(Vec::new())
}

impl Box4 {
    fn meets(&self, other: &Self) -> bool {
        self.0.iter().zip(other.0).all(|(a, b)| a.0 <= b.1 && b.0 <= a.1)
    }

    /// What is left without another box, in pieces. They meet.
    fn without(mut self, other: &Self, mut piece: impl FnMut(Self)) {
        for (at, (first, last)) in other.0.into_iter().enumerate() {
            let own = self.0[at];
            if own.0 < first {
                let mut below = self;
                below.0[at].1 = first - 1;
                piece(below);
            }
            if own.1 > last {
                let mut above = self;
                above.0[at].0 = last + 1;
                piece(above);
            }
            self.0[at] = (own.0.max(first), own.1.min(last));
        }
    }
}

impl Part {
    fn of(&self) -> Box4 {
        let one = |number: u8| (u128::from(number), u128::from(number));
        let all_ports = (0, u128::from(u16::MAX));
        let (protocol, port) = match self.service.map(Service::plain) {
            None => ((0, 255), all_ports),
            Some(Service::Protocol(protocol)) => (one(protocol), all_ports),
            // It is plain.
            Some(Service::Helped(_)) => (one(0), all_ports),
            Some(Service::Ports { protocol, first, last }) => {
                (one(protocol), (first.into(), last.into()))
            }
            Some(Service::Icmp { v4, v6 }) => {
                let (protocol, kind) = if self.v6 { (58, v6) } else { (1, v4) };
                match kind {
                    Some(Type::This(kind)) => (one(protocol), one(kind)),
                    _ => (one(protocol), all_ports),
                }
            }
        };
        let number = |address| match address {
            IpAddr::V4(address) => u128::from(address.to_bits()),
            IpAddr::V6(address) => address.to_bits(),
        };
        let all = if self.v6 { IpRange::ALL_V6 } else { IpRange::ALL_V4 };
        let range = |range: Option<IpRange>| {
            let range = range.unwrap_or(all);
            (number(range.first()), number(range.last()))
        };
        Box4([protocol, port, range(self.source), range(self.destination)])
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use api::FirewallAction;

    fn rule() -> impl Strategy<Value = Rule> {
        let range = || {
            proptest::option::of((0..4_u8, 0..4_u8)).prop_map(|ends| {
                let address = |last: u8| IpAddr::from([10, 0, 0, last]);
                let ends = ends.map(|(a, b)| IpRange::new(address(a.min(b)), address(a.max(b))));
                ends.and_then(Result::ok).into_iter().collect::<Vec<_>>()
            })
        };
        let service = prop_oneof![
            Just(None),
            (0..4_u16, 0..4_u16).prop_map(|(a, b)| {
                let (first, last) = (a.min(b), a.max(b));
                Some(Service::Ports { protocol: 6, first, last })
            }),
            Just(Some(Service::Ports { protocol: 17, first: 0, last: u16::MAX })),
            Just(Some(Service::Icmp { v4: Some(Type::This(2)), v6: None })),
        ];
        (service, range(), range()).prop_map(|(service, sources, destinations)| Rule {
            services: service.into_iter().collect(),
            sources,
            destinations,
            action: FirewallAction::Accept,
        })
    }

    proptest! {
        /// Every packet among few values is tried.
        #[test]
        fn a_rule_is_shadowed_if_no_packet_meets_it_first(
            rules in proptest::collection::vec(rule(), 1..8),
        ) {
            let found = shadowed(&rules, &mut usize::MAX.clone());
            prop_assert_eq!(found.unchecked, 0);
            let mut first = vec![false; rules.len()];
            for protocol in [1_u128, 6, 17, 99] {
                // Beyond what rules name, one value stands for all others.
                for port in 0..5_u128 {
                    for source in 0..5_u128 {
                        for destination in 0..5_u128 {
                            let base = u128::from(0x0a00_0000_u32);
                            let packet = [protocol, port, base + source, base + destination];
                            let is_in = |rule: &Rule| matches(rule).any(|part| {
                                let ranges = part.of().0;
                                let all = ranges.iter().zip(packet);
                                !part.v6 && all.into_iter().all(|(it, is)| it.0 <= is && is <= it.1)
                            });
                            if let Some(at) = rules.iter().position(is_in) {
                                first[at] = true;
                            }
                        }
                    }
                }
            }
            for (number, rule) in rules.iter().enumerate() {
                // Without addresses it is for IPv6 as well.
                let of_v6 = matches(rule).any(|part| part.v6);
                let covers_v6 = |rule: &&Rule| matches(rule).any(|part| part.v6);
                if of_v6 && rules[..number].iter().find(covers_v6).is_none() {
                    continue;
                }
                if of_v6 {
                    continue;
                }
                let is_found = found.rules.iter().any(|(at, _)| *at == number);
                prop_assert_eq!(is_found, !first[number], "rule {} of {:?}", number, rules);
            }
        }
    }

    #[test]
    fn several_rules_together_shadow_one() {
        let of = |first, last| Rule {
            services: vec![Service::Ports { protocol: 6, first, last }],
            sources: Vec::new(),
            destinations: Vec::new(),
            action: FirewallAction::Drop,
        };
        let rules = [of(1, 100), of(500, 600), of(90, 200), of(50, 150), of(200, 201)];
        let found = shadowed(&rules, &mut 1_000_000);
        assert_eq!(found.rules, [(3, vec![0, 2])]);
        let mut none = 3;
        assert!(shadowed(&rules, &mut none).unchecked > 0);
    }
}
