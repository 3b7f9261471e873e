//! Rates, sizes and times as tc reads them: a number, perhaps with a fraction, and a unit.

/// A kind of quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quantity {
    /// In bytes a second; a number alone is bits a second.
    Rate,
    /// In bytes.
    Size,
    /// In microseconds.
    Time,
}

/// A unit, and what it stands for as a fraction.
type Unit = (&'static str, u128, u128);

const RATES: &[Unit] = &[
    ("", 1, 8),
    ("bit", 1, 8),
    ("kbit", 1_000, 8),
    ("mbit", 1_000_000, 8),
    ("gbit", 1_000_000_000, 8),
    ("tbit", 1_000_000_000_000, 8),
    ("kibit", 1 << 10, 8),
    ("mibit", 1 << 20, 8),
    ("gibit", 1 << 30, 8),
    ("tibit", 1 << 40, 8),
    ("bps", 1, 1),
    ("kbps", 1_000, 1),
    ("mbps", 1_000_000, 1),
    ("gbps", 1_000_000_000, 1),
    ("tbps", 1_000_000_000_000, 1),
    ("kibps", 1 << 10, 1),
    ("mibps", 1 << 20, 1),
    ("gibps", 1 << 30, 1),
    ("tibps", 1 << 40, 1),
];

const SIZES: &[Unit] = &[
    ("", 1, 1),
    ("b", 1, 1),
    ("k", 1 << 10, 1),
    ("kb", 1 << 10, 1),
    ("m", 1 << 20, 1),
    ("mb", 1 << 20, 1),
    ("g", 1 << 30, 1),
    ("gb", 1 << 30, 1),
    ("kbit", 1 << 10, 8),
    ("mbit", 1 << 20, 8),
    ("gbit", 1 << 30, 8),
];

const TIMES: &[Unit] = &[
    ("", 1, 1),
    ("us", 1, 1),
    ("usec", 1, 1),
    ("usecs", 1, 1),
    ("ms", 1_000, 1),
    ("msec", 1_000, 1),
    ("msecs", 1_000, 1),
    ("s", 1_000_000, 1),
    ("sec", 1_000_000, 1),
    ("secs", 1_000_000, 1),
];

impl Quantity {
    fn units(self) -> &'static [Unit] {
        match self {
            Self::Rate => RATES,
            Self::Size => SIZES,
            Self::Time => TIMES,
        }
    }

    /// What would be right, for errors.
    pub(crate) const fn example(self) -> &'static str {
        match self {
            Self::Rate => "a rate, as in 100mbit or 12500kbps",
            Self::Size => "a size in bytes, as in 1600 or 32kb",
            Self::Time => "a time, as in 50ms or 500us",
        }
    }

    /// Reads a quantity; what is less than one of its unit is left out, as tc does. `None` if it is
    /// none, or too large for any.
    pub(crate) fn read(self, text: &str) -> Option<u64> {
        let digits = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.');
        let (number, unit) = text.split_at(digits.unwrap_or(text.len()));
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        // More digits than any quantity has.
        if whole.is_empty() || whole.len() + fraction.len() > 20 || fraction.contains('.') {
            return None;
        }
        if number.ends_with('.') {
            return None;
        }
        let units = self.units();
        let (_, times, over) =
            units.iter().find(|(name, ..)| unit.eq_ignore_ascii_case(name)).copied()?;
        let digits: u128 = format!("{whole}{fraction}").parse().ok()?;
        let over = 10_u128.pow(fraction.len() as u32) * over;
        u64::try_from(digits.checked_mul(times)? / over).ok()
    }

    /// The shortest text that is read as this value.
    pub(crate) fn text(self, value: u64) -> String {
        let units: &[&str] = match self {
            Self::Rate => &["gbit", "mbit", "kbit", "bit"],
            Self::Size => &["mb", "kb", "b"],
            Self::Time => &["s", "ms", "us"],
        };
        let whole = |name: &&str| {
            let (_, times, over) = self.units().iter().find(|(unit, ..)| unit == name)?;
            let scaled = u128::from(value) * over;
            (scaled % times == 0 && (scaled > 0 || *times == 1))
                .then(|| format!("{}{name}", scaled / times))
        };
        units.iter().find_map(whole).unwrap_or_else(|| value.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn units_are_those_of_tc() {
        for (text, bytes) in [
            ("8", 1),
            ("1mbit", 125_000),
            ("1Mbit", 125_000),
            ("1.5mbit", 187_500),
            ("1kbps", 1000),
            ("1kibit", 128),
            ("1000gbit", 125_000_000_000),
            ("7bit", 0),
            ("0", 0),
        ] {
            assert_eq!(Quantity::Rate.read(text), Some(bytes), "{text}");
        }
        for (text, bytes) in [("1600", 1600), ("32kb", 32768), ("32k", 32768), ("1mbit", 131_072)] {
            assert_eq!(Quantity::Size.read(text), Some(bytes), "{text}");
        }
        for (text, time) in [("5ms", 5000), ("100", 100), ("0.5s", 500_000), ("1secs", 1_000_000)] {
            assert_eq!(Quantity::Time.read(text), Some(time), "{text}");
        }
    }

    #[test]
    fn what_is_no_quantity_is_refused() {
        for text in [
            "",
            "mbit",
            "-1mbit",
            "+1",
            "1 mbit",
            "1mbit*8",
            "1e9",
            ".5s",
            "5.",
            "1.2.3",
            "1mbits",
            "999999999999999999999",
            "99999999999999999999tbit",
            "0x10",
            "1%",
            "１",
        ] {
            for quantity in [Quantity::Rate, Quantity::Size, Quantity::Time] {
                assert_eq!(quantity.read(text), None, "{text}");
            }
        }
    }

    proptest! {
        #[test]
        fn every_text_is_read_as_what_it_was(value in any::<u64>(), shift in 0..64) {
            for quantity in [Quantity::Rate, Quantity::Size, Quantity::Time] {
                let value = value >> shift >> 3;
                prop_assert_eq!(quantity.read(&quantity.text(value)), Some(value));
                let round = value % 1000 * 1_000_000;
                prop_assert_eq!(quantity.read(&quantity.text(round)), Some(round));
            }
        }

        #[test]
        fn no_text_is_too_much(text in "[0-9.]{0,25}[a-zA-Z%* -]{0,6}") {
            for quantity in [Quantity::Rate, Quantity::Size, Quantity::Time] {
                let _ = quantity.read(&text);
            }
        }
    }
}
