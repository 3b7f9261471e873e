//! Decision trees over the bits of a header.

mod build;
mod complete;
mod node;

use self::build::Keep;
use self::node::Node;
use crate::count::{Count, Observer};
use crate::group::{Compare, Group, NONE, Portable, Work, run};
use crate::rule::{Header, Rule};

pub use self::build::{Effort, Limits, Refused, Statistics};
pub use self::complete::CompleteTree;

/// Headers whose walks overlap.
const TOGETHER: usize = 32;

/// All positions of those.
const ALL: [u8; TOGETHER] = {
    let mut all = [0; TOGETHER];
    let mut at = 0;
    while at < TOGETHER {
        all[at] = at as u8;
        at += 1;
    }
    all
};

/// Rules in a form that finds the first which a header matches.
///
/// The rules are divided among a few decision trees: those that would stand in too many leaves of
/// one tree stand in the next. A node chooses a child by a few bits of one word of the header. A
/// leaf has the rules that are possible there, in their order, in groups that are compared at once.
#[derive(Clone, Debug)]
pub struct Tree<const WORDS: usize> {
    parts: Vec<Part>,
    children: Vec<Node>,
    groups: Vec<Group<WORDS>>,
    statistics: Statistics,
}

/// What is read of a tree, by kind.
#[derive(Clone, Copy, Debug, Default)]
struct Reads {
    /// Roots.
    trees: usize,
    /// Nodes that have children.
    nodes: usize,
    groups: usize,
}

/// One decision tree.
#[derive(Clone, Copy, Debug)]
struct Part {
    root: Node,
    /// The first of its rules.
    first_rule: u32,
}

impl<const WORDS: usize> Tree<WORDS> {
    /// Compiles rules, of which the first that matches is to be found.
    ///
    /// # Errors
    /// If they would take more than `limits` allow.
    pub fn new(rules: &[Rule<WORDS>], limits: Limits, effort: Effort) -> Result<Self, Refused> {
        build::build(rules, limits, effort, Keep::First)
    }

    /// What was built.
    pub fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// The position of the first rule that matches a header. `confirms` is asked about rules that
    /// match [partly](Rule::is_partial).
    pub fn lookup(&self, header: &Header<WORDS>, confirms: impl FnMut(u32) -> bool) -> Option<u32> {
        self.lookup_observed(header, confirms, &mut ())
    }

    /// As [`Tree::lookup`]. `observer` is told what is done.
    #[inline]
    pub fn lookup_observed(
        &self,
        header: &Header<WORDS>,
        confirms: impl FnMut(u32) -> bool,
        observer: &mut impl Observer,
    ) -> Option<u32> {
        struct One<'a, const WORDS: usize, F, O>(&'a Tree<WORDS>, &'a Header<WORDS>, F, &'a mut O);

        impl<const WORDS: usize, F, O> Work for One<'_, WORDS, F, O>
        where
            F: FnMut(u32) -> bool,
            O: Observer,
        {
            type Output = Option<u32>;

            #[inline(always)]
            fn run(mut self, with: impl Compare) -> Option<u32> {
                self.0.find_one(self.1, &mut self.2, self.3, with)
            }
        }

