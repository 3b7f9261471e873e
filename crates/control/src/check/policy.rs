//! Policies.

use api::PolicySpec;
use tables::{
    Action, FieldsSelector, Selector, SelectorError, Template, TunnelError, UpperSelector,
};
use types::{IpRange, OctetRange, PolicyAction, PortRange, Protocol, Spi};

use super::Fault;

/// A policy in the tables' terms, but for its VRF and direction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CheckedPolicy {
    pub(crate) selector: Selector,
    pub(crate) action: Action,
}

/// Whether a policy is either a VRF's or a link's.
pub(crate) fn link_policy(spec: &PolicySpec) -> Result<(), Fault> {
    if spec.if_id == 0 || spec.vrf == api::MAIN_VRF {
        return Ok(());
    }
    let message = format!(
        "a policy with an if_id is for the packets of an xfrm link and not for those of VRF {}",
        spec.vrf
    );
    Err(Fault::invalid("vrf", message)
        .hint("no vrf here; that of the outer packets stands in the template"))
}

/// Checks a policy.
pub(crate) fn policy(spec: &PolicySpec) -> Result<CheckedPolicy, Fault> {
    link_policy(spec)?;
    Ok(CheckedPolicy { selector: selector(&spec.selector)?, action: action(spec)? })
}

/// Checks a selector, and fills in what it leaves unsaid.
pub(crate) fn selector(spec: &api::Selector) -> Result<Selector, Fault> {
    let all_like = |range: &IpRange| if range.is_v6() { IpRange::ALL_V6 } else { IpRange::ALL_V4 };
    let (source, destination) = match (spec.source, spec.destination) {
        (Some(source), Some(destination)) => (source, destination),
        (Some(source), None) => (source, all_like(&source)),
        (None, Some(destination)) => (all_like(&destination), destination),
        (None, None) => (IpRange::ALL_V4, IpRange::ALL_V4),
    };
    let (protocol, fields) =
        (spec.protocol, FieldsSelector::new(spec.tcp_flags, spec.dscp, spec.ttl));
    let with = |upper| Selector { source, destination, protocol, upper, fields };

    // Each part that was given must fit the protocol, even one that selects everything.
    let mut checked = with(UpperSelector::Any);
    let parts = [ports(spec), icmp(spec)];
    for upper in parts.into_iter().flatten() {
        checked = with(upper);
        checked.check().map_err(|why| selector_fault(spec, why))?;
    }
    checked.check().map_err(|why| selector_fault(spec, why))?;

    // Every port is no condition, and packets whose ports are not to be seen meet it too.
    let is_all = match checked.upper {
        UpperSelector::Any => true,
        UpperSelector::Ports { source, destination } => source.is_all() && destination.is_all(),
        UpperSelector::Icmp { kind, code } => kind == (0, u8::MAX) && code == (0, u8::MAX),
    };
    Ok(if is_all { with(UpperSelector::Any) } else { checked })
}

/// Which part of a selector is wrong, and what would be right.
fn selector_fault(spec: &api::Selector, why: SelectorError) -> Fault {
    let (part, hint) = match why {
        SelectorError::Families { .. } => {
            ("source", "both IPv4 or both IPv6; one policy for each".to_owned())
        }
        SelectorError::Ports(_) => (
            if spec.source_ports.is_some() { "source-ports" } else { "destination-ports" },
            "protocol tcp, udp, sctp, dccp or udplite".to_owned(),
        ),
        SelectorError::Icmp { protocol: Some(Protocol::ICMP | Protocol::ICMPV6), expected } => {
            (icmp_part(spec), format!("protocol {expected}, or addresses of the other family"))
        }
        SelectorError::Icmp { .. } => (icmp_part(spec), "protocol icmp or ipv6-icmp".to_owned()),
        SelectorError::TcpFlags(_) => ("tcp-flags", "protocol tcp".to_owned()),
        SelectorError::Reversed(_) => (icmp_part(spec), "FIRST-LAST".to_owned()),
    };
    Fault::invalid(part, why.to_string()).hint(hint)
}

fn icmp_part(spec: &api::Selector) -> &'static str {
    if spec.icmp_type.is_some() { "icmp-type" } else { "icmp-code" }
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

/// The VRF of the outer packets is for who knows VRFs' numbers.
fn template(spec: &api::Template) -> Result<Template, Fault> {
    let template = Template {
        vrf: None,
        // 0.0.0.0, :: and SPI 0 are iproute2's words for any.
        source: spec.source.filter(|source| !source.is_unspecified()),
        destination: spec.destination,
        reqid: spec.reqid,
        spi: spec.spi.filter(|spi| *spi != 0).map(Spi),
    };
    template.check().map_err(|why| {
        let hint = match why {
            TunnelError::Families { .. } => "both IPv4 or both IPv6",
            TunnelError::End { .. } => "a unicast address",
            TunnelError::SpiZero => "1 to 4294967295",
        };
        Fault::invalid("template", why.to_string()).hint(hint)
    })?;
    Ok(template)
}

/// The ports that a selector gives.
fn ports(spec: &api::Selector) -> Option<UpperSelector> {
    spec.source_ports.or(spec.destination_ports)?;
    Some(UpperSelector::Ports {
        source: spec.source_ports.unwrap_or(PortRange::ALL),
        destination: spec.destination_ports.unwrap_or(PortRange::ALL),
    })
}

/// The ICMP types and codes that a selector gives.
fn icmp(spec: &api::Selector) -> Option<UpperSelector> {
    spec.icmp_type.or(spec.icmp_code)?;
    let ends = |range: Option<OctetRange>| {
        let range = range.unwrap_or(OctetRange::ALL);
        (range.first(), range.last())
    };
    Some(UpperSelector::Icmp { kind: ends(spec.icmp_type), code: ends(spec.icmp_code) })
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
    fn tcp_flags_need_tcp() {
        let flags = "syn/syn,ack".parse().ok();
        for protocol in [None, Some(Protocol::UDP)] {
            let spec = api::Selector { protocol, tcp_flags: flags, ..Default::default() };
            let fault = selector(&spec).unwrap_err();
            assert_eq!((fault.part, fault.hint.as_deref()), ("tcp-flags", Some("protocol tcp")));
        }
        let tcp = Some(Protocol::TCP);
        let spec = api::Selector { protocol: tcp, tcp_flags: flags, ..Default::default() };
        assert!(selector(&spec).unwrap().fields.asks_tcp_flags());
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
