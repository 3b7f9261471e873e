//! Queueing disciplines in the file.

use core::fmt;
use core::str::FromStr;

use api::QdiscSpec;
use types::qdisc::{FqCodel, Pfifo, Qdisc, QdiscHandle, Tbf};

use super::diagnostic::Errors;
use super::reader::Table;
use crate::check::{self, Fault};
use crate::quantity::Quantity;

/// A quantity of a kind, as a text or a number.
struct Rate(u64);
struct Size(u64);
struct Time(u64);

/// A text is no quantity.
struct Wrong(Quantity);

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected {}", self.0.example())
    }
}

macro_rules! quantities {
    ($($type:ident),+) => {$(
        impl FromStr for $type {
            type Err = Wrong;

            fn from_str(text: &str) -> Result<Self, Wrong> {
                Quantity::$type.read(text).map(Self).ok_or(Wrong(Quantity::$type))
            }
        }
    )+};
}
quantities!(Rate, Size, Time);

pub(super) fn qdisc(table: &Table<'_>, errors: &mut Errors<'_>) -> Option<QdiscSpec> {
    let before = errors.count();
    let dev = table.required_text("dev", errors);
    let kind = table.required_text("kind", errors);
    let handle = |key, errors: &mut Errors<'_>| {
        table.parsed::<QdiscHandle>(key, "\"1:\"", errors).map(|found| found.value)
    };
    let (parent, handle) = (handle("parent", errors), handle("handle", errors));
    let rate = table.parsed_or_number::<Rate>("rate", "\"100mbit\"", errors);
    let size = |key, errors: &mut Errors<'_>| {
        table.parsed_or_number::<Size>(key, "\"32kb\"", errors).map(|found| found.value.0)
    };
    let (burst, limit) = (size("burst", errors), size("limit", errors));
    let memory_limit = size("memory-limit", errors);
    let time = |key, errors: &mut Errors<'_>| {
        table.parsed_or_number::<Time>(key, "\"50ms\"", errors).map(|found| found.value.0)
    };
    let (latency, target) = (time("latency", errors), time("target", errors));
    let (interval, ce_threshold) = (time("interval", errors), time("ce-threshold", errors));
    let number = |key, errors: &mut Errors<'_>| {
        table.number(key, 0..=u32::MAX.into(), errors).map(|found| found.value)
    };
    let (flows, quantum) = (number("flows", errors), number("quantum", errors));
    let ecn = table.flag("ecn", errors).map(|found| found.value);
    let spec = QdiscSpec {
        dev: dev?.value.to_owned(),
        parent,
        handle,
        kind: kind?.value.to_owned(),
        rate: rate.map(|found| found.value.0),
        burst,
        limit,
        latency,
        flows,
        target,
        interval,
        quantum,
        ecn,
        ce_threshold,
        memory_limit,
    };
    if errors.count() > before {
        return None;
    }
    if parent.is_some() && parent == handle {
        let fault = Fault::invalid("handle", "its handle is that of its parent");
        table.fault(fault.hint("another handle, or none"), errors);
        return None;
    }
    match check::qdisc(&spec, None) {
        Ok(_) => Some(spec),
        Err(fault) => {
            let part = match fault.part {
                "ce_threshold" => "ce-threshold",
                "memory_limit" => "memory-limit",
                part => part,
            };
            table.fault(Fault { part, ..fault }, errors);
            None
        }
    }
}

/// A discipline as a file would ask for it.
pub(crate) fn qdisc_spec(
    dev: &str,
    parent: Option<QdiscHandle>,
    handle: QdiscHandle,
    qdisc: &Qdisc,
) -> QdiscSpec {
    let spec = QdiscSpec {
        dev: dev.to_owned(),
        parent,
        handle: Some(handle),
        kind: qdisc.kind().to_owned(),
        ..QdiscSpec::default()
    };
    match *qdisc {
        Qdisc::Tbf(Tbf { rate, burst, limit }) => QdiscSpec {
            rate: Some(rate),
            burst: Some(burst.into()),
            limit: Some(limit.into()),
            ..spec
        },
        Qdisc::FqCodel(FqCodel {
            limit,
            flows,
            target,
            interval,
            quantum,
            ecn,
            ce_threshold,
            memory_limit,
        }) => QdiscSpec {
            limit: Some(limit.into()),
            flows: Some(flows.into()),
            target: Some(target.into()),
            interval: Some(interval.into()),
            quantum: Some(quantum.into()),
            ecn: Some(ecn),
            ce_threshold: ce_threshold.map(u64::from),
            memory_limit: Some(memory_limit.into()),
            ..spec
        },
        Qdisc::Pfifo(Pfifo { limit }) => QdiscSpec { limit: Some(limit.into()), ..spec },
    }
}
