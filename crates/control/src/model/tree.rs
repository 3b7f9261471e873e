//! Maps in the order of their keys whose copies are cheap.

use core::borrow::Borrow;
use core::fmt;
use core::slice;
use std::sync::Arc;

/// The most children or entries of a node.
const MAX: usize = 32;

/// A node that has fewer is joined with the one beside it, if both are one node then.
const FEW: usize = MAX / 4;

/// A map in the order of its keys, as a B-tree whose nodes copies share: a copy is constant work,
/// and a change copies the nodes between the root and the entry, and no other entry.
pub(super) struct Tree<K, V> {
    /// Empty if the map is.
    root: Arc<Node<K, V>>,
    length: usize,
}

/// All leaves are equally deep. Only the root may be empty.
enum Node<K, V> {
    Leaf(Vec<Entry<K, V>>),
    Inner(Vec<Arc<Self>>),
}

type Entry<K, V> = Arc<(K, V)>;

impl<K: Ord, V> Tree<K, V> {
    pub(super) fn new() -> Self {
        Self { root: Arc::new(Node::Leaf(Vec::new())), length: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.length
    }

    pub(super) fn is_empty(&self) -> bool {
        self.length == 0
    }

    pub(super) fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        let mut node = &*self.root;
        loop {
            match node {
                Node::Inner(children) => node = &children[child_of(children, key)],
                Node::Leaf(entries) => {
                    return find(entries, key).ok().map(|at| &entries[at].1);
                }
            }
        }
    }

    pub(super) fn contains_key<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.get(key).is_some()
    }

    /// The value of a key, to change.
    pub(super) fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q> + Clone,
        V: Clone,
    {
        self.get(key)?;
        let mut node = Arc::make_mut(&mut self.root);
        loop {
            match node {
                Node::Inner(children) => {
                    let at = child_of(children, key);
                    node = Arc::make_mut(&mut children[at]);
                }
                Node::Leaf(entries) => {
                    let at = find(entries, key).ok()?;
                    return Some(&mut Arc::make_mut(&mut entries[at]).1);
                }
            }
        }
    }

    /// Changes the value of a key. If there is none, it begins as the default.
    pub(super) fn change_or_add(&mut self, key: K, change: impl FnOnce(&mut V))
    where
        K: Clone,
        V: Clone + Default,
    {
        if let Some(value) = self.get_mut(&key) {
            return change(value);
        }
        let mut value = V::default();
        change(&mut value);
        self.insert(key, value);
    }

    /// Sets the value of a key.
    pub(super) fn insert(&mut self, key: K, value: V) {
        self.length += usize::from(!self.contains_key(&key));
        if let Some(second) = Node::insert(&mut self.root, Arc::new((key, value))) {
            let first = Arc::clone(&self.root);
            self.root = Arc::new(Node::Inner(vec![first, second]));
        }
    }

    /// Removes a key. Returns its value.
    pub(super) fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q> + Clone,
        V: Clone,
    {
        self.get(key)?;
        let gone = Node::remove(&mut self.root, key)?;
        self.length -= 1;
        while let Node::Inner(children) = &*self.root
            && let [only] = &**children
        {
            self.root = Arc::clone(only);
        }
        Some(Arc::unwrap_or_clone(gone).1)
    }

    /// Every entry, in order.
    pub(super) fn iter(&self) -> Iter<'_, K, V> {
        let mut iter = Iter { nodes: Vec::new(), entries: [].iter() };
        iter.enter(&self.root, |_| 0, |_| 0);
        iter
    }

    /// The entries of this key and of larger ones, in order.
    pub(super) fn from<Q: Ord + ?Sized>(&self, key: &Q) -> Iter<'_, K, V>
    where
        K: Borrow<Q>,
    {
        let mut iter = Iter { nodes: Vec::new(), entries: [].iter() };
        let first = |entries: &[Entry<K, V>]| find(entries, key).unwrap_or_else(|at| at);
        iter.enter(&self.root, |children| child_of(children, key), first);
        iter
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &K> {
        self.iter().map(|(key, _)| key)
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }
}

impl<K: Ord, V> Node<K, V> {
    fn first(&self) -> Option<&K> {
        match self {
            Self::Leaf(entries) => entries.first().map(|entry| &entry.0),
            Self::Inner(children) => children.first()?.first(),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Leaf(entries) => entries.len(),
            Self::Inner(children) => children.len(),
        }
    }

