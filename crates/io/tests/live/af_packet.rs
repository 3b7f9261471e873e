use std::time::{Duration, Instant};

use io::af_packet::{AfPacketOptions, AfPacketPort, open};
use packet::{BATCH, Batch, Pool, Port, PortError, Time};
use wire::{Mac, PortId};

use crate::forwarder::Forwarder;
use crate::namespaces::{Namespace, allowed};
use crate::traffic;

const ANOTHER: Mac = Mac([2, 0, 0, 0, 0, 9]);

fn port(namespace: &Namespace, options: &AfPacketOptions) -> AfPacketPort {
    namespace.enter(|| open(options).unwrap().pop().unwrap())
}

/// A frame from one end to the other, of an EtherType that nobody else uses.
fn frame(to: Mac, from: Mac, payload: &[u8]) -> Vec<u8> {
    [&to.0[..], &from.0, &[0x88, 0xb5], payload].concat()
}

/// Sends `frames` and expects them all sent, in buffers that are back in the pool.
fn send(port: &mut impl Port, pool: &mut Pool, frames: &[Vec<u8>]) -> Result<(), PortError> {
    for group in frames.chunks(BATCH) {
        let mut batch = Batch::new();
        for frame in group {
            batch.push(pool.take_copy(frame).unwrap());
        }
        port.transmit(Time(1), pool, &mut batch)?;
        assert!(batch.is_empty());
        assert_eq!(pool.available(), pool.size());
    }
    Ok(())
}

/// Receives until `count` frames have come or none comes any more.
fn receive(port: &mut impl Port, pool: &mut Pool, count: usize) -> Vec<Vec<u8>> {
    let (mut frames, mut batch) = (Vec::new(), Batch::new());
    let deadline = Instant::now() + Duration::from_secs(2);
    while frames.len() < count && Instant::now() < deadline {
        io::wait(&[port.descriptor().unwrap()], Duration::from_millis(50)).unwrap();
        port.receive(Time(5), pool, &mut batch).unwrap();
        for packet in batch.drain(..) {
            assert_eq!(packet.port(), PortId(7));
            frames.push(packet.bytes().to_vec());
            pool.give(packet);
        }
    }
    frames
}

#[test]
fn frames_cross_a_veth_in_both_directions() {
    if !allowed("af_packet frames") {
        return;
    }
    let (one, two) = (Namespace::new(), Namespace::new());
    one.connect("a", &two, "b");
    let mut a = port(&one, &AfPacketOptions::new("a", PortId(7)));
    let mut b = port(&two, &AfPacketOptions::new("b", PortId(7)));
    let mut pool = Pool::new(BATCH);
    let lengths = [46, 47, 1000, 1500];
    let forth: Vec<_> =
        (0..1000).map(|n| frame(b.mac(), a.mac(), &vec![n as u8; lengths[n % 4]])).collect();
    send(&mut a, &mut pool, &forth).unwrap();
    assert!(receive(&mut b, &mut pool, forth.len()) == forth);
    let back: Vec<_> = (0..10).map(|n| frame(a.mac(), b.mac(), &[n; 60])).collect();
    send(&mut b, &mut pool, &back).unwrap();
    assert!(
        receive(&mut a, &mut pool, back.len()) == back,
        "own frames are not received, the other's are"
    );
    let multicast = [frame(Mac([0x33, 0x33, 0, 0, 0, 1]), a.mac(), &[1; 60])];
    send(&mut a, &mut pool, &multicast).unwrap();
    assert!(receive(&mut b, &mut pool, 1) == multicast);
    let bytes: usize = forth.iter().map(Vec::len).sum();
    assert_eq!((b.statistics().rx_packets.read(), a.statistics().tx_packets.read()), (1001, 1001));
    assert_eq!(a.statistics().tx_bytes.read(), bytes as u64 + 74);
    assert_eq!((b.statistics().rx_missed.read(), b.statistics().rx_errors.read()), (0, 0));
}

