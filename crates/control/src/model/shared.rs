//! Parts of the desired state that are copied when they change, and not before.

use core::ops::{Deref, DerefMut};
use std::sync::Arc;

/// A copy of it is constant work; the first change of a copy copies what is inside.
#[derive(Clone, Debug, Default)]
pub(super) struct Shared<T>(Arc<T>);

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Clone> DerefMut for Shared<T> {
    fn deref_mut(&mut self) -> &mut T {
        Arc::make_mut(&mut self.0)
    }
}

impl<T> From<T> for Shared<T> {
    fn from(inside: T) -> Self {
        Self(Arc::new(inside))
    }
}

impl<'s, T> IntoIterator for &'s Shared<T>
where
    &'s T: IntoIterator,
{
    type Item = <&'s T as IntoIterator>::Item;
    type IntoIter = <&'s T as IntoIterator>::IntoIter;

    fn into_iter(self) -> Self::IntoIter {
        (&*self.0).into_iter()
    }
}
