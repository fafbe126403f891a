//! The accesses that run at one moment, whatever key they use.

use super::Engine;
use super::executor::Waits;

/// The accesses to an engine's memory that were running at one moment.
#[derive(Debug)]
#[must_use = "they run on until `ended` says otherwise"]
pub struct Running(Waits);

impl Running {
    /// Whether all of them have ended. Later ones are of no matter.
    pub fn ended(&mut self) -> bool {
        self.0.quiet()
    }
}

impl Engine {
    /// The accesses that are open now, after a fence: one that is not among them is opened later,
    /// and sees after that what was stored before this call. So a user of the engine can end what
    /// lets accesses in, as exactly as a key is revoked: an access looks at that word once it is
    /// open, and who changes the word waits for those that are.
    pub fn running(&self) -> Running {
        Running(self.executors.users_of_engine(self.tag))
    }
}