#[test]
fn jumbo_frames_cross_a_veth_and_none_is_lost_in_silence() {
    if !allowed("af_packet jumbo") {
        return;
    }
    let (one, two) = (Namespace::new(), Namespace::new());
    one.connect("a", &two, "b");
    one.ip("link set dev a mtu 9000");
    two.ip("link set dev b mtu 9000");
    let mut a = port(&one, &AfPacketOptions::new("a", PortId(7)));
    let mut b = port(&two, &AfPacketOptions::new("b", PortId(7)));
    assert_eq!((a.mtu(), b.mtu()), (9000, 9000));
    let mut pool = Pool::with_large(BATCH, BATCH);
    let lengths = [9000, 46, 2034, 2035, 1500, 8999];
    let mut frames: Vec<_> =
        (0..600).map(|n| frame(b.mac(), a.mac(), &vec![n as u8; lengths[n % 6]])).collect();
    // The longest there is, with a VLAN tag.
    frames[0].splice(12..12, [0x81, 0, 0x20, 0x64]);
    frames[0].truncate(9018);
    send(&mut a, &mut pool, &frames).unwrap();
    assert!(receive(&mut b, &mut pool, frames.len()) == frames);
    assert_eq!(a.statistics().tx_packets.read(), 600);
    let too_long = [9000, 9019, 60].map(|length| frame(b.mac(), a.mac(), &vec![3; length]));
    send(&mut a, &mut pool, &too_long).unwrap();
    assert_eq!((a.statistics().tx_packets.read(), a.statistics().tx_too_long.read()), (602, 1));
    assert_eq!(receive(&mut b, &mut pool, 2).len(), 2);

    // With one large buffer every frame comes, one after the other. While that is in use, the long
    // ones are missed and the others come; where there is none, the long ones are errors.
    let ten: Vec<_> =
        (0..10).map(|n| frame(b.mac(), a.mac(), &vec![n; lengths[usize::from(n) % 2]])).collect();
    send(&mut a, &mut pool, &ten).unwrap();
    assert!(receive(&mut b, &mut Pool::with_large(BATCH, 1), 10) == ten);
    assert_eq!(b.statistics().rx_missed.read(), 0);
    send(&mut a, &mut pool, &ten).unwrap();
    let short: Vec<_> = ten.iter().filter(|frame| frame.len() < 2000).cloned().collect();
    let mut busy = Pool::with_large(BATCH, 1);
    let large = busy.take_large();
    assert!(receive(&mut b, &mut busy, 5) == short);
    assert_eq!((b.statistics().rx_missed.read(), b.statistics().rx_errors.read()), (5, 0));
    busy.give_all(large);
    send(&mut a, &mut pool, &ten).unwrap();
    assert!(receive(&mut b, &mut Pool::new(BATCH), 5) == short);
    assert_eq!((b.statistics().rx_missed.read(), b.statistics().rx_errors.read()), (5, 5));
}

#[test]
fn jumbo_traffic_of_hosts_passes_a_forwarder() {
    if !allowed("af_packet jumbo offloads") {
        return;
    }
    let (one, gateway, two) = (Namespace::new(), Namespace::new(), Namespace::new());
    one.connect("eth0", &gateway, "left");
    two.connect("eth0", &gateway, "right");
    for (host, last, port) in [(&one, 1, "left"), (&two, 2, "right")] {
        host.ip("link set dev eth0 mtu 9000");
        gateway.ip(&format!("link set dev {port} mtu 9000"));
        host.ip(&format!("addr add 10.9.0.{last}/24 dev eth0"));
    }
    let ports = ["left", "right"].map(|interface| {
        let options =
            AfPacketOptions { mac: Some(ANOTHER), ..AfPacketOptions::new(interface, PortId(0)) };
        Box::new(port(&gateway, &options)) as Box<dyn Port>
    });
    let forwarder = Forwarder::start(ports);
    one.exec("ping -c 3 -i 0.2 -W 2 -M do -s 8972 10.9.0.2");
    let address = "10.9.0.2".parse().unwrap();
    let rate = traffic::tcp(&one, &two, address, 20_000_000);
    println!("TCP over an MTU of 9000: {rate:.0} Mbit/s");
    traffic::udp_segments(&one, &two, address, 8000, 7, 999);
    let [left, right] = &forwarder.statistics;
    assert!(left.rx_segmented.read() > 0, "the host used segmentation offload");
    for statistics in [left, right] {
        assert_eq!((statistics.rx_errors.read(), statistics.tx_errors.read()), (0, 0));
    }
    forwarder.stop();
}

