//! What established connections keep of their rate while there is an attack.
//!
//! One worker is measured in five ways, in turn: its established connections alone (quiet), the same
//! while every other batch is of the attack, the attack's batches, smaller ones of them, and batches with
//! packets of both.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use conntrack::{Connections, Counts};
use packet::{BATCH, DropReason};
use serde_json::{Map, Value, json};

use super::attack::{Attack, Attacker, is_established};
use super::established::Established;
use super::{Cache, Carried, FRAME, NAME};
use crate::context::Context;
use crate::dut::dropped;
use crate::measure::{Cost, Effort, Lookups, Meter, Sample, Series, Stopwatch};
use crate::row::Row;
use crate::topology::OUT;

/// Packets of the attack in a batch that has both.
const MIXED: usize = BATCH / 4;
/// Packets in a round of mixed batches: one with both, and one of established connections that go the
/// other way.
const MIXED_ROUND: usize = 2 * BATCH - MIXED;

/// What is measured of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Measured {
    /// Packets of established connections while there is no attack.
    Quiet,
    /// The same while every other batch is of the attack.
    Between,
    /// The attack's packets of these batches.
    Attack,
    /// The attack's packets, in batches of as many as mixed ones have.
    Few,
    /// All packets where batches have both.
    Mixed,
}

impl Measured {
    pub(super) const ALL: [Self; 5] =
        [Self::Quiet, Self::Between, Self::Attack, Self::Few, Self::Mixed];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Quiet => "quiet",
            Self::Between => "between",
            Self::Attack => "attack",
            Self::Few => "attack, few",
            Self::Mixed => "mixed",
        }
    }

    /// Packets of the attack, of all that the worker has meanwhile.
    fn share(self) -> f64 {
        match self {
            Self::Quiet => 0.0,
            Self::Between | Self::Attack => 0.5,
            Self::Few => MIXED as f64 / (MIXED + BATCH) as f64,
            Self::Mixed => MIXED as f64 / MIXED_ROUND as f64,
        }
    }
}

/// The rows of an attack.
pub(super) fn rows(
    context: &Context,
    attack: Attack,
    connections: u32,
) -> anyhow::Result<Vec<Row>> {
    let attacked = Rc::new(RefCell::new(Attacked::new(attack, connections, Cache::Auto)?));
    let mut series: Vec<Box<dyn Series>> = Vec::new();
    for measured in Measured::ALL {
        let attacked = Rc::clone(&attacked);
        series.push(Box::new(Part { measured, attacked, lookups: Lookups::default() }));
    }
    let what = format!("conntrack, {}, {connections}", attack.name());
    let costs = context.measure(&what, &mut series)?;
    let kept = Kept::of(&costs).context("a series has no cost")?;
    let rows = Measured::ALL.into_iter().zip(&series).zip(costs);
    Ok(rows
        .map(|((measured, series), cost)| {
            let parameters = json!({
                "attack": attack.name(),
                "measured": measured.name(),
                "attack_share": measured.share(),
                "established": connections,
                "protocol": Carried::Tcp.name(),
                "cache": Cache::Auto.name(),
                "frame_bytes": FRAME,
            });
            let found = match measured {
                Measured::Quiet | Measured::Few => json!({}),
                Measured::Between => json!({ "kept": kept.between }),
                Measured::Attack => attacked.borrow().fate(),
                Measured::Mixed => json!({
                    "established_cycles_per_packet": kept.mixed_cycles,
                    "kept": kept.mixed,
                }),
            };
            Row::new(NAME, series.name(), parameters, Some(FRAME), cost).with(found)
        })
        .collect())
}

/// What is left of the rate of established connections.
struct Kept {
    /// Where every other batch is of the attack: the time of their own batches was taken.
    between: f64,
    /// Where batches have both: of all time, that is taken off which as many packets of the attack take
    /// in batches of their own. So all that mixing costs is charged to established connections; what a
    /// round takes without packets is taken off with it.
    mixed: f64,
    mixed_cycles: f64,
}

impl Kept {
    fn of(costs: &[Cost]) -> Option<Self> {
        let cycles: Vec<f64> = costs.iter().map(|cost| cost.cycles_per_packet).collect();
        let [quiet, between, _, few, mixed] = cycles.try_into().ok()?;
        let (all, attacks) = (MIXED_ROUND as f64, MIXED as f64);
        let mixed_cycles = (all * mixed - attacks * few) / (all - attacks);
        Some(Self { between: quiet / between, mixed: quiet / mixed_cycles, mixed_cycles })
    }
}

