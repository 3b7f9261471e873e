//! Nothing is allocated on a packet's way.

mod fixture;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use fixture::*;
use packet::DropReason;
use tables::{
    FieldsSelector, FilterAction, FilterHook, FilterMatch, FilterPlace, FilterSpec, FilterTarget,
    FilterVerdict, MarkBits, Qdisc, QdiscDevice, RejectWith, Selector, Tables, TapPoints, TapSpec,
    UpperSelector,
};
use types::qdisc::{FqCodel, Tbf};
use wire::{IpRange, VrfId};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call is passed on to the system's allocator, unchanged.
// JUSTIFICATION: counting allocations takes an allocator, and that trait is unsafe to implement.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's promise is passed on.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

thread_local! {
    /// Whether it is the thread of the test: the harness allocates in its own when it likes.
    static IS_COUNTED: Cell<bool> = const { Cell::new(false) };
}

fn count() {
    if IS_COUNTED.get() {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Everything that a VRF and a port may have beside routes and policies, of which nothing drops.
fn featured_tables() -> Tables {
    let mut tables = plain_tables();
    let all = Selector {
        source: IpRange::ALL_V4,
        destination: IpRange::ALL_V4,
        protocol: None,
        upper: UpperSelector::Any,
        fields: FieldsSelector::ANY,
    };
    let target = FilterTarget::Vrf(VrfId::MAIN);
    for hook in [FilterHook::Ingress, FilterHook::Egress] {
        let rule = FilterSpec {
            place: FilterPlace { target, hook },
            preference: 1,
            selects: FilterMatch { v4: Some(all), v6: None, mark: MarkBits::default() },
            action: FilterAction {
                verdict: FilterVerdict::Pass,
                reject_with: RejectWith::AdminProhibited,
                set_mark: None,
                log: false,
            },
        };
        tables.set_filter_rule(rule).unwrap();
    }
    let points = TapPoints { ingress: true, egress: true, drop: true };
    let tap = TapSpec { id: 1, target, points, snaplen: 96, rate: None, program: None };
    tables.add_tap(tap).unwrap();
    // More than there is, so that a little waits and all leaves.
    let tbf = Tbf { rate: 1 << 30, burst: 1 << 16, limit: 1 << 20 };
    let (root, child) = ("1:".parse().unwrap(), "10:".parse().unwrap());
    let fair = Qdisc::FqCodel(FqCodel::default());
    tables.set_qdisc(QdiscDevice::Port(WAN), (root, Qdisc::Tbf(tbf)), Some((child, fair))).unwrap();
    tables
}

/// One test, so that no other test's allocations are counted.
#[test]
fn nothing_is_allocated_per_packet() {
    IS_COUNTED.set(true);
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    drop(std::hint::black_box(Box::new(7)));
    assert!(ALLOCATIONS.load(Ordering::Relaxed) > before, "they are counted");
    let forwarded = (plain_tables(), vec![udp("192.168.13.5", "8.8.8.8", (1, 2), 100)]);
    let refused = (plain_tables(), vec![udp("192.168.13.5", "192.168.13.1", (1, 2), 100)]);
    let sealed = |cbc| {
        (
            tunnel_tables(("192.168.11.2", "192.168.11.1"), cbc),
            vec![
                udp("192.168.13.5", "192.168.12.7", (1, 2), 1000),
                udp("fd13::5", "fd12::7", (1, 2), 64),
                udp("192.168.13.5", "192.168.12.7", (1, 2), 1470),
                udp("192.168.13.5", "1.2.3.4", (1, 2), 100),
            ],
        )
    };
    let featured =
        (featured_tables(), (1..5).map(|flow| udp("192.168.13.5", "8.8.8.8", (flow, 2), 100)));
    let featured = (featured.0, featured.1.collect());
    for (name, (tables, packets)) in [
        ("forward", forwarded),
        ("filters, taps and queueing disciplines", featured),
        ("icmp error", refused),
        ("gcm", sealed(false)),
        ("cbc", sealed(true)),
    ] {
        let mut gateway = Gateway::new(tables);
        let mac = gateway.publisher.current().port(LAN).unwrap().spec.mac;
        let frames: Vec<_> = packets.iter().map(|packet| frame(mac, HOST_MAC, packet)).collect();
        let round = |gateway: &mut Gateway| {
            for frame in &frames {
                for _ in 0..40 {
                    assert!(gateway.lan.push(frame));
                }
            }
            let received = gateway.poll();
            while gateway.wan.pop_with(|_| ()).is_some() || gateway.lan.pop_with(|_| ()).is_some() {
            }
            received
        };
        round(&mut gateway);
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        let received: usize = (0..50).map(|_| round(&mut gateway)).sum();
        let allocations = ALLOCATIONS.load(Ordering::Relaxed) - before;
        assert_eq!(received, 50 * 40 * frames.len());
        assert_eq!(allocations, 0, "{name}: {allocations} allocations for {received} packets");
    }
    decryption_allocates_nothing();
}

fn decryption_allocates_nothing() {
    let mut gateway = Gateway::new(tunnel_tables(("192.168.11.2", "192.168.11.1"), false));
    let peer = peer_outbound(0x1002, false);
    let mac = gateway.publisher.current().port(WAN).unwrap().spec.mac;
    let inner = udp("192.168.12.7", "192.168.13.5", (2, 1), 500);
    let frames: Vec<_> = (0..1000)
        .map(|_| frame(mac, PEER_MAC, &seal(&peer, "192.168.11.1", "192.168.11.2", &inner)))
        .collect();
    let mut before = 0;
    for (i, chunk) in frames.chunks(100).enumerate() {
        if i == 1 {
            before = ALLOCATIONS.load(Ordering::Relaxed);
        }
        chunk.iter().for_each(|frame| assert!(gateway.wan.push(frame)));
        gateway.poll();
        while gateway.lan.pop_with(|_| ()).is_some() {}
    }
    assert_eq!(ALLOCATIONS.load(Ordering::Relaxed) - before, 0);
    assert_eq!(gateway.worker.statistics().decrypted.read(), 1000);
    assert_eq!(gateway.dropped(DropReason::EspReplayed), 0);
}