/// What came before a port takes part is not its own.
#[test]
fn what_came_before_is_forgotten() {
    if !allowed("what_came_before_is_forgotten") {
        return;
    }
    let (left, right) = (Namespace::new(), Namespace::new());
    left.connect("a", &right, "b");
    let mut sender = port(&left, &AfPacketOptions::new("a", PortId(7)));
    let mut receiver = port(&right, &AfPacketOptions::new("b", PortId(7)));
    let mut pool = Pool::new(64);
    let (to, from) = (receiver.mac(), sender.mac());
    let frames = |first: u8| -> Vec<Vec<u8>> {
        (first..first + 8).map(|number| frame(to, from, &[number; 100])).collect()
    };
    send(&mut sender, &mut pool, &frames(1)).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    receiver.forget_waiting();
    send(&mut sender, &mut pool, &frames(21)).unwrap();
    assert_eq!(receive(&mut receiver, &mut pool, 8), frames(21));
    assert_eq!(receiver.statistics().rx_packets.read(), 8);
    // Without any, nothing happens.
    receiver.forget_waiting();
    send(&mut sender, &mut pool, &frames(41)).unwrap();
    assert_eq!(receive(&mut receiver, &mut pool, 8), frames(41));
}

#[test]
fn a_vlan_tag_arrives_where_it_was() {
    if !allowed("af_packet vlan") {
        return;
    }
    let (one, two) = (Namespace::new(), Namespace::new());
    one.connect("a", &two, "b");
    let mut a = port(&one, &AfPacketOptions::new("a", PortId(7)));
    let mut b = port(&two, &AfPacketOptions::new("b", PortId(7)));
    let mut pool = Pool::new(BATCH);
    let tagged = [0x8100_u16, 0x88a8].map(|tpid| {
        let mut tagged = frame(b.mac(), a.mac(), &[9; 60]);
        tagged.splice(12..12, [tpid.to_be_bytes(), [0x20, 0x64]].concat());
        tagged
    });
    send(&mut a, &mut pool, &tagged).unwrap();
    assert_eq!(receive(&mut b, &mut pool, 2), tagged);
}

#[test]
fn a_frame_longer_than_the_mtu_is_an_error_and_the_others_are_sent() {
    if !allowed("af_packet too long") {
        return;
    }
    let (one, two) = (Namespace::new(), Namespace::new());
    one.connect("a", &two, "b");
    let mut a = port(&one, &AfPacketOptions::new("a", PortId(7)));
    let mut b = port(&two, &AfPacketOptions::new("b", PortId(7)));
    let mut pool = Pool::new(BATCH);
    let frames = [1500, 1600, 1500].map(|length| frame(b.mac(), a.mac(), &vec![3; length]));
    send(&mut a, &mut pool, &frames).unwrap();
    assert_eq!(receive(&mut b, &mut pool, 2).len(), 2);
    assert_eq!((a.statistics().tx_packets.read(), a.statistics().tx_too_long.read()), (2, 1));
}

#[test]
fn a_slow_gateway_misses_frames_and_counts_every_one() {
    if !allowed("af_packet missed") {
        return;
    }
    let (one, two) = (Namespace::new(), Namespace::new());
    one.connect("a", &two, "b");
    let mut a = port(&one, &AfPacketOptions::new("a", PortId(7)));
    let mut b = port(
        &two,
        &AfPacketOptions { ring_bytes: 64 * 2048, ..AfPacketOptions::new("b", PortId(7)) },
    );
    let mut pool = Pool::new(BATCH);
    let frames: Vec<_> = (0..500).map(|_| frame(b.mac(), a.mac(), &[3; 100])).collect();
    send(&mut a, &mut pool, &frames).unwrap();
    let received = receive(&mut b, &mut pool, frames.len()).len();
    b.receive(Time(u64::MAX / 2), &mut pool, &mut Batch::new()).unwrap();
    assert!((64..500).contains(&received));
    assert_eq!(b.statistics().rx_ring_full.read(), (500 - received) as u64);
}

