use super::*;

const NOW: Time = Time(7);

#[test]
fn frames_cross_in_order_and_pools_keep_their_size() {
    let (mut port, mut handle) = port(MemoryOptions::ethernet("m0", PortId(3)), 4);
    let (mut pool, mut batch) = (Pool::new(8), Batch::new());
    for round in 0..100_u8 {
        assert!(handle.push(&[round; 60]) && handle.push(&[round; 61]));
        assert_eq!(port.receive(NOW, &mut pool, &mut batch).unwrap(), 2);
        assert_eq!(batch[0].port(), PortId(3));
        assert_eq!((batch[0].bytes(), batch[1].bytes()), (&[round; 60][..], &[round; 61][..]));
        port.transmit(NOW, &mut pool, &mut batch).unwrap();
        assert!(batch.is_empty());
        assert_eq!(handle.pop().unwrap(), [round; 60]);
        assert_eq!(handle.pop().unwrap(), [round; 61]);
        assert_eq!(handle.pop(), None);
        assert_eq!(pool.available(), 8);
    }
    let statistics = port.statistics();
    assert_eq!((statistics.rx_packets.read(), statistics.rx_bytes.read()), (200, 12_100));
    assert_eq!((statistics.tx_packets.read(), statistics.tx_bytes.read()), (200, 12_100));
}

#[test]
fn a_full_link_drops_and_counts() {
    let (mut port, mut handle) = port(MemoryOptions::ethernet("m0", PortId(0)), 2);
    let (mut pool, mut batch) = (Pool::new(8), Batch::new());
    for _ in 0..3 {
        let mut packet = pool.take().unwrap();
        assert!(packet.fill(b"frame"));
        batch.push(packet);
    }
    port.transmit(NOW, &mut pool, &mut batch).unwrap();
    assert_eq!((port.statistics().tx_packets.read(), port.statistics().tx_dropped.read()), (2, 1));
    assert_eq!((pool.available(), handle.waiting()), (8, 2));
    assert!(handle.push(b"a") && handle.push(b"b") && !handle.push(b"c"));
    assert!(!handle.push(&[0; MAX_FRAME + 1]));
}

#[test]
fn without_free_buffers_frames_wait() {
    let (mut port, mut handle) = port(MemoryOptions::ethernet("m0", PortId(0)), 8);
    let (mut pool, mut batch) = (Pool::new(1), Batch::new());
    assert!(handle.push(b"one") && handle.push(b"two"));
    assert_eq!(port.receive(NOW, &mut pool, &mut batch).unwrap(), 1);
    assert_eq!(port.receive(NOW, &mut pool, &mut batch).unwrap(), 0);
    pool.give_all(batch.drain(..));
    assert_eq!(port.receive(NOW, &mut pool, &mut batch).unwrap(), 1);
    assert_eq!(batch[0].bytes(), b"two");
}

#[test]
fn a_frame_longer_than_the_mtu_is_refused() {
    let (mut port, mut handle) = port(MemoryOptions::ethernet("m0", PortId(0)), 8);
    let (mut pool, mut batch) = (Pool::new(2), Batch::new());
    for length in [1514, 1515] {
        let mut packet = pool.take().unwrap();
        assert!(packet.fill(&vec![0; length]));
        batch.push(packet);
    }
    port.transmit(NOW, &mut pool, &mut batch).unwrap();
    assert_eq!((port.statistics().tx_packets.read(), port.statistics().tx_too_long.read()), (1, 1));
    assert_eq!((handle.pop().unwrap().len(), pool.available()), (1514, 2));
}

#[test]
fn a_tag_does_not_make_a_frame_too_long() {
    for (link, longest) in [(LinkKind::Ethernet, 1518), (LinkKind::Ip, 1500)] {
        let options = MemoryOptions { link, ..MemoryOptions::ethernet("m0", PortId(0)) };
        let (mut port, mut handle) = port(options, 8);
        let (mut pool, mut batch) = (Pool::new(2), Batch::new());
        for length in [longest, longest + 1] {
            let mut frame = vec![0; length];
            frame[12] = 0x81;
            let mut packet = pool.take().unwrap();
            assert!(packet.fill(&frame));
            batch.push(packet);
        }
        port.transmit(NOW, &mut pool, &mut batch).unwrap();
        assert_eq!((port.statistics().tx_too_long.read(), pool.available()), (1, 2));
        assert_eq!(handle.pop().unwrap().len(), longest);
    }
}

