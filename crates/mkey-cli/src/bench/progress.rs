//! The progress bar: on a terminal only, on standard error.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::sync::Mutex;

/// Parts that a row's share of the bar is divided into.
const PARTS: u64 = 100;

/// How far the run is.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    row: Mutex<String>,
}

impl Progress {
    /// A bar over `rows` rows; hidden where standard error is no terminal.
    pub fn new(rows: usize) -> Self {
        let length = (rows as u64).saturating_mul(PARTS);
        let bar =
            ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::stderr_with_hz(8));
        let style = ProgressStyle::with_template("{bar:30} {percent:>3} %  {msg}");
        // A template that did not parse would leave the default style.
        if let Ok(style) = style {
            bar.set_style(style.progress_chars("=> "));
        }
        Self { bar, row: Mutex::new(String::new()) }
    }

    /// A row begins, after `done` others.
    pub fn row(&self, done: usize, name: &str) {
        name.clone_into(&mut self.row.lock().unwrap_or_else(|poisoned| poisoned.into_inner()));
        self.bar.set_position((done as u64).saturating_mul(PARTS));
        self.bar.set_message(name.to_owned());
    }

    /// A row goes on to its next step.
    pub fn step(&self, what: &str) {
        let row = self.row.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone();
        self.bar.set_message(format!("{row}: {what}"));
        self.bar.tick();
    }

    /// `done` of `all` bytes of the step are done.
    pub fn part(&self, done: u64, all: u64) {
        let row = self.row.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone();
        let percent = done.saturating_mul(100).checked_div(all).unwrap_or(100);
        self.bar.set_message(format!("{row}: prefault {percent} %"));
    }

    /// The run is over; nothing of the bar stays.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
