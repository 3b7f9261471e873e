//! Many changes on one draft, published once.

use std::collections::BTreeSet;

use api::{
    Batch, BatchReport, BatchWarning, Direction, OnRefusal, Origin, Refusal, RefusalCode, Reply,
    Request,
};
use packet::Time;
use tables::Tables;

use super::unprotected::Before;
use super::{Control, Draft, many, spd};

impl Control {
    /// Carries a batch out. Its copies are made once, whatever its length.
    pub(super) fn batch(&mut self, batch: Batch, now: Time) -> BatchReport {
        let Batch { on_refusal, requests } = batch;
        let mut copy = (on_refusal == OnRefusal::Undo).then(|| self.desired.clone());
        self.sequences.begin();
        let before = Some(Before::of(self.publisher.current()));
        let mut draft = Draft {
            tables: Tables::clone(&self.publisher.current()),
            desired: copy.as_mut().unwrap_or(&mut self.desired),
            randomness: &mut self.randomness,
            sequences: &mut self.sequences,
            journal: self.journal.as_mut(),
            sa_events: Some(&mut self.sa_events),
            origin: Origin::Runtime,
            is_restoring: false,
            connections: Some(self.connections),
            before,
            now,
            wrong_flow: None,
        };
        let mark = draft.journal.as_ref().map(|journal| journal.mark());
        let mut report = draft.carry_out_all(requests, on_refusal, now);
        if on_refusal == OnRefusal::Undo && report.refusals > 0 {
            if let (Some(journal), Some(mark)) = (&mut draft.journal, mark) {
                journal.back_to(mark);
            }
            report = BatchReport {
                refused: report.refused,
                refusals: report.refusals,
                all_refused: report.all_refused,
                ..BatchReport::default()
            };
        }
        let tables = draft.tables;
        if report.done > 0 {
            if let Some(desired) = copy {
                self.desired = desired;
            }
            self.publisher.publish(tables);
            self.judge_if_changed(now);
        } else {
            self.sequences.undo();
        }
        self.settle_sa_events();
        report
    }
}

impl Draft<'_> {
    fn carry_out_all(
        &mut self,
        requests: Vec<Request>,
        on_refusal: OnRefusal,
        now: Time,
    ) -> BatchReport {
        let mut report = BatchReport::default();
        let mut touched = BTreeSet::new();
        for (at, request) in requests.into_iter().enumerate() {
            let place = place_of_policy(&request);
            let done = if !is_change(&request) {
                Err(Refusal::new(RefusalCode::Invalid, "a batch takes changes alone")
                    .with_hint("ask by a request of its own"))
            } else if on_refusal == OnRefusal::Undo {
                let request = self.desired.as_meant(request);
                self.change(request, now)
            } else {
                self.carry_out_or_leave(request, now)
            };
            match done {
                Ok(reply) => {
                    report.done += 1;
                    touched.extend(place);
                    if report.warned.is_none() {
                        let warning = match reply {
                            Reply::PolicyAdded(added) => added.warning,
                            Reply::Warned(warning) => Some(warning),
                            _ => None,
                        };
                        report.warned = warning.map(|warning| BatchWarning { at, warning });
                    }
                }
                Err(refusal) => {
                    report.refuse(at, refusal);
                    if on_refusal != OnRefusal::Continue {
                        break;
                    }
                }
            }
        }
        report.let_out = self.let_out();
        // A VRF that was removed again has no policies.
        report.bounds = touched
            .into_iter()
            .filter_map(|(vrf, if_id, at)| {
                let scope = self.desired.scope(&vrf, if_id).ok()?;
                spd::bound(&self.tables, self.desired, scope, at)
            })
            .collect();
        report
    }

    /// Carries a request out. If it is refused, the draft stays as it was.
    pub(super) fn carry_out_or_leave(
        &mut self,
        request: Request,
        now: Time,
    ) -> Result<Reply, Refusal> {
        if is_one_step(&request) {
            return self.carry_out_or_forget(request, now);
        }
        let request = self.desired.as_meant(request);
        let tables = self.tables.clone();
        let desired = many(&request, self.desired).then(|| self.desired.clone());
        let done = self.carry_out_or_forget(request, now);
        if done.is_err() {
            self.tables = tables;
            if let Some(desired) = desired {
                *self.desired = desired;
            }
        }
        done
    }
}

/// Whether it changes the tables, and is no batch itself.
fn is_change(request: &Request) -> bool {
    !request.only_reads() && !matches!(request, Request::Batch(_) | Request::Reload { .. })
}

/// Whether the tables do all of it or, where they refuse, nothing, so that there is nothing to
/// undo.
fn is_one_step(request: &Request) -> bool {
    matches!(
        request,
        Request::PolicyAdd(_)
            | Request::PolicyUpdate(_)
            | Request::PolicyDelete(_)
            | Request::StateAdd(_)
            | Request::StateUpdate(_)
            | Request::StateDelete(_)
            | Request::FilterAdd(_)
            | Request::FilterReplace(_)
            | Request::FilterChange(_)
            | Request::RuleAdd(_)
            | Request::RuleDelete(_)
            | Request::FlowChange(_)
    )
}

/// The VRF and direction of a policy to add or change.
fn place_of_policy(request: &Request) -> Option<(String, u32, Direction)> {
    match request {
        Request::PolicyAdd(spec) | Request::PolicyUpdate(spec) => {
            Some((spec.vrf.clone(), spec.if_id, spec.direction))
        }
        _ => None,
    }
}