#[test]
fn tcp_and_udp_of_hosts_with_offloads_pass_a_forwarder() {
    if !allowed("af_packet offloads") {
        return;
    }
    let (one, gateway, two) = (Namespace::new(), Namespace::new(), Namespace::new());
    one.connect("eth0", &gateway, "left");
    two.connect("eth0", &gateway, "right");
    for (host, last) in [(&one, 1), (&two, 2)] {
        host.ip(&format!("addr add 10.9.0.{last}/24 dev eth0"));
        host.ip(&format!("addr add fd09::{last}/64 dev eth0 nodad"));
    }
    // Another address than its own: the forwarder takes the hosts' frames for each other.
    let ports = ["left", "right"].map(|interface| {
        let options =
            AfPacketOptions { mac: Some(ANOTHER), ..AfPacketOptions::new(interface, PortId(0)) };
        Box::new(port(&gateway, &options)) as Box<dyn Port>
    });
    let forwarder = Forwarder::start(ports);
    let [left, right] = &forwarder.statistics;

    let (two4, two6) = ("10.9.0.2".parse().unwrap(), "fd09::2".parse().unwrap());
    for address in [two4, two6] {
        let before = left.rx_segmented.read();
        let rate = traffic::tcp(&one, &two, address, 20_000_000);
        println!("TCP to {address}: {rate:.0} Mbit/s");
        assert!(left.rx_segmented.read() > before, "the host used segmentation offload");
        traffic::tcp(
            &two,
            &one,
            if address == two4 { "10.9.0.1" } else { "fd09::1" }.parse().unwrap(),
            2_000_000,
        );
        let before = left.rx_segmented.read();
        traffic::udp_segments(&one, &two, address, 1200, 40, 0);
        traffic::udp_segments(&one, &two, address, 1000, 7, 999);
        traffic::udp_segments(&one, &two, address, 100, 60, 50);
        assert!(left.rx_segmented.read() >= before + 3, "the host used UDP segmentation offload");
    }
    for statistics in [left, right] {
        assert!(statistics.rx_checksummed.read() > 0, "the hosts left checksums to us");
        assert_eq!((statistics.rx_errors.read(), statistics.tx_errors.read()), (0, 0));
    }
    // The receivers' own verdict on the checksums that we made.
    for host in [&one, &two] {
        for counter in ["InCsumErrors", "InErrs", "Udp6InCsumErrors"] {
            for value in counters(host, counter) {
                assert_eq!(value, 0, "{counter}");
            }
        }
    }
    forwarder.stop();
}

#[test]
fn the_port_outlives_its_interface_going_down_but_not_its_deletion() {
    if !allowed("af_packet down") {
        return;
    }
    let (one, two) = (Namespace::new(), Namespace::new());
    one.connect("a", &two, "b");
    let mut a = port(&one, &AfPacketOptions::new("a", PortId(7)));
    let mut b = port(&two, &AfPacketOptions::new("b", PortId(7)));
    let (mut pool, mut now) = (Pool::new(BATCH), 0);
    let mut turn = |port: &mut AfPacketPort, pool: &mut Pool| {
        now += 1_000_000_000;
        port.receive(Time(now), pool, &mut Batch::new())
    };
    let frames = [frame(b.mac(), a.mac(), &[1; 60])];

    one.ip("link set dev a down");
    send(&mut a, &mut pool, &frames).unwrap();
    assert_eq!((a.statistics().tx_packets.read(), a.statistics().tx_down.read()), (0, 1));
    turn(&mut a, &mut pool).unwrap();
    assert_eq!(
        io::wait(&[a.descriptor().unwrap()], Duration::ZERO).unwrap(),
        0,
        "the error is reported once"
    );

    one.ip("link set dev a up");
    send(&mut a, &mut pool, &frames).unwrap();
    assert_eq!(receive(&mut b, &mut pool, 1), frames);
    let back = [frame(a.mac(), b.mac(), &[2; 60])];
    send(&mut b, &mut pool, &back).unwrap();
    assert_eq!(receive(&mut a, &mut pool, 1), back);

    one.ip("link del dev a");
    let lost = turn(&mut a, &mut pool).unwrap_err().to_string();
    assert!(lost.starts_with("port a: the interface was deleted"), "{lost}");
    assert!(send(&mut b, &mut pool, &back).is_err());
    assert_eq!(pool.available(), pool.size());
}

