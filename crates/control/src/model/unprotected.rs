//! What whoever removes or changes policies is told: a VRF that is closed now, or packets that leave in clear.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::{PolicyAdded, Reply};
use tables::{Action, Policy, Scope, Selector, Spd, Tables, Vrf};
use types::{DefaultAction, Direction, IpRange, PortId, VrfId};

use super::Draft;
use super::giving_way::giving_way;

/// How many selectors may be told.
const TOLD: usize = 10;
/// How many policies may be looked at for one change of the tables: some ten milliseconds.
const WORK: usize = 1 << 17;

/// What is known of the time before a change of the tables, if a request of it may let something out.
pub(super) struct Before {
    pub(super) tables: Arc<Tables>,
    /// Outbound policies of VRFs that protected or blocked, and are gone.
    gone: Vec<Arc<Policy>>,
    /// Policies that have come or do something else since.
    changed: BTreeSet<u32>,
    /// Xfrm links that are gone, or may lead elsewhere.
    pub(super) links: BTreeSet<PortId>,
}

impl Before {
    pub(super) fn of(tables: Arc<Tables>) -> Self {
        let (changed, links) = (BTreeSet::new(), BTreeSet::new());
        Self { tables, gone: Vec::new(), changed, links }
    }

    /// Any xfrm link may be gone, or lead elsewhere, also as its routes are others.
    pub(super) fn note_links(&mut self) {
        let links = self.tables.ports().filter(|port| port.spec.if_id.is_some());
        self.links = links.map(|port| port.id).collect();
    }

    /// The VRFs that ports have left, and those where they are now.
    fn moved(&self, after: &Tables) -> BTreeSet<(VrfId, VrfId)> {
        let is_same = |vrf: &Vrf| after.vrf(vrf.id).is_some_and(|is| core::ptr::eq(vrf, is));
        let changed = self.tables.vrfs().filter(|vrf| !is_same(vrf));
        let ports = changed.flat_map(|vrf| self.tables.ports_of(vrf.id));
        let places = ports.filter_map(|port| {
            // Another port may have its number.
            let is = after.port(port.id).filter(|is| is.spec.name == port.spec.name)?;
            Some((port.spec.vrf, is.spec.vrf))
        });
        places.filter(|(was, is)| was != is).collect()
    }
}

impl Draft<'_> {
    /// A policy has come, or does something else.
    pub(super) fn note_changed(&mut self, index: u32) {
        if let Some(before) = &mut self.before {
            before.changed.insert(index);
        }
    }

    /// A policy is about to go, or to do something else.
    pub(super) fn note_going(&mut self, index: u32) {
        let Some(before) = &mut self.before else { return };
        // What it has been in between was never in force.
        let policy =
            self.tables.policy_of_index(index).filter(|_| !before.changed.contains(&index));
        before.gone.extend(policy.filter(|policy| keeps_in(policy)).cloned());
    }

    /// What whoever made a change of the tables is told: who took the last policy of a VRF, that it is
    /// closed now, and who took one that protected or blocked packets, or took their ports to another
    /// VRF, that these may leave in clear; and who took xfrm links from what went by them.
    pub(super) fn let_out(&self) -> Option<String> {
        let before = self.before.as_ref()?;
        let was_open = |vrf: &&Vrf| before.tables.vrf(vrf.id).is_some_and(|vrf| !vrf.is_closed());
        let is_closed = closed(&self.tables).filter(was_open);
        let mut doubts: Vec<_> = is_closed.map(|vrf| closed_by(&vrf.name)).collect();
        let moved = before.moved(&self.tables);
        let left = || {
            moved.iter().filter_map(|(was, is)| {
                let is = self.tables.vrf(*is).filter(|is| !lets_nothing_out(is))?;
                Some((before.tables.vrf(*was)?, is))
            })
        };
        let of_left = left().flat_map(|(was, is)| {
            let policies = was.spd.policies(Direction::Out);
            policies.map(move |policy| Loss { policy, vrf: is.id, left: Some(was) })
        });
        let gone = before.gone.iter();
        let gone = gone.map(|policy| Loss { policy, vrf: policy.spec.vrf, left: None });
        let passing = passing(gone.chain(of_left), &before.changed, &self.tables);
        let without_policy = || left().find_map(|(was, is)| left_without_policy(was, is));
        doubts.extend(passing.or_else(without_policy));
        if !before.links.is_empty() {
            let is_link = |port| before.links.contains(&port);
            doubts.extend(giving_way(&before.tables, &self.tables, is_link));
        }
        (!doubts.is_empty()).then(|| doubts.join(". "))
    }
}

/// A policy that packets do not meet any more.
struct Loss<'p> {
    policy: &'p Policy,
    /// Where they are now.
    vrf: VrfId,
    /// The VRF that their ports have left, as it was, if they are there with those.
    left: Option<&'p Vrf>,
}

impl Loss<'_> {
    /// Whether packets that a selector selects passed before that this policy would have kept in, by those of
    /// their VRF that were in front of it.
    fn let_pass(&self, selector: &Selector, work: &mut usize) -> bool {
        let policies = self.left.map(|left| left.spd.policies(Direction::Out));
        let in_front = policies.into_iter().flatten();
        let mut in_front = in_front.take_while(|there| place_of(there) < place_of(self.policy));
        in_front.any(|there| {
            *work = work.saturating_sub(1);
            there.spec.action == Action::Bypass && there.spec.selector.covers(selector)
        })
    }

    /// Whether a policy let packets pass before that this one would have kept in.
    fn was_in_front(&self, other: &Policy, changed: &BTreeSet<u32>, work: &mut usize) -> bool {
        match self.left {
            Some(_) => self.let_pass(&other.spec.selector, work),
            None => place_of(other) < place_of(self.policy) && !changed.contains(&other.index),
        }
    }
}

