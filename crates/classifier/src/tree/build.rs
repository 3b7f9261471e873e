//! From rules to trees.

use core::cell::Cell;
use core::fmt;
use std::collections::HashMap;

use super::node::{Node, Window};
use super::{Part, Tree};
use crate::group::{Group, LANES};
use crate::rule::{Header, Rule};

/// What trees may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of all trees. The lists of rules that building needs may take as many again.
    pub bytes: usize,
    /// Nodes that have children.
    pub inner: usize,
    /// Rules, and places of rules, that building may look at in one style, which takes about a
    /// nanosecond each.
    pub work: usize,
}

impl Limits {
    /// For so many rules, each of so many words: bytes enough for what trees are fast with, and work
    /// for half a second and for twice what published sets take, which is up to 1,000 a rule and
    /// word.
    pub fn of(rules: usize, words: usize) -> Self {
        Self {
            bytes: (1 << 18) + rules * (450 + 32 * words),
            inner: 1024 + rules,
            work: (1 << 29) + rules * words * 2048,
        }
    }
}

/// How long building may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// Trees that are built quickly, in about three microseconds a rule.
    Quick,
    /// The best of several, in up to a hundred times as long.
    Best,
}

/// Which rules leaves have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keep {
    /// Those that may be the first match.
    First,
    /// All that are possible there.
    Every,
}

/// How rules are divided among trees. What is best depends on the rules: of a rule that says little
/// about the bits by which a tree chooses there are many copies in one tree, or one in the next.
#[derive(Clone, Copy, Debug)]
pub(super) struct Style {
    /// Bits of those that a node chooses by that may be open in a rule; if there are more, it stands
    /// in the next tree.
    stars: u32,
    /// Places in which one rule may stand in one tree; if there were more, it stands in the next.
    copies: u32,
}

/// The styles that are tried. Values between and beyond were measured and were not better on
/// published sets.
pub(super) const STYLES: [Style; 2] =
    [Style { stars: 6, copies: 512 }, Style { stars: MOST_BITS, copies: 4096 }];

/// Of up to so many rules that are left, copies cost less than another tree.
const FEW: usize = 512;

/// Trees that there may be.
pub(super) const MOST_TREES: usize = 12;

/// Why there are no trees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// They would take more memory than they may.
    Bytes,
    /// They would take longer to build than they may.
    Time,
    /// More trees than there may be.
    Trees,
    /// A leaf would have more rules than it may.
    Leaf,
    /// There are more rules than can be numbered.
    Rules,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bytes => "the trees would take too much memory",
            Self::Time => "the trees would take too long to build",
            Self::Trees => "the rules need too many trees",
            Self::Leaf => "too many rules are alike",
            Self::Rules => "there are too many rules",
        })
    }
}

impl core::error::Error for Refused {}

/// What was built.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Rules.
    pub rules: usize,
    /// Of each tree: its rules.
    pub trees: Vec<usize>,
    /// Bytes.
    pub bytes: usize,
    /// Nodes that have children.
    pub inner: usize,
    /// Groups of rules in all leaves.
    pub groups: usize,
    /// The most nodes on one way from a root to a leaf, in all trees together.
    pub steps: usize,
    /// The most groups of one leaf, in all trees together: with `steps`, the most that a lookup can
    /// be.
    pub compared: usize,
    /// Rules in a group.
    pub lanes: usize,
    /// What headers that match rules chosen at random take, about: nodes and groups that are read.
    pub cost: u32,
}

/// Nodes on a way.
const DEEPEST: usize = 24;
/// Rules of a node that are looked at to choose by which bits it chooses.
const SAMPLE: usize = 192;
/// Rules from which on a leaf is too long if anything can be done about it.
const LONG: usize = 400;
/// Copies of each rule, on average, that a node's children may have.
const MOST_COPIES: u32 = 16;
/// The most bits that a node chooses by.
const MOST_BITS: u32 = 8;

