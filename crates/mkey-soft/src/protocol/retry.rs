//! How often a requester tries again.

use std::time::Duration;

/// The settings of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Patience {
    /// Tries after the first where no answer came or packets were lost.
    pub(crate) answers: u8,
    /// Tries after the first where no receive was there; 7: without end.
    pub(crate) receivers: u8,
    /// How long an answer may take; `None`: for ever.
    pub(crate) timeout: Option<Duration>,
}

/// What is left of it since something was last acknowledged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tries {
    answers: u8,
    receivers: u8,
}

/// No try is left.
#[derive(Debug)]
pub(crate) struct Exhausted;

impl Tries {
    pub(crate) fn all(patience: &Patience) -> Self {
        Self { answers: patience.answers, receivers: patience.receivers }
    }

    /// No answer, or not the right one.
    pub(crate) fn answer(&mut self) -> Result<(), Exhausted> {
        self.answers = self.answers.checked_sub(1).ok_or(Exhausted)?;
        Ok(())
    }

    /// The responder had no receive. It has answered, so what it did not answer before is forgiven.
    pub(crate) fn receiver(&mut self, patience: &Patience) -> Result<(), Exhausted> {
        self.answers = patience.answers;
        if patience.receivers != 7 {
            self.receivers = self.receivers.checked_sub(1).ok_or(Exhausted)?;
        }
        Ok(())
    }
}
