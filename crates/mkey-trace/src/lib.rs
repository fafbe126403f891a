//! What a traced program registered, and what it did with it.
//!
//! * [`format`](mod@format): the recording of a job as it is kept: JSON lines, addresses relative, no payload.
//! * [`raw`]: what each process writes while it runs, into a file mapped into it, so that a process that
//!   is killed loses nothing that it had written. It has pieces of stacks in it, and is not kept.
//! * [`record`]: the part that runs within the traced process.

pub mod format;
pub mod raw;
pub mod record;
