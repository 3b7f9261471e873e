//! The examples in the documentation are right.

use super::*;

#[test]
fn the_example_in_the_documentation_is_right() {
    let text = include_str!("../../../../../docs/examples/gateway.toml");
    let config = load("gateway.toml", text).unwrap();
    assert_eq!((config.ports.len(), config.states.len(), config.policies.len()), (3, 3, 7));
    // Every section is in it.
    for section in SECTIONS {
        let header = if section.many {
            format!("\n[[{}]]", section.name)
        } else {
            format!("\n[{}]", section.name)
        };
        assert!(text.contains(&header), "{header}");
    }
}

/// Two SAs between the same networks, by DSCP.
#[test]
fn the_example_with_classes_of_traffic_is_right() {
    let text = include_str!("../../../../../docs/examples/classes.toml");
    let config = load("classes.toml", text).unwrap();
    let classes = |config: &Config| {
        let of = |policy: &PolicySpec| {
            let dscp = policy.selector.dscp.map(|dscp| dscp.to_string());
            (dscp, policy.template.as_ref().map(|template| template.reqid))
        };
        config.policies.iter().map(of).collect::<Vec<_>>()
    };
    let wanted = [(Some("ef".to_owned()), Some(2)), (None, Some(1))];
    assert_eq!(classes(&config), [wanted.clone(), wanted].concat());
    // By number and by range of classes too.
    let config = load("x", &text.replace("\"ef\"", "46")).unwrap();
    assert_eq!(classes(&config)[0].0.as_deref(), Some("ef"));
    let masked = text.replace("dscp = \"ef\"", "dscp = \"0x28/0x38\"");
    let config = load("x", &masked).unwrap();
    assert_eq!(classes(&config)[0].0.as_deref(), Some("0x28/0x38"));
}

#[test]
fn the_examples_of_the_firewall_are_right() {
    let text = include_str!("../../../../../docs/examples/firewall.toml");
    let config = check("firewall.toml", text, &|_, _| Ok(Vec::new()), &|_, _| Ok(())).unwrap();
    let notes: Vec<_> = config.notes.iter().map(ToString::to_string).collect();
    assert!(notes.iter().all(|note| !note.contains("never match")), "{notes:?}");
    let firewall = config.firewall.unwrap();
    assert_eq!((firewall.zones.len(), firewall.policies.len()), (4, 5));
    // It is written as it was read.
    let again = load_firewall("again", &firewall_text(&firewall)).unwrap().0;
    assert_eq!(again.as_ref(), Some(&firewall));

    let page = include_str!("../../../../../docs/firewall.md");
    let blocks: Vec<_> =
        page.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    let ports = "[[port]]\nname = \"dmz\"\nkind = \"memory\"\n[[port]]\nname = \"wan2\"\nkind = \"memory\"\n\
                 addresses = [\"198.51.100.2/24\"]\n";
    let servers = "[[firewall.zone]]\nname = \"servers\"\nnetworks = [\"10.3.0.0/24\"]\n";
    load("firewall.md", blocks[0]).unwrap();
    for block in &blocks[1..] {
        load("firewall.md", &format!("{}{ports}{servers}{block}", blocks[0])).unwrap();
    }
    // Every service that the page names is one, and every one is named.
    let named = page.split("and names: ").nth(1).unwrap().split('.').next().unwrap();
    for name in named.split(", ") {
        let policy = format!(
            "[[firewall.policy]]\nfrom = [\"outside\"]\nto = [\"inside\"]\n\
             rules = [{{ services = [\"{name}\"], action = \"accept\" }}]\n"
        );
        load("firewall.md", &format!("{}{policy}", blocks[0])).unwrap();
    }
    assert_eq!(named.split(", ").count(), crate::firewall::services::names().count());
}

/// Real packets go through it in `tests/test_shared_services.py`.
#[test]
fn the_example_with_a_shared_server_is_right() {
    let text = include_str!("../../../../../docs/examples/shared-services.toml");
    let config =
        check("shared-services.toml", text, &|_, _| Ok(Vec::new()), &|_, _| Ok(())).unwrap();
    assert_eq!((config.vrfs.len(), config.flows.len(), config.rules.len()), (3, 15, 6));
    assert_eq!(config.notes, []);
}

/// Real packets go through it in `tests/test_identical_networks.py`.
#[test]
fn the_example_with_identical_networks_is_right() {
    let text = include_str!("../../../../../docs/examples/identical-networks.toml");
    let config =
        check("identical-networks.toml", text, &|_, _| Ok(Vec::new()), &|_, _| Ok(())).unwrap();
    assert_eq!((config.vrfs.len(), config.flows.len(), config.rules.len()), (2, 16, 4));
    assert_eq!(config.notes, []);
}

#[test]
fn the_examples_in_the_text_of_the_documentation_are_right() {
    let page = include_str!("../../../../../docs/configuration.md");
    let blocks: Vec<_> =
        page.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(!blocks.is_empty());
    for block in blocks {
        load("configuration.md", block).unwrap();
    }
}
