//! What is on the screen, and what keys do.

use ratatui::Frame;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Clear, Paragraph};
use std::time::Duration;

use super::sample::Sample;
use super::view::{Table, Used, View};

/// The state of the screen.
pub(super) struct Screen {
    pub(super) view: View,
    /// How long a frame stays.
    pub(super) delay: Duration,
    pub(super) is_paused: bool,
    /// What is wrong with the daemon, if something is.
    pub(super) trouble: Option<String>,
    sort: (usize, bool),
    filter: String,
    /// Whether the filter is being written.
    writes_filter: bool,
    shows_help: bool,
    /// The first row that is shown.
    top: usize,
    samples: [Option<Sample>; 2],
    table: Table,
    used: Used,
    has_colour: bool,
}

/// What a key asks for beyond the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    Nothing,
    /// Another sample, now.
    Sample,
    Leave,
}

const HELP: &[(&str, &str)] = &[
    ("1-6, Tab", "another view"),
    ("s, S", "sort by the next column, or the one before"),
    ("r", "sort the other way round"),
    ("/", "show rows that have a text; Enter ends it, Esc shows all"),
    ("p, blank", "pause, and go on"),
    ("+, -", "show frames for a longer or shorter time"),
    ("Up, Down, PgUp, PgDn", "other rows"),
    ("Ctrl-L", "draw the screen anew"),
    ("q, Ctrl-C", "quit"),
];

impl Screen {
    pub(super) fn new(view: View, delay: Duration, has_colour: bool) -> Self {
        Self {
            view,
            delay,
            is_paused: false,
            trouble: None,
            sort: view.sorted_at_first(),
            filter: String::new(),
            writes_filter: false,
            shows_help: false,
            top: 0,
            samples: [None, None],
            table: Table::default(),
            used: Used::new(),
            has_colour,
        }
    }

    /// Takes what the daemon said, or why it said nothing.
    pub(super) fn take(&mut self, sample: anyhow::Result<Sample>) {
        match sample {
            Ok(sample) => {
                // What it counted before it was silent may be another daemon's.
                let was_silent = self.trouble.take().is_some();
                let before = self.samples[1].take();
                self.samples = [before.filter(|_| !was_silent), Some(sample)];
            }
            Err(error) => self.trouble = Some(error.to_string().replace(char::is_control, " ")),
        }
        self.arrange();
    }

    fn arrange(&mut self) {
        let [before, now] = &self.samples;
        self.table = match now {
            Some(now) => Table::new(self.view, now, before.as_ref(), &mut self.used),
            None => Table::default(),
        };
        self.table.arrange(&self.filter, self.sort.0, self.sort.1);
        self.top = self.top.min(self.table.rows.len().saturating_sub(1));
    }

