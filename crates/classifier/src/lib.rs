//! Finds the first of many rules that a packet matches, or all of them in order.
//!
//! A [`Rule`] has conditions on the words of a packet's [`Header`]: addresses and other fields by
//! bits, and two fields of 16 bits by ranges. It knows nothing of what the words mean and of what
//! is done with a match; whoever uses it decides.
//!
//! - [`linear`] tries one rule after the other. It is what everything else is tested against.
//! - A [`Chain`] has rules side by side and tries eight at once. It is made in an instant.
//! - [`Tree`] is compiled from a set of rules and does not change: decision trees, walked for many
//!   headers at once. It finds the first match. [`CompleteTree`] finds all of them as well, for
//!   which it keeps rules in its leaves that can never be first.
//!
//! What finds all matches is a [`Classifier`]: a slice of rules, a chain, a complete tree.
//!
//! A [`RuleSet`] gives rules ranks and values. Where several owners have rules of their own and
//! share others, such as VRFs, each owner has a set and all share one: [`Scoped`] looks into both.
#![forbid(unsafe_code)]

mod chain;
mod classifier;
mod count;
mod group;
mod rule;
mod set;
mod shadow;
mod tree;

pub use chain::{Chain, first, first_observed};
pub use classifier::Classifier;
pub use count::{Count, Observer};
pub use rule::{Header, Rule, linear};
pub use set::{Match, RuleSet, Scoped, ScopedWork};
pub use shadow::{Shadowed, shadowed};
pub use tree::{CompleteTree, Effort, Limits, Refused, Statistics, Tree};
