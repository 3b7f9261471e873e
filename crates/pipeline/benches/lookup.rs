//! What a lookup costs: `lookup [FLOWS] [LOOKUPS]`, for one number of flows or for several.
//!
//! Flows are those of an access list (prefixes of both addresses, protocol, a port of the
//! destination or a range of them), in front of them some by ct_state, and one that takes the rest.
//! Under `valgrind --tool=callgrind`, the difference of two numbers of lookups counts instructions.

use std::env;
use std::hint::black_box;
use std::time::Instant;

use conntrack::CtState;
use pipeline::{
    Action, Change, CtFields, Exit, Field, Fields, Flow, IPV4, Match, NatSpec, Owner, Pipeline,
    Track,
};
use types::{PortId, VrfId};

/// A generator of numbers: splitmix64.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) % below
    }
}

struct Nothing;

impl Track for Nothing {
    fn exit(&mut self, fields: &Fields) -> Exit {
        fields.exit()
    }

    fn track(&mut self, _: u16, _: bool, _: &Fields, _: Option<&NatSpec>) -> CtFields {
        CtFields { state: CtState::NEW | CtState::TRK, ..CtFields::default() }
    }
}

fn flow(numbers: &mut Numbers, count: u64, number: u64) -> Flow {
    let mut matches = Match::ANY;
    matches.set(Field::DlType, IPV4.into(), 0xffff);
    for field in [Field::NwSrc, Field::NwDst] {
        let length = [0, 16, 24, 24, 32, 32][numbers.next(6) as usize];
        let mask = (0xffff_ffff_u64 << (32 - length)) as u32;
        let address = 0x0a00_0000 + numbers.next(count * 256) as u32;
        matches.set(field, (address & mask).into(), mask.into());
    }
    if numbers.next(4) > 0 {
        matches.set(Field::NwProto, 6, 0xff);
        match numbers.next(4) {
            0 => {}
            1 => {
                let first = numbers.next(2000).into();
                matches.set_range(Field::TcpDst, first, first + 100);
            }
            _ => matches.set(Field::TcpDst, numbers.next(1024).into(), 0xffff),
        }
    }
    if number < 4 {
        matches.set(Field::CtState, 0x22, 0x22);
    }
    made(matches, 60_000 - (number % 50_000) as u16)
}

fn made(matches: Match, priority: u16) -> Flow {
    let actions = vec![Action::Output(PortId(1))];
    let (cookie, idle_timeout, hard_timeout) = (0, 0, 0);
    Flow {
        vrf: VrfId::MAIN,
        table: 0,
        priority,
        matches,
        actions,
        cookie,
        idle_timeout,
        hard_timeout,
    }
}

fn add(pipeline: &mut Pipeline, flow: Flow) {
    let change = Change::Add { flow, check_overlap: false };
    if let Err(why) = pipeline.apply(change, Owner::User) {
        panic!("{why}");
    }
}

fn measure(count: u64, lookups: u64) {
    let mut numbers = Numbers(count);
    let mut pipeline = Pipeline::new();
    let start = Instant::now();
    for number in 1..count {
        add(&mut pipeline, flow(&mut numbers, count, number));
    }
    add(&mut pipeline, made(Match::ANY, 0));
    let (built, masks) = (start.elapsed(), pipeline.masks());
    let packets: Vec<Fields> = (0..1024)
        .map(|_| {
            let mut like = Match::ANY;
            like.set(Field::DlType, IPV4.into(), 0xffff);
            like.set(Field::NwProto, 6, 0xff);
            like.set(Field::NwSrc, u128::from(0x0a00_0000 + numbers.next(count * 256)), u128::MAX);
            like.set(Field::NwDst, u128::from(0x0a00_0000 + numbers.next(count * 256)), u128::MAX);
            like.set(Field::TcpDst, numbers.next(3000).into(), 0xffff);
            like.example(VrfId::MAIN)
        })
        .collect();
    let start = Instant::now();
    for at in 0..lookups {
        let fields = &packets[at as usize % packets.len()];
        black_box(pipeline.evaluate(black_box(fields), &mut Nothing, &mut ()));
    }
    let each = start.elapsed().as_nanos() as f64 / lookups.max(1) as f64;
    // A change while somebody holds the tables, as each published snapshot is held.
    let start = Instant::now();
    for _ in 0..20 {
        let held = pipeline.clone();
        add(&mut pipeline, flow(&mut numbers, count, 40_000));
        black_box(held);
    }
    let change = start.elapsed() / 20;
    println!(
        "{count} flows, {masks} masks: built in {built:.1?}, {each:.0} ns a packet, {change:.1?} a \
         change"
    );
}

fn main() {
    let numbers: Vec<u64> = env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    match numbers[..] {
        [count, lookups, ..] => measure(count, lookups),
        _ => [10, 1_000, 10_000].into_iter().for_each(|count| measure(count, 100_000)),
    }
}
