//! The hand-over of compiled policies, with every step at every moment.
//!
//! The thread's loop is taken apart into its steps: a job is chosen, it is done or panics, and what
//! came of it reaches the control thread. Between any two of them policies and VRFs change. After
//! each step every lookup is held against trying one policy after the other.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::mpsc;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tables::{Action, Direction, IfId, PolicySpec, Publisher, Scope, Selector, UpperSelector};
use wire::{
    Addresses, FlowKey, FragmentClass, IpRange, Origin, PacketFields, PortRange, Protocol, Upper,
    VrfId,
};

use super::schedule::{MOST_FAILURES, PAUSE, QUIET};
use super::*;

const DIRECTION: Direction = Direction::Out;

/// Hosts with a policy at first: more than are tried one after the other.
const HOSTS: u32 = 36;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// A policy comes, in front of others or behind.
    Add,
    /// More come than are tried beside trees without being worth compiling.
    AddMany,
    /// One goes.
    Remove,
    /// One is replaced in its place.
    Replace,
    /// All of `main` go.
    Flush,
    /// The other VRF comes, with policies; or goes, with all.
    OtherVrf,
    /// The compile thread takes a snapshot and chooses what to do.
    Start,
    /// It is done.
    Finish,
    /// It panics.
    Panic,
    /// The control thread handles what it was sent first.
    Install,
    /// Time passes.
    Wait,
}

const STEPS: [Step; 11] = [
    Step::Add,
    Step::AddMany,
    Step::Remove,
    Step::Replace,
    Step::Flush,
    Step::OtherVrf,
    Step::Start,
    Step::Finish,
    Step::Panic,
    Step::Install,
    Step::Wait,
];

/// What a message says, without what was compiled.
#[derive(Clone)]
enum Sent {
    Compiled(Scope, Direction, Arc<Compiled>),
    Failed,
}

struct World {
    publisher: Publisher,
    schedule: Schedule,
    running: Option<(Arc<Tables>, Job)>,
    sent: VecDeque<Sent>,
    now: Instant,
    /// Makes each change another one.
    number: u32,
    installed: usize,
    late: usize,
}

impl Clone for World {
    fn clone(&self) -> Self {
        Self {
            publisher: Publisher::new(Tables::clone(&self.publisher.current())),
            schedule: self.schedule.clone(),
            running: self.running.clone(),
            sent: self.sent.clone(),
            ..*self
        }
    }
}

fn panics(_: &Spd, _: &Job) -> Option<Compiled> {
    panic!("as the test has it")
}

impl World {
    fn new() -> Self {
        let mut tables = Tables::new(1, 3);
        (0..HOSTS).for_each(|host| add(&mut tables, VrfId::MAIN, 5, host, None));
        let now = Instant::now();
        Self {
            publisher: Publisher::new(tables),
            schedule: Schedule::new(now),
            running: None,
            sent: VecDeque::new(),
            now,
            number: 0,
            installed: 0,
            late: 0,
        }
    }

    /// Changes the tables and publishes them.
    fn change(&mut self, change: impl FnOnce(&mut Tables, u32)) {
        let mut tables = Tables::clone(&self.publisher.current());
        self.number += 1;
        change(&mut tables, self.number);
        self.publisher.publish(tables);
    }

