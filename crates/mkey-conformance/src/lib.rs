//! The rules of memory registration, windows, fast registration and on-demand paging, each with a
//! test, over every device that mkey knows.
//!
//! * [`matrix`]: all the rules, in a line each, and for those without a test the reason.
//! * [`rules`]: the tests, a file for each section. [`registry`]: what a test is, as data.
//! * [`fixture`]: devices under test, and one end of a connection with all that it needs.
//!   [`pair`]: two of them, connected. [`region`], [`objects`]: what is registered and bound.
//!   [`expect`]: the sets of consequences that rules name. [`memory`]: test memory, every
//!   byte of which is accounted for.
//! * [`document`]: the page of results. [`soft`]: the software RNIC as a subject;
//!   [`ibverbs`]: a real device.
//! * [`model`]: the rules once more, as naively as can be, beside the protection engine.
//! * [`fuzz`]: what the fuzz targets run.
//!
//! A test is a function over a [`fixture::Subject`], which opens devices. It panics where a rule
//! does not hold, so that it serves as an ordinary test as well as in a report over a device.

pub mod deviations;
pub mod differential;
pub mod document;
pub mod expect;
pub mod fixture;
pub mod fuzz;
pub mod ibverbs;
pub mod matrix;
pub mod memory;
pub mod model;
pub mod objects;
pub mod pair;
pub mod region;
pub mod registry;
pub mod results;
pub mod rules;
pub mod soft;
