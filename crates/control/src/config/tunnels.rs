//! Tunnels of a file that will not work as they stand there, though each part is right by itself. They
//! are notes: keys and addresses may still come by command.

use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;

use api::{Direction, PolicySpec, StateSpec, Template};

use super::Said;
use super::cross::Read;
use super::diagnostic::Errors;
use crate::check::in_vrf;

/// Notes ends of tunnels that are no addresses of the gateway, and policies that none of the file's SAs
/// serves: each once, at the first place.
pub(super) fn note(read: &Read<'_>, errors: &mut Errors<'_>) {
    let own: HashSet<(&str, IpAddr)> = read
        .ports
        .iter()
        .map(|port| &port.value)
        .flat_map(|port| port.addresses.iter().map(|own| (&*port.vrf, own.address())))
        .collect();
    let mut all: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    let mut doubt = |at: usize, text: String| all.entry(text).or_insert((at, 0)).1 += 1;
    for state in &read.states {
        let StateSpec { vrf, source, destination, .. } = &state.value;
        let is_ours = [source, destination].iter().any(|end| own.contains(&(&**vrf, **end)));
        // Addresses of the kernel's interfaces come without being in the file.
        if !is_ours && !own.is_empty() {
            doubt(state.table.place("source"), crate::check::idle_sa(&state.value));
        }
    }
    for policy in &read.policies {
        let Some(template) = &policy.value.template else { continue };
        let vrf = outer_vrf(&policy.value, template);
        let (ours, key) = match policy.value.direction {
            Direction::Out => (template.source, "source"),
            Direction::In | Direction::Fwd => (Some(template.destination), "destination"),
        };
        if let Some(end) = ours.filter(|end| !own.contains(&(vrf, *end)))
            && !own.is_empty()
        {
            let (where_, direction) = (in_vrf(vrf), policy.value.direction);
            let text = format!(
                "the template's {key} {end} is no address of a port{where_}: packets of direction \
                 {direction} have no tunnel that begins or ends here"
            );
            doubt(policy.table.place("template"), text);
        }
        let is_served = || read.states.iter().any(|state| serves(state, policy, template));
        if !read.states.is_empty() && !is_served() {
            let text = format!(
                "no SA of this file is of the template (to {}, reqid {}): what the policy protects \
                 is dropped until one is added",
                template.destination, template.reqid
            );
            doubt(policy.table.place("template"), text);
        }
    }
    for (text, (at, count)) in all {
        match count {
            1 => errors.note(at, text),
            _ => errors.note(at, format!("{text}; so it is {count} times, this is the first")),
        }
    }
}

fn outer_vrf<'a>(policy: &'a PolicySpec, template: &'a Template) -> &'a str {
    template.vrf.as_deref().unwrap_or(&policy.vrf)
}

/// Whether packets of a policy may use an SA.
fn serves(state: &Said<'_, StateSpec>, policy: &Said<'_, PolicySpec>, template: &Template) -> bool {
    let (state, policy) = (&state.value, &policy.value);
    state.vrf == outer_vrf(policy, template)
        && state.destination == template.destination
        && template.source.is_none_or(|source| source == state.source)
        && (template.reqid == 0 || template.reqid == state.reqid)
        && template.spi.is_none_or(|spi| spi == 0 || spi == state.spi)
        && state.if_id == policy.if_id
}

#[cfg(test)]
mod tests {
    use super::super::load;

    fn notes(text: &str) -> Vec<String> {
        let ports = "\
            [[port]]\nname = \"lan\"\nkind = \"memory\"\naddresses = [\"10.1.0.1/24\"]\n\
            [[port]]\nname = \"wan\"\nkind = \"memory\"\naddresses = [\"192.0.2.1/24\"]\n";
        let config = load("gw.toml", &format!("{ports}{text}")).unwrap();
        config.notes.iter().map(|note| note.message.clone()).collect()
    }

    fn sa(source: &str, destination: &str, reqid: u32) -> String {
        format!(
            "[[sa]]\nsource = \"{source}\"\ndestination = \"{destination}\"\nspi = {}\n\
             reqid = {reqid}\naead = {{ name = \"rfc4106(gcm(aes))\", \
             key = \"0x000102030405060708090a0b0c0d0e0f1011121{}\" }}\n",
            4096 + reqid,
            reqid % 10
        )
    }

    fn policy(direction: &str, number: u8, template: &str) -> String {
        format!(
            "[[policy]]\ndirection = \"{direction}\"\nsource = \"10.{number}.0.0/16\"\n\
             action = \"protect\"\ntemplate = {{ {template} }}\n"
        )
    }

    #[test]
    fn tunnels_that_work_are_not_noted() {
        let right = [
            sa("192.0.2.1", "198.51.100.1", 1),
            sa("198.51.100.1", "192.0.2.1", 2),
            policy("out", 1, "source = \"192.0.2.1\", destination = \"198.51.100.1\", reqid = 1"),
            policy("in", 2, "destination = \"192.0.2.1\", reqid = 2"),
        ];
        assert_eq!(notes(&right.concat()), Vec::<String>::new());
        // Without SAs, they come by command.
        assert_eq!(notes(&right[2..].concat()), Vec::<String>::new());
    }

    #[test]
    fn ends_that_are_not_ours_and_policies_without_an_sa_are_noted() {
        let told = notes(
            &[
                sa("192.0.2.9", "198.51.100.1", 1),
                policy(
                    "out",
                    1,
                    "source = \"192.0.2.9\", destination = \"198.51.100.1\", reqid = 1",
                ),
                policy("in", 2, "destination = \"192.0.2.8\", reqid = 2"),
                policy("in", 3, "destination = \"192.0.2.8\", reqid = 2"),
            ]
            .concat(),
        );
        assert_eq!(told.len(), 4, "{told:#?}");
        for says in [
            "neither 192.0.2.9 nor 198.51.100.1 is an address of a port",
            "source 192.0.2.9 is no address of a port: packets of direction out",
            "destination 192.0.2.8 is no address of a port: packets of direction in have no tunnel \
             that begins or ends here; so it is 2 times, this is the first",
            "no SA of this file is of the template (to 192.0.2.8, reqid 2)",
        ] {
            assert!(told.iter().any(|note| note.contains(says)), "{says}: {told:#?}");
        }
    }

    #[test]
    fn an_address_without_a_prefix_length_is_noted() {
        let port =
            "[[port]]\nname = \"x\"\nkind = \"memory\"\naddresses = [\"10.3.0.1\", \"fd00::1\"]\n";
        let told = notes(port);
        assert!(
            told[0].contains("10.3.0.1/32, a network of one address: with 10.3.0.1/24"),
            "{told:?}"
        );
        assert!(told[1].contains("with fd00::1/64"), "{told:?}");
    }
}
