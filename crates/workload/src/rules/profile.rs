//! What rule sets of each kind were measured to be like, and what that means for a set of another
//! size.

use super::Kind;

/// Measurements of one family of published sets, at three sizes.
struct Measured {
    /// How many rules each of the three sets has.
    rules: [f64; 3],
    /// Distinct pairs of source and destination prefix length.
    pairs: [f64; 3],
    /// How many of those pairs, the most common first, hold 90 % of the rules.
    head: [f64; 3],
    /// Share of rules for any source.
    any_source: [f64; 3],
    /// Share of rules for any destination.
    any_destination: [f64; 3],
    /// Share of rules with a port range that is neither one port nor all.
    ranges: [f64; 3],
    /// Share of rules for any protocol.
    any_protocol: [f64; 3],
    /// The most rules that have one source and one destination prefix.
    most: [f64; 3],
}

const ACL: Measured = Measured {
    rules: [878.0, 9_761.0, 59_900.0],
    pairs: [85.0, 146.0, 159.0],
    head: [29.0, 24.0, 13.0],
    any_source: [0.009, 0.003, 0.001],
    any_destination: [0.011, 0.005, 0.002],
    ranges: [0.10, 0.11, 0.12],
    any_protocol: [0.07, 0.08, 0.07],
    most: [48.0, 18.0, 5.0],
};

const ACL2: Measured = Measured {
    rules: [865.0, 9_366.0, 57_082.0],
    pairs: [205.0, 310.0, 342.0],
    head: [127.0, 151.0, 123.0],
    any_source: [0.12, 0.08, 0.02],
    any_destination: [0.06, 0.06, 0.03],
    ranges: [0.09, 0.08, 0.08],
    any_protocol: [0.43, 0.46, 0.46],
    most: [17.0, 47.0, 69.0],
};

const FW: Measured = Measured {
    rules: [761.0, 9_416.0, 58_576.0],
    pairs: [77.0, 125.0, 138.0],
    head: [31.0, 34.0, 34.0],
    any_source: [0.38, 0.41, 0.41],
    any_destination: [0.20, 0.19, 0.17],
    ranges: [0.12, 0.11, 0.10],
    any_protocol: [0.01, 0.01, 0.01],
    most: [37.0, 87.0, 137.0],
};

const FW4: Measured = Measured {
    rules: [864.0, 8_847.0, 55_948.0],
    pairs: [61.0, 80.0, 81.0],
    head: [29.0, 30.0, 29.0],
    any_source: [0.38, 0.37, 0.32],
    any_destination: [0.20, 0.15, 0.11],
    ranges: [0.62, 0.63, 0.67],
    any_protocol: [0.07, 0.07, 0.07],
    most: [72.0, 226.0, 327.0],
};

const IPC: Measured = Measured {
    rules: [923.0, 8_739.0, 59_869.0],
    pairs: [204.0, 299.0, 334.0],
    head: [121.0, 131.0, 103.0],
    any_source: [0.06, 0.07, 0.03],
    any_destination: [0.06, 0.06, 0.02],
    ranges: [0.10, 0.10, 0.10],
    any_protocol: [0.33, 0.30, 0.34],
    most: [13.0, 36.0, 24.0],
};

/// Published at 32,639 rules, and made at 23,749 by ClassBench's `db_generator -bc` with the seed
/// `ipc1`, 36,000 rules wanted and a smoothness of 16. Smaller sets are taken to be like a thousand
/// rules of that, drawn at random.
const NESTED: Measured = Measured {
    rules: [1_000.0, 23_749.0, 32_639.0],
    pairs: [379.0, 978.0, 1_061.0],
    head: [279.0, 426.0, 512.0],
    any_source: [0.02, 0.018, 0.01],
    any_destination: [0.01, 0.015, 0.01],
    ranges: [0.11, 0.10, 0.10],
    any_protocol: [0.20, 0.19, 0.19],
    most: [5.0, 66.0, 78.0],
};

/// What a set of one size is to be like. The fields are those of [`Measured`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Profile {
    pub(super) pairs: usize,
    pub(super) head: usize,
    pub(super) any_source: f64,
    pub(super) any_destination: f64,
    pub(super) ranges: f64,
    pub(super) any_protocol: f64,
    pub(super) most: usize,
    /// Share of rules with an address range that is no prefix.
    pub(super) misaligned: f64,
}

impl Profile {
    pub(super) fn of(kind: Kind, count: usize) -> Self {
        let (measured, misaligned) = match kind {
            Kind::Acl => (&ACL, 0.0),
            Kind::Acl2 => (&ACL2, 0.0),
            Kind::Fw => (&FW, 0.0),
            Kind::Fw4 => (&FW4, 0.0),
            Kind::Ipc => (&IPC, 0.0),
            Kind::Spd => (&IPC, 0.02),
            Kind::Nested | Kind::Chains => (&NESTED, 0.0),
        };
        let rules = count.max(1) as f64;
        let share = |values: &[f64; 3]| interpolate(&measured.rules, values, rules);
        // Counts grow by factors, and a set smaller than the smallest that was measured has fewer
        // of everything.
        let number = |values: &[f64; 3]| {
            let smaller = (rules / measured.rules[0]).min(1.0).powf(0.75);
            let number = interpolate(&measured.rules, &values.map(f64::ln), rules).exp() * smaller;
            (number.round() as usize).clamp(1, count.max(1))
        };
        let pairs = number(&measured.pairs);
        Self {
            pairs,
            head: number(&measured.head).min(pairs),
            any_source: share(&measured.any_source),
            any_destination: share(&measured.any_destination),
            ranges: share(&measured.ranges),
            any_protocol: share(&measured.any_protocol),
            most: number(&measured.most),
            misaligned,
        }
    }
}

/// The value at `x`, on the lines through three points over a logarithmic axis; level outside of
/// them.
fn interpolate(points: &[f64; 3], values: &[f64; 3], x: f64) -> f64 {
    let x = x.clamp(points[0], points[2]);
    let from = usize::from(x > points[1]);
    let part = (x / points[from]).ln() / (points[from + 1] / points[from]).ln();
    values[from] + part * (values[from + 1] - values[from])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_is_the_measured_one_at_a_measured_size() {
        let profile = Profile::of(Kind::Fw4, 8_847);
        assert_eq!((profile.pairs, profile.head, profile.most), (80, 30, 226));
        assert!((profile.any_source - 0.37).abs() < 1e-9 && (profile.ranges - 0.63).abs() < 1e-9);
    }

    #[test]
    fn it_lies_between_and_stays_level_beyond() {
        let between = Profile::of(Kind::Acl, 3_000);
        assert!((86..146).contains(&between.pairs), "{between:?}");
        assert_eq!(Profile::of(Kind::Acl, 100_000).pairs, 159);
        let small = Profile::of(Kind::Ipc, 10);
        assert!(
            (2..=10).contains(&small.pairs) && small.head <= small.pairs && small.most == 1,
            "{small:?}"
        );
        assert_eq!(Profile::of(Kind::Spd, 0).pairs, 1);
    }
}