pub(super) fn build<const WORDS: usize>(
    rules: &[Rule<WORDS>],
    limits: Limits,
    effort: Effort,
    keep: Keep,
) -> Result<Tree<WORDS>, Refused> {
    let mut best: Result<Tree<WORDS>, Refused> = Err(Refused::Rules);
    if rules.len() > Node::MOST_RULES {
        return best;
    }
    let patterns: Vec<_> = rules.iter().map(Pattern::of).collect();
    for (number, style) in STYLES.into_iter().enumerate() {
        if number > 0 && effort == Effort::Quick && best.is_ok() {
            break;
        }
        let tree = Builder::new(rules, &patterns, limits, style, keep).build();
        best = match (best, tree) {
            (Ok(best), Ok(tree)) if best.statistics.cost <= tree.statistics.cost => Ok(best),
            (Ok(best), Err(_)) => Ok(best),
            (_, tree) => tree,
        };
    }
    best
}

/// The bits that all headers which a rule matches have alike.
pub(super) struct Pattern<const WORDS: usize> {
    mask: [u32; WORDS],
    value: [u32; WORDS],
    /// Whether all headers that have them match.
    is_exact: bool,
}

impl<const WORDS: usize> Pattern<WORDS> {
    pub(super) fn of(rule: &Rule<WORDS>) -> Self {
        let mut pattern = Self { mask: [0; WORDS], value: [0; WORDS], is_exact: !rule.is_partial };
        for word in 0..WORDS {
            (pattern.mask[word], pattern.value[word]) = rule.fixed(word);
        }
        let pair = Header::<WORDS>::PAIR;
        pattern.is_exact &=
            (rule.value[pair], !rule.mask[pair]) == (pattern.value[pair], pattern.mask[pair]);
        pattern
    }

    /// Whether it matches all headers of a region in which it matches some.
    fn covers(&self, region: &Region<WORDS>) -> bool {
        self.is_exact && self.mask.iter().zip(&region.0).all(|(mask, known)| mask & !known == 0)
    }
}

/// The bits of a header that are known at a node.
#[derive(Clone, Copy)]
struct Region<const WORDS: usize>([u32; WORDS]);

impl<const WORDS: usize> Region<WORDS> {
    fn all() -> Self {
        Self([0; WORDS])
    }

    fn with(mut self, window: Window) -> Self {
        self.0[window.word] |= window.mask();
        self
    }
}

pub(super) struct Builder<'a, const WORDS: usize> {
    rules: &'a [Rule<WORDS>],
    patterns: &'a [Pattern<WORDS>],
    limits: Limits,
    style: Style,
    keep: Keep,
    /// See [`Builder::worked`].
    work: Cell<usize>,
    children: Vec<Node>,
    groups: Vec<Group<WORDS>>,
    /// Leaves by their rules.
    leaves: HashMap<Vec<u32>, Node>,
    /// By rule: in how many leaves of this tree it is.
    copies: Vec<u32>,
    /// Rules that are left to the next tree.
    pushed: Vec<u32>,
    /// Rules in the lists of children that are not built yet, on the whole way from the root.
    waiting: usize,
    inner: usize,
    steps: usize,
    compared: usize,
}

const PUSHED: u32 = u32::MAX;

impl<'a, const WORDS: usize> Builder<'a, WORDS> {
    pub(super) fn new(
        rules: &'a [Rule<WORDS>],
        patterns: &'a [Pattern<WORDS>],
        limits: Limits,
        style: Style,
        keep: Keep,
    ) -> Self {
        Self {
            rules,
            patterns,
            limits,
            style,
            keep,
            work: Cell::new(0),
            children: Vec::new(),
            groups: Vec::new(),
            leaves: HashMap::new(),
            copies: vec![0; rules.len()],
            pushed: Vec::new(),
            waiting: 0,
            inner: 0,
            steps: 0,
            compared: 0,
        }
    }

    pub(super) fn build(mut self) -> Result<Tree<WORDS>, Refused> {
        let mut statistics =
            Statistics { rules: self.rules.len(), lanes: LANES, ..Statistics::default() };
        let mut parts = Vec::new();
        let mut left: Vec<u32> = (0..self.rules.len() as u32).collect();
        while let Some(&first_rule) = left.first() {
            if parts.len() == MOST_TREES {
                return Err(Refused::Trees);
            }
            if left.len() <= FEW {
                self.style = STYLES[STYLES.len() - 1];
            }
            self.copies.fill(0);
            (self.steps, self.compared) = (0, 0);
            let count = left.len();
            let root = self.node(left, &Region::all(), 0)?;
            left = core::mem::take(&mut self.pushed);
            left.sort_unstable();
            statistics.trees.push(count - left.len());
            statistics.steps += self.steps;
            statistics.compared += self.compared;
            parts.push(Part { root, first_rule });
        }
        statistics.bytes = self.bytes();
        statistics.inner = self.inner;
        statistics.groups = self.groups.len();
        self.children.shrink_to_fit();
        self.groups.shrink_to_fit();
        let Self { children, groups, .. } = self;
        let mut tree = Tree { parts, children, groups, statistics };
        tree.statistics.cost = tree.cost(self.rules);
        Ok(tree)
    }

