//! Figures that others have published, with the machines they are from. Not to be compared with
//! ours by the number, but by the shape.

/// Figures by the value of a table's column.
pub(crate) struct Published {
    /// Whose, and on what.
    pub what: &'static str,
    /// The series.
    pub series: &'static str,
    /// Column and figure.
    pub figures: &'static [(f64, f64)],
}

/// Mpps by matching policy index. VPP's outbound SPD flow cache (2021): one core, one ESP tunnel,
/// null encryption, 64 bytes.
pub(crate) const SPD_OUT: [Published; 6] = [
    published(
        "Neoverse N1",
        "linear",
        &[(1.0, 5.2), (10.0, 4.55), (100.0, 2.11), (1000.0, 0.3295)],
    ),
    published("Neoverse N1", "cached", &[(1.0, 4.84), (10.0, 4.84), (100.0, 4.84), (1000.0, 4.84)]),
    published(
        "ThunderX2",
        "linear",
        &[(1.0, 2.81), (10.0, 2.51), (100.0, 1.27), (1000.0, 0.17662)],
    ),
    published("ThunderX2", "cached", &[(1.0, 2.6), (10.0, 2.6), (100.0, 2.6), (1000.0, 2.6)]),
    published(
        "Skylake-X",
        "linear",
        &[(1.0, 4.93), (10.0, 4.29), (100.0, 2.05), (1000.0, 0.33679)],
    ),
    published("Skylake-X", "cached", &[(1.0, 4.48), (10.0, 4.46), (100.0, 4.48), (1000.0, 4.47)]),
];

/// Cycles of the time-stamp counter per packet, the whole way, by flows: VPP of August 2026 on AMD
/// Zen 3, IPv4 forwarding with an outbound SPD of 1,000 policies, action bypass.
pub(crate) const SPD_OUT_FLOWS: [Published; 3] = [
    published(
        "VPP, Zen 3",
        "flow cache",
        &[(1.0, 213.0), (1e3, 244.0), (1e4, 341.0), (1e5, 554.0), (1e6, 752.0)],
    ),
    published("VPP, Zen 3", "fast lookup", &[(1e4, 260.0), (1e5, 260.0), (1e6, 260.0)]),
    published("VPP, Zen 3", "no SPD", &[(1.0, 155.0)]),
];

/// Mbit/s by matching policy index. VPP's inbound SPD flow cache (2022): one core of a ThunderX2,
/// one ESP tunnel, null decryption, 94 bytes.
pub(crate) const SPD_IN: [Published; 2] = [
    published("ThunderX2", "linear", &[(2.0, 300.0), (10.0, 230.0), (100.0, 70.0), (1000.0, 8.5)]),
    published(
        "ThunderX2",
        "cached",
        &[(2.0, 290.0), (10.0, 290.0), (100.0, 290.0), (1000.0, 290.0)],
    ),
];

/// Mbit/s by processors, 64-byte packets in an ESP tunnel of AES-CBC and HMAC-SHA1: Linux's xfrm
/// with its flow cache and without (2016).
pub(crate) const XFRM: [Published; 4] = [
    published(
        "Linux, 4 flows a processor",
        "cache",
        &[(1.0, 241.0), (2.0, 469.0), (3.0, 690.0), (4.0, 880.0)],
    ),
    published(
        "Linux, 4 flows a processor",
        "none",
        &[(1.0, 198.0), (2.0, 320.0), (3.0, 503.0), (4.0, 688.0)],
    ),
    published(
        "Linux, 16 k flows a processor",
        "cache",
        &[(1.0, 112.0), (2.0, 193.0), (3.0, 305.0), (4.0, 435.0)],
    ),
    published(
        "Linux, 16 k flows a processor",
        "none",
        &[(1.0, 190.0), (2.0, 307.0), (3.0, 488.0), (4.0, 668.0)],
    ),
];

/// Speed of a VRF, of the same without one, over all of TCP and UDP, stream and request/response,
/// IPv4 and IPv6 (the least, and the most): Linux's VRF (2017), where every packet took the detour
/// over the VRF's device with a lookup of its own, and where a VRF with defaults no longer did.
pub(crate) const VRF: [Published; 2] = [
    published("Linux, before", "detour", &[(0.0, 0.90), (1.0, 0.95)]),
    published("Linux, after", "defaults", &[(0.0, 0.97), (1.0, 1.00)]),
];

