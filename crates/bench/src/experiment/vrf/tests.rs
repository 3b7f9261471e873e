use clap::{Args, FromArgMatches, ValueEnum};
use packet::DropReason;
use tables::{FilterHook, FilterPlace, FilterTarget, QdiscDevice};
use wire::VrfId;

use super::*;
use crate::measure::Meter;
use crate::topology::{IN, OUT};

fn options(line: &str) -> Options {
    let command = Options::augment_args(clap::Command::new("vrf").no_binary_name(true));
    let matches = command.try_get_matches_from(line.split_whitespace()).expect(line);
    Options::from_arg_matches(&matches).unwrap()
}

fn device(shape: Shape, family: Family, cache: Mode, flows: u32) -> Device {
    let caches = device::caches(family, cache.mode(), 1 << 10);
    Device::new(shape.workload(family, flows, 4), caches, count::steady_ticks).unwrap()
}

/// Packets that the worker has taken in, forwarded, and dropped.
fn counted(device: &Device) -> (u64, u64, u64) {
    let statistics = device.worker().statistics();
    (statistics.received.read(), statistics.forwarded.read(), statistics.drops.total())
}

fn rounds(device: &mut Device, count: u64) {
    let meter = Meter::new();
    let mut stopwatch = meter.stopwatch();
    for _ in 0..count {
        device.round(&mut stopwatch).unwrap();
    }
}

#[test]
fn every_gateway_forwards_every_packet_both_ways() {
    for family in [Family::V4, Family::V6] {
        for &shape in Shape::value_variants() {
            for &cache in Mode::value_variants() {
                let mut device = device(shape, family, cache, 20);
                for &configuration in Configuration::value_variants() {
                    // The same worker becomes one after the other, and back.
                    for setup in &setup::pair(family, configuration, 10).unwrap() {
                        let (sent, before) = (device.sent, counted(&device));
                        device.become_like(setup, &Meter::new()).unwrap();
                        rounds(&mut device, 8);
                        let sent = [device.sent[0] - sent[0], device.sent[1] - sent[1]];
                        let now = counted(&device);
                        // By the detour, each packet comes in and is forwarded twice.
                        let times = if setup.has_loop { 2 } else { 1 };
                        let packets = times * (sent[0] + sent[1]);
                        assert_eq!(
                            (now.0 - before.0, now.1 - before.1, now.2),
                            (packets, packets, 0),
                            "{configuration:?} {family:?} {shape:?}"
                        );
                        let has_other = configuration.has_other();
                        assert_eq!((sent[1] > 0, setup.has_other), (has_other, has_other));
                    }
                }
            }
        }
    }
}

#[test]
fn the_detour_takes_two_lookups_in_two_vrfs() {
    for family in [Family::V4, Family::V6] {
        let lookups = |setup: &Setup| {
            let mut device = device(Shape::TcpStream, family, Mode::On, 10);
            device.become_like(setup, &Meter::new()).unwrap();
            let (before, sent) = (device.lookups(), device.sent[0]);
            rounds(&mut device, 4);
            let looked_up = device.lookups().since(before);
            (looked_up.packets, looked_up.hits, device.sent[0] - sent)
        };
        let [without, with] = setup::pair(family, Configuration::Detour, 10).unwrap();
        let (looked_up, hits, sent) = lookups(&without);
        assert_eq!((looked_up, hits), (sent, sent));
        let (looked_up, hits, sent) = lookups(&with);
        assert_eq!((looked_up, hits), (2 * sent, 2 * sent));
        // Neither VRF knows the way alone, and `main` knows none.
        assert_eq!(with.tables.vrf(VrfId::MAIN).unwrap().route_count(), 0);
        let ports = [IN, OUT].map(|id| with.tables.port(id).unwrap().spec.vrf);
        assert_ne!(ports[0], ports[1]);
    }
}

#[test]
fn features_are_met_by_every_packet_of_their_vrf_and_by_no_other() {
    let family = Family::V4;
    for configuration in [
        Configuration::Defaults,
        Configuration::Qdisc,
        Configuration::Filter,
        Configuration::Tap,
        Configuration::All,
        Configuration::Others,
        Configuration::OthersSilent,
    ] {
        let [_, with] = setup::pair(family, configuration, 10).unwrap();
        let mut device = device(Shape::UdpStream, family, Mode::On, 10);
        device.become_like(&with, &Meter::new()).unwrap();
        rounds(&mut device, 8);
        let [first, second] = device.sent;
        let is = |of| configuration == of || configuration == Configuration::All;
        // Others: what the second tenant sends alone.
        let met = |of| match configuration {
            Configuration::Others => second,
            _ if is(of) => first,
            _ => 0,
        };
        let vrfs: Vec<VrfId> = with.tables.vrfs().map(|vrf| vrf.id).collect();
        let queued: u64 = vrfs
            .iter()
            .filter_map(|vrf| with.tables.qdiscs().on(QdiscDevice::Vrf(*vrf)))
            .map(|placed| placed.root.counters.packets.read())
            .sum();
        for hook in [FilterHook::Ingress, FilterHook::Egress] {
            let places =
                vrfs.iter().map(|vrf| FilterPlace { target: FilterTarget::Vrf(*vrf), hook });
            let filtered: u64 = places
                .filter_map(|place| with.tables.filter(place))
                .flat_map(|filter| filter.rules())
                .map(|rule| rule.counters.read().0)
                .sum();
            assert_eq!(filtered, met(Configuration::Filter), "{configuration:?} {hook:?}");
        }
        assert_eq!(second > 0, configuration.has_other());
        assert_eq!(queued, met(Configuration::Qdisc), "{configuration:?}");
        // As it came, and as it left.
        assert_eq!(device.copied, 2 * met(Configuration::Tap), "{configuration:?}");
        assert!(with.tables.taps().all(|tap| tap.meter.lost() == 0), "{configuration:?}");
    }
}

