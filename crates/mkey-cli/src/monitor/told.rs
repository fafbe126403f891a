//! What could be read, or why not.

use serde::{Deserialize, Serialize};

/// A value, or in words why there is none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Told<T> {
    /// Why there is none.
    Not {
        /// In words.
        not_read: String,
    },
    /// The value.
    Is(T),
}

impl<T> Told<T> {
    /// Not read, for this reason.
    pub fn not(why: impl ToString) -> Self {
        Self::Not { not_read: why.to_string() }
    }

    /// The value, if there is one.
    pub fn value(&self) -> Option<&T> {
        match self {
            Self::Is(value) => Some(value),
            Self::Not { .. } => None,
        }
    }

    /// Why there is none.
    pub fn why_not(&self) -> Option<&str> {
        match self {
            Self::Is(_) => None,
            Self::Not { not_read } => Some(not_read),
        }
    }

    /// The value, to be changed.
    pub fn value_mut(&mut self) -> Option<&mut T> {
        match self {
            Self::Is(value) => Some(value),
            Self::Not { .. } => None,
        }
    }
}

impl<T, E: ToString> From<Result<T, E>> for Told<T> {
    fn from(result: Result<T, E>) -> Self {
        result.map_or_else(Self::not, Self::Is)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_are_written_and_read_again() {
        for (told, json) in
            [(Told::Is(7u64), "7"), (Told::not("no such file"), r#"{"not_read":"no such file"}"#)]
        {
            assert_eq!(serde_json::to_string(&told).unwrap(), json);
            assert_eq!(serde_json::from_str::<Told<u64>>(json).unwrap(), told);
        }
    }
}
