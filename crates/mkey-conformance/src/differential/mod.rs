//! The same random programs of verbs over the software RNIC and over another device.
//!
//! * [`program`]: programs as data. [`generate`]: random ones, with mistakes made on purpose.
//! * [`interpret`]: runs one on a device. [`trace`]: what it showed, and in what two traces differ.
//! * [`deviations`]: in what devices may differ. [`campaign`]: many programs over two devices.
//!   [`shrink`]: the smallest program that shows a difference.
//!   [`document`]: the page.

pub mod campaign;
pub mod deviations;
pub mod document;
pub mod generate;
pub mod interpret;
pub mod program;
pub mod shrink;
pub mod trace;