    fn bytes(&self) -> usize {
        self.children.len() * size_of::<Node>() + self.groups.len() * size_of::<Group<WORDS>>()
    }

    /// Builds what is below a node that is reached with these rules possible.
    fn node(
        &mut self,
        mut list: Vec<u32>,
        region: &Region<WORDS>,
        depth: usize,
    ) -> Result<Node, Refused> {
        list.retain(|rule| self.copies[*rule as usize] != PUSHED);
        if self.keep == Keep::First {
            // Whatever is behind a rule that matches all headers here is never the first.
            let last = list.iter().position(|rule| self.patterns[*rule as usize].covers(region));
            list.truncate(last.map_or(list.len(), |last| last + 1));
        }
        self.steps = self.steps.max(depth);
        if list.len() <= LANES || depth == DEEPEST {
            return self.leaf(list);
        }
        let chosen = self.choose(&list, region);
        self.worked(list.len())?;
        let Some((window, most_stars)) = chosen else {
            return self.leaf(list);
        };
        self.inner += 1;
        if self.inner > self.limits.inner {
            return Err(Refused::Time);
        }
        let count = 1_usize << window.bits;
        let mut lists = vec![Vec::new(); count];
        for &rule in &list {
            let (value, stars) = self.in_window(rule, window);
            let copies = 1_u32 << stars.count_ones();
            let all = &mut self.copies[rule as usize];
            let is_wide = stars.count_ones() > most_stars;
            if is_wide || copies > 1 && *all + copies - 1 > self.style.copies {
                *all = PUSHED;
                self.pushed.push(rule);
                continue;
            }
            *all += copies - 1;
            // `choose` looked at a sample: of the other rules there may be more copies.
            self.waiting += copies as usize;
            self.worked(copies as usize)?;
            if self.waiting > self.limits.bytes / size_of::<u32>() {
                return Err(Refused::Bytes);
            }
            for child in subsets(stars) {
                lists[(value | child) as usize].push(rule);
            }
        }
        let base = self.children.len();
        self.children.resize(base + count, Node::EMPTY);
        if self.bytes() > self.limits.bytes {
            return Err(Refused::Bytes);
        }
        // Children with the same rules are one.
        let mut same: HashMap<Vec<u32>, Vec<usize>> = HashMap::new();
        for (child, list) in lists.into_iter().enumerate() {
            if !list.is_empty() {
                let length = list.len();
                let children = same.entry(list).or_default();
                self.waiting -= if children.is_empty() { 0 } else { length };
                children.push(child);
            }
        }
        let mut same: Vec<_> = same.into_iter().collect();
        same.sort_unstable_by_key(|(_, children)| children[0]);
        for (list, children) in same {
            let region = if children.len() == 1 { region.with(window) } else { *region };
            let length = list.len();
            let node = self.node(list, &region, depth + 1)?;
            self.waiting -= length;
            for child in children {
                self.children[base + child] = node;
            }
        }
        Ok(Node::inner(window, base as u32))
    }

    /// Counts work: rules and places of rules that were looked at.
    fn worked(&self, work: usize) -> Result<(), Refused> {
        let all = self.work.get() + work;
        self.work.set(all);
        if all > self.limits.work { Err(Refused::Time) } else { Ok(()) }
    }

    fn leaf(&mut self, list: Vec<u32>) -> Result<Node, Refused> {
        let Some(&first) = list.first() else { return Ok(Node::EMPTY) };
        let groups = list.len().div_ceil(LANES);
        self.compared = self.compared.max(groups);
        if let Some(leaf) = self.leaves.get(&list) {
            return Ok(*leaf);
        }
        if groups > Node::MOST_GROUPS {
            return Err(Refused::Leaf);
        }
        let leaf = Node::leaf(first, self.groups.len() as u32, groups);
        for numbers in list.chunks(LANES) {
            let rules: Vec<_> = numbers.iter().map(|rule| self.rules[*rule as usize]).collect();
            self.groups.push(Group::of(&rules, numbers));
        }
        if self.bytes() > self.limits.bytes {
            return Err(Refused::Bytes);
        }
        self.leaves.insert(list, leaf);
        Ok(leaf)
    }

