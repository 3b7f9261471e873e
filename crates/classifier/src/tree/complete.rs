//! Trees of which all matches can be asked for.

use core::iter;

use super::build::{self, Keep, MOST_TREES};
use super::{Effort, Limits, Refused, Tree};
use crate::classifier::Classifier;
use crate::group::{Cursor, NONE, Next, run};
use crate::rule::{Header, Rule};

/// A [`Tree`] whose leaves have every rule that is possible there, so that all rules which a header
/// matches are found. It takes more memory than one that finds the first match only.
#[derive(Clone, Debug)]
pub struct CompleteTree<const WORDS: usize>(pub(super) Tree<WORDS>);

impl<const WORDS: usize> CompleteTree<WORDS> {
    /// Compiles rules, of which all that match are to be found.
    ///
    /// # Errors
    /// If they would take more than `limits` allow. [`Refused::Leaf`] if too many overlap in one
    /// place.
    pub fn new(rules: &[Rule<WORDS>], limits: Limits, effort: Effort) -> Result<Self, Refused> {
        build::build(rules, limits, effort, Keep::Every).map(Self)
    }

    /// As a tree that finds the first match.
    pub fn tree(&self) -> &Tree<WORDS> {
        &self.0
    }
}

impl<const WORDS: usize> Classifier<WORDS> for CompleteTree<WORDS> {
    fn lookup(&self, header: &Header<WORDS>, confirms: impl FnMut(u32) -> bool) -> Option<u32> {
        self.0.lookup(header, confirms)
    }

    fn matches<'a>(
        &'a self,
        header: &'a Header<WORDS>,
        mut confirms: impl FnMut(u32) -> bool + 'a,
    ) -> impl Iterator<Item = u32> + 'a {
        let Tree { parts, groups, .. } = &self.0;
        let (mut cursors, mut next) = ([Cursor::of(0, 0); MOST_TREES], [NONE; MOST_TREES]);
        for ((part, cursor), next) in parts.iter().zip(&mut cursors).zip(&mut next) {
            let leaf = self.0.leaf(part, header);
            *cursor = Cursor::of(leaf.group(), leaf.groups());
            *next = run(Next(cursor, groups, header));
        }
        // A rule is in one leaf of one tree, and a leaf's rules are in order: the next match of all
        // is the least of the next ones of each tree.
        iter::from_fn(move || {
            loop {
                let first = (0..parts.len()).min_by_key(|part| next[*part])?;
                let mark = next[first];
                if mark == NONE {
                    return None;
                }
                next[first] = run(Next(&mut cursors[first], groups, header));
                if mark & 1 == 0 || confirms(mark >> 1) {
                    return Some(mark >> 1);
                }
            }
        })
    }
}