    /// Puts an entry into its place. Returns the second half of a node that is too large then.
    fn insert(node: &mut Arc<Self>, entry: Entry<K, V>) -> Option<Arc<Self>> {
        match Arc::make_mut(node) {
            Self::Leaf(entries) => {
                match find(entries, &entry.0) {
                    Ok(at) => entries[at] = entry,
                    Err(at) => entries.insert(at, entry),
                }
                second_half(entries).map(|rest| Arc::new(Self::Leaf(rest)))
            }
            Self::Inner(children) => {
                let at = child_of(children, &entry.0);
                let second = Self::insert(&mut children[at], entry)?;
                children.insert(at + 1, second);
                second_half(children).map(|rest| Arc::new(Self::Inner(rest)))
            }
        }
    }

    /// Removes a key that is there.
    fn remove<Q: Ord + ?Sized>(node: &mut Arc<Self>, key: &Q) -> Option<Entry<K, V>>
    where
        K: Borrow<Q>,
    {
        match Arc::make_mut(node) {
            Self::Leaf(entries) => find(entries, key).ok().map(|at| entries.remove(at)),
            Self::Inner(children) => {
                let at = child_of(children, key);
                let gone = Self::remove(&mut children[at], key)?;
                let left = if at + 1 < children.len() { at } else { at.saturating_sub(1) };
                if children[at].len() < FEW
                    && let [first, second, ..] = &mut children[left..]
                    && first.len() + second.len() <= MAX
                {
                    Arc::make_mut(first).append(second);
                    children.remove(left + 1);
                }
                if children[at.min(children.len() - 1)].len() == 0 {
                    children.remove(at.min(children.len() - 1));
                }
                Some(gone)
            }
        }
    }

    /// Takes over what a node beside it has. Both are equally deep.
    fn append(&mut self, other: &Self) {
        match (self, other) {
            (Self::Leaf(entries), Self::Leaf(more)) => entries.extend_from_slice(more),
            (Self::Inner(children), Self::Inner(more)) => children.extend_from_slice(more),
            _ => unreachable!("all leaves are equally deep"),
        }
    }
}

/// Where a key is among entries, or would be.
fn find<K: Borrow<Q>, V, Q: Ord + ?Sized>(
    entries: &[Entry<K, V>],
    key: &Q,
) -> Result<usize, usize> {
    entries.binary_search_by(|entry| entry.0.borrow().cmp(key))
}

/// In which child a key is, or would be: the last that does not begin behind it.
fn child_of<K: Ord + Borrow<Q>, V, Q: Ord + ?Sized>(
    children: &[Arc<Node<K, V>>],
    key: &Q,
) -> usize {
    let begins = |child: &Arc<Node<K, V>>| child.first().is_some_and(|first| first.borrow() <= key);
    children.partition_point(begins).saturating_sub(1)
}

fn second_half<T>(all: &mut Vec<T>) -> Option<Vec<T>> {
    (all.len() > MAX).then(|| all.split_off(MAX / 2))
}

/// Entries in order.
pub(super) struct Iter<'t, K, V> {
    /// Of each node on the way: the children behind the one that is on it.
    nodes: Vec<slice::Iter<'t, Arc<Node<K, V>>>>,
    entries: slice::Iter<'t, Entry<K, V>>,
}

impl<'t, K, V> Iter<'t, K, V> {
    /// Goes down from a node to a leaf, by the children and to the entry that are said.
    fn enter(
        &mut self,
        mut node: &'t Node<K, V>,
        child: impl Fn(&[Arc<Node<K, V>>]) -> usize,
        entry: impl Fn(&[Entry<K, V>]) -> usize,
    ) {
        loop {
            match node {
                Node::Inner(children) => {
                    let at = child(children);
                    self.nodes.push(children[at + 1..].iter());
                    node = &children[at];
                }
                Node::Leaf(entries) => {
                    self.entries = entries[entry(entries)..].iter();
                    return;
                }
            }
        }
    }
}

impl<'t, K, V> Iterator for Iter<'t, K, V> {
    type Item = (&'t K, &'t V);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(entry) = self.entries.next() {
                return Some((&entry.0, &entry.1));
            }
            match self.nodes.last_mut()?.next() {
                Some(node) => self.enter(node, |_| 0, |_| 0),
                None => _ = self.nodes.pop(),
            }
        }
    }
}

