//! The rules of memory registration, windows, fast registration and on-demand paging, each with a
//! test, over every device that mkey knows.
//!
//! * [`model`]: the rules once more, as naively as can be, beside the protection engine.
//! * [`fuzz`]: what the fuzz targets run.

pub mod fuzz;
pub mod model;
