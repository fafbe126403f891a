//! Requests that failed a moment ago, so that they are not tried again at once.

use super::span::Span;
use mkey_core::error::{Error, errno};
use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

/// How many are remembered.
const MOST: usize = 64;

#[derive(Debug)]
pub(super) struct Failures {
    /// How long each is remembered.
    life: Duration,
    /// Oldest first.
    known: VecDeque<(Span, Error, Duration)>,
}

impl Failures {
    pub(super) fn new(life: Duration) -> Self {
        Self { life, known: VecDeque::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Remembers a failure, unless it is one that passes when others give something back.
    pub(super) fn note(&mut self, span: Span, error: &Error, now: Duration) {
        let passing = [errno::ENOMEM, errno::EAGAIN, errno::EBUSY].contains(&error.errno());
        let Some(until) = now.checked_add(self.life).filter(|_| !passing && !self.life.is_zero())
        else {
            return;
        };
        self.known.retain(|(other, _, _)| *other != span);
        if self.known.len() >= MOST {
            self.known.pop_front();
        }
        self.known.push_back((span, error.clone(), until));
    }

    /// The error of the same request, if it is remembered. Forgets what is too old.
    pub(super) fn find(&mut self, span: &Span, now: Duration) -> Option<&Error> {
        self.known.retain(|(_, _, until)| now < *until);
        self.known.iter().find(|(other, _, _)| other == span).map(|(_, error, _)| error)
    }

    /// The memory has changed.
    pub(super) fn forget(&mut self, range: &Range<usize>) {
        self.known.retain(|(span, _, _)| !span.overlaps(range));
    }
}
