//! What programs test their own use of this library with. Feature `testing`.
//!
//! * [`Pair`]: two connected queue pairs in one process, on software RNICs with a virtual clock and
//!   seeded keys: timeouts and retries take no time, and a run repeats.
//!   [`Pair::next`] and [`Pair::advance`] let that time pass; what waits by itself, as
//!   [`Cq::next`](crate::Cq::next) does, waits by the clock on the wall.
//! * [`Pair::expect_refusal`]: runs work that must be refused, and gives the reason, typed and in
//!   words.
//! * [`Faults`]: verbs that fail, work that fails, completions that come late or never, chosen by
//!   rules and a seed: the same seed gives the same faults.
//! * [`LeakCheck`]: fails a test after which something is still registered.
//!
//! ```
//! use mkey::testing::{LeakCheck, Pair};
//! use mkey::{Mr, Region, Work};
//!
//! # fn main() -> mkey::Result<()> {
//! let pair = Pair::new()?;
//! let leaks = LeakCheck::new(&pair.b.device);
//! let target = Mr::builder(&pair.b.pd).remote_read().register(Region::new(4096)?)?;
//! let key = target.remote_key(..)?;
//! let refused =
//!     pair.expect_refusal(|a, _| a.qp.post(&[Work::write_inline(b"overwritten", key)]));
//! assert!(refused.to_string().contains("remote write wanted"), "{refused}");
//! drop(target);
//! leaks.finish();
//! # Ok(())
//! # }
//! ```
//!
//! What is asserted here panics with a sentence that says what was found, as assertions do.

mod control;
mod data;
mod faults;
mod leak;
mod pair;
mod refused;

pub use faults::{Call, Faults, Injected, When};
pub use leak::LeakCheck;
pub use mkey_core::device::{RefusalReport, RefusedBy};
pub use mkey_core::refusal::{DetachCause, KeyKind, ManageRefusal, Refusal};
pub use mkey_core::rights::Want;
pub use pair::{Pair, PairBuilder, Side};
pub use refused::Refused;

pub(crate) use data::{FaultyCq, FaultyQp};
