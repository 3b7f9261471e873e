//! Rules of filters that do not come back.

use std::collections::BTreeSet;

use api::{FilterTarget, Request};
use types::FilterHook;

use super::super::desired::Desired;

/// What the log says last of each rule counts.
#[derive(Debug, Default)]
pub(super) struct LostFilters {
    rules: BTreeSet<(FilterTarget, FilterHook, Option<u32>)>,
}

impl LostFilters {
    /// Takes note of a command, and whether it was carried out.
    pub(super) fn note(&mut self, request: &Request, is_done: bool) {
        match request {
            Request::FilterAdd(spec) | Request::FilterReplace(spec) => {
                let rule = (spec.target.clone(), spec.hook, spec.pref);
                if is_done {
                    self.rules.remove(&rule);
                } else {
                    self.rules.insert(rule);
                }
            }
            // Whether it was there or refused before: there is none.
            Request::FilterDelete(id) => self.rules.retain(|(target, hook, pref)| {
                (target, *hook) != (&id.target, id.hook) || id.pref.is_some() && id.pref != *pref
            }),
            Request::LinkDelete(link) => self.forget(&FilterTarget::Dev(link.port.clone())),
            Request::VrfDelete(vrf) => self.forget(&FilterTarget::Vrf(vrf.name.clone())),
            _ => {}
        }
    }

    fn forget(&mut self, gone: &FilterTarget) {
        self.rules.retain(|(target, ..)| target != gone);
    }

    /// Takes note of a line that cannot be read.
    pub(super) fn note_unread(&mut self, command: &str) {
        let words: Vec<_> = command.split_ascii_whitespace().collect();
        let ["filter", "add" | "replace" | "change", kind, name, hook, rest @ ..] = &words[..]
        else {
            return;
        };
        let target = match *kind {
            "dev" => FilterTarget::Dev((*name).to_owned()),
            "vrf" => FilterTarget::Vrf((*name).to_owned()),
            _ => return,
        };
        let pref = match rest {
            ["pref", pref, ..] => pref.parse().ok(),
            _ => None,
        };
        // What is not known is either.
        let hooks = hook.parse().map_or_else(|_| FilterHook::ALL.to_vec(), |hook| vec![hook]);
        self.rules.extend(hooks.into_iter().map(|hook| (target.clone(), hook, pref)));
    }

    /// Whose filters lack a rule, in the words of commands, if they are there.
    pub(super) fn targets(self, desired: &Desired) -> Vec<String> {
        let of_rule = |(target, ..): (FilterTarget, _, _)| match target {
            FilterTarget::Dev(port) => {
                desired.ports.contains_key(&port).then(|| format!("dev {port}"))
            }
            FilterTarget::Vrf(vrf) => desired.vrfs.contains_key(&vrf).then(|| format!("vrf {vrf}")),
        };
        let all: BTreeSet<_> = self.rules.into_iter().filter_map(of_rule).collect();
        all.into_iter().collect()
    }
}