        run(One(self, header, confirms, observer))
    }

    /// For each header the position of the first rule that matches, or `u32::MAX`, in the same
    /// position of `found`. `confirms` is asked about headers and rules, by their positions.
    pub fn lookup_batch(
        &self,
        headers: &[Header<WORDS>],
        found: &mut [u32],
        confirms: impl FnMut(usize, u32) -> bool,
    ) {
        struct Many<'a, const WORDS: usize, F> {
            tree: &'a Tree<WORDS>,
            headers: &'a [Header<WORDS>],
            found: &'a mut [u32],
            confirms: F,
        }

        impl<const WORDS: usize, F: FnMut(usize, u32) -> bool> Work for Many<'_, WORDS, F> {
            type Output = ();

            #[inline(always)]
            fn run(mut self, with: impl Compare) {
                let chunks = self.headers.chunks(TOGETHER).zip(self.found.chunks_mut(TOGETHER));
                for (number, (headers, found)) in chunks.enumerate() {
                    let begin = number * TOGETHER;
                    let mut confirms = |at, rule| (self.confirms)(begin + at, rule);
                    self.tree.find(headers, found, &mut confirms, with);
                }
            }
        }

        run(Many { tree: self, headers, found, confirms });
    }

    /// The most that a lookup takes, whatever the header.
    pub fn bound(&self) -> Count {
        let Statistics { steps, compared, lanes, .. } = self.statistics;
        Count { probes: steps as u32, rules: (compared * lanes) as u32 }
    }

    /// What [`Tree::lookup`] reads, if every rule is confirmed.
    fn reads(&self, header: &Header<WORDS>) -> Reads {
        let mut reads = Reads::default();
        let mut found = NONE;
        for part in &self.parts {
            if part.first_rule << 1 >= found {
                continue;
            }
            reads.trees += 1;
            let mut node = part.root;
            while !node.is_leaf() {
                reads.nodes += 1;
                node = self.children[node.child(header)];
            }
            let mut mark = NONE;
            while node.may_be_before(found) && mark == NONE {
                reads.groups += 1;
                let group = &self.groups[node.group()];
                mark = group.first(header, Portable);
                if mark & 1 != 0 && mark != NONE {
                    mark = group.confirmed(header, mark, &mut |_| true);
                }
                node = node.next_group();
            }
            found = found.min(mark);
        }
        reads
    }

    /// What headers of rules take, on average, in nodes and groups that are read, with the weights
    /// of the instructions that they take.
    fn cost(&self, rules: &[Rule<WORDS>]) -> u32 {
        let step = rules.len().div_ceil(1024).max(1);
        let (mut cost, mut headers) = (0_usize, 0);
        for rule in rules.iter().step_by(step) {
            let Reads { trees, nodes, groups } = self.reads(&rule.header());
            cost += 2 * self.parts.len() + 4 * trees + 2 * nodes + 4 * groups;
            headers += 1;
        }
        (cost / headers.max(1)) as u32
    }

    /// The leaf of one tree that a header leads to.
    #[inline(always)]
    fn leaf(&self, part: &Part, header: &Header<WORDS>) -> Node {
        let mut node = part.root;
        while !node.is_leaf() {
            node = self.children[node.child(header)];
        }
        node
    }

    /// At most [`TOGETHER`] headers.
    ///
    /// What a header takes next differs from one to the other, and a processor that guesses wrong
    /// loses more than a step takes. So there are no branches by headers: those that need another
    /// step are put on a list, by arithmetic.
    #[inline(always)]
    fn find(
        &self,
        headers: &[Header<WORDS>],
        found: &mut [u32],
        confirms: &mut impl FnMut(usize, u32) -> bool,
        with: impl Compare,
    ) {
        let all = headers.len().min(TOGETHER);
        // A whole array, so that positions need not be checked.
        let mut copy = [Header([0; WORDS]); TOGETHER];
        let headers = match headers.first_chunk() {
            Some(headers) => headers,
            None => {
                copy[..all].copy_from_slice(&headers[..all]);
                &copy
            }
        };
        let mut marks = [NONE; TOGETHER];
        for (number, part) in self.parts.iter().enumerate() {
            let first = part.first_rule << 1;
            let mut nodes = [part.root; TOGETHER];
            let (mut list, mut count) = (ALL, all);
            if number > 0 {
                // Those whose rule is before all of this tree are done.
                count = 0;
                for at in 0..all {
                    list[count] = at as u8;
                    count += usize::from(marks[at] > first);
                    nodes[at] = if marks[at] > first { part.root } else { Node::EMPTY };
                }
            }
            if part.root.is_leaf() {
                count = 0;
            }
            while count > 0 {
                let mut still = 0;
                for number in 0..count {
                    let at = usize::from(list[number]) % TOGETHER;
                    let node = self.children[nodes[at].child(&headers[at])];
                    nodes[at] = node;
                    list[still] = at as u8;
                    still += usize::from(!node.is_leaf());
                }
                count = still;
            }
            for at in 0..all {
                list[count] = at as u8;
                count += usize::from(nodes[at].may_be_before(marks[at]));
            }
            while count > 0 {
                let mut still = 0;
                for number in 0..count {
                    let at = usize::from(list[number]) % TOGETHER;
                    let node = nodes[at];
                    let mut mark = self.groups[node.group()].first(&headers[at], with);
                    if mark & 1 != 0 && mark != NONE {
                        let group = &self.groups[node.group()];
                        mark = group.confirmed(&headers[at], mark, &mut |rule| confirms(at, rule));
                    }
                    marks[at] = marks[at].min(mark);
                    nodes[at] = node.next_group();
                    list[still] = at as u8;
                    still += usize::from(mark == NONE) & usize::from(nodes[at].has_groups());
                }
                count = still;
            }
        }
        for (found, mark) in found.iter_mut().zip(marks) {
            *found = if mark == NONE { NONE } else { mark >> 1 };
        }
    }

    #[inline(always)]
    fn find_one(
        &self,
        header: &Header<WORDS>,
        confirms: &mut impl FnMut(u32) -> bool,
        observer: &mut impl Observer,
        with: impl Compare,
    ) -> Option<u32> {
        let mut found = NONE;
        for part in &self.parts {
            if part.first_rule << 1 >= found {
                continue;
            }
            let mut node = part.root;
            while !node.is_leaf() {
                observer.probe();
                node = self.children[node.child(header)];
            }
            let mut mark = NONE;
            while node.may_be_before(found) && mark == NONE {
                let group = &self.groups[node.group()];
                observer.compare(|| group.rules());
                mark = group.first(header, with);
                if mark & 1 != 0 && mark != NONE {
                    mark = group.confirmed(header, mark, confirms);
                }
                node = node.next_group();
            }
            found = found.min(mark);
        }
        (found != NONE).then_some(found >> 1)
    }
}

#[cfg(test)]
pub(crate) mod tests;
