//! What whoever removes or changes policies is told: a VRF that is closed now, or packets that leave in clear.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::{PolicyAdded, Refusal, Reply, Request};
use packet::Time;
use tables::{Action, Policy, Scope, Selector, Spd, Tables, Vrf};
use types::{DefaultAction, Direction, IpRange, VrfId};

use super::Draft;

/// How many selectors may be told.
const TOLD: usize = 10;
/// How many policies may be looked at for one change of the tables: some ten milliseconds.
const WORK: usize = 1 << 17;

/// What is known of the time before a change of the tables, if a request of it may let something out.
#[derive(Default)]
pub(super) struct Before {
    /// VRFs that were closed.
    closed: Option<BTreeSet<VrfId>>,
    /// Outbound policies of VRFs that protected or blocked, and are gone.
    gone: Vec<Arc<Policy>>,
    /// Policies that have come since.
    added: BTreeSet<u32>,
    /// These, and those that do something else since.
    changed: BTreeSet<u32>,
}

impl Draft<'_> {
    /// Carries a request out, and takes note of what it may close.
    pub(super) fn carry_out(&mut self, request: Request, now: Time) -> Result<Reply, Refusal> {
        let may_close = matches!(
            request,
            Request::PolicyDelete(_) | Request::PolicyFlush(_) | Request::VrfSet(_)
        );
        if let Some(before) = self.before.as_mut().filter(|it| may_close && it.closed.is_none()) {
            before.closed = Some(closed(&self.tables).map(|vrf| vrf.id).collect());
        }
        self.change(request, now)
    }

    /// A policy has come.
    pub(super) fn note_added(&mut self, index: u32) {
        if let Some(before) = &mut self.before {
            before.added.insert(index);
            before.changed.insert(index);
        }
    }

    /// A policy does something else.
    pub(super) fn note_changed(&mut self, index: u32) {
        if let Some(before) = &mut self.before {
            before.changed.insert(index);
        }
    }

    /// A policy is about to go, or to do something else.
    pub(super) fn note_going(&mut self, index: u32) {
        let Some(before) = &mut self.before else { return };
        // One that has come in between was never in force.
        let policy = self.tables.policy_of_index(index).filter(|_| !before.added.contains(&index));
        let keeps_in = |policy: &&Arc<Policy>| {
            policy.spec.direction == Direction::Out
                && matches!(policy.spec.scope(), Scope::Vrf(_))
                && policy.spec.action != Action::Bypass
        };
        before.gone.extend(policy.filter(keeps_in).cloned());
    }

    /// What whoever made a change of the tables is told: who took the last policy of a VRF, that it is
    /// closed now, and who took one that protected or blocked packets, that these may leave in clear.
    pub(super) fn let_out(&self) -> Option<String> {
        let Before { closed: was_closed, gone, changed, .. } = self.before.as_ref()?;
        let mut doubts = Vec::new();
        if let Some(was_closed) = was_closed {
            let is_closed = closed(&self.tables).filter(|vrf| !was_closed.contains(&vrf.id));
            doubts.extend(is_closed.map(|vrf| closed_by(&vrf.name)));
        }
        doubts.extend(passing(gone, changed, &self.tables));
        (!doubts.is_empty()).then(|| doubts.join(". "))
    }
}

/// The answer to a request, with what is told of it besides.
pub(super) fn with_warning(reply: Reply, warning: Option<String>) -> Reply {
    let Some(warning) = warning else { return reply };
    match reply {
        Reply::PolicyAdded(added) => {
            let warnings = [Some(warning), added.warning].into_iter().flatten();
            let warning = warnings.collect::<Vec<_>>().join(". ");
            Reply::PolicyAdded(PolicyAdded { warning: Some(warning), ..added })
        }
        Reply::Count(count) => Reply::Warned(format!("{count} removed. {warning}")),
        _ => Reply::Warned(warning),
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
fn passing(gone: &[Arc<Policy>], changed: &BTreeSet<u32>, after: &Tables) -> Option<String> {
    let mut work = WORK;
    let mut told = Vec::new();
    let (mut remedy, mut unknown) = (None, 0);
    for (at, policy) in gone.iter().enumerate() {
        let Some(vrf) = after.vrf(policy.spec.vrf).filter(|vrf| !vrf.is_closed()) else { continue };
        let there =
            after.policy_of_selector(policy.spec.scope(), Direction::Out, &policy.spec.selector);
        let is_there = there.is_some_and(|there| there.spec.action != Action::Bypass);
        let is_blocked = vrf.spd.default_action(Direction::Out) == DefaultAction::Block;
        // Nearly always.
        if vrf.spd.bypasses(Direction::Out) == 0 && (is_there || is_blocked) {
            continue;
        }
        let place = (policy.spec.priority, policy.index);
        let selector = &policy.spec.selector;
        let why = match told.len() {
            TOLD => Err(()),
            _ => passed(&vrf.spd, selector, (place, changed), &mut work),
        };
        let Ok(why) = why else {
            unknown = gone.len() - at;
            break;
        };
        let Some(why) = why else { continue };
        let of = match policy.spec.vrf {
            VrfId::MAIN => String::new(),
            _ => format!(" vrf {}", vrf.name),
        };
        let by = match why {
            Why::Policy(index) => format!("policy {index} lets it pass"),
            Why::Default => {
                remedy.get_or_insert_with(|| remedy_for(selector.destination, &of));
                "default-out is accept".to_owned()
            }
        };
        told.push(format!("{selector}{of} ({by})"));
    }
    if told.is_empty() {
        return (unknown > 0).then(|| {
            "there are too many policies to find out whether what these protected or blocked may leave in \
             clear now (explain says it of a packet)"
                .to_owned()
        });
    }
    if unknown > 0 {
        told.push(format!("{unknown} more were not looked at"));
    }
    Some(format!(
        "what these policies protected or blocked may leave in clear now, if it has a route: {}{}",
        told.join(", "),
        remedy.unwrap_or_default()
    ))
}

/// How what no policy matches is kept in.
fn remedy_for(to: IpRange, of: &str) -> String {
    if to == IpRange::ALL_V4 || to == IpRange::ALL_V6 {
        return format!(
            "; `hitpath xfrm policy setdefault out block{of}` keeps in what has no policy"
        );
    }
    format!(
        "; `hitpath xfrm policy add dst {to} dir out action block priority {}{of}` keeps in what goes \
         to {to} and has no policy",
        u32::MAX
    )
}

/// Why packets pass in clear.
enum Why {
    /// By the policy of this index.
    Policy(u32),
    Default,
}

/// Whether some packets of a selector pass in clear, by policies behind a place or that have changed, and why.
/// What was in front of it before has let them pass as well.
///
/// # Errors
/// If there is no `work` left.
fn passed(
    spd: &Spd,
    selector: &Selector,
    (place, changed): ((u32, u32), &BTreeSet<u32>),
    work: &mut usize,
) -> Result<Option<Why>, ()> {
    for policy in spd.policies(Direction::Out) {
        *work = work.checked_sub(1).ok_or(())?;
        let spec = &policy.spec;
        let is_in_front = (spec.priority, policy.index) < place && !changed.contains(&policy.index);
        let is_bypass = spec.action == Action::Bypass;
        if is_bypass && !is_in_front && spec.selector.overlaps(selector) {
            return Ok(Some(Why::Policy(policy.index)));
        }
        if spec.selector.covers(selector) {
            return Ok(None);
        }
    }
    let lets_pass = spd.default_action(Direction::Out) == DefaultAction::Accept;
    Ok(lets_pass.then_some(Why::Default))
}
