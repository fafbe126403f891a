//! Reports as pages: one file each, with its style and its plots inside and nothing from elsewhere.
//!
//! * [`page`]: what a page consists of, filled into the template. [`svg`], [`timeline`]: the plots.
//! * [`mod@bench`], [`registration`], [`mod@model`], [`mod@trace`]: the pages of these commands.

pub mod bench;
pub mod model;
pub mod page;
pub mod registration;
pub mod svg;
#[cfg(test)]
mod tests;
pub mod timeline;
pub mod trace;

use crate::bench::export;
use crate::bench::outputs::check_output;
use crate::exit::End;
use std::path::PathBuf;

/// Refuses a page that could not be written after the measurement.
///
/// # Errors
/// [`End`]: why.
pub fn check(path: &Option<PathBuf>) -> Result<(), End> {
    match path {
        None => Ok(()),
        Some(path) if export::is_stdout(path) => {
            Err(End::Usage("--html needs the name of a file".to_owned()))
        }
        Some(path) => check_output(path).map_err(|error| End::output(path.display(), &error)),
    }
}

/// Writes a page if one was asked for.
///
/// # Errors
/// [`End`]: why it can not be written.
pub fn write(path: &Option<PathBuf>, page: impl FnOnce() -> page::Page) -> Result<(), End> {
    match path {
        None => Ok(()),
        Some(path) => export::write(path, page::render(&page()).map_err(End::failed)?.as_bytes()),
    }
}
