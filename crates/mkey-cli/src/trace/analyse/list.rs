//! Lists that are cut where a reader has seen enough.

use super::thresholds::MOST;
use serde::Serialize;

/// The first entries of a list, and how many more there are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct List<T> {
    /// The first.
    pub first: Vec<T>,
    /// How many are not told.
    pub more: u64,
}

impl<T> Default for List<T> {
    fn default() -> Self {
        Self { first: Vec::new(), more: 0 }
    }
}

impl<T> List<T> {
    /// The first of all.
    pub fn of(mut all: Vec<T>) -> Self {
        let more = all.len().saturating_sub(MOST) as u64;
        all.truncate(MOST);
        Self { first: all, more }
    }

    /// Another kind of entry in place of each.
    pub fn map<U>(self, to: impl FnMut(T) -> U) -> List<U> {
        List { first: self.first.into_iter().map(to).collect(), more: self.more }
    }

    /// Whether there was nothing at all.
    pub fn is_empty(&self) -> bool {
        self.first.is_empty()
    }

    /// How many there are, those not told with them.
    pub fn count(&self) -> u64 {
        self.first.len() as u64 + self.more
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_from_the_count() {
        for n in [0, 1, MOST, MOST + 12] {
            let list = List::of((0..n).collect());
            assert_eq!((list.count(), list.first.len()), (n as u64, n.min(MOST)));
            assert_eq!(list.is_empty(), n == 0);
        }
    }
}
