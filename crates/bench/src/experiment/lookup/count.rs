//! What lookups of a set's headers take: places and policies, counted one header at a time.

use serde_json::{Value, json};
use tables::{Direction, LookupStructure, Tables};
use wire::FlowKey;

use super::source::Set;
use super::spd;

/// The structure that finds these headers' policies, and what it takes.
pub(super) fn found(tables: &Tables, set: &Set, headers: &[FlowKey]) -> Value {
    let Some(spd) = spd(tables) else { return json!({}) };
    let (mut probes, mut compared) = (Sum::default(), Sum::default());
    for key in headers {
        let (_, count) = spd.lookup_counted(Direction::Out, key);
        probes.add(count.probes);
        compared.add(count.rules);
    }
    json!({
        "structure": structure(spd.structures(Direction::Out), set.family),
        "counted_headers": headers.len(),
        "probes_mean": probes.mean(headers.len()),
        "probes_most": probes.most,
        "compared_mean": compared.mean(headers.len()),
        "compared_most": compared.most,
    })
}

/// In words, of the families that the set has.
fn structure([ipv4, ipv6]: [LookupStructure; 2], family: &str) -> String {
    match family {
        "ipv4" => ipv4.to_string(),
        "ipv6" => ipv6.to_string(),
        _ if ipv4 == ipv6 => ipv4.to_string(),
        _ => format!("ipv4 {ipv4}; ipv6 {ipv6}"),
    }
}

#[derive(Default)]
struct Sum {
    all: u64,
    most: u32,
}

impl Sum {
    fn add(&mut self, count: u32) {
        self.all += u64::from(count);
        self.most = self.most.max(count);
    }

    fn mean(&self, of: usize) -> f64 {
        self.all as f64 / of.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use tables::LookupReason;

    use super::*;

    #[test]
    fn the_structures_of_both_families_are_told_apart() {
        let index = LookupStructure::Index(LookupReason::NotCompiled);
        let both = [LookupStructure::Trees, index];
        assert_eq!(structure(both, "ipv4"), "trees: the policies are compiled");
        assert_eq!(structure(both, "ipv6"), "index: the policies are not compiled");
        assert_eq!(structure([index; 2], "both"), "index: the policies are not compiled");
        let told = structure(both, "both");
        assert!(told.starts_with("ipv4 trees") && told.contains("ipv6 index"), "{told}");
    }
}