    /// Returns false if the step cannot be taken now.
    fn take(&mut self, step: Step) -> bool {
        match step {
            Step::Add => self.change(|tables, number| {
                let port = Some(number as u16);
                add(tables, VrfId::MAIN, [1, 5, 9][number as usize % 3], number % HOSTS, port);
            }),
            Step::AddMany => self.change(|tables, number| {
                for host in 0..HOSTS {
                    add(tables, VrfId::MAIN, 1 + host % 9, host, Some(1000 + number as u16));
                }
            }),
            Step::Remove => {
                let Some(index) = self.some_policy() else { return false };
                self.change(|tables, _| drop(tables.remove_policy(index).unwrap()));
            }
            Step::Replace => {
                let Some(index) = self.some_policy() else { return false };
                self.change(|tables, number| {
                    let spec = tables.policy_of_index(index).unwrap().spec;
                    let selector = host(number % HOSTS, Some(2000 + number as u16));
                    tables.update_policy(index, PolicySpec { selector, ..spec }).unwrap();
                });
            }
            Step::Flush => {
                let all = indexes(&self.publisher.current(), VrfId::MAIN);
                if all.is_empty() {
                    return false;
                }
                self.change(|tables, _| {
                    all.into_iter().for_each(|index| drop(tables.remove_policy(index).unwrap()));
                });
            }
            Step::OtherVrf => self.change(|tables, _| match tables.vrf_named("other") {
                Some(other) => {
                    let id = other.id;
                    for index in indexes(tables, id) {
                        tables.remove_policy(index).unwrap();
                    }
                    tables.remove_vrf(id).unwrap();
                }
                None => {
                    let id = tables.add_vrf("other").unwrap();
                    (0..HOSTS).for_each(|host| add(tables, id, 5, host, None));
                }
            }),
            Step::Start => {
                if self.running.is_some() {
                    return false;
                }
                let tables = self.publisher.current();
                let Some(job) = self.schedule.next(&tables, self.now) else { return false };
                self.running = Some((tables, job));
            }
            Step::Finish | Step::Panic => {
                let Some((tables, job)) = self.running.take() else { return false };
                let how: &Compile = if step == Step::Panic { &panics } else { &compile };
                let message = perform(how, &mut self.schedule, &tables, &job, self.now);
                self.sent.extend(message.map(|message| match message {
                    Message::Compiled { scope, direction, compiled } => {
                        Sent::Compiled(scope, direction, compiled)
                    }
                    Message::CompileFailed { why, .. } => {
                        assert!(why.contains("as the test has it"), "{why}");
                        Sent::Failed
                    }
                    other => panic!("{other:?}"),
                }));
            }
            Step::Install => match self.sent.pop_front() {
                None => return false,
                Some(Sent::Failed) => {}
                Some(Sent::Compiled(scope, direction, compiled)) => {
                    let mut tables = Tables::clone(&self.publisher.current());
                    if tables.install_compiled(scope, direction, &compiled) {
                        self.publisher.publish(tables);
                        self.installed += 1;
                    } else {
                        self.late += 1;
                    }
                }
            },
            Step::Wait => self.now += QUIET,
        }
        true
    }

    fn some_policy(&self) -> Option<u32> {
        let all = indexes(&self.publisher.current(), VrfId::MAIN);
        all.get(self.number as usize * 7 % all.len().max(1)).copied()
    }

    /// Every lookup, together and alone, is right.
    fn check(&self, steps: &[Step]) {
        let tables = self.publisher.current();
        for (_, spd) in tables.spds() {
            let keys = keys(VrfId::MAIN, self.number);
            let mut together = vec![None; keys.len()];
            spd.lookup_keys(DIRECTION, &keys, &mut together);
            for (key, together) in keys.iter().zip(together) {
                let wanted = spd.lookup_linear(DIRECTION, key).map(|(_, policy)| policy.index);
                let alone = spd.lookup(DIRECTION, key).map(|policy| policy.index);
                let together = together.map(|policy| policy.index);
                assert_eq!((alone, together), (wanted, wanted), "{steps:?}: {key:?}");
            }
        }
    }

    /// Whatever has happened: if nothing fails any more, all is compiled in the end.
    fn settle(&mut self, steps: &[Step]) {
        self.now += PAUSE;
        for _ in 0..100 {
            let mut is_idle = true;
            for step in [Step::Start, Step::Finish, Step::Install] {
                is_idle &= !self.take(step);
                self.check(steps);
            }
            let tables = self.publisher.current();
            let wants = tables.spds().any(|(_, spd)| spd.wants_compiling(DIRECTION).is_some());
            if is_idle && !wants {
                return;
            }
            self.now += QUIET;
        }
        panic!("not compiled in the end: {steps:?}");
    }
}

fn host(host: u32, port: Option<u16>) -> Selector {
    let all =
        Selector::all_of(&Addresses::V4 { source: [0; 4].into(), destination: [0; 4].into() });
    let address = IpAddr::V4(host.into());
    let source = IpRange::new(address, address).unwrap();
    let one = |port| PortRange::new(port, port).unwrap();
    match port {
        None => Selector { source, ..all },
        Some(port) => {
            let upper = UpperSelector::Ports { source: PortRange::ALL, destination: one(port) };
            Selector { source, protocol: Some(Protocol::UDP), upper, ..all }
        }
    }
}

fn add(tables: &mut Tables, vrf: VrfId, priority: u32, which: u32, port: Option<u16>) {
    add_to(tables, (vrf, None), priority, which, port);
}

fn add_to(
    tables: &mut Tables,
    (vrf, if_id): (VrfId, Option<IfId>),
    priority: u32,
    which: u32,
    port: Option<u16>,
) {
    let (direction, action, selector) = (DIRECTION, Action::Bypass, host(which, port));
    let spec = PolicySpec { vrf, direction, if_id, priority, selector, action };
    tables.add_policy(spec).unwrap();
}

fn indexes(tables: &Tables, vrf: VrfId) -> Vec<u32> {
    let vrf = tables.vrf(vrf).unwrap();
    vrf.spd.policies(DIRECTION).map(|policy| policy.index).collect()
}

