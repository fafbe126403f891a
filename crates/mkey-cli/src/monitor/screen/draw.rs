//! How the dashboard is drawn: all tables where there is room, else the one in focus.

use super::super::judge::Level;
use super::super::text;
use super::super::view::{Cell, Pane};
use super::state::State;
use crate::lang::{Lang, columns};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Block, Clear, Paragraph};

/// From this size on all tables are shown at once.
const LARGE: (u16, u16) = (120, 40);
/// Findings that are shown; on a large screen, and on a small one.
const FINDINGS: (usize, usize) = (8, 4);

/// Draws it.
pub fn draw(frame: &mut Frame<'_>, state: &mut State) {
    let area = frame.area();
    let large = area.width >= LARGE.0 && area.height >= LARGE.1;
    let most = if large { FINDINGS.0 } else { FINDINGS.1 };
    let findings = findings(state, most, area.width.into());
    let found = u16::try_from(findings.len()).unwrap_or(1);
    let lengths = [Constraint::Length(1), Constraint::Length(1), Constraint::Min(3)];
    let below = [Constraint::Length(found), Constraint::Length(1)];
    let rows = Layout::vertical(lengths.into_iter().chain(below)).split(area);
    let &[head, tabs, body, worth, keys] = &rows[..] else { return };
    frame.render_widget(Line::from(headline(state)), head);
    frame.render_widget(tab_line(state, area.width.into()), tabs);
    if state.panes.is_empty() {
        let looking = state.lang.pick("looking ...", "读取中……");
        frame.render_widget(Line::from(looking), body);
    } else if large {
        draw_all(frame, state, body);
    } else {
        draw_pane(frame, state, state.focus, body);
    }
    frame.render_widget(Text::from(findings), worth);
    let known = state.lang.pick(
        "q quit  tab next table  arrows scroll  p pause  ? help",
        "q 退出  tab 下一表  方向键滚动  p 暂停  ? 帮助",
    );
    frame.render_widget(Line::styled(known, Style::new().add_modifier(Modifier::DIM)), keys);
    if state.help {
        draw_help(frame, state.lang, area);
    }
}

fn headline(state: &State) -> String {
    let every = humantime::format_duration(state.interval);
    let every = match state.lang {
        Lang::En => format!("every {every}"),
        Lang::Zh => format!("每 {every}"),
    };
    let Some(sample) = &state.sample else { return format!("mkey monitor  {every}") };
    let paused = if state.paused { state.lang.pick("  PAUSED", "  已暂停") } else { "" };
    format!("{}  {every}{paused}", text::headline(sample, state.lang))
}

/// The names of the tables, each with the mark of its worst cell; where they do not fit, the name of
/// the one in focus and numbers.
fn tab_line(state: &State, width: usize) -> Line<'static> {
    let tabs = |names: bool| {
        let mut line = Vec::new();
        for (n, pane) in state.panes.iter().enumerate() {
            let (level, focus) = (pane.level(), n == state.focus);
            let name = if names || focus { format!(" {}", pane.title) } else { String::new() };
            let mut style = style(level, state.colours);
            if focus {
                style = style.add_modifier(Modifier::REVERSED);
            }
            let text = format!("{}{name}{}", n + 1, level.mark());
            line.extend([Span::styled(text, style), Span::raw("  ")]);
        }
        Line::from(line)
    };
    let whole = tabs(true);
    if whole.width() <= width { whole } else { tabs(false) }
}

fn findings(state: &State, most: usize, width: usize) -> Vec<Line<'static>> {
    let (lang, all) = (state.lang, &state.findings);
    if all.is_empty() {
        let nothing = text::cut(&text::nothing(&state.unread, lang), width);
        return vec![Line::from(if state.panes.is_empty() { String::new() } else { nothing })];
    }
    let shown = if all.len() > most { most.saturating_sub(1) } else { all.len() };
    let mut lines: Vec<Line<'static>> = all
        .iter()
        .take(shown)
        .map(|one| Line::styled(text::finding(one, width), style(one.level, state.colours)))
        .collect();
    if shown < all.len() {
        let more = all.len() - shown;
        lines.push(Line::from(match lang {
            Lang::En => format!("   and {more} more: mkey monitor --once"),
            Lang::Zh => format!("   另有 {more} 项：mkey monitor --once"),
        }));
    }
    lines
}

/// All tables, in two columns of three.
fn draw_all(frame: &mut Frame<'_>, state: &mut State, area: Rect) {
    let halves = Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).split(area);
    // Left what there are few of; right the counters, which are many.
    let columns = [
        [(0, Constraint::Fill(2)), (1, Constraint::Fill(3)), (2, Constraint::Fill(3))],
        [(4, Constraint::Fill(4)), (5, Constraint::Fill(2)), (3, Constraint::Fill(2))],
    ];
    for (half, column) in halves.iter().zip(columns) {
        let areas = Layout::vertical(column.map(|(_, constraint)| constraint)).split(*half);
        for ((pane, _), area) in column.into_iter().zip(areas.iter()) {
            draw_pane(frame, state, pane, *area);
        }
    }
}

