//! Taps and traces, as far as the control thread looks after them.

use api::{Refusal, RefusalCode, Reply, Request};

use super::ControlThread;

impl ControlThread {
    /// Carries a request about taps out.
    pub(super) fn tap(&mut self, request: &Request) -> Result<Reply, Refusal> {
        match request {
            Request::TapAdd(spec) if !self.taps.is_open(spec.id) => {
                let refusal = Refusal::new(RefusalCode::Invalid, "nobody would read this tap");
                Err(refusal.with_hint(format!("taps are posted to {}", api::TAP_PATH)))
            }
            Request::TapAdd(spec) => {
                if let Err(refusal) = self.handler.control.add_tap(spec) {
                    self.taps.end(spec.id, "refused");
                    return Err(refusal);
                }
                let tables = self.reader.load();
                if let Some(tap) = tables.taps().find(|tap| tap.spec.id == spec.id) {
                    self.taps.begin(tap);
                }
                tracing::info!(tap = spec.id, target = ?spec.target, "a tap begins");
                Ok(Reply::Done)
            }
            Request::TapDelete { id } => {
                self.handler.control.remove_tap(*id);
                match self.taps.end(*id, "deleted by command") {
                    true => Ok(Reply::Done),
                    false => Err(self.taps.absent(*id)),
                }
            }
            _ => Ok(Reply::Taps(self.taps.views())),
        }
    }

    /// Carries a request about traces out.
    pub(super) fn trace(&mut self, request: &Request) -> Result<Reply, Refusal> {
        match request {
            Request::TraceAdd(spec) => self.begin_trace(spec),
            Request::TraceDelete { id } => {
                self.handler.control.remove_trace(*id);
                match self.traces.end(*id, "deleted by command") {
                    true => Ok(Reply::Done),
                    false => Err(self.traces.absent(*id)),
                }
            }
            _ => Ok(Reply::Traces(self.traces.views())),
        }
    }

    fn begin_trace(&mut self, spec: &api::TraceSpec) -> Result<Reply, Refusal> {
        if !self.traces.is_open(spec.id) {
            let refusal = Refusal::new(RefusalCode::Invalid, "nobody would read this trace");
            return Err(refusal.with_hint(format!("traces are posted to {}", api::TRACE_PATH)));
        }
        if let Err(refusal) = self.handler.control.add_trace(spec) {
            self.traces.end(spec.id, "refused");
            return Err(refusal);
        }
        let tables = self.reader.load();
        if let Some(trace) = tables.traces().iter().find(|trace| trace.spec.id == spec.id) {
            self.traces.begin(trace);
        }
        tracing::info!(trace = spec.id, "a trace begins");
        Ok(Reply::Done)
    }

    /// Ends traces that have all their packets, and those whose client has gone.
    pub(super) fn look_at_traces(&mut self) {
        for (id, why) in self.traces.ended() {
            self.handler.control.remove_trace(id);
            self.traces.end(id, why);
        }
    }

    /// Ends taps whose client has gone, and those whose port or VRF has.
    pub(super) fn look_at_taps(&mut self) {
        self.taps.forget_unbegun();
        for (id, gone) in self.taps.begun() {
            let is_there = self.reader.load().taps().any(|tap| tap.spec.id == id);
            if let Some(why) = gone {
                self.handler.control.remove_tap(id);
                self.taps.end(id, why);
            } else if !is_there {
                self.taps.end(id, "its port or VRF was removed");
            }
        }
    }
}
