//! Every key that a configuration file may have. The reader refuses all others, and
//! docs/configuration.md is held against this list.

mod conntrack;
mod filter;
mod firewall;
mod gateway;
mod ipsec;
mod ports;
mod qdisc;
mod routes;
mod watching;

/// A table or array of tables.
#[derive(Debug)]
pub struct Section {
    /// Its name.
    pub name: &'static str,
    /// Whether there may be several, written `[[name]]`.
    pub many: bool,
    /// What it may hold.
    pub keys: &'static [Key],
}

/// A key.
#[derive(Debug)]
pub struct Key {
    /// Its name; a key of an inline table has the table's name and a dot in front.
    pub name: &'static str,
    /// What its value looks like.
    pub value: &'static str,
    /// What the value counts, where it counts something.
    pub unit: &'static str,
    /// What holds where the key is absent.
    pub default: &'static str,
    /// What it means.
    pub meaning: &'static str,
}

const fn key(
    name: &'static str,
    value: &'static str,
    unit: &'static str,
    default: &'static str,
    meaning: &'static str,
) -> Key {
    Key { name, value, unit, default, meaning }
}

/// Every section, in the order of the documentation.
pub const SECTIONS: &[Section] = &[
    gateway::GATEWAY,
    watching::METRICS,
    watching::PAGE,
    watching::AUDIT,
    ipsec::IPSEC,
    conntrack::CONNTRACK,
    ports::VRF,
    ports::PORT,
    qdisc::QDISC,
    routes::ROUTE,
    routes::RULE,
    ports::NEIGHBOUR,
    ipsec::SA,
    ipsec::POLICY,
    filter::FILTER,
    filter::FLOW,
    firewall::FIREWALL,
];

#[cfg(test)]
mod tests {
    use super::*;

    /// The tables of docs/configuration.md, made from the list above.
    fn documentation() -> Vec<String> {
        let cell = |text: &str| if text.is_empty() { String::new() } else { format!(" {text}") };
        SECTIONS
            .iter()
            .map(|section| {
                let mut table = String::from(
                    "| Key | Value | Unit | Default | Meaning |\n| --- | --- | --- | --- | --- |\n",
                );
                for key in section.keys {
                    table += &format!(
                        "| `{}` |{} |{} |{} |{} |\n",
                        key.name,
                        cell(key.value),
                        cell(key.unit),
                        cell(key.default),
                        cell(key.meaning)
                    );
                }
                table
            })
            .collect()
    }

    #[test]
    fn the_documentation_has_every_key_and_no_other() {
        let page = include_str!("../../../../../docs/configuration.md");
        for (section, table) in SECTIONS.iter().zip(documentation()) {
            let header = if section.many {
                format!("`[[{}]]`", section.name)
            } else {
                format!("`[{}]`", section.name)
            };
            assert!(
                page.contains(&format!("## {header}")),
                "docs/configuration.md has no section {header}"
            );
            assert!(
                page.contains(&table),
                "docs/configuration.md should have this table for {header}:\n{table}"
            );
        }
        let rows = page.lines().filter(|line| line.starts_with("| `")).count();
        assert_eq!(rows, SECTIONS.iter().map(|section| section.keys.len()).sum::<usize>());
    }
}