#[test]
fn several_queues_share_the_flows() {
    if !allowed("af_packet fanout") {
        return;
    }
    let (one, two) = (Namespace::new(), Namespace::new());
    one.connect("a", &two, "b");
    let mut a = port(&one, &AfPacketOptions::new("a", PortId(7)));
    let options = AfPacketOptions { queues: 2, ..AfPacketOptions::new("b", PortId(7)) };
    let mut queues = two.enter(|| open(&options).unwrap());
    assert_eq!(queues.len(), 2);
    // UDP from 10.0.0.1 to 10.0.0.2 port 9 from 64 ports, each twice.
    let frames: Vec<_> = (0..128_u16)
        .map(|n| {
            let mut frame = [&queues[0].mac().0[..], &a.mac().0, &[8, 0]].concat();
            frame.extend([0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
            frame.extend((1000 + n % 64).to_be_bytes());
            frame.extend([0, 9, 0, 26, 0, 0]);
            frame.extend([0; 18]);
            frame
        })
        .collect();
    let mut pool = Pool::new(BATCH);
    send(&mut a, &mut pool, &frames).unwrap();
    let seen: Vec<_> = queues.iter_mut().map(|queue| receive(queue, &mut pool, 128)).collect();
    assert_eq!(seen[0].len() + seen[1].len(), 128);
    assert!(!seen[0].is_empty() && !seen[1].is_empty());
    for frame in &seen[0] {
        assert!(!seen[1].contains(frame), "a flow stays with its queue");
    }
    // What one queue sends, neither hears: not itself, and not the other.
    let answers: Vec<_> =
        frames.iter().map(|frame| [&frame[6..12], &frame[..6], &frame[12..]].concat()).collect();
    send(&mut queues[0], &mut pool, &answers).unwrap();
    assert_eq!(receive(&mut a, &mut pool, 128).len(), 128);
    for queue in &mut queues {
        assert_eq!(queue.receive(Time(0), &mut pool, &mut Batch::new()).unwrap(), 0);
    }
}

#[test]
fn what_cannot_be_opened_is_refused_with_advice() {
    if !allowed("af_packet errors") {
        return;
    }
    let (one, two) = (Namespace::new(), Namespace::new());
    one.connect("a", &two, "b");
    one.ip("link set dev a mtu 9217");
    let refused = |interface: &str| {
        one.enter(|| open(&AfPacketOptions::new(interface, PortId(0))).unwrap_err().to_string())
    };
    assert_eq!(
        refused("a"),
        "port a: the interface's MTU is too large; it is 9217, and at most 9216 is supported: `ip \
        link set dev a mtu 9216`"
    );
    assert_eq!(
        refused("lo"),
        "port lo: not an Ethernet interface; use a veth, a bridge port or a network card"
    );
    let missing = refused("none");
    assert!(
        missing.contains("there is no interface `none` in this network namespace"),
        "{missing}"
    );
}

/// The values of a counter in /proc/net/snmp and /proc/net/snmp6.
fn counters(host: &Namespace, name: &str) -> Vec<u64> {
    let mut values = Vec::new();
    let text = host.exec("cat /proc/net/snmp");
    let lines: Vec<_> = text.lines().collect();
    for pair in lines.chunks(2) {
        let columns = pair[0].split_whitespace().zip(pair[1].split_whitespace());
        values.extend(
            columns
                .filter(|(column, _)| *column == name)
                .map(|(_, value)| value.parse::<u64>().unwrap()),
        );
    }
    for line in host.exec("cat /proc/net/snmp6").lines() {
        let (column, value) = line.split_once(char::is_whitespace).unwrap();
        if column == name {
            values.push(value.trim().parse().unwrap());
        }
    }
    assert!(!values.is_empty(), "no counter {name}");
    values
}