#[test]
fn a_lost_packet_ends_the_bench_with_the_reason() {
    let [_, mut with] = setup::pair(Family::V4, Configuration::Defaults, 10).unwrap();
    let route = with.layout.prefix(Family::V4, layout::Side::Server, 0, 3);
    let vrf = with.tables.port(IN).unwrap().spec.vrf;
    with.tables.remove_route(vrf, route).unwrap();
    let mut device = device(Shape::TcpRr, Family::V4, Mode::Off, 20);
    let error = device.become_like(&with, &Meter::new()).unwrap_err().to_string();
    assert!(error.contains("of 1 packets from clients 0 came out"), "{error}");
    assert!(error.contains(DropReason::NoRoute.name()), "{error}");
}

#[test]
fn flows_are_spread_over_all_vrfs_and_vlans() {
    for family in [Family::V4, Family::V6] {
        let [one, many] = setup::one_and_many(family, 30, 10).unwrap();
        let [single, vlans] = setup::vlans(family, 30).unwrap();
        for (setup, vrfs, links) in
            [(&one, 1, 30), (&many, 30, 30), (&single, 1, 1), (&vlans, 1, 30)]
        {
            let mut device = device(Shape::TcpStream, family, Mode::On, 120);
            device.become_like(setup, &Meter::new()).unwrap();
            rounds(&mut device, 4);
            assert_eq!(counted(&device), (device.sent[0], device.sent[0], 0));
            let busy: Vec<VrfId> = (1..=30)
                .filter_map(|vlan| {
                    let id = layout::Layout::port(layout::Side::Server, Some(vlan));
                    let port = setup.tables.port(id)?;
                    let counters = setup.tables.port_counters(port.id)?;
                    let is_busy = counters.sent().0 > 0 && counters.received().0 > 0;
                    is_busy.then_some(port.spec.vrf)
                })
                .collect();
            let distinct: std::collections::BTreeSet<VrfId> = busy.iter().copied().collect();
            assert_eq!((busy.len(), distinct.len()), (links, vrfs));
        }
        // As many next hops with one VRF or VLAN as with many: runs of packets have one in common. Where
        // routes are many, half of them lead to another station of their link.
        let next_hops = |setup: &Setup| {
            let used = setup.tables.next_hops().map(|(id, _)| setup.tables.next_hop_counters(id));
            used.flatten().filter(|counters| counters.read().0 > 0).count()
        };
        assert_eq!([&one, &many, &single, &vlans].map(next_hops), [120, 120, 60, 60]);
        // As many routes in one as in all of the many together, and 10 in each of these.
        let tenants_routes = |setup: &Setup| 2 * setup.layout.half * setup.layout.tenants;
        assert_eq!((tenants_routes(&one), tenants_routes(&many)), (300, 300));
    }
}

#[test]
fn there_is_a_row_for_everything_that_is_asked_for() {
    let options = options(
        "--traffic tcp-rr,udp-stream --families ipv6 --cache off,auto --vrfs 3 --vlans 5 \
         --many-flows 20 --flows 10 --routes 10 --pairs 3 --instructions none",
    );
    let rows = run(&Context::tiny(), &options).unwrap();
    assert_eq!(rows.len(), 2 * 2 * (9 + 2));
    let rows: Vec<&Row> = rows.iter().collect();
    for row in &rows {
        let found = |what| row.found(what).unwrap();
        assert!(found("speed_low") <= found("speed") && found("speed") <= found("speed_high"));
        assert!(row.cost.cycles_per_packet > 0.0);
        assert_eq!(row.cost.hit_ratio.is_some(), row.text("cache") == "auto", "{row:?}");
    }
    let targets = targets(&rows);
    assert_eq!(targets.len(), 2 * 2 * (3 + 2));
    // Three pairs are no verdict.
    assert!(targets.iter().all(|target| !target.reached && target.what.contains("too few pairs")));
    let text = render(&rows);
    for part in ["Linux, before", "90-95", "97-100", "3 VRFs", "5 VLANs", "udp-stream ipv6"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let names: Vec<String> = charts(&rows).into_iter().map(|chart| chart.name).collect();
    let expected = ["vrf-features-off", "vrf-many-off", "vrf-features-auto", "vrf-many-auto"];
    assert_eq!(names, expected);
}

#[test]
fn what_is_counted_by_itself_is_the_row_that_is_meant() {
    let context = Context::tiny();
    for line in [
        "--only this --rows features --configurations detour --traffic tcp-rr --flows 4 --cache on",
        "--only base --rows vrfs --vrfs 3 --routes 4 --traffic udp-stream --many-flows 9 --cache auto",
    ] {
        assert!(run(&context, &options(line)).unwrap().is_empty());
    }
    let nothing = options("--only base --rows vlans --vlans 3 --many-flows 3 --cache off");
    assert!(run(&context, &nothing).is_ok());
}
