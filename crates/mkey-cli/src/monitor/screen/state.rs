//! What the dashboard shows, and what keys do to it.

use super::super::judge::{self, Finding};
use super::super::sample::Sample;
use super::super::unread;
use super::super::view::{self, Pane};
use crate::lang::Lang;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use std::time::Duration;

/// How many tables there are.
pub const PANES: usize = 6;

/// What is shown.
#[derive(Debug)]
pub struct State {
    pub(super) lang: Lang,
    /// Whether colours are wanted.
    pub(super) colours: bool,
    pub(super) interval: Duration,
    /// The last look, compared with the one before.
    pub(super) sample: Option<Sample>,
    pub(super) panes: Vec<Pane>,
    pub(super) findings: Vec<Finding>,
    /// What could not be read.
    pub(super) unread: Vec<String>,
    /// The table that keys are for.
    pub(super) focus: usize,
    /// The first row shown of each table.
    pub(super) scrolled: [usize; PANES],
    /// How many rows of the table in focus are shown; set by drawing.
    pub(super) height: usize,
    pub(super) paused: bool,
    pub(super) help: bool,
    top: usize,
    /// The last look, shown or not: what the next is compared with.
    last: Option<Sample>,
}

/// What a key asks for beyond the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing.
    Go,
    /// To leave.
    Leave,
    /// To stop until it is continued.
    Stop,
}

impl State {
    /// Nothing is seen yet.
    pub fn new(top: usize, lang: Lang, colours: bool, interval: Duration) -> Self {
        Self {
            lang,
            colours,
            interval,
            sample: None,
            panes: Vec::new(),
            findings: Vec::new(),
            unread: Vec::new(),
            focus: 0,
            scrolled: [0; PANES],
            height: 1,
            paused: false,
            help: false,
            top,
            last: None,
        }
    }

    /// Takes a look: compares it with the one before, and shows it unless paused.
    pub fn take(&mut self, mut sample: Sample) {
        if let Some(before) = &self.last {
            sample.compare(before);
        }
        if !self.paused || self.sample.is_none() {
            self.panes = view::panes(&sample, self.top, self.lang);
            self.findings = judge::findings(&sample, self.lang);
            self.unread = unread::places(&sample);
            self.sample = Some(sample.clone());
        }
        self.last = Some(sample);
    }

    /// What a key does.
    pub fn key(&mut self, key: KeyEvent) -> Next {
        if key.kind == KeyEventKind::Release {
            return Next::Go;
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c' | 'd') => Next::Leave,
                KeyCode::Char('z') => Next::Stop,
                _ => Next::Go,
            };
        }
        if self.help {
            // Any key closes it.
            self.help = false;
            return if key.code == KeyCode::Char('q') { Next::Leave } else { Next::Go };
        }
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return Next::Leave,
            KeyCode::Char('?' | 'h') => self.help = true,
            KeyCode::Char('p' | ' ') => self.paused = !self.paused,
            KeyCode::Tab | KeyCode::Right => self.focus = (self.focus + 1) % PANES,
            KeyCode::BackTab | KeyCode::Left => self.focus = (self.focus + PANES - 1) % PANES,
            KeyCode::Down | KeyCode::Char('j') => self.scroll(1),
            KeyCode::Up | KeyCode::Char('k') => self.scroll(-1),
            KeyCode::PageDown => self.scroll(isize::try_from(self.height).unwrap_or(1)),
            KeyCode::PageUp => self.scroll(-isize::try_from(self.height).unwrap_or(1)),
            KeyCode::Home => self.scroll(isize::MIN),
            KeyCode::End => self.scroll(isize::MAX),
            KeyCode::Char(digit) => {
                let wanted = digit.to_digit(10).and_then(|n| usize::try_from(n).ok());
                if let Some(pane) = wanted.and_then(|n| n.checked_sub(1)).filter(|n| *n < PANES) {
                    self.focus = pane;
                }
            }
            _ => {}
        }
        Next::Go
    }

    /// Moves the table in focus; drawing keeps it from going beyond its last row.
    fn scroll(&mut self, by: isize) {
        if let Some(first) = self.scrolled.get_mut(self.focus) {
            *first = first.saturating_add_signed(by);
        }
    }
}
