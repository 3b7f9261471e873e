use io::af_packet::{self, AfPacketOptions};
use io::interface::Interface;
use io::tap::{TapOptions, TapPort, open};
use packet::{Batch, Pool, Port, Time};
use wire::{Mac, PortId};

use crate::forwarder::Forwarder;
use crate::namespaces::{Namespace, allowed};
use crate::traffic;

fn tap(namespace: &Namespace, name: &str) -> TapPort {
    namespace.enter(|| open(&TapOptions::new(name, PortId(0))).unwrap().pop().unwrap())
}

#[test]
fn hosts_behind_two_taps_reach_each_other() {
    if !allowed("tap ping") {
        return;
    }
    let (one, two) = (Namespace::new(), Namespace::new());
    let (left, right) = (tap(&one, "tap0"), tap(&two, "tap0"));
    for (host, last) in [(&one, 1), (&two, 2)] {
        host.ip(&format!("addr add 10.9.1.{last}/24 dev tap0"));
        host.ip(&format!("addr add fd09:1::{last}/64 dev tap0 nodad"));
    }
    let forwarder = Forwarder::start([Box::new(left), Box::new(right)]);
    one.exec("ping -c 3 -i 0.2 -W 2 10.9.1.2");
    one.exec("ping -c 3 -i 0.2 -W 2 fd09:1::2");
    let rate = traffic::tcp(&one, &two, "10.9.1.2".parse().unwrap(), 10_000_000);
    println!("TCP between taps: {rate:.0} Mbit/s");
    traffic::tcp(&two, &one, "fd09:1::1".parse().unwrap(), 1_000_000);
    traffic::udp_segments(&one, &two, "10.9.1.2".parse().unwrap(), 1200, 10, 5);
    for statistics in &forwarder.statistics {
        assert!(statistics.rx_packets.read() > 0 && statistics.tx_packets.read() > 0);
        assert_eq!((statistics.rx_errors.read(), statistics.tx_errors.read()), (0, 0));
        assert_eq!(
            (statistics.rx_segmented.read(), statistics.rx_checksummed.read()),
            (0, 0),
            "the kernel did it all"
        );
    }
    forwarder.stop();
}

#[test]
fn a_tap_and_a_veth_are_two_ports_of_one_gateway() {
    if !allowed("tap and af_packet") {
        return;
    }
    let (one, gateway, two) = (Namespace::new(), Namespace::new(), Namespace::new());
    two.connect("eth0", &gateway, "right");
    let left = tap(&one, "tap0");
    one.ip("addr add 10.9.2.1/24 dev tap0");
    two.ip("addr add 10.9.2.2/24 dev eth0");
    let options = AfPacketOptions {
        mac: Some(Mac([2, 0, 0, 0, 0, 9])),
        ..AfPacketOptions::new("right", PortId(1))
    };
    let right = gateway.enter(|| af_packet::open(&options).unwrap().pop().unwrap());
    let forwarder = Forwarder::start([Box::new(left), Box::new(right)]);
    one.exec("ping -c 3 -i 0.2 -W 2 10.9.2.2");
    traffic::tcp(&two, &one, "10.9.2.1".parse().unwrap(), 2_000_000);
    forwarder.stop();
}

#[test]
fn jumbo_frames_pass_a_tap_and_a_veth() {
    if !allowed("tap jumbo") {
        return;
    }
    let (one, gateway, two) = (Namespace::new(), Namespace::new(), Namespace::new());
    two.connect("eth0", &gateway, "right");
    two.ip("link set dev eth0 mtu 9000");
    gateway.ip("link set dev right mtu 9000");
    let options = TapOptions { mtu: Some(9000), ..TapOptions::new("tap0", PortId(0)) };
    let left = one.enter(|| open(&options).unwrap().pop().unwrap());
    one.ip("addr add 10.9.2.1/24 dev tap0");
    two.ip("addr add 10.9.2.2/24 dev eth0");
    let options = AfPacketOptions {
        mac: Some(Mac([2, 0, 0, 0, 0, 9])),
        ..AfPacketOptions::new("right", PortId(1))
    };
    let right = gateway.enter(|| af_packet::open(&options).unwrap().pop().unwrap());
    let forwarder = Forwarder::start([Box::new(left), Box::new(right)]);
    one.exec("ping -c 3 -i 0.2 -W 2 -M do -s 8972 10.9.2.2");
    traffic::tcp(&two, &one, "10.9.2.1".parse().unwrap(), 5_000_000);
    traffic::udp_segments(&one, &two, "10.9.2.2".parse().unwrap(), 8000, 7, 999);
    for statistics in &forwarder.statistics {
        assert_eq!((statistics.rx_errors.read(), statistics.tx_errors.read()), (0, 0));
    }
    forwarder.stop();
}