/// Packets that the last changes are about, and others.
fn keys(vrf: VrfId, number: u32) -> Vec<FlowKey> {
    let key = |host: u32, port: u16| FlowKey {
        vrf,
        origin: Origin::Host,
        addresses: Addresses::V4 { source: host.into(), destination: [10, 0, 0, 1].into() },
        protocol: Protocol::UDP,
        upper: Upper::Ports { source: 1, destination: port },
        fragment: FragmentClass::Whole,
        fields: PacketFields::NONE,
    };
    let changed = (0..5).filter_map(|before| number.checked_sub(before)).flat_map(|number| {
        let port = number as u16;
        [port, 1000 + port, 2000 + port].map(|port| key(number % HOSTS, port))
    });
    changed.chain((0..HOSTS + 1).step_by(6).map(|host| key(host, 9))).collect()
}

/// Takes all sequences of so many steps.
fn all_orders(world: &World, steps: &mut Vec<Step>, depth: usize, sequences: &mut usize) {
    for step in STEPS {
        let mut next = world.clone();
        if !next.take(step) {
            continue;
        }
        steps.push(step);
        next.check(steps);
        if depth > 1 {
            all_orders(&next, steps, depth - 1, sequences);
        } else {
            *sequences += 1;
        }
        steps.pop();
    }
}

/// Panics of the test are not shown, which would be tens of thousands of lines.
fn without_panic_messages() {
    std::panic::set_hook(Box::new(|info| {
        if info.payload_as_str() != Some("as the test has it") {
            eprintln!("{info}");
        }
    }));
}

#[test]
fn all_short_sequences_of_steps_leave_lookups_right() {
    without_panic_messages();
    let mut sequences = 0;
    for before in [
        &[][..],
        // A result is on its way.
        &[Step::Start, Step::Finish],
        // Trees are in use, and a job is being done for a second layer.
        &[Step::Start, Step::Finish, Step::Install, Step::AddMany, Step::Start],
        // Two VRFs, of which one is being compiled.
        &[Step::Start, Step::Finish, Step::Install, Step::OtherVrf, Step::Wait, Step::Start],
    ] {
        let mut world = World::new();
        for step in before {
            assert!(world.take(*step), "{step:?} of {before:?}");
        }
        all_orders(&world, &mut before.to_vec(), 4, &mut sequences);
    }
    assert!(sequences > 10_000, "{sequences}");
}

#[test]
fn long_sequences_leave_lookups_right_and_end_with_everything_compiled() {
    without_panic_messages();
    let (mut installed, mut late) = (0, 0);
    for seed in 0..60 {
        let mut random = StdRng::seed_from_u64(seed);
        let (mut world, mut steps) = (World::new(), Vec::new());
        let mut panics = 0;
        for _ in 0..150 {
            let step = STEPS[random.random_range(0..STEPS.len())];
            // Whatever fails three times in a row stays as it is: that is another test.
            if step == Step::Panic && panics + 1 == MOST_FAILURES {
                continue;
            }
            // A flush at each tenth step leaves little to be wrong.
            if step == Step::Flush && random.random_range(0..8) != 0 {
                continue;
            }
            if world.take(step) {
                panics += u32::from(step == Step::Panic);
                steps.push(step);
                world.check(&steps);
            }
        }
        world.settle(&steps);
        installed += world.installed;
        late += world.late;
    }
    assert!(installed > 300 && late > 5, "{installed} {late}");
}

#[test]
fn what_panics_is_looked_up_as_before_and_not_tried_for_ever() {
    without_panic_messages();
    let mut world = World::new();
    world.take(Step::OtherVrf);
    let mut tries = [0, 0];
    for _ in 0..100 {
        world.now += PAUSE;
        if !world.take(Step::Start) {
            continue;
        }
        let of_main = world.running.as_ref().unwrap().1.scope == Scope::Vrf(VrfId::MAIN);
        tries[usize::from(of_main)] += 1;
        world.take(if of_main { Step::Panic } else { Step::Finish });
        world.take(Step::Install);
        world.check(&[]);
    }
    assert_eq!(tries[1], MOST_FAILURES);
    // The other VRF is compiled quickly, and as well as may be.
    assert_eq!((tries[0], world.installed), (2, 2));
    let tables = world.publisher.current();
    let is_compiled = |vrf: VrfId| tables.vrf(vrf).unwrap().spd.compiled(DIRECTION).is_some();
    assert!(!is_compiled(VrfId::MAIN) && is_compiled(tables.vrf_named("other").unwrap().id));
}

