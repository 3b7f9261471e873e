//! What ends or changes a connection makes its own decisions void and no other's, in both directions
//! and in the caches of both workers.

use wire::PortId;

use crate::cached_of;
use crate::packets::{Peers, Sending};
use crate::twin::Twin;
use crate::world::Act;
use crate::world::acts::WITHOUT_POLICIES;

const WORKERS: usize = 2;
/// What begins at the first port is let out, and what answers it.
const TRACKED: usize = 2;
const INSIDE: PortId = PortId(2);
const OUTSIDE: PortId = PortId(3);
const HERE: &str = "10.1.0.5";
const THERE: &str = "10.3.0.5";

/// A connection by its port inside: three of UDP, and one of TCP.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Of {
    Udp(u16),
    Tcp,
}

const ALL: [Of; 4] = [Of::Udp(1000), Of::Udp(1001), Of::Udp(1002), Of::Tcp];

impl Of {
    /// A packet of each direction, as they may come again and again.
    fn packets(self) -> [Sending; 2] {
        match self {
            Self::Udp(port) => [
                Sending::udp(INSIDE, HERE, THERE, 20).with_ports(port, 53),
                Sending::udp(OUTSIDE, THERE, HERE, 20).with_ports(53, port),
            ],
            Self::Tcp => [
                Sending::tcp(INSIDE, HERE, THERE, 0x10).with_numbers([21, 21]),
                Sending::tcp(OUTSIDE, THERE, HERE, 0x10).with_numbers([21, 41]),
            ],
        }
    }
}

struct Bench {
    twin: Twin,
    peers: Peers,
}

impl Bench {
    /// Both workers have seen both directions of all connections, and know them.
    fn new() -> Self {
        let mut twin = cached_of(WORKERS, "large");
        twin.publish(&[Act::SetFlows(WITHOUT_POLICIES, TRACKED)]);
        let mut bench = Self { twin, peers: Peers::default() };
        let syn = Sending::tcp(INSIDE, HERE, THERE, 2);
        let answer = Sending::tcp(OUTSIDE, THERE, HERE, 0x12).with_numbers([0, 21]);
        bench.send(0, &syn);
        bench.send(1, &answer);
        for _ in 0..3 {
            ALL.iter().for_each(|of| _ = bench.decided(*of, 1));
        }
        assert_eq!((bench.twin.connections().len(), bench.twin.established()), (4, 1));
        ALL.iter().for_each(|of| assert_eq!(bench.decided(*of, 1), [[0; 2]; WORKERS], "{of:?}"));
        bench
    }

    /// How many frames leave when a worker gets it.
    fn send(&mut self, worker: usize, sending: &Sending) -> usize {
        let packets = sending.packets(&mut self.peers).into_iter();
        let packets: Vec<_> = packets.map(|packet| (sending.port, packet)).collect();
        self.twin.receive_by(0, &[(worker, &packets)]).frames().iter().map(Vec::len).sum()
    }

    /// How often each worker decides about packets of each direction; of each, so many leave.
    fn decided(&mut self, of: Of, leaving: usize) -> [[u64; 2]; WORKERS] {
        let mut counts = [[0; 2]; WORKERS];
        for (worker, counts) in counts.iter_mut().enumerate() {
            for (sending, count) in of.packets().iter().zip(counts) {
                let before = self.twin.decided(worker);
                assert_eq!(self.send(worker, sending), leaving, "{of:?} by worker {worker}");
                *count = self.twin.decided(worker) - before;
            }
        }
        counts
    }

    /// Where the connection is in the table.
    fn place(&self, of: Of) -> u32 {
        let is_it = |one: &conntrack::Connection| match of {
            Of::Udp(port) => one.original.source == port,
            Of::Tcp => one.original.protocol == wire::Protocol::TCP,
        };
        self.twin.connections().into_iter().find(is_it).unwrap().handle.index
    }

    /// That nobody decides about packets of any but this one.
    fn others_stay(&mut self, of: Of) {
        for other in ALL.into_iter().filter(|other| *other != of) {
            assert_eq!(self.decided(other, 1), [[0; 2]; WORKERS], "{other:?} beside {of:?}");
        }
    }
}

#[test]
fn a_mark_makes_its_own_connections_decisions_void() {
    for of in ALL {
        let mut bench = Bench::new();
        let place = bench.place(of);
        bench.twin.publish(&[Act::SetConnectionMark(place, 1)]);
        bench.others_stay(of);
        let counts = bench.decided(of, 1);
        assert!(counts.as_flattened().iter().all(|count| *count > 0), "{of:?}: {counts:?}");
        // Once each.
        assert_eq!(bench.decided(of, 1), [[0; 2]; WORKERS]);
        bench.others_stay(of);
    }
}

#[test]
fn the_end_of_a_connection_makes_its_own_decisions_void() {
    for of in ALL {
        let mut bench = Bench::new();
        let place = bench.place(of);
        bench.twin.publish(&[Act::RemoveConnection(place)]);
        bench.others_stay(of);
        is_gone(&mut bench, of);
        bench.others_stay(of);
    }
}

#[test]
fn a_connection_that_expires_makes_its_own_decisions_void() {
    for of in [Of::Udp(1001), Of::Udp(1002)] {
        let mut bench = Bench::new();
        // Longer than a stream may be unused; the others are used meanwhile.
        for _ in 0..14 {
            bench.twin.receive(10_000, &[]);
            bench.others_stay(of);
        }
        is_gone(&mut bench, of);
        bench.others_stay(of);
    }
}

/// That a connection is not there any more: no decision about its packets is used again.
fn is_gone(bench: &mut Bench, of: Of) {
    let there = bench.twin.connections();
    assert_eq!(there.len(), ALL.len() - 1);
    let [_, back] = of.packets();
    for worker in 0..WORKERS {
        let before = bench.twin.decided(worker);
        assert_eq!(bench.send(worker, &back), 0, "{of:?} by worker {worker}");
        assert!(bench.twin.decided(worker) > before, "{of:?} by worker {worker}");
    }
    // The other direction opens it anew on one worker, of which the other learns.
    let out = match of {
        Of::Udp(_) => of.packets()[0].clone(),
        Of::Tcp => Sending::tcp(INSIDE, HERE, THERE, 2),
    };
    for worker in 0..WORKERS {
        let before = bench.twin.decided(worker);
        assert_eq!(bench.send(worker, &out), 1, "{of:?} by worker {worker}");
        assert!(bench.twin.decided(worker) > before, "{of:?} by worker {worker}");
    }
    assert_eq!(bench.twin.connections().len(), ALL.len());
}