    /// What a rule has in a window: the value of its bits, and which of them may be anything.
    fn in_window(&self, rule: u32, window: Window) -> (u32, u32) {
        let pattern = &self.patterns[rule as usize];
        let all = (1 << window.bits) - 1;
        let value = pattern.value[window.word] >> window.shift & all;
        let stars = !pattern.mask[window.word] >> window.shift & all;
        (value, stars)
    }

    /// The bits by which a node with these rules had best choose, if any help, and how many of them
    /// may be open in a rule.
    fn choose(&self, list: &[u32], region: &Region<WORDS>) -> Option<(Window, u32)> {
        let stars = self.style.stars;
        // If all bits are open in many rules, those are better left to the next tree.
        let strict = || self.choose_by(list, region, 1).filter(|_| list.len() > LONG);
        let window = self.choose_by(list, region, stars).map(|window| (window, stars));
        window.or_else(|| strict().map(|window| (window, 1)))
    }

    /// With rules in which more than so many of the bits are open left to the next tree.
    fn choose_by(&self, list: &[u32], region: &Region<WORDS>, stars: u32) -> Option<Window> {
        let step = list.len().div_ceil(SAMPLE);
        let sample: Vec<u32> = list.iter().copied().step_by(step).collect();
        let most = (list.len().ilog2()).clamp(1, MOST_BITS);
        let mut best = None;
        let mut best_score = 0.25;
        let mut sizes = Vec::new();
        for word in 0..WORDS {
            // Bits that are the same, or open, in all rules tell nothing.
            let (mut seen_one, mut seen_zero) = (0, 0);
            for &rule in &sample {
                let pattern = &self.patterns[rule as usize];
                seen_one |= pattern.value[word] & pattern.mask[word];
                seen_zero |= !pattern.value[word] & pattern.mask[word];
            }
            let telling = seen_one & seen_zero & !region.0[word];
            for bits in 1..=most {
                for shift in 0..=32 - bits {
                    let window = Window { word, shift, bits };
                    let ends = 1 << shift | 1 << (shift + bits - 1);
                    if telling & ends != ends {
                        continue;
                    }
                    let score = self.score(&sample, window, stars, &mut sizes);
                    if score > best_score {
                        (best, best_score) = (Some(window), score);
                    }
                }
            }
        }
        best
    }

    /// How well a window divides rules: the logarithm of by how much fewer a header meets behind
    /// it, less what it costs in copies and in rules that are left to the next tree.
    fn score(&self, sample: &[u32], window: Window, most: u32, sizes: &mut Vec<u32>) -> f64 {
        sizes.clear();
        sizes.resize(1 << window.bits, 0);
        let (mut kept, mut copies) = (0_u32, 0_u32);
        // Many copies at once are never worth it, and would take memory while building.
        let most_copies = MOST_COPIES * sample.len() as u32;
        for &rule in sample {
            let (value, stars) = self.in_window(rule, window);
            if stars.count_ones() > most {
                continue;
            }
            kept += 1;
            copies += 1 << stars.count_ones();
            if copies > most_copies {
                self.work.update(|work| work + sample.len() + copies as usize);
                return 0.0;
            }
            for child in subsets(stars) {
                sizes[(value | child) as usize] += 1;
            }
        }
        // What is too much is seen by the next node.
        self.work.update(|work| work + sample.len() + copies as usize);
        if kept == 0 || copies > MOST_COPIES * kept {
            return 0.0;
        }
        let squares: f64 = sizes.iter().map(|size| f64::from(*size) * f64::from(*size)).sum();
        let expected = squares / f64::from(copies);
        let (kept, copies) = (f64::from(kept), f64::from(copies));
        let share = kept / sample.len() as f64;
        share * (kept / expected).log2()
            - 0.5 * (copies / kept).log2()
            - 0.05 * f64::from(window.bits)
    }
}

/// All numbers that have only bits of `bits`.
fn subsets(bits: u32) -> impl Iterator<Item = u32> {
    let mut next = Some(0_u32);
    core::iter::from_fn(move || {
        let this = next?;
        next = (this != bits).then(|| (this.wrapping_sub(bits)) & bits);
        Some(this)
    })
}