fn draw_pane(frame: &mut Frame<'_>, state: &mut State, number: usize, area: Rect) {
    let Some(pane) = state.panes.get(number) else { return };
    let focus = number == state.focus;
    let title = format!(" {} {} ", number + 1, pane.title);
    let border = if focus { Style::new().add_modifier(Modifier::BOLD) } else { Style::new() };
    let block = Block::bordered().title(title).border_style(border);
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let lines = lines(pane, usize::from(inner.width), state.colours);
    let head = usize::from(!pane.rows.is_empty());
    let height = usize::from(inner.height).saturating_sub(head);
    let last = lines.len().saturating_sub(head).saturating_sub(height);
    let Some(first) = state.scrolled.get_mut(number) else { return };
    *first = (*first).min(last);
    let first = *first;
    if focus {
        state.height = height.max(1);
    }
    // The heads of the columns stay where they are.
    let shown = lines.iter().take(head).chain(lines.iter().skip(head + first));
    frame.render_widget(Text::from(shown.cloned().collect::<Vec<_>>()), inner);
    let below = last.saturating_sub(first);
    if below > 0 && area.height > 1 && area.width > 14 {
        let text = match state.lang {
            Lang::En => format!(" {below} below "),
            Lang::Zh => format!(" 下有 {below} 行 "),
        };
        let width = u16::try_from(columns(&text)).unwrap_or(0);
        let at = Rect {
            x: area.right().saturating_sub(width + 2),
            y: area.bottom() - 1,
            width: width.min(area.width),
            height: 1,
        };
        frame.render_widget(Line::from(text), at);
    }
}

/// A table as lines: its heads if it has rows, its rows, what else is to be said.
fn lines(pane: &Pane, width: usize, colours: bool) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    if !pane.rows.is_empty() {
        let widths = widths(pane, width);
        let heads: Vec<Cell> = pane.columns.iter().map(|(head, _)| Cell::from(*head)).collect();
        let bold = Style::new().add_modifier(Modifier::BOLD);
        lines.push(row(&heads, &widths, pane, |_| bold));
        lines.extend(
            pane.rows.iter().map(|cells| row(cells, &widths, pane, |level| style(level, colours))),
        );
    }
    let dim = Style::new().add_modifier(Modifier::DIM);
    for note in &pane.notes {
        let wrapped = crate::lang::wrap("", note, width.max(10));
        lines.extend(wrapped.into_iter().map(|line| Line::styled(line, dim)));
    }
    lines
}

/// The widths of the columns: as wide as their cells, and where there is no room for that, words
/// before figures give way.
fn widths(pane: &Pane, width: usize) -> Vec<usize> {
    let mut widths: Vec<usize> = pane
        .columns
        .iter()
        .enumerate()
        .map(|(n, (head, _))| {
            let cells = pane.rows.iter().filter_map(|row| row.get(n));
            let widest = cells.map(|cell| columns(&cell.text)).max().unwrap_or(0);
            widest.max(columns(head))
        })
        .collect();
    let gaps = widths.len().saturating_sub(1) * GAP.len();
    let mut over = (widths.iter().sum::<usize>() + gaps).saturating_sub(width);
    while over > 0 {
        let words = pane.columns.iter().zip(&mut widths).filter(|((_, figure), _)| !figure);
        let Some((_, widest)) = words.max_by_key(|(_, width)| **width) else { break };
        if *widest <= SHORTEST {
            break;
        }
        *widest -= 1;
        over -= 1;
    }
    widths
}

const GAP: &str = "  ";
/// Words are not cut to less than this.
const SHORTEST: usize = 6;

fn row(
    cells: &[Cell],
    widths: &[usize],
    pane: &Pane,
    style: impl Fn(Level) -> Style,
) -> Line<'static> {
    let mut spans = Vec::with_capacity(cells.len() * 2);
    for ((cell, width), (_, figure)) in cells.iter().zip(widths).zip(&pane.columns) {
        let text = text::cut(&cell.text, *width);
        let blanks = " ".repeat(width.saturating_sub(columns(&text)));
        let text = if *figure { format!("{blanks}{text}") } else { format!("{text}{blanks}") };
        if !spans.is_empty() {
            spans.push(Span::raw(GAP));
        }
        spans.push(Span::styled(text, style(cell.level)));
    }
    Line::from(spans)
}

/// The colour of a level. Without colours the marks remain, and what is bad is bold.
fn style(level: Level, colours: bool) -> Style {
    let style = match level {
        Level::Fine | Level::Note => Style::new(),
        Level::Warn => Style::new(),
        Level::Bad => Style::new().add_modifier(Modifier::BOLD),
    };
    match level {
        _ if !colours => style,
        Level::Fine => style,
        Level::Note => style.fg(Color::Cyan),
        Level::Warn => style.fg(Color::Yellow),
        Level::Bad => style.fg(Color::Red),
    }
}

fn draw_help(frame: &mut Frame<'_>, lang: Lang, area: Rect) {
    let text = lang.pick(
        "q, Esc, Ctrl-C   quit
tab, shift-tab   next and last table
left, right      the same
1 to 6           a table
up, down         scroll; page up, page down, home, end
p, space         pause: what is shown stays
Ctrl-Z           stop; fg goes on
?                this

!    worth a look        !!   a failure
A line at the bottom names the command that explains it.
-    no figure: a rate needs two looks
?    the kernel does not tell; the table says why
anew the counter was set back",
        "q、Esc、Ctrl-C    退出
tab、shift-tab    下一表、上一表
左、右            同上
1 到 6            选择表
上、下            滚动；另有翻页键、Home、End
p、空格           暂停：画面不变
Ctrl-Z            停住；fg 继续
?                 本帮助

!    值得注意       !!   故障
底部一行写明用哪条命令看解释。
-    没有数值：速率要看两次才有
?    内核不提供；原因写在表下
重新计 计数器被清零",
    );
    let height = u16::try_from(text.lines().count() + 2).unwrap_or(3).min(area.height);
    let width = 62.min(area.width);
    let area = Rect {
        x: area.x + (area.width - width) / 2,
        y: area.y + (area.height - height) / 2,
        width,
        height,
    };
    frame.render_widget(Clear, area);
    let block = Block::bordered().title(lang.pick(" Keys ", " 按键 "));
    frame.render_widget(Paragraph::new(text).block(block), area);
}
