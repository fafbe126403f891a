//! Running a program with the recorder in it, and making a recording of what its processes have written.
//!
//! * [`launch`]: runs it, in a private [`folder`]. [`watch`]: looks at its processes meanwhile; [`mappings`]:
//!   at the pages of their memory. [`counters`]: those of the kernel's devices; [`on_demand`]: of regions. [`host`]: what is said of the
//!   host.
//!   [`descendants`]: those that go on after the program.
//! * [`mod@assemble`]: makes a recording of all that. [`unwind`]: call stacks; [`symbols`]: their names.
//! * [`mod@merge`]: several recordings as one.

pub mod assemble;
pub mod counters;
pub mod descendants;
pub mod folder;
pub mod host;
pub mod launch;
pub mod mappings;
pub mod merge;
pub mod on_demand;
pub mod symbols;
pub mod unwind;
pub mod watch;

/// CLOCK_MONOTONIC, ns.
fn now() -> u64 {
    nanoseconds(rustix::time::ClockId::Monotonic)
}

fn nanoseconds(clock: rustix::time::ClockId) -> u64 {
    let time = rustix::time::clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let rest = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(rest)
}