/// Speed with connections' states in the exact-match cache, as a multiple of that without, by
/// connections: OVS-DPDK (2017), UDP both ways, 64 bytes, two threads; the sums of both sides.
pub(crate) const CONNTRACK_GAIN: Published = published(
    "OVS-DPDK, 2017",
    "gain",
    &[(1.0, 3.6), (10.0, 2.62), (100.0, 2.1), (1e3, 1.8), (1e4, 1.19), (1e5, 1.01)],
);

/// Cycles of a counter of 2.0 GHz a packet, the whole way, by connections: VPP of 2026 on a Sapphire
/// Rapids, 64 bytes, both directions, established.
pub(crate) const CONNTRACK: [Published; 4] = [
    published(
        "VPP, Sapphire Rapids",
        "plain forwarding",
        &[(1.0, 50.0), (1e3, 52.0), (1e4, 54.0), (1e5, 53.0), (1e6, 58.0)],
    ),
    published(
        "VPP, Sapphire Rapids",
        "ACL plugin, TCP",
        &[(1.0, 100.0), (1e3, 102.0), (1e4, 135.0), (1e5, 205.0), (1e6, 240.0)],
    ),
    published(
        "VPP, Sapphire Rapids",
        "sessions, TCP",
        &[(1.0, 162.0), (1e3, 169.0), (1e4, 218.0), (1e5, 362.0), (1e6, 416.0)],
    ),
    published(
        "VPP, Sapphire Rapids",
        "source NAT",
        &[(1.0, 161.0), (1e3, 189.0), (1e4, 211.0), (1e5, 362.0), (1e6, 417.0)],
    ),
];

/// The best of the engines compared on a Zen 3 at 2.25 GHz, in nanoseconds per lookup of distinct
/// headers, by rules (in thousands): the set's kind, then what is known of it.
pub(crate) const LOOKUP: [Published; 3] = [
    published("best published, Zen 3", "acl", &[(1e3, 27.0), (1e4, 46.0), (6e4, 75.0)]),
    published("best published, Zen 3", "fw", &[(1e3, 33.0), (1e4, 121.0), (6e4, 299.0)]),
    published("best published, Zen 3", "ipc", &[(1e3, 32.0), (1e4, 86.0), (6e4, 263.0)]),
];

/// rte_acl with AVX2, as [`LOOKUP`]: DPDK 22.11 on an AMD EPYC (Zen 5) with a counter of 2.6 GHz,
/// batches of 256, sets and traces of ClassBench, the better of its default and of a larger
/// `max_size`. From docs/results/2026-11-22-classifier.md.
pub(crate) const RTE_ACL: [Published; 4] = [
    published("rte_acl AVX2, Zen 5", "acl", &[(1e3, 18.5), (1e4, 28.8), (6e4, 184.0)]),
    published("rte_acl AVX2, Zen 5", "fw", &[(1e3, 20.4), (1e4, 207.0), (6e4, 580.0)]),
    published("rte_acl AVX2, Zen 5", "ipc", &[(1e3, 20.0), (1e4, 32.7), (6e4, 332.0)]),
    published("rte_acl AVX2, Zen 5", "nested", &[(23_749.0, 66.9)]),
];

const fn published(
    what: &'static str,
    series: &'static str,
    figures: &'static [(f64, f64)],
) -> Published {
    Published { what, series, figures }
}

impl Published {
    /// A line for a table whose columns are `columns` and that begins with `labels` cells.
    pub(crate) fn line(&self, columns: &[String], labels: usize) -> Vec<String> {
        let mut cells = vec![String::new(); labels.saturating_sub(2)];
        cells.extend([self.what.to_owned(), self.series.to_owned()]);
        cells.truncate(labels);
        cells.extend(columns.iter().map(|column| {
            let figure = self.figures.iter().find(|(at, _)| column.parse() == Ok(*at));
            figure.map_or_else(String::new, |(_, figure)| figure.to_string())
        }));
        cells
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_stand_in_their_columns() {
        let columns = ["1", "1000", "100000"].map(str::to_owned);
        assert_eq!(SPD_OUT[0].line(&columns, 2), ["Neoverse N1", "linear", "5.2", "0.3295", ""]);
        assert_eq!(SPD_OUT[0].line(&columns[..1], 3), ["", "Neoverse N1", "linear", "5.2"]);
    }
}