    /// Does what a key says.
    pub(super) fn key(&mut self, key: KeyEvent) -> Asked {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => Asked::Leave,
                _ => Asked::Nothing,
            };
        }
        if self.writes_filter {
            match key.code {
                KeyCode::Enter => self.writes_filter = false,
                KeyCode::Esc => (self.writes_filter, self.filter) = (false, String::new()),
                KeyCode::Backspace => _ = self.filter.pop(),
                KeyCode::Char(character) if self.filter.len() < 64 => self.filter.push(character),
                _ => {}
            }
            self.arrange();
            return Asked::Nothing;
        }
        if self.shows_help {
            self.shows_help = false;
            return Asked::Nothing;
        }
        let columns = self.table.columns.len().max(1);
        match key.code {
            KeyCode::Char('q') => return Asked::Leave,
            KeyCode::Char(digit @ '1'..='6') => return self.look_at(digit as usize - '1' as usize),
            KeyCode::Tab | KeyCode::Right => return self.look_at(self.place() + 1),
            KeyCode::BackTab | KeyCode::Left => {
                return self.look_at(self.place() + View::ALL.len() - 1);
            }
            KeyCode::Char('s') => self.sort = ((self.sort.0 + 1) % columns, self.sort.1),
            KeyCode::Char('S') => self.sort = ((self.sort.0 + columns - 1) % columns, self.sort.1),
            KeyCode::Char('r') => self.sort.1 = !self.sort.1,
            KeyCode::Char('/') => self.writes_filter = true,
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Char('p' | ' ') => self.is_paused = !self.is_paused,
            KeyCode::Char('+') => self.delay = (self.delay * 2).min(super::LONGEST),
            KeyCode::Char('-') => self.delay = (self.delay / 2).max(super::SHORTEST),
            KeyCode::Char('h' | '?') => self.shows_help = true,
            KeyCode::Up => self.top = self.top.saturating_sub(1),
            KeyCode::Down => self.top += 1,
            KeyCode::PageUp => self.top = self.top.saturating_sub(10),
            KeyCode::PageDown => self.top += 10,
            KeyCode::Home => self.top = 0,
            _ => return Asked::Nothing,
        }
        self.arrange();
        Asked::Nothing
    }

    fn place(&self) -> usize {
        View::ALL.iter().position(|view| *view == self.view).unwrap_or(0)
    }

    fn look_at(&mut self, place: usize) -> Asked {
        self.view = View::ALL[place % View::ALL.len()];
        (self.sort, self.top, self.filter) = (self.view.sorted_at_first(), 0, String::new());
        self.arrange();
        Asked::Sample
    }

    /// Draws everything.
    pub(super) fn draw(&self, frame: &mut Frame<'_>) {
        let areas = Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(1),
            Constraint::Min(0),
            Constraint::Length(1),
        ]);
        let [head, views, body, foot] = areas.areas(frame.area());
        frame.render_widget(Paragraph::new(self.head()), head);
        frame.render_widget(Paragraph::new(self.views(views.width)), views);
        self.draw_table(frame, body);
        frame.render_widget(Paragraph::new(self.foot()), foot);
        if self.shows_help {
            draw_help(frame, body);
        }
    }

    fn head(&self) -> Line<'_> {
        if let Some(trouble) = &self.trouble {
            let style = self.style(Color::Red).add_modifier(Modifier::BOLD);
            return Line::styled(format!("no answer: {trouble}"), style);
        }
        let mut text = "hitpath top".to_owned();
        if let Some(now) = &self.samples[1] {
            let drops: u64 = now.drops.iter().map(|drop| drop.packets).sum();
            let (ports, workers, sas) = (now.ports.len(), now.workers.len(), now.sa_count);
            let several = |count: u64, what| match count {
                1 => format!("1 {what}"),
                _ => format!("{} {what}s", super::view::short(count as f64, "")),
            };
            text += &format!(
                " - {}, {}, {}, {}",
                several(ports as u64, "port"),
                several(workers as u64, "worker"),
                several(sas, "SA"),
                several(drops, "drop")
            );
        }
        let state = match self.is_paused {
            true => "  PAUSED".to_owned(),
            false => format!("  every {}", seconds(self.delay)),
        };
        Line::from(vec![
            Span::styled(text, Style::new().add_modifier(Modifier::BOLD)),
            Span::styled(state, self.style(Color::Yellow)),
        ])
    }

    /// The views, that which is looked at by its whole name.
    fn views(&self, width: u16) -> Line<'_> {
        let mut spans = Vec::new();
        let is_narrow = width < 76;
        for (place, view) in View::ALL.into_iter().enumerate() {
            let is_this = view == self.view;
            let name = if is_narrow && !is_this { "" } else { view.name() };
            let style = match is_this {
                true => Style::new().add_modifier(Modifier::REVERSED),
                false => Style::new(),
            };
            spans.push(Span::styled(
                format!(" {}{}{name} ", place + 1, if name.is_empty() { "" } else { ":" }),
                style,
            ));
        }
        Line::from(spans)
    }

    fn draw_table(&self, frame: &mut Frame<'_>, area: Rect) {
        let room = usize::from(area.height).saturating_sub(2);
        let shown = self.table.rows.iter().skip(self.top).take(room);
        let mut lines = vec![Line::raw(self.table.summary.as_str())];
        let widths = widths(&self.table, shown.clone());
        let fitting = self.fitting(&widths, area.width.into());
        let mut heading = Vec::new();
        for &at in &fitting {
            let (column, width) = (self.table.columns[at], widths[at]);
            let is_sorted = at == self.sort.0;
            let mark = if !is_sorted {
                ""
            } else if self.sort.1 {
                "v"
            } else {
                "^"
            };
            let style = match is_sorted {
                true => self.style(Color::Cyan).add_modifier(Modifier::BOLD | Modifier::UNDERLINED),
                false => self.style(Color::Cyan).add_modifier(Modifier::BOLD),
            };
            let text = format!("{column}{mark}");
            let is_number = is_number(&self.table, at);
            heading.push(Span::styled(align(&text, width, is_number), style));
            heading.push(Span::raw(" "));
        }
        lines.push(Line::from(heading));
        for row in shown {
            let cells = fitting.iter().flat_map(|&at| {
                let cell = &row[at];
                let text = align(&cell.text, widths[at], is_number(&self.table, at));
                let is_bad = ["LOST/s", "DROPS/s", "ERR/s"].contains(&self.table.columns[at])
                    && !matches!(cell.text.as_str(), "0" | "-")
                    || cell.text.ends_with("down")
                    || cell.text == "gone"
                    || cell.text == "no-carrier";
                let style = if is_bad { self.style(Color::Red) } else { Style::new() };
                [Span::styled(text, style), Span::raw(" ")]
            });
            lines.push(Line::from(cells.collect::<Vec<_>>()));
        }
        frame.render_widget(Paragraph::new(lines), area);
    }

    /// The columns that fit in as a whole, and that of the order in any case. A text at the end may
    /// be cut.
    fn fitting(&self, widths: &[usize], width: usize) -> Vec<usize> {
        let of_order = widths.get(self.sort.0).map_or(0, |width| width + 1);
        // No blank is needed behind the last.
        let (mut left, mut is_full) = ((width + 1).saturating_sub(of_order), false);
        let mut fit = |(at, width): (usize, &usize)| {
            let may_be_cut = at + 1 == widths.len() && !is_number(&self.table, at);
            let needed = if may_be_cut { self.table.columns[at].len() + 1 } else { width + 1 };
            is_full |= at != self.sort.0 && needed > left;
            left = left.saturating_sub(if at == self.sort.0 { 0 } else { needed });
            (at == self.sort.0 || !is_full).then_some(at)
        };
        widths.iter().enumerate().filter_map(&mut fit).collect()
    }

    fn foot(&self) -> Line<'_> {
        let style = Style::new().add_modifier(Modifier::REVERSED);
        if self.writes_filter {
            return Line::styled(format!("/{}_  Enter: keep  Esc: show all", self.filter), style);
        }
        let filter = match self.filter.is_empty() {
            true => String::new(),
            false => format!(" [/{}]", self.filter),
        };
        let text = "q quit  1-6 view  s sort  r reverse  / filter  p pause  +- delay  h help";
        Line::styled(format!("{text}{filter}"), style)
    }

    fn style(&self, colour: Color) -> Style {
        if self.has_colour { Style::new().fg(colour) } else { Style::new() }
    }
}