#[test]
fn two_tags_do_not_make_a_frame_too_long_either() {
    for (tags, longest) in [
        (&[0x8100, 0x8100][..], 1522),
        (&[0x88a8, 0x8100], 1522),
        (&[0x8100, 0x8100, 0x8100], 1522),
        (&[0x88a8], 1518),
        (&[0x9100, 0x8100], 1514),
    ] {
        let mut frame = vec![0; longest];
        for (at, tag) in tags.iter().enumerate() {
            frame[12 + 4 * at..][..2].copy_from_slice(&u16::to_be_bytes(*tag));
        }
        assert!(!is_too_long(LinkKind::Ethernet, 1500, &frame), "{tags:x?}");
        frame.push(0);
        assert!(is_too_long(LinkKind::Ethernet, 1500, &frame), "{tags:x?}");
    }
}

#[test]
fn received_frames_have_their_full_headroom_again() {
    let (mut one, mut two) =
        pair(MemoryOptions::ethernet("a", PortId(0)), MemoryOptions::ethernet("b", PortId(1)), 8);
    let (mut pool, mut batch) = (Pool::new(2), Batch::new());
    let mut packet = pool.take().unwrap();
    assert!(packet.fill(b"inner"));
    packet.prepend(6).unwrap().copy_from_slice(b"outer-");
    batch.push(packet);
    one.transmit(NOW, &mut pool, &mut batch).unwrap();
    assert_eq!(two.receive(NOW, &mut pool, &mut batch).unwrap(), 1);
    assert_eq!((batch[0].bytes(), batch[0].headroom()), (&b"outer-inner"[..], HEADROOM));
}

#[test]
fn two_workers_on_two_threads_keep_their_pools() {
    const FRAMES: u32 = 200_000;
    let (mut one, mut two) =
        pair(MemoryOptions::ethernet("a", PortId(0)), MemoryOptions::ethernet("b", PortId(1)), 256);
    let receiving = std::thread::spawn(move || {
        let (mut pool, mut batch, mut expected) = (Pool::new(64), Batch::new(), 0_u32);
        while expected < FRAMES {
            if two.receive(NOW, &mut pool, &mut batch).unwrap() == 0 {
                std::thread::yield_now();
            }
            for packet in batch.drain(..) {
                assert_eq!(packet.bytes(), expected.to_be_bytes());
                expected += 1;
                pool.give(packet);
            }
            assert_eq!(pool.available(), 64);
        }
    });
    let (mut pool, mut batch, mut sent) = (Pool::new(64), Batch::new(), 0_u32);
    while sent < FRAMES {
        let room = one.sender.small.slots().min(64).min((FRAMES - sent) as usize);
        for _ in 0..room {
            let mut packet = pool.take().unwrap();
            assert!(packet.fill(&sent.to_be_bytes()));
            batch.push(packet);
            sent += 1;
        }
        one.transmit(NOW, &mut pool, &mut batch).unwrap();
        assert_eq!(pool.available(), 64);
        if room == 0 {
            std::thread::yield_now();
        }
    }
    receiving.join().unwrap();
    assert_eq!(one.statistics().tx_dropped.read(), 0);
}

/// A jumbo port, its handle, and a pool with large buffers.
fn jumbo(large: usize) -> (MemoryPort, MemoryHandle, Pool) {
    let options = MemoryOptions { mtu: packet::MAX_MTU, ..MemoryOptions::ethernet("j", PortId(3)) };
    let (port, handle) = port(options, 8);
    (port, handle, Pool::with_large(8, large))
}

