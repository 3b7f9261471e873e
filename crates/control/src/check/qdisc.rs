//! Queueing disciplines.

use api::QdiscSpec;
use types::qdisc::{FqCodel, Pfifo, Qdisc, QdiscRange, Tbf};

use super::{Fault, shown};

/// The kinds that there are.
const KINDS: &[&str] = &["tbf", "fq_codel", "pfifo"];

/// Parameters of one of the kinds: key, kinds that have it, whether it was said.
fn parameters(spec: &QdiscSpec) -> [(&'static str, &'static [&'static str], bool); 11] {
    let QdiscSpec { rate, burst, limit, latency, flows, target, interval, quantum, .. } = spec;
    [
        ("rate", &["tbf"], rate.is_some()),
        ("burst", &["tbf"], burst.is_some()),
        ("latency", &["tbf"], latency.is_some()),
        ("limit", KINDS, limit.is_some()),
        ("flows", &["fq_codel"], flows.is_some()),
        ("target", &["fq_codel"], target.is_some()),
        ("interval", &["fq_codel"], interval.is_some()),
        ("quantum", &["fq_codel"], quantum.is_some()),
        ("ecn", &["fq_codel"], spec.ecn.is_some()),
        ("ce_threshold", &["fq_codel"], spec.ce_threshold.is_some()),
        ("memory_limit", &["fq_codel"], spec.memory_limit.is_some()),
    ]
}

/// The discipline that is asked for. What is not said is as in `before`, or as usual.
pub(crate) fn qdisc(spec: &QdiscSpec, before: Option<&Qdisc>) -> Result<Qdisc, Fault> {
    let kind = spec.kind.as_str();
    if !KINDS.contains(&kind) {
        let fault = Fault::invalid("kind", format!("there is no qdisc '{}'", shown(kind)));
        return Err(fault.hint("tbf, fq_codel or pfifo"));
    }
    for (name, kinds, is_said) in parameters(spec) {
        if is_said && !kinds.contains(&kind) {
            let fault = Fault::invalid(name, format!("{kind} has no {name}"));
            return Err(fault.hint(format!("of {}", kinds.join(" and "))));
        }
    }
    let qdisc = match kind {
        "tbf" => Qdisc::Tbf(tbf(spec, before)?),
        "pfifo" => {
            let usual = match before {
                Some(Qdisc::Pfifo(before)) => *before,
                _ => Pfifo::default(),
            };
            Qdisc::Pfifo(Pfifo { limit: value("limit", spec.limit, usual.limit)? })
        }
        _ => {
            let usual = match before {
                Some(Qdisc::FqCodel(before)) => *before,
                _ => FqCodel::default(),
            };
            let threshold = spec.ce_threshold.map(|time| value("ce_threshold", Some(time), 0));
            Qdisc::FqCodel(FqCodel {
                limit: value("limit", spec.limit, usual.limit)?,
                flows: value("flows", spec.flows, usual.flows)?,
                target: value("target", spec.target, usual.target)?,
                interval: value("interval", spec.interval, usual.interval)?,
                quantum: value("quantum", spec.quantum, usual.quantum)?,
                ecn: spec.ecn.unwrap_or(usual.ecn),
                ce_threshold: threshold.transpose()?.or(usual.ce_threshold),
                memory_limit: value("memory_limit", spec.memory_limit, usual.memory_limit)?,
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
                    let message = format!("latency: {limit} bytes would wait");
                    Fault::invalid("latency", message).hint(format!("{} at most", u32::MAX))
                },
            )?
        }
        (None, before) => spec
            .limit
            .or(before.map(|tbf| tbf.limit.into()))
            .ok_or_else(|| missing("limit", "latency TIME or limit SIZE, as in latency 50ms"))?,
    };
    Ok(Tbf { rate, burst: value("burst", Some(burst), 0)?, limit: value("limit", Some(limit), 0)? })
}

/// A parameter that is said, if it can be one at all.
fn value(parameter: &'static str, said: Option<u64>, usual: u32) -> Result<u32, Fault> {
    let Some(value) = said else { return Ok(usual) };
    u32::try_from(value).map_err(|_| {
        let (least, most, unit) = (1, u32::MAX.into(), "");
        range(&QdiscRange { parameter, value, least, most, unit })
    })
}

fn range(wrong: &QdiscRange) -> Fault {
    let QdiscRange { parameter, value, least, most, unit } = wrong;
    let fault = Fault::invalid(parameter, format!("{parameter} of {value}{unit}"));
    fault.hint(format!("{least} to {most}{unit}"))
}