fn draw_help(frame: &mut Frame<'_>, area: Rect) {
    let lines = HELP.iter().map(|(keys, what)| Line::raw(format!(" {keys:20}  {what}")));
    let lines: Vec<_> = lines.chain([Line::raw(" any key: back")]).collect();
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(lines), area);
}

/// A frame as plain text, with as many columns as there are.
pub(super) fn text(table: &Table) -> String {
    let widths = widths(table, table.rows.iter());
    let line = |cells: Vec<&str>| {
        let cells = cells.into_iter().zip(&widths).enumerate();
        let cells = cells.map(|(at, (text, width))| align(text, *width, is_number(table, at)));
        cells.collect::<Vec<_>>().join(" ").trim_end().to_owned() + "\n"
    };
    let rows = table.rows.iter();
    let rows = rows.map(|row| line(row.iter().map(|cell| cell.text.as_str()).collect()));
    format!("{}\n{}{}", table.summary, line(table.columns.clone()), rows.collect::<String>())
}

fn is_number(table: &Table, column: usize) -> bool {
    table.rows.first().and_then(|row| row.get(column)).is_some_and(super::view::Cell::is_number)
}

fn widths<'t>(table: &Table, rows: impl Iterator<Item = &'t Vec<super::view::Cell>>) -> Vec<usize> {
    // A mark of the order may stand behind a heading.
    let mut widths: Vec<_> = table.columns.iter().map(|name| name.len() + 1).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.text.chars().count());
        }
    }
    widths
}

fn align(text: &str, width: usize, is_number: bool) -> String {
    if is_number { format!("{text:>width$}") } else { format!("{text:<width$}") }
}

fn seconds(delay: Duration) -> String {
    format!("{} s", delay.as_secs_f64())
}
