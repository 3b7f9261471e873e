//! The same rules as flows of one match-action table.

use std::collections::HashMap;
use std::hint::black_box;
use std::net::IpAddr;
use std::time::Instant;

use anyhow::{bail, ensure};
use packet::Time;
use pipeline::{
    Change, Criteria, CtFields, Exit, Field, Fields, Flow, FlowId, IPV4, IPV6, Match, NatSpec,
    Owner, Pipeline, Refused, Track,
};
use serde_json::{Value, json};
use tables::{Selector, Tables, UpperSelector};
use types::Protocol;
use wire::{FlowKey, IpRange, VrfId};

use super::source::Set;
use super::{BATCH, Built, update};
use crate::context::Context;
use crate::core_state::Steadily;
use crate::measure::{Batches, Stopwatch};

/// Tables with the rules of a set as flows, and what it took to make them.
pub(super) struct Flows {
    pub(super) built: Built,
    changes: Steadily<update::Changes>,
}

impl Flows {
    /// `None` if a table has no room for them.
    ///
    /// # Errors
    /// If a flow is refused for another reason, or a header finds another rule than by trying one
    /// after the other.
    pub(super) fn new(
        context: &Context,
        set: &Set,
        linear: &Tables,
        (checks, updates): (usize, usize),
    ) -> anyhow::Result<Option<Self>> {
        let before = crate::HEAP.current_usage();
        let begin = Instant::now();
        let mut pipeline = Pipeline::new();
        for (number, rule) in set.rules.iter().enumerate() {
            // Where there are more rules than priorities, the oldest of equal ones counts.
            let priority = number * usize::from(u16::MAX) / set.rules.len().max(65_535);
            for matches in matches_of(rule) {
                let flow = flow(matches, u16::MAX - priority as u16, number as u64 + 1);
                match pipeline.apply(Change::Add { flow, check_overlap: false }, Owner::User) {
                    Ok(_) => {}
                    Err(Refused::TooManyFlows | Refused::TooManyMasks(_)) => return Ok(None),
                    Err(why) => bail!("{}: {why}", set.name),
                }
            }
        }
        let mut tables = Tables::new(1, 1);
        tables.set_pipeline(pipeline, Time(0))?;
        let seconds = begin.elapsed().as_secs_f64();
        let bytes = crate::HEAP.current_usage().saturating_sub(before);
        check(set, linear, &tables, checks)?;
        let changes = context
            .monitor
            .steadily(&context.meter, usize::MAX, || measure_changes(&tables, updates))?;
        if set.rules.len() < 65_535 {
            check(set, linear, &changes.result.tables, checks.min(1000))?;
        }
        let built = Built { tables, seconds, bytes, compiled_seconds: 0.0 };
        Ok(Some(Self { built, changes }))
    }

    pub(super) fn found(&self, context: &Context) -> Value {
        let mut found = json!({
            "build_ms": 1000.0 * self.built.seconds,
            "memory_bytes": self.built.bytes,
            "groups": self.built.tables.pipeline().masks(),
            "changes_core": self.changes.looks.state(context.monitor.best()),
        });
        if let (Some(found), Value::Object(changes)) =
            (found.as_object_mut(), self.changes.result.found())
        {
            found.extend(changes);
        }
        found
    }
}

/// Looks up one header after the other, as a packet in the tables.
pub(super) struct FlowLookups<'a> {
    pub(super) pipeline: &'a Pipeline,
    pub(super) headers: &'a [FlowKey],
    pub(super) next: usize,
}

impl Batches for FlowLookups<'_> {
    fn name(&self) -> String {
        "flows".to_owned()
    }

    fn batch(&mut self, stopwatch: &mut Stopwatch<'_>) -> u64 {
        if self.next >= self.headers.len() {
            self.next = 0;
        }
        let keys = &self.headers[self.next..(self.next + BATCH).min(self.headers.len())];
        self.next += keys.len();
        let mut found = [None; BATCH];
        stopwatch.start();
        for (key, found) in keys.iter().zip(&mut found) {
            *found = first(self.pipeline, key);
        }
        black_box(&found);
        stopwatch.stop();
        keys.len() as u64
    }
}

fn first(pipeline: &Pipeline, key: &FlowKey) -> Option<FlowId> {
    let outcome = pipeline.evaluate(&Fields::of(key, 0), &mut NoConnections, &mut ());
    outcome.matched.first().copied()
}

/// No flow asks for any.
struct NoConnections;

impl Track for NoConnections {
    fn exit(&mut self, _: &Fields) -> Exit {
        Exit::None
    }

    fn track(&mut self, _: u16, _: bool, _: &Fields, _: Option<&NatSpec>) -> CtFields {
        CtFields::default()
    }
}

