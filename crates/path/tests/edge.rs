//! Packets above the edge of a replay window: they wait until it is moved, and lose nothing.

mod fixture;

use std::sync::Arc;
use std::time::Duration;

use esp::{OutboundSa, ReplayWindow, WindowSize};
use fixture::*;
use packet::DropReason;
use tables::{Event, Sa, Tables};
use wire::{Spi, VrfId};

const ME: &str = "192.168.11.2";
const PEER: &str = "192.168.11.1";
const SPI: u32 = 0x1002;
const SOON: Duration = Duration::from_micros(500);

/// A gateway whose inbound SA has a window of 64 with an edge, and the peer's end of it.
struct Edge {
    gateway: Gateway,
    window: Arc<ReplayWindow>,
    peer: OutboundSa,
    payload: u16,
}

impl Edge {
    fn new(edge: u32) -> Self {
        let size = WindowSize::new(64).unwrap();
        let window = Arc::new(ReplayWindow::with_edge(size, 0, edge, 7));
        let mut tables = tunnel_tables((ME, PEER), false);
        replace(&mut tables, &window);
        let (gateway, peer) = (Gateway::new(tables), peer_outbound(SPI, false));
        Self { gateway, window, peer, payload: 0 }
    }

    /// The peer's next packet: its source port says which one it is.
    fn next(&mut self) -> Vec<u8> {
        self.payload += 1;
        let inner = udp("192.168.12.7", "192.168.13.5", (self.payload, 5000), 20);
        seal(&self.peer, PEER, ME, &inner)
    }

    fn receive(&mut self, count: u16) {
        for _ in 0..count {
            let packet = self.next();
            self.gateway.receive(WAN, &packet);
        }
    }

    /// Which ones left since this was last asked.
    fn left(&mut self) -> Vec<u16> {
        let sent = self.gateway.sent(LAN);
        sent.iter().map(|(_, packet)| u16::from_be_bytes([packet[20], packet[21]])).collect()
    }

    /// How often it was asked for another edge since this was last asked.
    fn asked(&mut self) -> usize {
        let events = std::iter::from_fn(|| self.gateway.events.pop().ok());
        events.filter(|event| matches!(event, Event::SequenceNumbers { place: 7 })).count()
    }

    /// Packets and errors of the SA.
    fn counted(&self) -> (u64, u64) {
        let sa = sa(&self.gateway);
        (sa.counters.read().0, sa.errors.read().0)
    }
}

fn replace(tables: &mut Tables, window: &Arc<ReplayWindow>) {
    remove(tables);
    add_sa_with(tables, (PEER, ME), SPI, false, Arc::clone(window));
}

fn remove(tables: &mut Tables) {
    tables.remove_sa(VrfId::MAIN, ip(ME), Spi(SPI)).unwrap();
}

/// The inbound SA.
fn sa(gateway: &Gateway) -> Arc<Sa> {
    let tables = gateway.publisher.current();
    let sa = tables.sad().inbound(VrfId::MAIN, ip(ME), Spi(SPI)).unwrap();
    Arc::clone(sa)
}

#[test]
fn a_burst_waits_and_goes_on_in_order() {
    let mut edge = Edge::new(10);
    edge.receive(500);
    assert_eq!((edge.left(), edge.asked()), ((1..=10).collect(), 1));
    assert_eq!((edge.counted(), edge.gateway.worker.held()), ((10, 0), 490));
    assert!(edge.gateway.worker.next_deadline().is_some_and(|due| due <= edge.gateway.now + SOON));
    edge.gateway.wait(SOON);
    assert_eq!((edge.left(), edge.asked()), (Vec::new(), 0));
    // Some of them may go on: another edge is asked for at once, though nothing more comes.
    edge.window.move_edge(300);
    edge.gateway.wait(SOON);
    assert_eq!((edge.left(), edge.asked()), ((11..=300).collect(), 1));
    // What comes now may not overtake them, though its number were fine.
    edge.gateway.assert_nothing_lost();
    edge.window.move_edge(9000);
    edge.receive(3);
    assert_eq!((edge.left(), edge.gateway.worker.held()), (Vec::new(), 203));
    edge.gateway.wait(SOON);
    assert_eq!(edge.left(), (301..=503).collect::<Vec<_>>());
    assert_eq!((edge.counted(), edge.gateway.drops()), ((503, 0), Vec::new()));
    assert_eq!(edge.window.authentic(), 503);
    edge.gateway.assert_nothing_lost();
}

