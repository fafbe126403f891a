//! The terminal while the dashboard is shown: another screen, keys one by one, no cursor. Put back at
//! the end, by a signal, a panic, or a stop.

use super::draw;
use super::state::State;
use crate::exit::End;
use ratatui::DefaultTerminal;
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{EnterAlternateScreen, enable_raw_mode};
use ratatui::layout::{Position, Rect};
use signal_hook::consts::SIGTSTP;
use std::io;
use std::mem::ManuallyDrop;

/// The terminal, in the dashboard's modes.
pub(super) struct Screen {
    /// Not dropped: its own end panics where the terminal is gone.
    terminal: ManuallyDrop<DefaultTerminal>,
    /// Whether it is put back already.
    left: bool,
}

impl Screen {
    /// Enters the modes. A panic leaves them before it is told.
    pub(super) fn enter() -> Result<Self, End> {
        let terminal = ratatui::try_init().map_err(|error| End::output("the terminal", &error))?;
        Ok(Self { terminal: ManuallyDrop::new(terminal), left: false })
    }

    pub(super) fn draw(&mut self, state: &mut State) -> Result<(), End> {
        let drawn = self.terminal.draw(|frame| draw::draw(frame, state));
        drawn.map(drop).map_err(failed)
    }

    /// Draws everything anew next time, as somebody else has drawn over it. (`Terminal::clear` would
    /// ask the terminal where its cursor is, and its answer would go to who waits for keys.)
    pub(super) fn redraw(&mut self) -> Result<(), End> {
        let size = self.terminal.size().map_err(failed)?;
        self.terminal.resize(Rect::from((Position::ORIGIN, size))).map_err(failed)
    }

    /// Stops this process, as Ctrl-Z does elsewhere, until it is continued.
    pub(super) fn stop(&mut self) -> Result<(), End> {
        self.restore().map_err(failed)?;
        signal_hook::low_level::emulate_default_handler(SIGTSTP).map_err(failed)?;
        enable_raw_mode().map_err(failed)?;
        execute!(io::stdout(), EnterAlternateScreen).map_err(failed)?;
        self.redraw()
    }

    /// Leaves the modes.
    pub(super) fn leave(mut self) -> Result<(), End> {
        self.left = true;
        self.restore().map_err(failed)
    }

    fn restore(&mut self) -> io::Result<()> {
        self.terminal.show_cursor().and(ratatui::try_restore())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if !self.left {
            // Where the terminal is gone, nothing is to be put back.
            let _ = self.restore();
        }
    }
}

fn failed(error: io::Error) -> End {
    End::output("the terminal", &error)
}