#[test]
fn jumbo_frames_cross_and_pools_keep_both_kinds() {
    let (mut port, mut handle, mut pool) = jumbo(2);
    let mut batch = Batch::new();
    let lengths = [60, 9230, 1514, 2049];
    for round in 0..20_u8 {
        for length in lengths {
            assert!(handle.push(&vec![round; length]));
        }
        assert_eq!(port.receive(NOW, &mut pool, &mut batch).unwrap(), 4);
        assert_eq!((pool.small_available(), pool.available()), (6, 6));
        assert!(batch.iter().all(|packet| packet.port() == PortId(3)));
        port.transmit(NOW, &mut pool, &mut batch).unwrap();
        for length in lengths {
            assert_eq!(handle.pop().unwrap(), vec![round; length]);
        }
        assert_eq!((pool.small_available(), pool.available()), (8, 10));
    }
    let bytes = 20 * lengths.iter().sum::<usize>() as u64;
    let statistics = port.statistics();
    assert_eq!((statistics.rx_packets.read(), statistics.rx_bytes.read()), (80, bytes));
    assert_eq!((statistics.tx_packets.read(), statistics.tx_bytes.read()), (80, bytes));
    assert!(!handle.push(&[0; MAX_LARGE_FRAME + 1]));
}

#[test]
fn a_jumbo_frame_without_a_free_large_buffer_is_missed() {
    let (mut port, mut handle, mut pool) = jumbo(1);
    let mut batch = Batch::new();
    for length in [5000, 9230, 60] {
        assert!(handle.push(&vec![7; length]));
    }
    assert_eq!(port.receive(NOW, &mut pool, &mut batch).unwrap(), 2);
    assert_eq!((batch[0].len(), batch[1].len()), (5000, 60));
    assert_eq!((port.statistics().rx_packets.read(), port.statistics().rx_bytes.read()), (2, 5060));
    assert_eq!(port.statistics().rx_missed.read(), 1);
    pool.give_all(batch.drain(..));
    assert_eq!((pool.small_available(), pool.available()), (8, 9));
    // The link has all its large buffers again.
    for _ in 0..8 {
        assert!(handle.push(&[7; 9000]));
    }
    assert!(!handle.push(&[7; 9000]));
}

#[test]
fn a_short_frame_in_a_large_buffer_needs_no_other_large_one() {
    let options = |id| MemoryOptions::ethernet("p", PortId(id));
    // Neither the link nor the receiver has a large buffer; the sender has.
    let (mut one, mut two) = pair(options(0), options(1), 4);
    let (mut pool, mut batch) = (Pool::with_large(2, 1), Batch::new());
    for (number, mut packet) in
        [pool.take().unwrap(), pool.take_large().unwrap()].into_iter().enumerate()
    {
        assert!(packet.fill(&[number as u8; 1000]));
        batch.push(packet);
    }
    one.transmit(NOW, &mut pool, &mut batch).unwrap();
    assert_eq!((one.statistics().tx_packets.read(), one.statistics().tx_bytes.read()), (2, 2000));
    assert_eq!((pool.small_available(), pool.available()), (2, 3));
    assert_eq!(two.receive(NOW, &mut pool, &mut batch).unwrap(), 2);
    assert_eq!((batch[0].bytes(), batch[1].bytes()), (&[0; 1000][..], &[1; 1000][..]));

    // The link has, and the receiver has not.
    let wide = MemoryOptions { mtu: 9000, ..options(0) };
    let (mut one, mut two) = pair(wide, options(1), 4);
    let (mut pool, mut batch) = (Pool::with_large(2, 1), Batch::new());
    let mut packet = pool.take_large().unwrap();
    assert!(packet.fill(b"short"));
    batch.push(packet);
    one.transmit(NOW, &mut pool, &mut batch).unwrap();
    let mut other = Pool::new(1);
    assert_eq!(two.receive(NOW, &mut other, &mut batch).unwrap(), 1);
    assert_eq!(
        (batch[0].bytes(), batch[0].port(), batch[0].is_large()),
        (&b"short"[..], PortId(1), false)
    );
    other.give_all(batch.drain(..));
    assert_eq!((other.available(), pool.available()), (1, 3));
}