fn check(set: &Set, linear: &Tables, tables: &Tables, headers: usize) -> anyhow::Result<()> {
    let Some(linear) = super::spd(linear) else { return Ok(()) };
    let pipeline = tables.pipeline();
    let rules: HashMap<FlowId, u64> =
        pipeline.entries().map(|entry| (entry.id, entry.flow.cookie)).collect();
    for key in &set.headers[..headers.min(set.headers.len())] {
        let right = linear.lookup_linear(tables::Direction::Out, key);
        let right = right.map(|(_, policy)| u64::from(policy.spec.priority));
        let found = first(pipeline, key).and_then(|id| rules.get(&id).copied());
        ensure!(
            found == right,
            "{}: flows differ from the linear search for {key:?}: rule {right:?} is right, they \
             find {found:?}",
            set.name
        );
    }
    Ok(())
}

fn measure_changes(tables: &Tables, count: usize) -> anyhow::Result<update::Changes> {
    let entries = tables.pipeline().entries();
    let flows: Vec<Flow> = entries.map(|entry| entry.flow.clone()).collect();
    update::measure_by(
        tables,
        count,
        |_, turn| flows.get(turn.wrapping_mul(7919) % flows.len().max(1)),
        |tables, flow, insert| {
            let mut pipeline = tables.pipeline().clone();
            let change = match insert {
                true => Change::Add { flow: Flow::clone(flow), check_overlap: false },
                false => Change::Delete {
                    criteria: Criteria {
                        vrf: Some(flow.vrf),
                        table: Some(flow.table),
                        strict: Some(flow.priority),
                        cookie: None,
                        out_port: None,
                        matches: flow.matches.clone(),
                    },
                },
            };
            pipeline.apply(change, Owner::User)?;
            Ok(tables.set_pipeline(pipeline, Time(0))?)
        },
    )
}

fn flow(matches: Match, priority: u16, cookie: u64) -> Flow {
    let (vrf, table, actions) = (VrfId::MAIN, 0, Vec::new());
    let (idle_timeout, hard_timeout) = (0, 0);
    Flow { vrf, table, priority, matches, actions, cookie, idle_timeout, hard_timeout }
}

/// What a rule is as flows: one, or one for each protocol that has ports.
fn matches_of(rule: &Selector) -> Vec<Match> {
    let v6 = rule.source.is_v6();
    let protocols: Vec<Option<Protocol>> = match (rule.protocol, rule.upper) {
        (Some(_), _) | (None, UpperSelector::Any) => vec![rule.protocol],
        (None, UpperSelector::Ports { .. }) => {
            (0..=u8::MAX).map(Protocol).filter(|it| it.has_ports()).map(Some).collect()
        }
        (None, UpperSelector::Icmp { .. }) => {
            vec![Some(if v6 { Protocol::ICMPV6 } else { Protocol::ICMP })]
        }
    };
    protocols.into_iter().map(|protocol| matches_with(rule, protocol)).collect()
}

fn matches_with(rule: &Selector, protocol: Option<Protocol>) -> Match {
    let v6 = rule.source.is_v6();
    let mut matches = Match::ANY;
    matches.set(Field::DlType, if v6 { IPV6 } else { IPV4 }.into(), u128::MAX);
    let addresses = match v6 {
        true => [Field::Ipv6Src, Field::Ipv6Dst],
        false => [Field::NwSrc, Field::NwDst],
    };
    let bits = |address: IpAddr| match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    };
    for (field, range) in addresses.into_iter().zip([rule.source, rule.destination]) {
        if range != IpRange::ALL_V4 && range != IpRange::ALL_V6 {
            matches.set_range(field, bits(range.first()), bits(range.last()));
        }
    }
    if let Some(protocol) = protocol {
        matches.set(Field::NwProto, protocol.0.into(), u128::MAX);
    }
    let upper = match rule.upper {
        UpperSelector::Any => None,
        UpperSelector::Ports { source, destination } => {
            let fields = match protocol {
                Some(Protocol::UDP) => [Field::UdpSrc, Field::UdpDst],
                Some(Protocol::SCTP) => [Field::SctpSrc, Field::SctpDst],
                _ => [Field::TcpSrc, Field::TcpDst],
            };
            let ends = [source, destination].map(|ports| (ports.first(), ports.last()));
            Some((fields, ends))
        }
        UpperSelector::Icmp { kind, code } => {
            let fields = match v6 {
                true => [Field::Icmpv6Type, Field::Icmpv6Code],
                false => [Field::IcmpType, Field::IcmpCode],
            };
            Some((fields, [kind, code].map(|(first, last)| (first.into(), last.into()))))
        }
    };
    if let Some((fields, ends)) = upper {
        for (field, (first, last)) in fields.into_iter().zip(ends) {
            matches.set_range(field, first.into(), last.into());
        }
    }
    let (value, mask) = (rule.fields.value(), rule.fields.mask());
    let optional = [
        (Field::TcpFlags, value.tcp_flags().0, mask.tcp_flags().0),
        (Field::IpDscp, value.dscp().bits(), mask.dscp().bits()),
        (Field::NwTtl, value.hop_limit(), mask.hop_limit()),
    ];
    for (field, value, mask) in optional.into_iter().filter(|(_, _, mask)| *mask != 0) {
        matches.set(field, value.into(), mask.into());
    }
    matches
}
