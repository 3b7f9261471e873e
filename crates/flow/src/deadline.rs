//! Deadlines of a fixed number of places.

use packet::Time;

/// When each place is due. The earliest is always at hand; finding it anew is a walk over all, done
/// only when it is taken away.
#[derive(Debug)]
pub(crate) struct Deadlines {
    due: Box<[Option<Time>]>,
    earliest: Option<Time>,
}

impl Deadlines {
    pub(crate) fn new(places: usize) -> Self {
        Self { due: vec![None; places].into(), earliest: None }
    }

    #[inline]
    pub(crate) fn earliest(&self) -> Option<Time> {
        self.earliest
    }

    /// The place that is due first; the lowest of several.
    pub(crate) fn first(&self) -> Option<usize> {
        let earliest = self.earliest?;
        self.due.iter().position(|due| *due == Some(earliest))
    }

    pub(crate) fn get(&self, place: usize) -> Option<Time> {
        self.due[place]
    }

    pub(crate) fn set(&mut self, place: usize, due: Option<Time>) {
        let old = core::mem::replace(&mut self.due[place], due);
        if old.is_some() && old == self.earliest {
            self.earliest = self.due.iter().flatten().min().copied();
        } else if let Some(due) = due {
            self.earliest = Some(self.earliest.map_or(due, |earliest| earliest.min(due)));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_earliest_is_the_least(steps in proptest::collection::vec((0usize..6, proptest::option::of(0u64..9)), 0..60)) {
            let mut deadlines = Deadlines::new(6);
            let mut naive = [None; 6];
            for (place, due) in steps {
                deadlines.set(place, due.map(Time));
                naive[place] = due.map(Time);
                let least = naive.iter().flatten().min().copied();
                prop_assert_eq!(deadlines.earliest(), least);
                prop_assert_eq!(deadlines.first(), least.and_then(|least| naive.iter().position(|due| *due == Some(least))));
                prop_assert_eq!(deadlines.get(place), naive[place]);
            }
        }
    }
}
