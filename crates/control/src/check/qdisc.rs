//! Queueing disciplines.

use api::QdiscSpec;
use types::qdisc::{Bounds, FqCodel, Pfifo, Qdisc, QdiscRange, Tbf};

use api::shown;

use super::Fault;
use crate::quantity::Quantity;

/// The kinds that there are.
pub(crate) const KINDS: &[&str] = &["tbf", "fq_codel", "pfifo"];

/// A parameter that is a number. The one that is none is `ecn`, of [`WITH_ECN`].
pub(crate) struct Parameter {
    /// Its name in commands. In the configuration file it has `-` where this has `_`.
    pub(crate) name: &'static str,
    /// Other names in commands.
    pub(crate) others: &'static [&'static str],
    kinds: &'static [&'static str],
    quantity: Option<Quantity>,
    /// Its value, if it is said.
    pub(crate) value: fn(&QdiscSpec) -> Option<u64>,
    pub(crate) set: fn(&mut QdiscSpec, u64),
}

/// The kind that has `ecn`.
pub(crate) const WITH_ECN: &str = "fq_codel";

macro_rules! parameters {
    ($($name:ident $others:expr, $kinds:expr, $quantity:expr;)+) => {
        &[$(Parameter {
            name: stringify!($name),
            others: &$others,
            kinds: $kinds,
            quantity: $quantity,
            value: |spec| spec.$name,
            set: |spec, value| spec.$name = Some(value),
        }),+]
    };
}

/// The parameters, in the order in which they are written.
pub(crate) const PARAMETERS: &[Parameter] = parameters! {
    rate [], &["tbf"], Some(Quantity::Rate);
    burst ["buffer", "maxburst"], &["tbf"], Some(Quantity::Size);
    limit [], KINDS, Some(Quantity::Size);
    latency [], &["tbf"], Some(Quantity::Time);
    flows [], &["fq_codel"], None;
    target [], &["fq_codel"], Some(Quantity::Time);
    interval [], &["fq_codel"], Some(Quantity::Time);
    quantum [], &["fq_codel"], None;
    ce_threshold [], &["fq_codel"], Some(Quantity::Time);
    memory_limit [], &["fq_codel"], Some(Quantity::Size);
};

impl Parameter {
    pub(crate) fn is_of(&self, kind: &str) -> bool {
        self.kinds.contains(&kind)
    }

    /// What it is a number of, in a discipline of this kind.
    pub(crate) fn quantity(&self, kind: &str) -> Option<Quantity> {
        // The token bucket alone counts bytes and not packets.
        self.quantity.filter(|_| self.name != "limit" || kind == "tbf")
    }

    /// Its value as text, if it is said.
    pub(crate) fn text(&self, spec: &QdiscSpec) -> Option<String> {
        let value = (self.value)(spec)?;
        Some(match self.quantity(&spec.kind) {
            Some(quantity) => quantity.text(value),
            None => value.to_string(),
        })
    }
}

/// The discipline that is asked for. What is not said is as in `before`, or as usual.
pub(crate) fn qdisc(spec: &QdiscSpec, before: Option<&Qdisc>) -> Result<Qdisc, Fault> {
    let kind = spec.kind.as_str();
    if !KINDS.contains(&kind) {
        let fault = Fault::invalid("kind", format!("there is no qdisc '{}'", shown(kind)));
        return Err(fault.hint("tbf, fq_codel or pfifo"));
    }
    let wrong = |name, kinds: &[&str]| {
        let fault = Fault::invalid(name, format!("{kind} has no {name}"));
        Err(fault.hint(format!("of {}", kinds.join(" and "))))
    };
    for parameter in PARAMETERS {
        if (parameter.value)(spec).is_some() && !parameter.is_of(kind) {
            return wrong(parameter.name, parameter.kinds);
        }
    }
    if spec.ecn.is_some() && kind != WITH_ECN {
        return wrong("ecn", &[WITH_ECN]);
    }
    let qdisc = match kind {
        "tbf" => Qdisc::Tbf(tbf(spec, before)?),
        "pfifo" => {
            let usual = match before {
                Some(Qdisc::Pfifo(before)) => *before,
                _ => Pfifo::default(),
            };
            Qdisc::Pfifo(Pfifo { limit: value(Bounds::LIMIT, spec.limit, usual.limit)? })
        }
        _ => {
            let usual = match before {
                Some(Qdisc::FqCodel(before)) => *before,
                _ => FqCodel::default(),
            };
            let threshold = spec.ce_threshold.map(|time| word(Bounds::CE_THRESHOLD, time));
            Qdisc::FqCodel(FqCodel {
                limit: value(Bounds::LIMIT, spec.limit, usual.limit)?,
                flows: value(Bounds::FLOWS, spec.flows, usual.flows)?,
                target: value(Bounds::TARGET, spec.target, usual.target)?,
                interval: value(Bounds::INTERVAL, spec.interval, usual.interval)?,
                quantum: value(Bounds::QUANTUM, spec.quantum, usual.quantum)?,
                ecn: spec.ecn.unwrap_or(usual.ecn),
                ce_threshold: threshold.transpose()?.or(usual.ce_threshold),
                memory_limit: value(Bounds::MEMORY_LIMIT, spec.memory_limit, usual.memory_limit)?,
            })
        }
    };
    qdisc.check().map_err(|wrong| range(&wrong))?;
    Ok(qdisc)
}

