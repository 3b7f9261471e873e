//! Looks through the cache for the numbers of extensions that its entries have.
//!
//! An entry that a change has made invalid is removed if it has an extension: it would hold the
//! number until another flow takes its place, which may be never. A round looks at a part, so that
//! no packet waits long.

use super::{Cache, Half, Recent, V4, V6, validity};
use crate::cache::lookup::Family;
use crate::decide::Decider;
use crate::decision::Decision;
use crate::extension::Extensions;

/// Sets of flows that a round looks at. A set has four.
const SETS: usize = 512;

/// Where a sweep goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Position {
    /// Of the four tables.
    table: usize,
    set: usize,
}

impl Cache {
    /// Notes the extensions of some entries. Returns where to go on, and nothing at the end.
    #[cold]
    pub(crate) fn sweep(
        &mut self,
        from: Position,
        decider: Decider<'_>,
        extensions: &mut Extensions,
    ) -> Option<Position> {
        let Self { v4: [v4_out, v4_in], v6: [v6_out, v6_in], recent, .. } = self;
        let mut sweeping = Sweeping { recent, decider, extensions };
        let is_more = match from.table {
            0 => sweeping.sweep::<_, _, V4>(v4_out, from.set),
            1 => sweeping.sweep::<_, _, V4>(v4_in, from.set),
            2 => sweeping.sweep::<_, _, V6>(v6_out, from.set),
            _ => sweeping.sweep::<_, _, V6>(v6_in, from.set),
        };
        match (is_more, from.table) {
            (true, table) => Some(Position { table, set: from.set + SETS }),
            (false, table @ ..3) => Some(Position { table: table + 1, set: 0 }),
            (false, _) => None,
        }
    }
}

struct Sweeping<'a, 't> {
    recent: &'a Recent,
    decider: Decider<'t>,
    extensions: &'a mut Extensions,
}

impl Sweeping<'_, '_> {
    /// Returns whether the table has more sets.
    fn sweep<const KEY: usize, const PLACE: usize, F: Family<KEY>>(
        &mut self,
        half: &mut Half<KEY, PLACE>,
        from: usize,
    ) -> bool {
        let Some(table) = &mut half.table else { return false };
        let Self { recent, decider, extensions } = self;
        table.policies_changed(decider.policy_generation());
        table.retain(from..from + SETS, |key, stamp, value| {
            let decision = Decision::from_words(value);
            let Some(number) = decision.extension() else { return true };
            let is_valid = stamp >= recent.last_change(key)
                || recent.spares(key, stamp)
                || validity::holds(&F::flow(key), &decision, stamp, *decider);
            if is_valid {
                extensions.saw(number);
            }
            is_valid
        });
        from + SETS < table.sets()
    }
}