#[test]
fn a_tap_without_a_large_buffer_misses_and_counts() {
    if !allowed("tap missed") {
        return;
    }
    let host = Namespace::new();
    let options = TapOptions { mtu: Some(9216), ..TapOptions::new("tap0", PortId(0)) };
    let mut port = host.enter(|| open(&options).unwrap().pop().unwrap());
    host.ip("addr add 10.9.3.1/24 dev tap0");
    host.ip("neigh add 10.9.3.2 lladdr 02:00:00:00:00:09 dev tap0");
    let socket = host.enter(|| std::net::UdpSocket::bind("10.9.3.1:0").unwrap());
    for length in [9188, 100, 2006, 2007] {
        socket.send_to(&vec![5; length], "10.9.3.2:9").unwrap();
    }
    let mut pool = Pool::with_large(8, 1);
    // Kept: the large buffer does not come back.
    let (mut lengths, mut kept) = (Vec::new(), Vec::new());
    for _ in 0..10 {
        let mut batch = Batch::new();
        io::wait(&[port.descriptor().unwrap()], std::time::Duration::from_millis(20)).unwrap();
        port.receive(Time(0), &mut pool, &mut batch).unwrap();
        // The host's own multicast is of no interest here.
        lengths.extend(
            batch.iter().filter(|frame| frame.bytes()[12..14] == [8, 0]).map(|frame| frame.len()),
        );
        kept.extend(batch);
    }
    assert_eq!(lengths, [9230, 142, 2048]);
    assert_eq!((port.statistics().rx_missed.read(), port.statistics().rx_errors.read()), (1, 0));
}

#[test]
fn a_tap_is_made_or_attached_to_and_has_an_address_of_its_own() {
    if !allowed("tap open") {
        return;
    }
    let host = Namespace::new();
    host.ip("tuntap add keep mode tap multi_queue");
    let options = TapOptions { queues: 2, mtu: Some(1400), ..TapOptions::new("keep", PortId(0)) };
    let queues = host.enter(|| open(&options).unwrap());
    let interface = host.enter(|| Interface::named("keep").unwrap());
    assert_eq!((queues.len(), queues[0].mtu(), interface.mtu, interface.up), (2, 1400, 1400, true));
    assert_ne!(queues[0].mac(), interface.mac);
    assert!(!queues[0].mac().is_group());
    drop(queues);
    host.enter(|| Interface::named("keep").unwrap());

    let made = host.enter(|| open(&TapOptions::new("new%d", PortId(0))).unwrap());
    assert_eq!(made[0].name(), "new0");
    let busy = host.enter(|| open(&TapOptions::new("new0", PortId(0))).unwrap_err().to_string());
    assert!(busy.contains("another program has `new0` open"), "{busy}");
    drop(made);
    host.enter(|| Interface::named("new0").unwrap_err());
}

#[test]
fn a_tap_that_is_down_refuses_and_one_that_is_deleted_is_lost() {
    if !allowed("tap down") {
        return;
    }
    let host = Namespace::new();
    let mut port = tap(&host, "tap0");
    let (mut pool, mut batch) = (Pool::new(1), Batch::new());
    let mut send = |port: &mut TapPort, length: usize| {
        let mut packet = pool.take().unwrap();
        assert!(packet.fill(&vec![2; length]));
        batch.push(packet);
        port.transmit(Time(0), &mut pool, &mut batch)
    };
    send(&mut port, 60).unwrap();
    assert_eq!((port.statistics().tx_packets.read(), port.statistics().tx_errors.read()), (1, 0));
    send(&mut port, 1515).unwrap();
    host.ip("link set dev tap0 down");
    send(&mut port, 60).unwrap();
    let statistics = port.statistics();
    assert_eq!((statistics.tx_packets.read(), statistics.tx_errors.read()), (1, 0));
    assert_eq!((statistics.tx_too_long.read(), statistics.tx_down.read()), (1, 1));
    host.ip("link set dev tap0 up");
    send(&mut port, 60).unwrap();
    assert_eq!(port.statistics().tx_packets.read(), 2);
    host.ip("link del dev tap0");
    assert!(send(&mut port, 60).is_err());
    assert!(port.receive(Time(0), &mut Pool::new(1), &mut Batch::new()).is_err());
}
