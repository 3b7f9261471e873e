//! Queueing disciplines in the file.

use core::fmt;
use core::str::FromStr;

use api::QdiscSpec;
use types::qdisc::{FqCodel, Pfifo, Qdisc, QdiscHandle, Tbf};

use super::diagnostic::Errors;
use super::reader::Table;
use crate::check::qdisc::PARAMETERS;
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

        impl From<$type> for u64 {
            fn from($type(value): $type) -> Self {
                value
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
    let ecn = table.flag("ecn", errors).map(|found| found.value);
    let mut spec = QdiscSpec {
        dev: dev.map(|dev| dev.value.to_owned()).unwrap_or_default(),
        parent,
        handle,
        kind: kind.map(|kind| kind.value.to_owned()).unwrap_or_default(),
        ecn,
        ..QdiscSpec::default()
    };
    for parameter in PARAMETERS {
        let key = key_of(parameter.name);
        let value = match parameter.quantity(&spec.kind) {
            None => table.number(key, 0..=u32::MAX.into(), errors).map(|found| found.value),
            Some(Quantity::Rate) => quantity::<Rate>(table, key, "\"100mbit\"", errors),
            Some(Quantity::Size) => quantity::<Size>(table, key, "\"32kb\"", errors),
            Some(Quantity::Time) => quantity::<Time>(table, key, "\"50ms\"", errors),
        };
        value.into_iter().for_each(|value| (parameter.set)(&mut spec, value));
    }
    if errors.count() > before {
        return None;
    }
    if parent.is_some() && parent == handle {
        let fault = Fault::invalid("handle", "its handle is that of its parent");
        table.fault(fault.hint("another handle, or none"), errors);
        return None;
    }
    match check::qdisc::qdisc(&spec, None) {
        Ok(_) => Some(spec),
        Err(fault) => {
            table.fault(Fault { part: key_of(fault.part), ..fault }, errors);
            None
        }
    }
}

/// The key of a parameter.
fn key_of(name: &'static str) -> &'static str {
    match name {
        "ce_threshold" => "ce-threshold",
        "memory_limit" => "memory-limit",
        name => name,
    }
}

fn quantity<T: FromStr<Err = Wrong> + Into<u64>>(
    table: &Table<'_>,
    key: &'static str,
    example: &str,
    errors: &mut Errors<'_>,
) -> Option<u64> {
    table.parsed_or_number::<T>(key, example, errors).map(|found| found.value.into())
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
