//! More combinations of filter rules than a worker has places for, one after the other and at once.

mod fixture;

use std::time::Duration;

use fixture::*;
use flow::{CacheMode, CacheSettings, CacheTable};
use tables::{
    FieldsSelector, FilterAction, FilterHook, FilterMatch, FilterPlace, FilterSpec, FilterTarget,
    FilterVerdict, MarkBits, RejectWith, Selector, UpperSelector,
};
use wire::{IpRange, PortRange, Protocol, VrfId};

/// Rules in each of the four places that a packet meets: so many to the fourth are the
/// combinations, and each flow has one.
const RULES: u32 = 16;
const FLOWS: u32 = RULES.pow(4);

/// What a worker has places for.
const PLACES: u64 = 16_384;

fn place(of: usize) -> FilterPlace {
    let (target, hook) = [
        (FilterTarget::Port(LAN), FilterHook::Ingress),
        (FilterTarget::Vrf(VrfId::MAIN), FilterHook::Ingress),
        (FilterTarget::Vrf(VrfId::MAIN), FilterHook::Egress),
        (FilterTarget::Port(WAN), FilterHook::Egress),
    ][of];
    FilterPlace { target, hook }
}

/// The rule number `rule` of a place: by source port, destination port, destination and source.
fn rule(of: usize, rule: u32) -> FilterSpec {
    let range = |first: u32| PortRange::new(first as u16, first as u16 + 0xfff).unwrap();
    let mut selector = Selector {
        source: IpRange::ALL_V4,
        destination: IpRange::ALL_V4,
        protocol: Some(Protocol::UDP),
        upper: UpperSelector::Any,
        fields: FieldsSelector::ANY,
    };
    let ports = |source, destination| UpperSelector::Ports { source, destination };
    match of {
        0 => selector.upper = ports(range(rule << 12), PortRange::ALL),
        1 => selector.upper = ports(PortRange::ALL, range(rule << 12)),
        2 => selector.destination = range_of(&format!("10.{rule}.0.0/16")),
        _ => selector.source = range_of(&format!("192.168.13.{}/28", rule << 4)),
    }
    FilterSpec {
        place: place(of),
        preference: rule + 1,
        selects: FilterMatch { v4: Some(selector), v6: None, mark: MarkBits::default() },
        action: FilterAction {
            verdict: FilterVerdict::Pass,
            reject_with: RejectWith::AdminProhibited,
            set_mark: None,
            log: false,
        },
    }
}

fn range_of(text: &str) -> IpRange {
    range(text)
}

/// The numbers of the rules that a flow meets.
fn rules(flow: u32) -> [u32; 4] {
    [0, 4, 8, 12].map(|shift| flow >> shift & 0xf)
}

fn packet(flow: u32) -> Vec<u8> {
    let [source_port, destination_port, destination, source] = rules(flow);
    let (source, destination) =
        (format!("192.168.13.{}", (source << 4) + 5), format!("10.{destination}.0.1"));
    udp(&source, &destination, ((source_port << 12) as u16 + 7, (destination_port << 12) as u16), 8)
}

fn gateway(buckets: u32) -> Gateway {
    let mut tables = plain_tables();
    for of in 0..4 {
        (0..RULES).for_each(|number| tables.set_filter_rule(rule(of, number)).unwrap());
    }
    let settings = CacheSettings { mode: CacheMode::On, buckets, ..CacheSettings::default() };
    Gateway::with_caches(tables, [settings; 4], 7)
}

struct Traffic {
    gateway: Gateway,
    /// By place and rule.
    expected: [[u64; RULES as usize]; 4],
}

impl Traffic {
    fn new(buckets: u32) -> Self {
        Self { gateway: gateway(buckets), expected: Default::default() }
    }