/// A gateway with established connections, and who attacks it.
struct Attacked {
    attack: Attack,
    connections: u32,
    established: Established,
    attacker: Attacker,
    table: Arc<Connections>,
    is_ready: bool,
    is_answer: bool,
    /// Packets of the attack that came in, and that left.
    came: u64,
    left: u64,
    /// What there was before the attack.
    before: Counts,
}

impl Attacked {
    /// Opens the connections.
    fn new(attack: Attack, connections: u32, cache: Cache) -> anyhow::Result<Self> {
        let tables = attack.tables(connections)?;
        let table = Arc::clone(tables.connections().context("there is no connection table")?);
        let (carried, opened) = (Carried::Tcp, attack.opened(connections));
        let name = attack.title().to_owned();
        let mut established = Established::new(name, tables, carried, cache, opened)?;
        established.open()?;
        let attacker = Attacker::new(attack, connections, &table)?;
        let before = table.counts();
        let (is_ready, is_answer) = (false, false);
        let (came, left) = (0, 0);
        Ok(Self {
            attack,
            connections,
            established,
            attacker,
            table,
            is_ready,
            is_answer,
            came,
            left,
            before,
        })
    }

    /// Has the decision cache find out what it is for, and the table fill with the attack.
    fn settle(&mut self, meter: &Meter, effort: Effort) -> anyhow::Result<()> {
        self.established.settle(meter, effort)?;
        self.refresh()?;
        while self.came < self.attack.lead(self.connections) {
            self.exchange(0, BATCH, false, None)?;
        }
        Ok(())
    }

    /// Has every established connection come by, both ways: what the attack has taken of the decision
    /// cache is theirs again.
    fn refresh(&mut self) -> anyhow::Result<()> {
        for is_answer in [false, true] {
            self.established.draw(self.connections);
            for _ in 0..self.connections.div_ceil(BATCH as u32) {
                self.exchange(BATCH, 0, is_answer, None)?;
            }
        }
        Ok(())
    }

    /// A batch of established connections, of the one side or the other by turns.
    fn batch(&mut self, stopwatch: Option<&mut Stopwatch<'_>>) -> anyhow::Result<()> {
        self.is_answer = !self.is_answer;
        self.exchange(BATCH, 0, self.is_answer, stopwatch)
    }

    /// Rounds of both that are not measured.
    fn lead(&mut self, effort: Effort) -> anyhow::Result<()> {
        if self.attack == Attack::Others {
            self.acknowledge_others()?;
        }
        for _ in 0..effort.packets / (2 * BATCH as u64) {
            self.exchange(0, BATCH, false, None)?;
            self.batch(None)?;
        }
        Ok(())
    }

    /// Has each of the other connections be answered: what they send is to stay within the window.
    fn acknowledge_others(&mut self) -> anyhow::Result<()> {
        let others: Vec<_> = (self.connections..self.attack.opened(self.connections)).collect();
        for part in others.chunks(BATCH) {
            part.iter().try_for_each(|&number| self.established.push_of(number.into(), true))?;
            let received = self.established.poll(None)?;
            let left = std::iter::from_fn(|| self.established.ports[0].pop_with(|_| ())).count();
            ensure!([received, left] == [part.len(); 2], "{left} of {} left", part.len());
        }
        Ok(())
    }

    /// What is measured once, and how many packets that was. `lookups` are those of established
    /// connections in batches of their own.
    fn round(
        &mut self,
        measured: Measured,
        lookups: &mut Lookups,
        stopwatch: &mut Stopwatch<'_>,
    ) -> anyhow::Result<u64> {
        match measured {
            Measured::Quiet | Measured::Between => {
                if measured == Measured::Between {
                    self.exchange(0, BATCH, false, None)?;
                }
                let before = self.established.lookups();
                self.batch(Some(stopwatch))?;
                lookups.add(self.established.lookups().since(before));
                Ok(BATCH as u64)
            }
            Measured::Attack => {
                self.exchange(0, BATCH, false, Some(stopwatch))?;
                self.batch(None)?;
                Ok(BATCH as u64)
            }
            Measured::Few => {
                self.exchange(0, MIXED, false, Some(stopwatch))?;
                self.batch(None)?;
                Ok(MIXED as u64)
            }
            Measured::Mixed => {
                let answers = self.attack.port() == OUT;
                self.exchange(BATCH - MIXED, MIXED, answers, Some(stopwatch))?;
                self.exchange(BATCH - MIXED, 0, !answers, Some(stopwatch))?;
                Ok(MIXED_ROUND as u64)
            }
        }
    }

