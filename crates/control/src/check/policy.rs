//! Policies.

use api::PolicySpec;
use tables::{Action, Selector, Template, UpperSelector};
use types::{IpRange, OctetRange, PolicyAction, PortRange, Protocol, Spi};

use super::{Fault, station};

/// A policy in the tables' terms, but for its VRF and direction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CheckedPolicy {
    pub(crate) selector: Selector,
    pub(crate) action: Action,
}

/// Checks a policy.
pub(crate) fn policy(spec: &PolicySpec) -> Result<CheckedPolicy, Fault> {
    Ok(CheckedPolicy { selector: selector(&spec.selector)?, action: action(spec)? })
}

/// Checks a selector, and fills in what it leaves unsaid.
pub(crate) fn selector(spec: &api::Selector) -> Result<Selector, Fault> {
    let all_like = |range: &IpRange| if range.is_v6() { IpRange::ALL_V6 } else { IpRange::ALL_V4 };
    let (source, destination) = match (spec.source, spec.destination) {
        (Some(source), Some(destination)) if source.is_v6() != destination.is_v6() => {
            return Err(Fault::invalid(
                "source",
                format!(
                    "source {source} and destination {destination} are of two address families"
                ),
            )
            .hint("both IPv4 or both IPv6; one policy for each"));
        }
        (Some(source), Some(destination)) => (source, destination),
        (Some(source), None) => (source, all_like(&source)),
        (None, Some(destination)) => (all_like(&destination), destination),
        (None, None) => (IpRange::ALL_V4, IpRange::ALL_V4),
    };
    let upper = upper(spec)?;
    let icmp = if source.is_v6() { Protocol::ICMPV6 } else { Protocol::ICMP };
    if let (UpperSelector::Icmp { .. }, Some(protocol)) = (upper, spec.protocol)
        && protocol != icmp
    {
        let part = if spec.icmp_type.is_some() { "icmp-type" } else { "icmp-code" };
        return Err(Fault::invalid(
            part,
            format!("types and codes of {protocol} with addresses of the other family"),
        )
        .hint(format!("protocol {icmp}, or addresses of the other family")));
    }
    Ok(Selector { source, destination, protocol: spec.protocol, upper })
}

/// What a policy does, in the tables' terms.
pub(crate) fn action(spec: &PolicySpec) -> Result<Action, Fault> {
    match (spec.action, &spec.template) {
        (PolicyAction::Bypass, None) => Ok(Action::Bypass),
        (PolicyAction::Discard, None) => Ok(Action::Discard),
        (action @ (PolicyAction::Bypass | PolicyAction::Discard), Some(_)) => Err(Fault::invalid(
            "template",
            format!("a policy that says {action} has no use for a template"),
        )
        .hint("a template goes with protect only")),
        (PolicyAction::Protect, None) => {
            Err(Fault::invalid("action", "a policy that says protect needs a template")
                .hint("a template names the tunnel's ends and a reqid"))
        }
        (PolicyAction::Protect, Some(template)) => Ok(Action::Protect(self::template(template)?)),
    }
}

fn template(spec: &api::Template) -> Result<Template, Fault> {
    station("template", spec.destination)?;
    let source = spec.source.filter(|source| !source.is_unspecified());
    source.map(|source| station("template", source)).transpose()?;
    if source.is_some_and(|source| source.is_ipv4() != spec.destination.is_ipv4()) {
        return Err(Fault::invalid("template", "the tunnel's ends are of two address families")
            .hint("both IPv4 or both IPv6"));
    }
    let spi = spec.spi.filter(|spi| *spi != 0).map(Spi);
    Ok(Template { source, destination: spec.destination, reqid: spec.reqid, spi })
}

fn upper(spec: &api::Selector) -> Result<UpperSelector, Fault> {
    let given = |what: &'static str, given: bool| given.then_some(what);
    let port = given("source-ports", spec.source_ports.is_some())
        .or(given("destination-ports", spec.destination_ports.is_some()));
    let icmp = given("icmp-type", spec.icmp_type.is_some())
        .or(given("icmp-code", spec.icmp_code.is_some()));

    let is_icmp = matches!(spec.protocol, Some(Protocol::ICMP | Protocol::ICMPV6));
    if let Some(part) = port.filter(|_| !spec.protocol.is_some_and(Protocol::has_ports)) {
        let of = spec
            .protocol
            .map_or_else(|| "any protocol".to_owned(), |protocol| format!("protocol {protocol}"));
        return Err(Fault::invalid(part, format!("{of} has no ports to select by"))
            .hint("protocol tcp, udp, sctp, dccp or udplite"));
    }
    if let Some(part) = icmp.filter(|_| !is_icmp) {
        return Err(Fault::invalid(part, "only ICMP messages have types and codes")
            .hint("protocol icmp or ipv6-icmp"));
    }

    if port.is_some() {
        let source = spec.source_ports.unwrap_or(PortRange::ALL);
        let destination = spec.destination_ports.unwrap_or(PortRange::ALL);
        // Every port is no condition, and packets whose ports are not to be seen meet it too.
        return Ok(match source.is_all() && destination.is_all() {
            true => UpperSelector::Any,
            false => UpperSelector::Ports { source, destination },
        });
    }
    if icmp.is_some() {
        let kind = spec.icmp_type.unwrap_or(OctetRange::ALL);
        let code = spec.icmp_code.unwrap_or(OctetRange::ALL);
        return Ok(match kind.is_all() && code.is_all() {
            true => UpperSelector::Any,
            false => UpperSelector::Icmp {
                kind: (kind.first(), kind.last()),
                code: (code.first(), code.last()),
            },
        });
    }
    Ok(UpperSelector::Any)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_unsaid_is_everything_of_the_family() {
        let all = selector(&api::Selector::default()).unwrap();
        assert_eq!(
            (all.source, all.destination, all.protocol),
            (IpRange::ALL_V4, IpRange::ALL_V4, None)
        );
        let six = selector(&api::Selector {
            destination: Some("2001:db8::/32".parse().unwrap()),
            ..Default::default()
        })
        .unwrap();
        assert_eq!(six.source, IpRange::ALL_V6);
    }

    #[test]
    fn parts_that_do_not_go_together_are_refused() {
        let part = |spec: api::Selector| selector(&spec).unwrap_err().part;
        let ports = Some(PortRange::new(1, 2).unwrap());
        assert_eq!(
            part(api::Selector { source_ports: ports, ..Default::default() }),
            "source-ports"
        );
        let esp = Some(Protocol::ESP);
        assert_eq!(
            part(api::Selector { protocol: esp, destination_ports: ports, ..Default::default() }),
            "destination-ports"
        );
        let octets = Some(OctetRange::from(8));
        assert_eq!(
            part(api::Selector {
                protocol: Some(Protocol::TCP),
                icmp_type: octets,
                ..Default::default()
            }),
            "icmp-type"
        );
        assert_eq!(
            part(api::Selector {
                source: Some(IpRange::ALL_V4),
                destination: Some(IpRange::ALL_V6),
                ..Default::default()
            }),
            "source"
        );
    }

    #[test]
    fn every_port_is_no_condition() {
        let tcp = api::Selector {
            protocol: Some(Protocol::TCP),
            source_ports: Some(PortRange::ALL),
            ..Default::default()
        };
        assert_eq!(selector(&tcp).unwrap().upper, UpperSelector::Any);
    }
}
