//! The dashboard as it is drawn. `MKEY_WRITE_GOLDEN=1` writes the files that it is compared with.

use crate::fixture::{Fixture, healthy, looked, odd, sick};
use mkey_cli::lang::Lang;
use mkey_cli::monitor::screen::draw::draw;
use mkey_cli::monitor::screen::state::{Next, PANES, State};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::Color;
use std::fmt::Write;
use std::time::Duration;

const SMALL: (u16, u16) = (80, 24);
const LARGE: (u16, u16) = (160, 50);

fn state(host: fn(bool) -> Fixture, lang: Lang, colours: bool) -> State {
    let mut state = State::new(10, lang, colours, Duration::from_secs(1));
    for sample in looked(&host(false), &host(true)) {
        state.take(sample);
    }
    state
}

fn drawn(state: &mut State, (width, height): (u16, u16)) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, state)).unwrap();
    terminal.backend().buffer().clone()
}

/// The characters; the second column of a wide one is not one of its own.
fn text(buffer: &Buffer) -> String {
    let mut text = String::new();
    for y in 0..buffer.area.height {
        let (mut line, mut skip) = (String::new(), 0);
        for x in 0..buffer.area.width {
            if skip > 0 {
                skip -= 1;
                continue;
            }
            let symbol = buffer[(x, y)].symbol();
            skip = mkey_cli::lang::columns(symbol).saturating_sub(1);
            line.push_str(symbol);
        }
        writeln!(text, "{}", line.trim_end()).unwrap();
    }
    text
}

fn compare(name: &str, found: &str) {
    let file = format!("{}/tests/monitor/screens/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("MKEY_WRITE_GOLDEN").is_some() {
        std::fs::write(&file, found).unwrap();
    }
    let expected = std::fs::read_to_string(&file).unwrap();
    assert_eq!(found, expected, "{file}");
}

fn press(state: &mut State, code: KeyCode) -> Next {
    state.key(KeyEvent::new(code, KeyModifiers::NONE))
}

#[test]
fn screens() {
    type Host = fn(bool) -> Fixture;
    let hosts: [(&str, Host); 3] = [("healthy", healthy), ("sick", sick), ("odd", odd)];
    for (name, host) in hosts {
        let mut state = state(host, Lang::En, true);
        compare(&format!("{name}-160x50"), &text(&drawn(&mut state, LARGE)));
        let mut all = String::new();
        for pane in 0..PANES {
            let screen = text(&drawn(&mut state, SMALL));
            assert!(screen.contains(&format!("┌ {} ", pane + 1)), "{screen}");
            all.push_str(&screen);
            press(&mut state, KeyCode::Tab);
        }
        compare(&format!("{name}-80x24"), &all);
    }
}

#[test]
fn a_screen_in_chinese() {
    compare("sick-zh-160x50", &text(&drawn(&mut state(sick, Lang::Zh, true), LARGE)));
}

#[test]
fn the_help_names_the_keys() {
    let mut state = state(healthy, Lang::En, true);
    press(&mut state, KeyCode::Char('?'));
    compare("help-80x24", &text(&drawn(&mut state, SMALL)));
    assert_eq!(press(&mut state, KeyCode::Char('x')), Next::Go);
    assert!(!text(&drawn(&mut state, SMALL)).contains("Ctrl-Z"));
}

fn colours(buffer: &Buffer) -> Vec<Color> {
    let mut colours: Vec<Color> = Vec::new();
    for cell in &buffer.content {
        if !colours.contains(&cell.fg) {
            colours.push(cell.fg);
        }
    }
    colours
}

#[test]
fn colours_are_of_levels_and_not_there_where_they_are_not_wanted() {
    let with = colours(&drawn(&mut state(sick, Lang::En, true), LARGE));
    for colour in [Color::Red, Color::Yellow, Color::Cyan] {
        assert!(with.contains(&colour), "{with:?}");
    }
    let mut plain = state(sick, Lang::En, false);
    let buffer = drawn(&mut plain, LARGE);
    assert_eq!(colours(&buffer), [Color::Reset]);
    // The marks say it then.
    assert!(
        text(&buffer).contains("2.0 !!") && text(&buffer).contains("16 !"),
        "{}",
        text(&buffer)
    );
    assert_eq!(colours(&drawn(&mut state(healthy, Lang::En, true), LARGE)), [Color::Reset]);
}

#[test]
fn keys_choose_scroll_pause_and_leave() {
    let mut state = state(sick, Lang::En, false);
    let shown = |state: &mut State| text(&drawn(state, SMALL));
    press(&mut state, KeyCode::Char('5'));
    let top = shown(&mut state);
    assert!(top.contains("5 Errors and congestion") && top.contains(" below "), "{top}");
    press(&mut state, KeyCode::End);
    let bottom = shown(&mut state);
    assert!(bottom.contains("by --json") && !bottom.contains(" below "), "{bottom}");
    // The heads stay.
    assert!(bottom.contains("counter"));
    press(&mut state, KeyCode::Down);
    assert_eq!(shown(&mut state), bottom, "there is nothing below the last row");
    for _ in 0..100 {
        press(&mut state, KeyCode::Up);
    }
    assert_eq!(shown(&mut state), top);
    press(&mut state, KeyCode::PageDown);
    press(&mut state, KeyCode::Home);
    assert_eq!(shown(&mut state), top);
    press(&mut state, KeyCode::BackTab);
    assert!(shown(&mut state).contains("┌ 4 "));

    press(&mut state, KeyCode::Char('p'));
    let paused = shown(&mut state);
    assert!(paused.contains("PAUSED"), "{paused}");
    for sample in looked(&healthy(false), &healthy(true)) {
        state.take(sample);
    }
    assert_eq!(shown(&mut state), paused);
    press(&mut state, KeyCode::Char('p'));
    let [_, sample] = looked(&healthy(false), &healthy(true));
    state.take(sample);
    assert!(shown(&mut state).contains("well"));

    assert_eq!(press(&mut state, KeyCode::Char('q')), Next::Leave);
    let control = |c| KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL);
    assert_eq!(state.key(control('c')), Next::Leave);
    assert_eq!(state.key(control('z')), Next::Stop);
}

#[test]
fn no_size_is_too_small() {
    let mut waiting = State::new(10, Lang::En, true, Duration::from_secs(1));
    let mut states = [state(sick, Lang::En, true), state(odd, Lang::Zh, true)];
    press(&mut states[1], KeyCode::Char('?'));
    let sizes = [(1, 1), (2, 5), (5, 2), (10, 10), (80, 5), (20, 24), (300, 8), (500, 200)];
    for size in sizes {
        drawn(&mut waiting, size);
        for state in &mut states {
            for _ in 0..PANES {
                press(state, KeyCode::End);
                drawn(state, size);
                press(state, KeyCode::Tab);
            }
        }
    }
    assert!(text(&drawn(&mut waiting, SMALL)).contains("looking"));
}
