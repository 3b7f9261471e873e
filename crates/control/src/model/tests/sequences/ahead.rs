//! How far ahead the edge of a replay window is stored, and what a crash leaves out by that.

use super::*;

#[test]
fn what_is_ahead_falls_with_the_rate_within_seconds() {
    let mut world = World::new();
    world.tick(100);
    world.add(1, 7).unwrap();
    let mut last = 0;
    // A tenth of a second, and how much is ahead then.
    let mut slice = |world: &mut World, count: u32| {
        for part in 0..10 {
            let count = (part + 1) * count / 10 - part * count / 10;
            world.receive(1, last + 1..=last + count);
            last += count;
            world.sync();
            world.now = world.now + Duration::from_millis(10);
        }
        world.tick(0);
        world.sync();
        world.stored(1) - last
    };
    for number in 0..55 {
        let ahead = slice(&mut world, 750);
        assert!(
            number == 0 || (3000..10_000).contains(&ahead),
            "{ahead}: about a second's packets"
        );
    }
    // Five packets a second from now on.
    let mut slow = |world: &mut World| {
        (0..20).map(|number| slice(world, number % 2)).last().unwrap_or_default()
    };
    assert!(slow(&mut world) <= 1500);
    assert!(slow(&mut world) <= 200);
    assert!(slow(&mut world) <= 32);
    // Then none.
    let idle = |world: &mut World| {
        world.tick(100);
        std::mem::take(&mut world.reserved).len()
    };
    let writes: usize = (0..100).map(|_| idle(&mut world)).sum();
    assert_eq!(writes, 0, "an idle SA is written down again");
}

#[test]
fn a_lower_edge_is_written_once_no_worker_can_accept_more() {
    let mut world = World::new();
    world.add(1, 7).unwrap();
    world.receive_steadily(1);
    let window = world.sa(1).unwrap().inbound.replay_window().clone();
    for is_lowered in [true, false] {
        while (window.edge() < world.stored(1)) == is_lowered {
            world.tick(100);
            world.sync();
        }
    }
    // A worker is stuck in the middle of a packet from now on.
    let stored = world.stored(1);
    let stuck = |world: &mut World| {
        world.now = world.now + Duration::from_millis(100);
        world.control.tick(world.now);
        world.reserved.extend(world.control.take_reservations());
        world.sync();
    };
    (0..100).for_each(|_| stuck(&mut world));
    assert!(window.edge() < stored, "nothing was lowered");
    assert_eq!(world.stored(1), stored, "it may still accept what is below");
    // Its round ends, and so does the next one.
    world.control.workers_went_round();
    stuck(&mut world);
    assert_eq!(world.stored(1), stored);
    world.control.workers_went_round();
    stuck(&mut world);
    assert!(world.stored(1) < stored);
}

#[test]
fn an_sa_that_has_received_nothing_awaits_nothing_behind_a_crash() {
    let mut world = World::new();
    world.add(1, 7).unwrap();
    world.add(2, 7).unwrap();
    world.receive(1, 1..=10);
    world.sync();
    world.start();
    world.add(1, 7).unwrap();
    world.add(2, 7).unwrap();
    let awaits = |world: &World, spi| world.sa(spi).unwrap().inbound.replay_window().awaits();
    assert_eq!((awaits(&world, 1), awaits(&world, 2)), (Some(25), None));
    assert_eq!(world.control.sas_behind_crash(), (1, 16));
    // A stop does not make what is left out received.
    world.stop();
    world.add(1, 7).unwrap();
    assert_eq!(world.control.sas_behind_crash(), (1, 16));
    assert!(world.receive(1, 25..=25).is_empty());
    world.sync();
    assert_eq!(world.receive(1, 25..=25), [25]);
    assert_eq!(world.control.sas_behind_crash(), (0, 0));
}
