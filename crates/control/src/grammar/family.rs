//! iproute2's `-4` and `-6`.

use std::net::IpAddr;

use api::{Family, Refusal, Request, Selector};
use types::IpRange;

use super::words::Words;

/// Has a request be about one family alone. What has none, such as links, stays as it is.
pub(super) fn restrict(
    request: &mut Request,
    family: Family,
    words: &Words<'_>,
) -> Result<(), Refusal> {
    use Request as R;
    let one = |address: IpAddr| {
        if Family::of(address) == family {
            return Ok(());
        }
        let option = match family {
            Family::V4 => "-4",
            Family::V6 => "-6",
        };
        Err(words
            .invalid(format!("{address} is not of the family that {option} says"))
            .with_hint(format!("without {option}")))
    };
    match request {
        R::RouteList(filter) | R::RouteFlush(filter) => filter.family = Some(family),
        R::NeighbourList(filter) | R::NeighbourFlush(filter) => filter.family = Some(family),
        R::AddressList(filter) | R::AddressFlush(filter) => filter.family = Some(family),
        R::RouteAdd(spec) | R::RouteReplace(spec) | R::RouteChange(spec) => {
            one(spec.destination.address())?;
        }
        R::RouteDelete(id) => one(id.destination.address())?,
        R::RouteGet(query) => one(query.destination)?,
        R::NeighbourAdd(spec) | R::NeighbourReplace(spec) => one(spec.address)?,
        R::NeighbourDelete(id) | R::NeighbourGet(id) => one(id.address)?,
        R::AddressAdd(spec) | R::AddressReplace(spec) => one(spec.address.address())?,
        R::AddressDelete(id) => one(id.address.address())?,
        R::StateList(list) => list.filter.family = Some(family),
        R::StateFlush(flush) => flush.filter.family = Some(family),
        R::StateAdd(spec) | R::StateUpdate(spec) => one(spec.destination)?,
        R::StateDelete(id) | R::StateGet(id) => one(id.destination)?,
        R::PolicyList(filter) | R::PolicyFlush(filter) => filter.family = Some(family),
        R::PolicyAdd(spec) | R::PolicyUpdate(spec) => of_family(&mut spec.selector, family, one)?,
        R::PolicyDelete(id) | R::PolicyGet(id) => {
            if id.index.is_none() {
                of_family(&mut id.selector, family, one)?;
            }
        }
        R::StateCount | R::PolicyCountByDirection => {}
        R::PolicySetDefault(_) | R::PolicyGetDefault(_) => {}
        // These have read it.
        R::RuleAdd(_) | R::RuleDelete(_) | R::RuleList(_) | R::RuleFlush(_) => {}
        R::LinkAdd(_)
        | R::LinkDelete(_)
        | R::LinkSet(_)
        | R::LinkList(_)
        | R::VrfAdd(_)
        | R::VrfDelete(_)
        | R::VrfSet(_)
        | R::VrfGet(_)
        | R::VrfList => {}
        _ => {
            return Err(words
                .unsupported("-4 and -6 are for addr, link, neigh, route, rule, vrf and xfrm")
                .with_hint("addresses say their family"));
        }
    }
    Ok(())
}

/// Has a selector be of the family: one without addresses is of all of them.
fn of_family(
    selector: &mut Selector,
    family: Family,
    one: impl Fn(IpAddr) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    match selector.source.or(selector.destination) {
        Some(range) => one(range.first()),
        None if family == Family::V6 => {
            selector.source = Some(IpRange::ALL_V6);
            Ok(())
        }
        None => Ok(()),
    }
}