    /// So many packets of established connections, that go one way, and of the attack, evenly among
    /// them. All of the former leave, and the others do or are counted as dropped.
    fn exchange(
        &mut self,
        established: usize,
        attack: usize,
        is_answer: bool,
        stopwatch: Option<&mut Stopwatch<'_>>,
    ) -> anyhow::Result<()> {
        let all = established + attack;
        let before = self.drops().values().sum::<u64>();
        for place in 0..all {
            match (place + 1) * attack / all > place * attack / all {
                true => self.push_attack()?,
                false => self.established.push(is_answer)?,
            }
        }
        let received = self.established.poll(stopwatch)?;
        ensure!(received == all, "of {all} packets {received} were received");
        let mut left = [0; 2];
        for port in &mut self.established.ports {
            while let Some(is_theirs) = port.pop_with(is_established) {
                left[usize::from(!is_theirs)] += 1;
            }
        }
        if self.attack == Attack::Others {
            left = [left[0] - attack.min(left[0]), left[1] + attack.min(left[0])];
        }
        let gone = self.drops().values().sum::<u64>() - before;
        ensure!(
            left[0] == established && left[1] + gone as usize == attack,
            "{}: of {established} packets {} left, of {attack} of the attack {}, {gone} dropped; {}",
            self.attack.title(),
            left[0],
            left[1],
            dropped(&self.established.worker)
        );
        ensure!(self.attack != Attack::Others || gone == 0, "they go on; {gone} were dropped");
        self.came += attack as u64;
        self.left += left[1] as u64;
        Ok(())
    }

    fn push_attack(&mut self) -> anyhow::Result<()> {
        match self.attacker.next(&self.established.sender) {
            Ok(frame) => {
                let port = &mut self.established.ports[usize::from(self.attack.port() == OUT)];
                ensure!(port.push(frame), "the port is full");
                Ok(())
            }
            Err(number) => self.established.push_of(number, false),
        }
    }

    /// Packets that were dropped so far, by reason.
    fn drops(&self) -> std::collections::BTreeMap<&'static str, u64> {
        let drops = &self.established.worker.statistics().drops;
        let count = |reason: &DropReason| (reason.name(), drops.read(*reason));
        DropReason::ALL.iter().map(count).filter(|(_, count)| *count > 0).collect()
    }

    /// What has become of the attack.
    fn fate(&self) -> Value {
        let (now, before) = (self.table.counts(), self.before);
        let dropped: Map<String, Value> = self
            .drops()
            .into_iter()
            .map(|(reason, count)| (reason.to_owned(), count.into()))
            .collect();
        json!({
            "attack_packets": self.came,
            "forwarded": self.left,
            "dropped": dropped,
            "connections_made": now.made - before.made,
            "connections_early_drop": now.early_drop - before.early_drop,
            "invalid": now.invalid - before.invalid,
        })
    }
}

/// One way of measuring a worker.
struct Part {
    measured: Measured,
    attacked: Rc<RefCell<Attacked>>,
    /// Of packets of established connections, where they have batches of their own.
    lookups: Lookups,
}

impl Series for Part {
    fn name(&self) -> String {
        format!("{}: {}", self.attacked.borrow().attack.title(), self.measured.name())
    }

    fn warm_up(&mut self, meter: &Meter, effort: Effort) -> anyhow::Result<()> {
        let mut attacked = self.attacked.borrow_mut();
        if !std::mem::replace(&mut attacked.is_ready, true) {
            attacked.settle(meter, effort)?;
        }
        Ok(())
    }

    fn run(&mut self, meter: &Meter, effort: Effort) -> anyhow::Result<Sample> {
        let (mut attacked, measured) = (self.attacked.borrow_mut(), self.measured);
        match measured {
            Measured::Quiet => attacked.refresh()?,
            _ => attacked.lead(effort)?,
        }
        let lookups = &mut self.lookups;
        meter.run(effort, |stopwatch| attacked.round(measured, lookups, stopwatch))
    }

