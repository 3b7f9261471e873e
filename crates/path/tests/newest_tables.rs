//! A packet that came after a change is judged by what the change made.

mod fixture;

use std::io::ErrorKind;
use std::mem;
use std::sync::Arc;

use fixture::*;
use io::memory::MemoryOptions;
use packet::{Batch, DropReason, LinkKind, Pool, Port, PortError, PortStatistics, Time};
use tables::{PortSpec, Publisher, Tables};
use wire::{IpPrefix, Mac, PortId, VrfId};

type Change = Box<dyn FnOnce(&mut Tables) + Send>;

/// A port that publishes one change each time that it is asked for packets: the worker has taken its
/// tables and does not have the packets yet.
struct ChangingPort {
    port: Box<dyn Port>,
    publisher: Publisher,
    /// The first is the last.
    changes: Vec<Change>,
    /// Whether it is lost when it has published the last.
    breaks: bool,
}

impl Port for ChangingPort {
    fn name(&self) -> &str {
        self.port.name()
    }

    fn link(&self) -> LinkKind {
        self.port.link()
    }

    fn mac(&self) -> Mac {
        self.port.mac()
    }

    fn mtu(&self) -> u16 {
        self.port.mtu()
    }

    fn receive(
        &mut self,
        now: Time,
        pool: &mut Pool,
        batch: &mut Batch,
    ) -> Result<usize, PortError> {
        let change = self.changes.pop();
        let is_lost = self.breaks && change.is_some() && self.changes.is_empty();
        if let Some(change) = change {
            let mut tables = Tables::clone(&self.publisher.current());
            change(&mut tables);
            self.publisher.publish(tables);
        }
        let count = self.port.receive(now, pool, batch)?;
        match is_lost {
            true => Err(PortError {
                port: self.name().to_owned(),
                what: "receive",
                source: ErrorKind::BrokenPipe.into(),
            }),
            false => Ok(count),
        }
    }

    fn transmit(&mut self, now: Time, pool: &mut Pool, batch: &mut Batch) -> Result<(), PortError> {
        self.port.transmit(now, pool, batch)
    }

    fn statistics(&self) -> &Arc<PortStatistics> {
        self.port.statistics()
    }
}

/// A gateway whose LAN port makes these changes.
fn gateway(tables: Tables, changes: Vec<Change>, breaks: bool) -> Gateway {
    let mut gateway = Gateway::new(tables);
    let publisher = mem::replace(&mut gateway.publisher, Publisher::new(Tables::new(1, 0)));
    let port = gateway.worker.detach(LAN).unwrap();
    gateway.worker.attach(LAN, Box::new(ChangingPort { port, publisher, changes, breaks }));
    gateway
}

fn up(id: PortId, up: bool) -> Change {
    Box::new(move |tables| {
        let spec = PortSpec { up, ..tables.port(id).unwrap().spec.clone() };
        tables.update_port(id, spec).unwrap();
    })
}

fn no_change() -> Change {
    Box::new(|_| ())
}

fn packet_out() -> Vec<u8> {
    udp("192.168.13.5", "198.51.100.9", (5000, 53), 10)
}

#[test]
fn tables_that_were_replaced_before_a_packet_came_do_not_judge_it() {
    let default: IpPrefix = prefix("0.0.0.0/0");
    let closing: Change = Box::new(move |tables| {
        tables.remove_route(VrfId::MAIN, default).unwrap();
    });
    let mut gateway = gateway(plain_tables(), vec![closing], false);
    gateway.receive(LAN, &packet_out());
    gateway.poll();
    assert_eq!(gateway.sent(WAN), [], "by the route that there was no more");
    assert_eq!(gateway.dropped(DropReason::NoRoute), 1);
    gateway.poll();
    gateway.assert_nothing_lost();
}

#[test]
fn a_port_that_has_come_up_meanwhile_loses_nothing() {
    let mut tables = plain_tables();
    up(LAN, false)(&mut tables);
    let mut gateway = gateway(tables, vec![up(LAN, true)], false);
    let packets: Vec<_> =
        (0..5).map(|number| udp("192.168.13.5", "198.51.100.9", (5000, 53), number)).collect();
    gateway.receive_all(LAN, packets.iter().map(Vec::as_slice));
    assert_eq!(gateway.sent(WAN), []);
    assert!(gateway.worker.has_put_off());
    // Not a round that found nothing, behind which a worker may sleep.
    assert_eq!(gateway.poll(), 5);
    assert!(!gateway.worker.has_put_off());
    let lengths: Vec<_> = gateway.sent(WAN).iter().map(|(_, packet)| packet.len()).collect();
    assert_eq!(lengths, [28, 29, 30, 31, 32]);
    assert_eq!(gateway.worker.statistics().received.read(), 5, "each once");
    gateway.assert_nothing_lost();
}

/// Changes that never end put off each packet once, and pass over no port.
#[test]
fn changes_without_end_hold_no_port_up() {
    let changes = (0..100).map(|_| no_change()).collect();
    let mut gateway = gateway(plain_tables(), changes, false);
    for round in 0..20 {
        gateway.receive(LAN, &packet_out());
        gateway.receive(WAN, &udp("198.51.100.9", "192.168.13.5", (53, 5000), 10));
        gateway.poll();
        assert_eq!(gateway.sent(WAN).len(), 1, "round {round}");
        assert_eq!(gateway.sent(LAN).len(), 1, "round {round}");
    }
    gateway.assert_nothing_lost();
}

#[test]
fn what_a_lost_port_had_received_is_counted() {
    let mut gateway = gateway(plain_tables(), vec![no_change()], true);
    let station = MemoryOptions::ethernet("", LAN).mac;
    assert!(gateway.lan.push(&frame(station, HOST_MAC, &packet_out())));
    let (lost, _) = gateway.worker.poll(gateway.now).unwrap_err();
    assert_eq!(lost, LAN);
    assert_eq!(gateway.worker.held(), 1);
    drop(gateway.worker.detach(LAN));
    assert_eq!(gateway.worker.held(), 0);
    assert_eq!(gateway.drops(), [("port_down", 1)]);
    gateway.poll();
    assert_eq!(gateway.sent(WAN), []);
}
