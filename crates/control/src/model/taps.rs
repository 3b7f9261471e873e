//! Taps and traces. They end with whoever reads them, so they are not kept and not part of what is
//! desired.

use api::{Refusal, RefusalCode, TapPoint, TapSpec, TapTarget, TraceSpec};
use tables::bpf::{Instruction, Program};
use tables::{FilterTarget, MAX_SNAPLEN, MAX_TRACED, TapPoints};

use super::Control;

impl Control {
    /// Adds a tap.
    ///
    /// # Errors
    /// Its port or VRF does not exist, its program or its bounds are wrong, or there are as many
    /// taps as there may be.
    pub fn add_tap(&mut self, spec: &TapSpec) -> Result<(), Refusal> {
        let mut tables = self.tables();
        let unknown = |what, name: &str| {
            Refusal::new(RefusalCode::NotFound, format!("there is no {what} {name}"))
        };
        let target = match &spec.target {
            TapTarget::Port(name) => {
                let port = tables.port_named(name).ok_or_else(|| unknown("port", name))?;
                FilterTarget::Port(port.id)
            }
            TapTarget::Vrf(name) => {
                let vrf = tables.vrf_named(name).ok_or_else(|| unknown("VRF", name))?;
                FilterTarget::Vrf(vrf.id)
            }
        };
        let spec = tables::TapSpec {
            id: spec.id,
            target,
            points: points(&spec.points),
            snaplen: snaplen(spec.snaplen)?,
            rate: rate(spec.rate)?,
            program: program(&spec.program)?,
        };
        tables.add_tap(spec).map_err(|error| Refusal::new(RefusalCode::Full, error.to_string()))?;
        self.publisher.publish(tables);
        Ok(())
    }

    /// Removes a tap, if it is still there.
    pub fn remove_tap(&mut self, id: u64) {
        let mut tables = self.tables();
        if tables.remove_taps(|tap| tap.id == id) > 0 {
            self.publisher.publish(tables);
        }
    }
}

impl Control {
    /// Adds a trace.
    ///
    /// # Errors
    /// Its program or its bounds are wrong, or there are as many traces as there may be.
    pub fn add_trace(&mut self, spec: &TraceSpec) -> Result<(), Refusal> {
        let count = spec.count.unwrap_or(api::DEFAULT_TRACE_COUNT);
        if !(1..=MAX_TRACED).contains(&count) {
            return Err(invalid(format!("a trace of {count} packets"))
                .with_hint(format!("it is 1 to {MAX_TRACED}")));
        }
        let spec = tables::TraceSpec {
            id: spec.id,
            count,
            rate: rate(spec.rate)?.unwrap_or(api::DEFAULT_TRACE_RATE),
            program: program(&spec.program)?,
        };
        let mut tables = self.tables();
        tables
            .add_trace(spec)
            .map_err(|error| Refusal::new(RefusalCode::Full, error.to_string()))?;
        self.publisher.publish(tables);
        Ok(())
    }

    /// Removes a trace, if it is still there.
    pub fn remove_trace(&mut self, id: u64) {
        let mut tables = self.tables();
        if tables.remove_trace(id) {
            self.publisher.publish(tables);
        }
    }
}

fn points(points: &[TapPoint]) -> TapPoints {
    if points.is_empty() {
        return TapPoints { ingress: true, egress: true, drop: false };
    }
    TapPoints {
        ingress: points.contains(&TapPoint::In),
        egress: points.contains(&TapPoint::Out),
        drop: points.contains(&TapPoint::Drop),
    }
}

fn snaplen(snaplen: Option<u32>) -> Result<u32, Refusal> {
    let snaplen = snaplen.unwrap_or(MAX_SNAPLEN);
    match (1..=MAX_SNAPLEN).contains(&snaplen) {
        true => Ok(snaplen),
        false => Err(invalid(format!("a snaplen of {snaplen} bytes"))
            .with_hint(format!("it is 1 to {MAX_SNAPLEN}"))),
    }
}

fn rate(rate: Option<u32>) -> Result<Option<u32>, Refusal> {
    match rate {
        Some(0) => Err(invalid("a rate of no packets a second").with_hint("it is 1 or more")),
        rate => Ok(rate),
    }
}

fn program(lines: &[(u16, u8, u8, u32)]) -> Result<Option<Program>, Refusal> {
    if lines.is_empty() {
        return Ok(None);
    }
    let instruction = |&(code, jump_true, jump_false, constant): &(u16, u8, u8, u32)| Instruction {
        code,
        jump_true,
        jump_false,
        constant,
    };
    let program = Program::new(lines.iter().map(instruction).collect());
    program.map(Some).map_err(|error| invalid(format!("the filter's program: {error}")))
}

fn invalid(message: impl Into<String>) -> Refusal {
    Refusal::new(RefusalCode::Invalid, message)
}