#[test]
fn a_failure_is_tried_again_after_a_pause_and_forgotten_with_a_success() {
    without_panic_messages();
    let mut world = World::new();
    for _ in 0..5 {
        assert!(world.take(Step::Start) && world.take(Step::Panic));
        assert!(!world.take(Step::Start), "at once");
        world.now += PAUSE;
        assert!(world.take(Step::Start) && world.take(Step::Finish) && world.take(Step::Install));
        assert!(world.take(Step::Install) && world.installed > 0);
        world.take(Step::AddMany);
    }
}

/// The real thread: it says what happened, does other work, and ends after too many panics of its
/// own.
#[test]
fn the_thread_outlives_a_panic_and_says_so() {
    without_panic_messages();
    let world = World::new();
    let (sender, messages) = mpsc::sync_channel(10);
    let compiler = Compiler {
        reader: world.publisher.shared().reader(),
        control: sender,
        schedule: Schedule::new(Instant::now()),
        filters: Filters::new(),
        compile: &panics,
    };
    let thread = thread::spawn(|| compiler.run());
    let message = messages.recv_timeout(Duration::from_secs(20)).unwrap();
    let main = Scope::Vrf(VrfId::MAIN);
    let Message::CompileFailed { scope, direction: Direction::Out, why } = message else {
        panic!("{message:?}")
    };
    assert_eq!(scope, main);
    assert_eq!(why, "compiling panicked (as the test has it) and is tried again soon");
    // It is still there: it notices that nobody listens when it has something to say.
    assert!(!thread.is_finished());
}

#[test]
fn a_thread_that_panics_again_and_again_ends_and_says_why() {
    without_panic_messages();
    let mut steps = 0;
    let step = || {
        steps += 1;
        // Between panics it works.
        if steps % 2 == 0 { panic!("as the test has it") } else { Some(PERIOD) }
    };
    let ended = supervise(step, |_| ());
    assert_eq!(ended, Err("the compile thread panicked 3 times: as the test has it".to_owned()));
    assert_eq!(steps, 6);
    assert_eq!(supervise(|| None, |_| ()), Ok(()));
}

#[test]
fn policies_that_change_all_the_time_do_not_keep_others_waiting() {
    let mut world = World::new();
    world.take(Step::OtherVrf);
    let other = world.publisher.current().vrf_named("other").unwrap().id;
    // Nothing that is compiled is ever used, as if all policies changed again meanwhile.
    let tables = world.publisher.current();
    let mut next = || world.schedule.next(&tables, Instant::now()).unwrap().scope;
    let [main, other] = [VrfId::MAIN, other].map(Scope::Vrf);
    assert_eq!([next(), next(), next()], [main, other, main]);
}

#[test]
fn the_policies_of_an_xfrm_link_are_compiled_too() {
    let mut world = World::new();
    let if_id = IfId::new(7);
    world.change(|tables, _| {
        for host in 0..HOSTS {
            add_to(tables, (VrfId::MAIN, if_id), 5, host, None);
        }
    });
    world.settle(&[]);
    let compiled = |world: &World| {
        let tables = world.publisher.current();
        let link = tables.spd(Scope::Link(if_id.unwrap()));
        link.map(|spd| spd.compiled(DIRECTION).is_some())
    };
    assert_eq!(compiled(&world), Some(true));
    // All of them go while they are compiled again: what comes too late is not used.
    world.change(|tables, number| {
        for host in 0..HOSTS {
            add_to(tables, (VrfId::MAIN, if_id), 3, host, Some(number as u16));
        }
    });
    world.now += PAUSE;
    assert!(world.take(Step::Start));
    assert_eq!(world.running.as_ref().unwrap().1.scope, Scope::Link(if_id.unwrap()));
    world.change(|tables, _| {
        let spd = tables.spd(Scope::Link(if_id.unwrap())).unwrap();
        let all: Vec<_> = spd.policies(DIRECTION).map(|policy| policy.index).collect();
        all.into_iter().for_each(|index| drop(tables.remove_policy(index).unwrap()));
    });
    let late = world.late;
    assert!(world.take(Step::Finish) && world.take(Step::Install));
    assert_eq!((compiled(&world), world.late), (None, late + 1));
    world.settle(&[]);
}

#[test]
fn a_best_compile_that_panics_is_tried_again() {
    without_panic_messages();
    let mut world = World::new();
    assert!(world.take(Step::Start) && world.take(Step::Finish) && world.take(Step::Install));
    world.now += QUIET;
    assert!(world.take(Step::Start));
    assert_eq!(world.running.as_ref().unwrap().1.effort, Some(tables::Effort::Best));
    assert!(world.take(Step::Panic));
    let mut tried = 0;
    for _ in 0..100 {
        world.now += PAUSE;
        tried += usize::from(world.take(Step::Start));
    }
    assert!(tried > 0);
}
