//! The same random programs of verbs over the software RNIC and over another device.
//!
//! * [`program`]: programs as data. [`generate`]: random ones, with mistakes made on purpose.
//!   [`offer`]: what programs leave out over which devices.
//! * [`interpret`]: runs one on a device. It waits for all that it began (`waiting`). [`trace`]: what it
//!   showed, and in what two traces differ. [`traits`]: what is special about a work request.
//! * [`deviations`]: in what devices are known to differ. [`judge`]: whether two outcomes differ in
//!   more.
//! * [`campaign`]: many programs over two devices. [`shrink`]: the smallest program that shows a
//!   difference. [`record`]: what was seen on other machines. [`document`]: the page.

pub mod campaign;
pub mod deviations;
pub mod document;
pub mod generate;
pub mod interpret;
pub mod judge;
pub mod offer;
pub mod program;
pub mod record;
pub mod shrink;
pub mod trace;
pub mod traits;
mod waiting;