fn tbf(spec: &QdiscSpec, before: Option<&Qdisc>) -> Result<Tbf, Fault> {
    let before = match before {
        Some(Qdisc::Tbf(before)) => Some(*before),
        _ => None,
    };
    let missing = |name: &'static str, hint: &str| {
        Fault::invalid(name, format!("tbf without {name}")).hint(hint)
    };
    let rate = spec.rate.or(before.map(|tbf| tbf.rate));
    let rate = rate.ok_or_else(|| missing("rate", "rate RATE, as in rate 100mbit"))?;
    let burst = spec.burst.or(before.map(|tbf| tbf.burst.into()));
    let burst = burst.ok_or_else(|| missing("burst", "burst SIZE, as in burst 32kb"))?;
    // First of all, since what may wait follows from it.
    let rated = Tbf { rate, burst: 1, limit: 1 };
    Qdisc::Tbf(rated).check().map_err(|wrong| range(&wrong))?;
    let burst = word(Bounds::BURST, burst)?;
    if spec.limit.is_some() && spec.latency.is_some() {
        let fault = Fault::invalid("latency", "limit and latency are both given");
        return Err(fault.hint("one of them: latency T is a limit of rate * T + burst"));
    }
    let limit = match (spec.latency, before) {
        (Some(0), _) => {
            let fault = Fault::invalid("latency", "latency 0: nothing could wait");
            return Err(fault.hint("a time, as in latency 50ms"));
        }
        (Some(latency), _) => {
            let waiting = u128::from(rate) * u128::from(latency) / 1_000_000;
            let limit = waiting + u128::from(burst);
            u64::try_from(limit).ok().filter(|limit| *limit <= u32::MAX.into()).ok_or_else(
                || {
                    // Whatever is most of it.
                    let part = if waiting < u128::from(burst) { "burst" } else { "latency" };
                    let message = format!("{part}: {limit} bytes would wait");
                    Fault::invalid(part, message).hint(format!("{} at most", u32::MAX))
                },
            )?
        }
        (None, before) => spec
            .limit
            .or(before.map(|tbf| tbf.limit.into()))
            .ok_or_else(|| missing("limit", "latency TIME or limit SIZE, as in latency 50ms"))?,
    };
    Ok(Tbf { rate, burst, limit: word(Bounds::LIMIT_IN_BYTES, limit)? })
}

/// A parameter as it is said.
fn value(bounds: Bounds, said: Option<u64>, usual: u32) -> Result<u32, Fault> {
    said.map_or(Ok(usual), |value| word(bounds, value))
}

/// A parameter that has at most 32 bits.
fn word(bounds: Bounds, value: u64) -> Result<u32, Fault> {
    bounds.check(value).map_err(|wrong| range(&wrong))?;
    // No bounds but those of a rate are wider.
    Ok(u32::try_from(value).unwrap_or(u32::MAX))
}

fn range(wrong: &QdiscRange) -> Fault {
    let QdiscRange { parameter, value, least, most, unit } = wrong;
    let fault = Fault::invalid(parameter, format!("{parameter} of {value}{unit}"));
    fault.hint(format!("{least} to {most}{unit}"))
}