#[test]
fn what_comes_behind_in_one_round_does_not_overtake() {
    let mut edge = Edge::new(1);
    edge.receive(200);
    assert_eq!(edge.left(), [1]);
    // The edge is moved while a batch is under way: what waits has gone on already, or all wait.
    let behind = edge.next();
    let sa = sa(&edge.gateway);
    edge.window.move_edge(9000);
    let mut buffer = behind;
    let length = buffer.len() - 20;
    let mut jobs = [esp::OpenJob::new(&mut buffer, 20, length)];
    sa.inbound.open_behind(&mut jobs);
    assert_eq!((jobs[0].result, jobs[0].sequence), (Err(esp::OpenError::Unstored), 201));
    assert_eq!((edge.window.top(), edge.window.wanted(), edge.window.authentic()), (1, 201, 201));
    edge.gateway.wait(SOON);
    assert_eq!(edge.left(), (2..=200).collect::<Vec<_>>());
}

#[test]
fn what_waits_is_bounded_in_number_and_time() {
    let mut edge = Edge::new(1);
    edge.receive(1 + 1024 + 76);
    assert_eq!(edge.gateway.worker.held(), 1024);
    assert_eq!(edge.gateway.dropped(DropReason::EspSequenceUnstored), 76);
    edge.gateway.wait(Duration::from_millis(999));
    assert_eq!(edge.gateway.worker.held(), 1024);
    edge.gateway.wait(Duration::from_millis(1));
    assert_eq!((edge.left(), edge.gateway.worker.held()), (vec![1], 0));
    assert_eq!(edge.gateway.dropped(DropReason::EspSequenceUnstored), 1100);
    assert_eq!((edge.counted(), edge.gateway.worker.next_deadline()), ((1, 1100), None));
    edge.gateway.assert_nothing_lost();
}

#[test]
fn a_packet_that_comes_twice_while_it_waits_is_accepted_once() {
    let mut edge = Edge::new(1);
    edge.receive(1);
    let packet = edge.next();
    for _ in 0..3 {
        edge.gateway.receive(WAN, &packet);
    }
    // Whoever copies packets takes no room, and makes no rate.
    assert_eq!(edge.gateway.dropped(DropReason::EspReplayed), 2);
    assert_eq!((edge.gateway.worker.held(), edge.window.authentic()), (1, 2));
    edge.window.move_edge(100);
    edge.gateway.wait(SOON);
    assert_eq!((edge.left(), edge.counted()), (vec![1, 2], (2, 2)));
    edge.gateway.assert_nothing_lost();
}

#[test]
fn what_waits_goes_with_its_sa() {
    let mut edge = Edge::new(1);
    edge.receive(5);
    edge.gateway.change(remove);
    edge.gateway.wait(SOON);
    assert_eq!(edge.gateway.dropped(DropReason::EspNoSa), 4);
    // Another SA with the same SPI has nothing to do with it.
    let mut edge = Edge::new(1);
    edge.receive(5);
    let size = WindowSize::new(64).unwrap();
    let other = Arc::new(ReplayWindow::with_edge(size, 0, 9000, 8));
    edge.gateway.change(|tables| replace(tables, &other));
    edge.window.move_edge(9000);
    edge.gateway.wait(SOON);
    assert_eq!((edge.left(), edge.gateway.dropped(DropReason::EspNoSa)), (vec![1], 4));
    edge.gateway.assert_nothing_lost();
}
