//! What whoever removes policies is told: a VRF that is closed now, or packets that leave in clear.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::{Refusal, Reply, Request};
use packet::Time;
use tables::{Action, Policy, Scope, Selector, Spd, Tables, Vrf};
use types::{DefaultAction, Direction, IpRange, VrfId};

use super::Draft;
use super::security::{find_policy, matches_policy};

/// How many selectors may be told.
const TOLD: usize = 10;
/// How many policies may be looked at for one request: some ten milliseconds.
const WORK: usize = 1 << 17;

impl Draft<'_> {
    /// Carries a request out. Whoever takes the last policy of a VRF is told that it is closed now, and
    /// whoever takes one that protected or blocked packets that these may leave in clear.
    pub(super) fn carry_out(&mut self, request: Request, now: Time) -> Result<Reply, Refusal> {
        if !matches!(
            request,
            Request::PolicyDelete(_) | Request::PolicyFlush(_) | Request::VrfSet(_)
        ) {
            return self.change(request, now);
        }
        let was_closed: BTreeSet<_> = closed(&self.tables).map(|vrf| vrf.id).collect();
        let concerned = self.keeping_in(&request);
        let reply = self.change(request, now)?;
        let is_closed = closed(&self.tables).filter(|vrf| !was_closed.contains(&vrf.id));
        let mut doubts: Vec<_> = is_closed.map(|vrf| closed_by(&vrf.name)).collect();
        doubts.extend(let_out(&concerned, &self.tables));
        if doubts.is_empty() {
            return Ok(reply);
        }
        let removed = match reply {
            Reply::Count(count) => format!("{count} removed. "),
            _ => String::new(),
        };
        Ok(Reply::Warned(removed + &doubts.join(". ")))
    }

    /// The outbound policies of VRFs that protect or block, of those that a request removes. A copy of all
    /// tables would have each of them copied by the change.
    fn keeping_in(&self, request: &Request) -> Vec<Arc<Policy>> {
        let indexes: Vec<u32> = match request {
            Request::PolicyDelete(id) => {
                find_policy(&self.tables, self.desired, id).into_iter().collect()
            }
            Request::PolicyFlush(filter) => {
                let all = self.desired.policies.iter();
                let meant = all.filter(|(index, it)| matches_policy(filter, **index, &it.spec));
                meant.map(|(index, _)| *index).collect()
            }
            _ => Vec::new(),
        };
        let policies = indexes.into_iter().filter_map(|index| self.tables.policy_of_index(index));
        let keeps_in = |policy: &&Arc<Policy>| {
            policy.spec.direction == Direction::Out
                && matches!(policy.spec.scope(), Scope::Vrf(_))
                && policy.spec.action != Action::Bypass
        };
        policies.filter(keeps_in).cloned().collect()
    }
}

/// The VRFs that are IPsec gateways without policies.
pub(super) fn closed(tables: &Tables) -> impl Iterator<Item = &Vrf> {
    tables.vrfs().filter(|vrf| vrf.is_closed())
}

/// What is said of a VRF that is closed.
fn closed_by(vrf: &str) -> String {
    format!(
        "VRF {vrf} is an IPsec gateway and has no policies: it forwards nothing across its \
         boundary now. A policy opens it, or `hitpath vrf set {vrf} ipsec auto` if it is to be a \
         plain router"
    )
}

/// What is said of policies that are gone, if packets that they protected or blocked pass in clear now.
/// What may come in is not asked: beside policies a port that is protected lets packets in, a tunnel
/// does, and a translation gives them other addresses.
fn let_out(gone: &[Arc<Policy>], after: &Tables) -> Option<String> {
    let mut work = WORK;
    let mut told = Vec::new();
    let mut first = None;
    for (at, policy) in gone.iter().enumerate() {
        if told.len() == TOLD {
            told.push(format!("{} more were not looked at", gone.len() - at));
            break;
        }
        let Some(vrf) = after.vrf(policy.spec.vrf).filter(|vrf| !vrf.is_closed()) else { continue };
        let place = (policy.spec.priority, policy.index);
        let selector = &policy.spec.selector;
        let Some(why) = passed(&vrf.spd, selector, place, &mut work) else {
            // It was not looked at to its end.
            if work == 0 {
                told.push(format!("{} more were not looked at", gone.len() - at));
                break;
            }
            continue;
        };
        let of = match policy.spec.vrf {
            VrfId::MAIN => String::new(),
            _ => format!(" vrf {}", vrf.name),
        };
        told.push(format!("{selector}{of}"));
        first.get_or_insert((why, selector.destination, of));
    }
    let Some((why, to, of)) = first else {
        let unknown = "there are too many policies to find out whether what these protected or blocked \
                       may leave in clear now (explain says it of a packet)";
        return (work == 0).then(|| unknown.to_owned());
    };
    let remedy = match why {
        Why::Policy(index) => format!("policy {index} lets it pass"),
        Why::Default if to == IpRange::ALL_V4 || to == IpRange::ALL_V6 => {
            format!("`hitpath xfrm policy setdefault out block{of}` keeps it in")
        }
        Why::Default => format!(
            "default-out is accept, and `hitpath xfrm policy add dst {to} dir out action block \
             priority {}{of}` keeps in what goes there and has no policy",
            u32::MAX
        ),
    };
    Some(format!(
        "what these policies protected or blocked may leave in clear now, if it has a route: {}; {remedy}",
        told.join(", ")
    ))
}

/// Why packets pass in clear.
enum Why {
    /// By the policy of this index.
    Policy(u32),
    Default,
}

/// Whether some packets of a selector pass in clear, by policies behind a place, and why. In front of it
/// nothing has changed.
fn passed(spd: &Spd, selector: &Selector, place: (u32, u32), work: &mut usize) -> Option<Why> {
    for policy in spd.policies(Direction::Out) {
        *work -= 1;
        if *work == 0 {
            return None;
        }
        let spec = &policy.spec;
        let is_in_front = (spec.priority, policy.index) < place;
        let is_bypass = spec.action == Action::Bypass;
        if is_bypass && !is_in_front && spec.selector.overlaps(selector) {
            return Some(Why::Policy(policy.index));
        }
        if spec.selector.covers(selector) {
            return None;
        }
    }
    (spd.default_action(Direction::Out) == DefaultAction::Accept).then_some(Why::Default)
}
