//! iproute2's `-4` and `-6`.

use std::net::IpAddr;

use api::{Family, Refusal, Request};

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
        R::AddressAdd(spec) | R::AddressReplace(spec) | R::AddressDelete(spec) => {
            one(spec.address.address())?;
        }
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
                .unsupported("-4 and -6 are for addr, link, neigh, route, rule and vrf")
                .with_hint("addresses say their family"));
        }
    }
    Ok(())
}