    fn lookups(&self) -> Lookups {
        self.lookups
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;
    use conntrack::State;

    use super::*;

    const CONNECTIONS: u32 = 500;

    /// After rounds of every kind, with what was looked up in quiet and between.
    fn attacked(attack: Attack) -> (Attacked, [Lookups; 2]) {
        let context = Context::tiny();
        let mut attacked = Attacked::new(attack, CONNECTIONS, Cache::On).unwrap();
        attacked.settle(&context.meter, context.effort).unwrap();
        let [mut quiet, mut between, mut others] = [Lookups::default(); 3];
        for measured in Measured::ALL {
            let lookups = match measured {
                Measured::Quiet => &mut quiet,
                Measured::Between => &mut between,
                Measured::Attack | Measured::Few | Measured::Mixed => &mut others,
            };
            for _ in 0..80 {
                let mut stopwatch = context.meter.stopwatch();
                let count = attacked.round(measured, lookups, &mut stopwatch).unwrap();
                assert!(count > 0 && stopwatch.total() > 0);
            }
        }
        assert_eq!(others, Lookups::default());
        (attacked, [quiet, between])
    }

    /// Whatever comes beside, what established connections send is forwarded by what was decided
    /// before; and they live.
    #[test]
    fn established_connections_stay_on_the_fast_path() {
        for &attack in Attack::value_variants() {
            let (attacked, [quiet, between]) = attacked(attack);
            assert_eq!((quiet.packets, between.packets), (80 * 256, 80 * 256), "{attack:?}");
            assert_eq!(quiet.hits, quiet.packets, "{attack:?}");
            assert!(between.hits * 1000 >= between.packets * 999, "{attack:?}: {between:?}");
            let table = &attacked.table;
            let places = 0..table.settings().connections;
            let lives = places.filter_map(|place| table.connection(place, super::super::START));
            let established = lives.filter(|lives| lives.state == State::Established).count();
            assert_eq!(established, attack.opened(CONNECTIONS) as usize, "{attack:?}");
        }
    }

    /// Each attack is what it is called.
    #[test]
    fn every_packet_of_an_attack_is_accounted_for() {
        for &attack in Attack::value_variants() {
            let (attacked, _) = attacked(attack);
            let (came, left) = (attacked.came, attacked.left);
            assert_eq!(
                came,
                attack.lead(CONNECTIONS).next_multiple_of(256) + 80 * (256 + 256 + 64 + 64)
            );
            let fate = attacked.fate();
            let found = |what: &str| fate[what].as_u64().unwrap();
            let drops = attacked.drops();
            let dropped = |reason: &str| drops.get(reason).copied().unwrap_or(0);
            assert_eq!(left + drops.values().sum::<u64>(), came, "{attack:?}");
            let (made, counts) = (found("connections_made"), attacked.table.counts());
            let places = attacked.table.settings().connections;
            match attack {
                Attack::Others => assert_eq!((left, made), (came, 0)),
                Attack::SynFlood | Attack::UdpFlood => {
                    assert_eq!((left, made), (came, came));
                    // The table is full, and what is new has the place of another one of the attack.
                    let room = u64::from(places - CONNECTIONS);
                    assert_eq!(found("connections_early_drop"), came - room);
                }
                Attack::OneSource => {
                    assert_eq!((left, made), (1000, 1000));
                    assert_eq!(dropped("connection_limit"), came - 1000);
                }
                Attack::PortScan => {
                    assert_eq!((left, made), (0, 0));
                    assert_eq!(dropped("flow_drop"), came);
                }
                Attack::IcmpErrors => {
                    assert_eq!((left, made, found("invalid")), (0, 0, came));
                    assert_eq!(dropped("flow_miss"), came);
                }
                Attack::Bucket => {
                    // 24 places of two buckets, some of which others have.
                    assert!((12..=24).contains(&made) && counts.bucket_full > 0, "{counts:?}");
                    assert_eq!(dropped("connection_full"), counts.bucket_full);
                    assert!(dropped("connection_full") > came / 2, "{drops:?} of {came}");
                }
                Attack::FullTable => {
                    assert_eq!((left, made, places), (0, 0, CONNECTIONS));
                    assert_eq!(dropped("connection_full"), came);
                    assert_eq!(counts.full, came);
                }
            }
        }
    }

    #[test]
    fn what_mixing_costs_is_charged_to_established_connections() {
        let meter = Meter::new();
        let costs = |mixed: f64| {
            [100.0, 125.0, 700.0, 800.0, mixed].map(|cycles| Cost::of(&meter, vec![cycles], 1))
        };
        let all = MIXED_ROUND as f64;
        // As much as both by themselves.
        let fair = (384.0 * 100.0 + 64.0 * 800.0) / all;
        let kept = Kept::of(&costs(fair)).unwrap();
        assert_eq!(kept.between, 0.8);
        assert!((kept.mixed - 1.0).abs() < 1e-9 && (kept.mixed_cycles - 100.0).abs() < 1e-9);
        let dearer = (384.0 * 100.0 + 64.0 * 800.0 + 384.0 * 25.0) / all;
        assert!((Kept::of(&costs(dearer)).unwrap().mixed - 0.8).abs() < 1e-9);
        assert!(Kept::of(&costs(fair)[..4]).is_none());
    }
}