#[test]
fn a_frame_that_fills_a_small_buffer_to_its_end_gets_a_large_one() {
    let wide = |id| MemoryOptions { mtu: 9000, ..MemoryOptions::ethernet("w", PortId(id)) };
    let (mut one, mut two) = pair(wide(0), wide(1), 4);
    let (mut pool, mut batch) = (Pool::with_large(4, 2), Batch::new());
    // As long as a small buffer can hold, with and without a large one at the receiver.
    for (large, received) in [(1, 1), (0, 0)] {
        let mut packet = pool.take().unwrap();
        assert!(packet.fill(&[1; MAX_FRAME]));
        packet.prepend(100).unwrap().fill(2);
        batch.push(packet);
        one.transmit(NOW, &mut pool, &mut batch).unwrap();
        let mut other = Pool::with_large(2, large);
        assert_eq!(two.receive(NOW, &mut other, &mut batch).unwrap(), received);
        for packet in &batch {
            assert_eq!((packet.bytes().len(), packet.headroom()), (MAX_FRAME + 100, HEADROOM));
            assert_eq!((packet.bytes()[99], packet.bytes()[100], packet.port()), (2, 1, PortId(1)));
        }
        other.give_all(batch.drain(..));
        assert_eq!((other.available(), other.small_available()), (2 + large, 2));
        assert_eq!((pool.available(), pool.small_available()), (6, 4));
    }
    assert_eq!(two.statistics().rx_missed.read(), 1);
}

#[test]
fn transfer_sends_the_same_buffers_round() {
    let (mut port, mut handle) = port(MemoryOptions::ethernet("m0", PortId(0)), 8);
    let (_, mut other) = self::port(MemoryOptions::ethernet("m1", PortId(1)), 8);
    let (mut pool, mut batch) = (Pool::new(8), Batch::new());
    assert!(handle.push(b"1") && handle.push(b"2"));
    port.receive(NOW, &mut pool, &mut batch).unwrap();
    port.transmit(NOW, &mut pool, &mut batch).unwrap();
    let moved =
        MemoryHandle::transfer(&mut handle, &mut other, 9, |packet| packet.bytes_mut()[0] += 1);
    assert_eq!((moved, handle.waiting(), other.room()), (2, 0, 6));
}

/// Two threads at full speed: after every call each pool has as many buffers as it was made with,
/// and in the end every link can be filled as at first.
#[test]
fn pools_keep_their_size_between_threads() {
    const DEPTH: usize = 64;
    let options = |id| MemoryOptions::ethernet("m", PortId(id));
    let (one, two) = pair(options(0), options(1), DEPTH);
    let run = |mut port: MemoryPort| {
        move || {
            let (mut pool, mut batch) = (Pool::new(2 * DEPTH), Batch::new());
            for _ in 0..200_000 {
                while batch.len() < DEPTH {
                    let mut packet = pool.take().unwrap();
                    assert!(packet.fill(b"frame"));
                    batch.push(packet);
                }
                port.transmit(NOW, &mut pool, &mut batch).unwrap();
                assert_eq!(pool.available(), 2 * DEPTH);
                port.receive(NOW, &mut pool, &mut batch).unwrap();
                assert_eq!(pool.available() + batch.len(), 2 * DEPTH);
                pool.give_all(batch.drain(..));
            }
            (port, pool)
        }
    };
    let (one, two) = std::thread::scope(|scope| {
        let (one, two) = (scope.spawn(run(one)), scope.spawn(run(two)));
        (one.join().unwrap(), two.join().unwrap())
    });
    let ((mut from, mut from_pool), (mut to, mut to_pool)) = (one, two);
    let mut batch = Batch::new();
    to.receive(NOW, &mut to_pool, &mut batch).unwrap();
    to_pool.give_all(batch.drain(..));
    batch.extend((0..DEPTH).map(|_| from_pool.take_copy(b"frame").unwrap()));
    let sent = from.statistics().tx_packets.read();
    from.transmit(NOW, &mut from_pool, &mut batch).unwrap();
    assert_eq!(from.statistics().tx_packets.read() - sent, DEPTH as u64);
}
