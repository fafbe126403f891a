//! The dashboard. One thread looks, one waits for keys, one for signals; the main one draws what they
//! send. Nothing runs between two of their messages.
//!
//! * [`state`]: what is shown, and what keys do. [`draw`]: how. `terminal`: its modes, put back
//!   however the run ends.

pub mod draw;
pub mod state;
mod terminal;

use super::sample::{Host, Sample};
use crate::exit::End;
use crate::lang::Lang;
use ratatui::crossterm::event::{self, Event};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP};
use signal_hook::iterator::Signals;
use state::{Next, State};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};
use terminal::Screen;

/// What the main thread waits for.
enum Message {
    /// A look at everything.
    Look(Box<Sample>),
    /// A key, or another size.
    Input(Event),
    /// A signal.
    Signal(i32),
    /// The terminal gives no more input, and why.
    NoInput(std::io::Error),
    /// A thread panicked; that was told, on a terminal put back for it.
    Broken,
}

/// Tells the main thread if this one panics, which would wait for it else.
struct Tell(Sender<Message>);

impl Drop for Tell {
    fn drop(&mut self) {
        if thread::panicking() {
            // Nobody waits if the main thread has ended.
            let _ = self.0.send(Message::Broken);
        }
    }
}

/// Shows the dashboard until a key or a signal ends it.
///
/// # Errors
/// [`End::Signal`] if a signal did; [`End::Failed`] if the terminal can not be used.
pub fn run(host: Host, interval: Duration, top: usize, lang: Lang) -> Result<(), End> {
    let colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let (sender, messages) = channel();
    // Before the terminal is changed, so that no signal comes in between.
    let signals = signals(sender.clone())?;
    let mut screen = Screen::enter()?;
    // Dropping this ends the one who looks.
    let _looking = look(host, interval, sender.clone())?;
    wait_for_input(sender)?;
    let state = State::new(top, lang, colours, interval);
    let ended = show(&mut screen, state, &messages);
    signals.close();
    let restored = screen.leave();
    ended.and(restored)
}

fn show(screen: &mut Screen, mut state: State, messages: &Receiver<Message>) -> Result<(), End> {
    loop {
        screen.draw(&mut state)?;
        let message = messages.recv().unwrap_or(Message::Broken);
        match message {
            Message::Look(sample) => state.take(*sample),
            Message::Input(Event::Key(key)) => match state.key(key) {
                Next::Go => {}
                Next::Leave => return Ok(()),
                Next::Stop => screen.stop()?,
            },
            // Drawing looks at the size.
            Message::Input(_) => {}
            Message::Signal(SIGTSTP) => screen.stop()?,
            Message::Signal(SIGCONT) => screen.redraw()?,
            Message::Signal(signal) => return Err(End::Signal(signal)),
            Message::Broken => return Err(End::failed("a part of the monitor failed")),
            Message::NoInput(error) => return Err(End::failed(format!("the terminal: {error}"))),
        }
    }
}

/// Has signals sent as messages, until the handle is closed.
fn signals(sender: Sender<Message>) -> Result<signal_hook::iterator::Handle, End> {
    let ending = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT];
    // What was ignored when this began, as under nohup, stays so.
    let taken = ending.into_iter().filter(|signal| !mkey_os::signals::is_ignored(*signal));
    let mut signals = Signals::new(taken).map_err(End::failed)?;
    let handle = signals.handle();
    spawn("mkey-signals", &sender.clone(), move || {
        for signal in signals.forever() {
            if sender.send(Message::Signal(signal)).is_err() {
                return;
            }
        }
    })?;
    Ok(handle)
}

/// Has keys sent as messages, as long as there is somebody to take them.
fn wait_for_input(sender: Sender<Message>) -> Result<(), End> {
    spawn("mkey-keys", &sender.clone(), move || {
        loop {
            let (message, last) = match event::read() {
                Ok(input) => (Message::Input(input), false),
                Err(error) => (Message::NoInput(error), true),
            };
            if sender.send(message).is_err() || last {
                return;
            }
        }
    })
}

/// Has looks sent as messages, one an interval, until what it gives is dropped.
fn look(mut host: Host, interval: Duration, sender: Sender<Message>) -> Result<Sender<()>, End> {
    let (stay, stop) = channel::<()>();
    spawn("mkey-looks", &sender.clone(), move || {
        let begun = Instant::now();
        let mut due = Duration::ZERO;
        loop {
            if sender.send(Message::Look(Box::new(host.look(begun.elapsed())))).is_err() {
                return;
            }
            due = due.max(begun.elapsed().saturating_sub(interval)).saturating_add(interval);
            match stop.recv_timeout(due.saturating_sub(begun.elapsed())) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    })?;
    Ok(stay)
}

/// Starts a thread, which ends with the process if not before.
fn spawn(
    name: &str,
    sender: &Sender<Message>,
    work: impl FnOnce() + Send + 'static,
) -> Result<(), End> {
    let tell = Tell(sender.clone());
    let started = thread::Builder::new().name(name.to_owned()).spawn(move || {
        let _tell = tell;
        work();
    });
    started.map(drop).map_err(End::failed)
}
