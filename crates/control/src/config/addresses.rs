//! Addresses to match, as a text has them.

use core::str::FromStr;

use types::{AddressError, IpPrefix, IpRange};

use super::diagnostic::Errors;
use super::reader::Table;

/// An address, a prefix, or a range of addresses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Addresses {
    range: IpRange,
    /// The prefix, if it has bits beyond its length. All addresses of it match, as they do with nft
    /// and ovs-ofctl, and that is noted.
    with_host_bits: Option<IpPrefix>,
}

impl FromStr for Addresses {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let given = text.parse::<IpPrefix>().ok().filter(|given| given.network() != *given);
        Ok(Self { range: text.parse()?, with_host_bits: given })
    }
}

impl Addresses {
    /// Those that match. `at` is where they stand in the text.
    pub(super) fn noted(self, at: usize, errors: &mut Errors<'_>) -> IpRange {
        if let Some(given) = self.with_host_bits {
            errors.note_host_bits(at, given);
        }
        self.range
    }
}

impl Table<'_> {
    /// The addresses that a key says.
    pub(super) fn addresses(
        &self,
        key: &'static str,
        example: &str,
        errors: &mut Errors<'_>,
    ) -> Option<IpRange> {
        let found = self.parsed::<Addresses>(key, example, errors)?;
        Some(found.value.noted(found.at, errors))
    }
}