impl<'t, K: Ord, V> IntoIterator for &'t Tree<K, V> {
    type Item = (&'t K, &'t V);
    type IntoIter = Iter<'t, K, V>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<K: Ord, V> FromIterator<(K, V)> for Tree<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(all: I) -> Self {
        let mut tree = Self::new();
        all.into_iter().for_each(|(key, value)| tree.insert(key, value));
        tree
    }
}

impl<K: Ord, V> Default for Tree<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K, V> Clone for Tree<K, V> {
    fn clone(&self) -> Self {
        Self { root: Arc::clone(&self.root), length: self.length }
    }
}

impl<K, V> Clone for Node<K, V> {
    fn clone(&self) -> Self {
        match self {
            Self::Leaf(entries) => Self::Leaf(entries.clone()),
            Self::Inner(children) => Self::Inner(children.clone()),
        }
    }
}

impl<K: Ord + fmt::Debug, V: fmt::Debug> fmt::Debug for Tree<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// The value of a key that is there.
#[cfg(test)]
impl<V> core::ops::Index<&str> for Tree<String, V> {
    type Output = V;

    fn index(&self, key: &str) -> &V {
        self.get(key).unwrap()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// Checks what every node has to be. Returns how deep it is.
    fn depth<K: Ord, V>(node: &Node<K, V>, is_root: bool) -> usize {
        assert!(node.len() <= MAX && (is_root || node.len() > 0));
        match node {
            Node::Leaf(entries) => {
                assert!(entries.is_sorted_by(|a, b| a.0 < b.0));
                1
            }
            Node::Inner(children) => {
                assert!(!is_root || children.len() > 1);
                let depths: Vec<_> = children.iter().map(|child| depth(child, false)).collect();
                assert!(depths.iter().all(|it| *it == depths[0]));
                1 + depths[0]
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        /// Copies stay what they were.
        #[test]
        fn is_a_map(
            steps in prop::collection::vec((prop::option::of(0..1000_u16), 0..1500_u16, 1..40_u16), 0..300),
            sought in prop::collection::vec(0..1600_u16, 20),
        ) {
            let (mut tree, mut naive) = (Tree::new(), BTreeMap::new());
            let mut copies = Vec::new();
            for (number, (value, first, count)) in steps.into_iter().enumerate() {
                for key in first..first + count {
                    match value {
                        Some(value) => {
                            tree.insert(key, value);
                            naive.insert(key, value);
                        }
                        None => prop_assert_eq!(tree.remove(&key), naive.remove(&key)),
                    }
                }
                if let (Some(new), Some(old)) = (tree.get_mut(&first), naive.get_mut(&first)) {
                    *new = 1;
                    *old = 1;
                }
                if number % 50 == 0 {
                    copies.push((tree.clone(), naive.clone()));
                }
            }
            for key in [7, 7, 8000] {
                tree.change_or_add(key, |value| *value += 1);
                *naive.entry(key).or_default() += 1;
            }
            copies.push((tree, naive));
            for (tree, naive) in copies {
                depth(&tree.root, true);
                prop_assert_eq!(tree.len(), naive.len());
                prop_assert!(tree.iter().eq(&naive));
                for key in &sought {
                    prop_assert_eq!(tree.get(key), naive.get(key));
                    prop_assert!(tree.from(key).eq(naive.range(key..)));
                }
            }
        }
    }

    thread_local! {
        static COPIED: Cell<usize> = const { Cell::new(0) };
    }

    #[derive(Debug, PartialEq)]
    struct Counted(u32);

    impl Clone for Counted {
        fn clone(&self) -> Self {
            COPIED.set(COPIED.get() + 1);
            Self(self.0)
        }
    }

    #[test]
    fn a_change_of_a_copy_copies_no_other_entry() {
        let tree: Tree<u32, Counted> = (0..100_000).map(|key| (key, Counted(key))).collect();
        assert!(depth(&tree.root, true) <= 5);
        let mut copy = tree.clone();
        copy.insert(500, Counted(1));
        copy.insert(200_000, Counted(1));
        assert_eq!(COPIED.get(), 0);
        assert_eq!(copy.remove(&600), Some(Counted(600)));
        copy.get_mut(&700).unwrap().0 = 1;
        assert_eq!(COPIED.get(), 2);
        assert_eq!((tree.get(&600), copy.get(&600)), (Some(&Counted(600)), None));
        assert_eq!((tree.get(&700), copy.get(&700)), (Some(&Counted(700)), Some(&Counted(1))));
    }
}
