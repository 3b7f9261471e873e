//! What flows count: exactly what they matched, however busy the worker is.

mod fixture;
#[path = "fixture/flows.rs"]
mod flows;

use fixture::*;
use packet::{BATCH, Time};
use pipeline::{Change, FlowId, Pipeline};

const HERE: &str = "192.168.13.5";
const THERE: &str = "192.168.12.7";

/// Packets to four ports, each of which has a flow in either table; all leave by one next hop.
const SERVICES: &str = "
    priority=1,actions=drop
    udp,tp_dst=1,actions=goto_table:1
    udp,tp_dst=2,actions=goto_table:1
    udp,tp_dst=3,actions=goto_table:1
    udp,tp_dst=4,actions=goto_table:1
    table=1,priority=4,udp,tp_dst=1,actions=NORMAL
    table=1,priority=3,udp,tp_dst=2,actions=NORMAL
    table=1,priority=2,udp,tp_dst=3,actions=NORMAL
    table=1,priority=1,udp,tp_dst=4,actions=NORMAL";

/// A full batch, so that the worker takes itself for busy.
fn full_batch(gateway: &mut Gateway) {
    let to = |port| udp(HERE, THERE, (5000, port), usize::from(port));
    let packets: Vec<_> = (0..BATCH as u16).map(|number| to(1 + number % 4)).collect();
    gateway.receive_all(LAN, packets.iter().map(Vec::as_slice));
    assert_eq!(gateway.sent(WAN).len(), BATCH);
}

/// Numbers of the flows, and the packets and bytes that each has counted, by table and priority.
fn counted(gateway: &Gateway) -> Vec<(FlowId, u64, u64)> {
    let tables = gateway.publisher.current();
    let of = |id| tables.flow_meter(id).unwrap().counters.read();
    let sorted = tables.pipeline().sorted().into_iter();
    sorted
        .map(|entry| {
            let (packets, bytes) = of(entry.id);
            (entry.id, packets, bytes)
        })
        .collect()
}

/// In one run there are packets of many lists of flows, and each list counts its own.
#[test]
fn packets_of_one_run_count_for_their_own_flows() {
    let mut gateway = flows::gateway(SERVICES);
    for _ in 0..5 {
        full_batch(&mut gateway);
    }
    // A worker with time to spare has counted everything.
    gateway.poll();
    let each = 5 * BATCH as u64 / 4;
    let counted = counted(&gateway);
    assert_eq!(counted.len(), 9);
    let of_drop = counted.iter().filter(|(_, packets, _)| *packets == 0).count();
    assert_eq!(of_drop, 1);
    for (_, packets, _) in counted.iter().filter(|(_, packets, _)| *packets > 0) {
        assert_eq!(*packets, each);
    }
    // Table 1 is in the order of the ports.
    let bytes: Vec<_> = counted[5..].iter().map(|(_, _, bytes)| *bytes).collect();
    assert_eq!(bytes, [1, 2, 3, 4].map(|payload| (28 + payload) * each));
}

/// A worker that is busy all the time puts counting off, but not for ever.
#[test]
fn a_busy_worker_counts_now_and_then() {
    let mut gateway = flows::gateway(SERVICES);
    let rounds = 130;
    for _ in 0..rounds {
        full_batch(&mut gateway);
    }
    let each = rounds * BATCH as u64 / 4;
    let packets: Vec<_> = counted(&gateway)[5..].iter().map(|(_, packets, _)| *packets).collect();
    assert!(packets.iter().all(|packets| *packets >= each / 2 && *packets <= each), "{packets:?}");
    gateway.poll();
    assert!(counted(&gateway)[5..].iter().all(|(_, packets, _)| *packets == each));
}

/// A flow that goes has counted what was put off when its worker learns of it.
#[test]
fn what_was_put_off_counts_for_flows_that_are_gone() {
    let mut gateway = flows::gateway(SERVICES);
    for _ in 0..3 {
        full_batch(&mut gateway);
    }
    let before = gateway.publisher.current();
    gateway.change(|tables| tables.set_pipeline(Pipeline::new(), Time(2_000_000_000)).unwrap());
    gateway.poll();
    for entry in before.pipeline().sorted() {
        let meter = before.flow_meter(entry.id).unwrap();
        let is_of_drop = entry.flow.actions.is_empty();
        let wanted = if is_of_drop { 0 } else { 3 * BATCH as u64 / 4 };
        assert_eq!(meter.counters.read().0, wanted);
        let used = if is_of_drop { meter.created } else { gateway.now };
        assert_eq!(meter.used(), used);
    }
}

/// And its number may be another flow's by then.
#[test]
fn what_was_put_off_does_not_count_for_flows_that_come() {
    let mut gateway = flows::gateway(SERVICES);
    full_batch(&mut gateway);
    let flows = flows::tables("priority=7,udp,actions=NORMAL");
    let mut pipeline = Pipeline::new();
    for entry in flows.pipeline().sorted() {
        let (flow, owner) = (entry.flow.clone(), pipeline::Owner::User);
        pipeline.apply(Change::Add { flow, check_overlap: false }, owner).unwrap();
    }
    gateway.change(|tables| {
        tables.set_pipeline(Pipeline::new(), Time(2_000_000_000)).unwrap();
        tables.set_pipeline(pipeline, Time(2_000_000_000)).unwrap();
    });
    gateway.poll();
    assert_eq!(counted(&gateway).iter().map(|it| it.1).collect::<Vec<_>>(), [0]);
}