/// What is said of packets that no policy of a VRF let out, and may leave where their ports are now.
fn left_without_policy(was: &Vrf, is: &Vrf) -> Option<String> {
    let blocks =
        !was.spd.is_empty() && was.spd.default_action(Direction::Out) == DefaultAction::Block;
    let lets_all = || {
        [IpRange::ALL_V4, IpRange::ALL_V6].into_iter().all(|all| {
            let mut policies = was.spd.policies(Direction::Out).take(WORK);
            policies.any(|policy| {
                let (action, selector) = (policy.spec.action, &policy.spec.selector);
                action == Action::Bypass && selector.source == all && selector.all_to() == Some(all)
            })
        })
    };
    let is_open =
        is.spd.is_empty() || is.spd.default_action(Direction::Out) == DefaultAction::Accept;
    let is_told = is_open && (was.is_closed() || blocks && !lets_all());
    is_told.then(|| {
        format!(
            "what VRF {} kept in as no policy of it lets it out may leave VRF {} in clear now, if it has a route",
            was.name, is.name
        )
    })
}

/// Whether a policy protects or blocks what leaves a VRF.
fn keeps_in(policy: &Policy) -> bool {
    policy.spec.direction == Direction::Out
        && matches!(policy.spec.scope(), Scope::Vrf(_))
        && policy.spec.action != Action::Bypass
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
        Reply::Warned(told) => Reply::Warned(format!("{told}. {warning}")),
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
fn passing<'p>(
    mut gone: impl Iterator<Item = Loss<'p>>,
    changed: &BTreeSet<u32>,
    after: &Tables,
) -> Option<String> {
    let mut work = WORK;
    let mut told = Vec::new();
    let (mut remedy, mut unknown) = (None, 0);
    while let Some(loss) = gone.next() {
        let Some(vrf) = after.vrf(loss.vrf).filter(|vrf| !lets_nothing_out(vrf)) else { continue };
        let selector = &loss.policy.spec.selector;
        let has_work = work > 0;
        work = work.saturating_sub(1);
        if has_work && !keeps_in(loss.policy) {
            continue;
        }
        let why = match told.len() {
            TOLD => Err(()),
            _ if !has_work => Err(()),
            _ if loss.let_pass(selector, &mut work) => continue,
            // A plain router.
            _ if vrf.spd.is_empty() => Ok(Some(Why::Plain)),
            _ if is_kept_in(after, vrf, selector) => continue,
            _ => passed(&vrf.spd, &loss, changed, &mut work),
        };
        let Ok(why) = why else {
            let more = gone.by_ref().take(WORK).filter(|loss| keeps_in(loss.policy));
            unknown = 1 + more.count();
            break;
        };
        let Some(why) = why else { continue };
        let of = match vrf.id {
            VrfId::MAIN => String::new(),
            _ => format!(" vrf {}", vrf.name),
        };
        let by = match why {
            Why::Policy(index) => format!("policy {index} lets it pass"),
            Why::Plain => format!("VRF {} has no policies", vrf.name),
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
        let least = if unknown > WORK { "at least " } else { "" };
        told.push(format!("{least}{unknown} more were not looked at"));
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

/// What decides which of two policies of a list is tried first.
fn place_of(policy: &Policy) -> (u32, u32) {
    (policy.spec.priority, policy.index)
}

/// Whether a VRF is closed, or has policies of which none lets packets out in clear and blocks the rest.
fn lets_nothing_out(vrf: &Vrf) -> bool {
    let has_policies = !vrf.spd.is_empty() && vrf.spd.bypasses(Direction::Out) == 0;
    let blocks = vrf.spd.default_action(Direction::Out) == DefaultAction::Block;
    vrf.is_closed() || has_policies && blocks
}

/// Whether a policy of a VRF keeps exactly these packets in, and none lets any pass.
fn is_kept_in(tables: &Tables, vrf: &Vrf, selector: &Selector) -> bool {
    let there = tables.policy_of_selector(Scope::Vrf(vrf.id), Direction::Out, selector);
    vrf.spd.bypasses(Direction::Out) == 0
        && there.is_some_and(|there| there.spec.action != Action::Bypass)
}

/// Why packets pass in clear.
enum Why {
    /// By the policy of this index.
    Policy(u32),
    /// It has none.
    Plain,
    Default,
}

/// Whether some packets of a policy that is gone pass in clear by others than those that were in front of it,
/// and why.
///
/// # Errors
/// If there is no `work` left.
fn passed(
    spd: &Spd,
    loss: &Loss<'_>,
    changed: &BTreeSet<u32>,
    work: &mut usize,
) -> Result<Option<Why>, ()> {
    let selector = &loss.policy.spec.selector;
    for (at, policy) in spd.policies(Direction::Out).enumerate() {
        *work = work.checked_sub(1).ok_or(())?;
        let spec = &policy.spec;
        let may_pass = spec.action == Action::Bypass && spec.selector.overlaps(selector);
        if may_pass && !loss.was_in_front(policy, changed, work) {
            // If it is too much to look at those in front, they keep nothing from it.
            let most = at.min(*work);
            *work -= most;
            let mut others = spd.policies(Direction::Out).take(most).map(|other| &other.spec);
            let is_met =
                others.any(|it| it.action != Action::Bypass && it.selector.covers(&spec.selector));
            if !is_met {
                return Ok(Some(Why::Policy(policy.index)));
            }
        }
        if spec.selector.covers(selector) {
            return Ok(None);
        }
    }
    let lets_pass = spd.default_action(Direction::Out) == DefaultAction::Accept;
    Ok(lets_pass.then_some(Why::Default))
}