    /// Sends a packet of a flow. Returns whether its decision was in the cache.
    fn send(&mut self, flow: u32) -> bool {
        let hits = self.hits();
        self.gateway.now = self.gateway.now + Duration::from_millis(1);
        self.gateway.receive(LAN, &packet(flow));
        for (counts, rule) in self.expected.iter_mut().zip(rules(flow)) {
            counts[rule as usize] += 1;
        }
        assert_eq!(self.gateway.sent(WAN).len(), 1, "{:?}", self.gateway.drops());
        self.hits() > hits
    }

    fn hits(&self) -> u64 {
        self.gateway.cache(CacheTable::V4Outbound).hits.read()
    }

    fn not_kept(&self) -> u64 {
        self.gateway.worker.statistics().features_not_kept.read()
    }

    /// Every packet was counted by the rules that it met and by no other.
    fn judge(&self) {
        let tables = self.gateway.publisher.current();
        for (of, counts) in self.expected.iter().enumerate() {
            for (number, count) in (0..).zip(counts) {
                let rule = tables.filter(place(of)).unwrap().rule(number + 1).unwrap();
                assert_eq!(rule.counters.read().0, *count, "rule {number} of place {of}");
            }
        }
        self.gateway.assert_nothing_lost();
    }
}

#[test]
fn places_are_given_back_as_flows_come_and_go() {
    let mut traffic = Traffic::new(2048);
    for flow in 0..FLOWS {
        traffic.send(flow);
        // A packet that comes at once finds the decision, or, where its set was full, the next does.
        let found = traffic.send(flow) || traffic.send(flow);
        assert!(found, "flow {flow}");
    }
    assert_eq!(traffic.not_kept(), 0);
    traffic.judge();
}

#[test]
fn places_are_given_back_as_rules_change() {
    // Nothing gives way in it.
    let mut traffic = Traffic::new(4 * FLOWS);
    for flow in 0..FLOWS {
        traffic.send(flow);
        assert!(traffic.send(flow), "flow {flow}");
        if flow % 4096 == 4095 {
            // A rule that comes and goes concerns all flows so far.
            let all = FilterSpec { preference: 0, ..rule(0, 0) };
            let selects = FilterMatch {
                v4: all.selects.v4.map(|selector| Selector {
                    upper: UpperSelector::Any,
                    fields: FieldsSelector::ANY,
                    ..selector
                }),
                ..all.selects
            };
            let all = FilterSpec { selects, ..all };
            traffic.gateway.change(|tables| tables.set_filter_rule(all).unwrap());
            traffic.gateway.poll();
            traffic.gateway.change(|tables| {
                tables.remove_filter_rule(all.place, all.preference).unwrap();
            });
        }
    }
    assert_eq!(traffic.not_kept(), 0);
    traffic.judge();
}

#[test]
fn what_has_no_place_is_decided_for_each_packet() {
    let mut traffic = Traffic::new(4 * FLOWS);
    let flows = PLACES as u32 + 1000;
    (0..flows).for_each(|flow| _ = traffic.send(flow));
    // A few find their set of the cache full.
    assert!((950..=1000).contains(&traffic.not_kept()), "{}", traffic.not_kept());
    let found = (0..flows).filter(|flow| traffic.send(*flow)).count() as u64;
    assert!((PLACES - 50..=PLACES + 50).contains(&found), "{found}");
    let not_kept = traffic.not_kept();
    assert!(not_kept > 1900);
    traffic.judge();
    // Every sixteenth flow may be concerned by a new rule.
    traffic.gateway.change(|tables| {
        tables.set_filter_rule(FilterSpec { preference: 100, ..rule(0, 3) }).unwrap();
    });
    for _ in 0..5000 {
        traffic.gateway.wait(Duration::from_millis(1));
    }
    // So there are places for those that had none.
    let last = PLACES as u32..flows;
    last.clone().for_each(|flow| _ = traffic.send(flow));
    let found = last.filter(|flow| traffic.send(*flow)).count();
    assert!(found > 990, "{found}");
    assert_eq!(traffic.not_kept(), not_kept);
    traffic.judge();
}
