//! Plots, as SVG files that need nothing else: a white ground, so that they are read on dark pages
//! too.

use std::fmt::Write;

use crate::published::Published;
use crate::row::Row;

const WIDTH: f64 = 820.0;
const HEIGHT: f64 = 440.0;
/// Where the axes are.
const LEFT: f64 = 76.0;
const RIGHT: f64 = 560.0;
const TOP: f64 = 56.0;
const BOTTOM: f64 = 380.0;

/// Okabe and Ito's colours, which most colour-blind people can tell apart ("Color Universal
/// Design", 2008), the yellow left out: it is too light for lines on white.
const COLOURS: [&str; 7] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"];

/// How an axis is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    /// From 0.
    Linear,
    /// By powers of ten; what is not above 0 has no place there.
    Log,
}

/// An axis.
#[derive(Clone, Debug)]
pub(crate) struct Axis {
    /// What it shows, with the unit.
    pub label: String,
    pub scale: Scale,
}

impl Axis {
    pub(crate) fn new(label: impl Into<String>, scale: Scale) -> Self {
        Self { label: label.into(), scale }
    }
}

/// Points joined in order.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub name: String,
    pub points: Vec<(f64, f64)>,
    /// Drawn in dashes: figures of others.
    pub is_reference: bool,
}

/// A chart.
#[derive(Clone, Debug)]
pub(crate) struct Chart {
    /// The file's name, without `.svg`.
    pub name: String,
    pub title: String,
    pub x: Axis,
    pub y: Axis,
    pub lines: Vec<Line>,
}

impl Line {
    /// One of ours.
    pub(crate) fn ours(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.into(), points, is_reference: false }
    }

    /// A line for each series of `rows`: `value` by `parameter`.
    pub(crate) fn by_series(
        rows: &[&Row],
        parameter: &str,
        value: impl Fn(&Row) -> f64,
    ) -> Vec<Self> {
        let mut lines: Vec<Self> = Vec::new();
        for row in rows {
            let Some(x) = row.number(parameter) else { continue };
            let at = lines.iter().position(|line| line.name == row.series).unwrap_or_else(|| {
                lines.push(Self::ours(row.series.clone(), Vec::new()));
                lines.len() - 1
            });
            lines[at].points.push((x, value(row)));
        }
        lines
    }

    /// Somebody else's, named with whose it is.
    pub(crate) fn published(published: &Published, whose: &str) -> Self {
        let name = format!("{whose}{}, {}", published.what, published.series);
        Self { name, points: published.figures.to_vec(), is_reference: true }
    }
}

impl Chart {
    /// The chart as SVG.
    pub(crate) fn svg(&self) -> String {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let x = Span::of(self.x.scale, points().map(|point| point.0), LEFT, RIGHT);
        let y = Span::of(self.y.scale, points().map(|point| point.1), BOTTOM, TOP);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
            width=\"{WIDTH}\" height=\"{HEIGHT}\" \
             font-family=\"system-ui, sans-serif\" font-size=\"13\" \
                 role=\"img\">\n<title>{}</title>\n\
             <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#ffffff\"/>\n",
            escaped(&self.title)
        );
        self.draw_axes(&mut svg, &x, &y);
        for (at, line) in self.lines.iter().enumerate() {
            draw_line(&mut svg, at, line, &x, &y);
        }
        svg.push_str("</svg>\n");
        svg
    }

    fn draw_axes(&self, svg: &mut String, x: &Span, y: &Span) {
        let middle = f64::midpoint(LEFT, RIGHT);
        text(svg, (middle, 26.0), "middle", " font-size=\"16\" font-weight=\"600\"", &self.title);
        for tick in x.ticks() {
            let at = x.place(tick);
            rule(svg, (at, TOP), (at, BOTTOM), "#e4e4e4");
            text(svg, (at, BOTTOM + 18.0), "middle", "", &short(tick));
        }
        for tick in y.ticks() {
            let at = y.place(tick);
            rule(svg, (LEFT, at), (RIGHT, at), "#e4e4e4");
            text(svg, (LEFT - 8.0, at + 4.5), "end", "", &short(tick));
        }
        rule(svg, (LEFT, BOTTOM), (RIGHT, BOTTOM), "#555555");
        rule(svg, (LEFT, TOP), (LEFT, BOTTOM), "#555555");
        text(svg, (middle, BOTTOM + 44.0), "middle", "", &self.x.label);
        let (at, turned) = (
            (20.0, f64::midpoint(TOP, BOTTOM)),
            format!(" transform=\"rotate(-90 20 {:.1})\"", f64::midpoint(TOP, BOTTOM)),
        );
        text(svg, at, "middle", &turned, &self.y.label);
    }
}

/// A line, its points, and its entry in the legend.
fn draw_line(svg: &mut String, at: usize, line: &Line, x: &Span, y: &Span) {
    let colour = COLOURS[at % COLOURS.len()];
    let dashes = if line.is_reference { " stroke-dasharray=\"6 4\"" } else { "" };
    let places: Vec<(f64, f64)> = line
        .points
        .iter()
        .filter(|(px, py)| x.has(*px) && y.has(*py))
        .map(|&(px, py)| (x.place(px), y.place(py)))
        .collect();
    let path: Vec<String> = places.iter().map(|(px, py)| format!("{px:.1},{py:.1}")).collect();
    // Writing to a string cannot fail.
    let _ = writeln!(
        svg,
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"{dashes}/>",
        path.join(" ")
    );
    let legend = (RIGHT + 18.0, TOP + 8.0 + 22.0 * at as f64);
    let _ = writeln!(
        svg,
        "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{colour}\" \
        stroke-width=\"2\"{dashes}/>",
        legend.0,
        legend.1,
        legend.0 + 26.0,
        legend.1
    );
    for (px, py) in places.iter().copied().chain([(legend.0 + 13.0, legend.1)]) {
        mark(svg, at, colour, px, py);
    }
    text(svg, (legend.0 + 34.0, legend.1 + 4.5), "start", "", &line.name);
}

/// A point: the shape tells lines apart too, for whoever prints without colours.
fn mark(svg: &mut String, at: usize, colour: &str, x: f64, y: f64) {
    let _ = match at % 3 {
        0 => writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.6\" fill=\"{colour}\"/>"),
        1 => writeln!(
            svg,
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"7\" height=\"7\" fill=\"{colour}\"/>",
            x - 3.5,
            y - 3.5
        ),
        _ => writeln!(
            svg,
            "<path d=\"M{x:.1} {:.1} L{:.1} {:.1} L{:.1} {:.1} Z\" fill=\"{colour}\"/>",
            y - 4.5,
            x + 4.3,
            y + 3.5,
            x - 4.3,
            y + 3.5
        ),
    };
}

fn text(svg: &mut String, (x, y): (f64, f64), anchor: &str, more: &str, text: &str) {
    let text = escaped(text);
    let _ = writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" \
        fill=\"#222222\"{more}>{text}</text>"
    );
}

fn rule(svg: &mut String, from: (f64, f64), to: (f64, f64), colour: &str) {
    let ((x1, y1), (x2, y2)) = (from, to);
    let _ = writeln!(
        svg,
        "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"{colour}\"/>"
    );
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// `1000` as `1k`.
fn short(value: f64) -> String {
    match value {
        value if value >= 1e6 => format!("{}M", value / 1e6),
        value if value >= 1e3 => format!("{}k", value / 1e3),
        value => format!("{}", (value * 1e9).round() / 1e9),
    }
}

/// From which value to which an axis goes, and where on the page.
struct Span {
    scale: Scale,
    from: f64,
    to: f64,
    begin: f64,
    end: f64,
}

impl Span {
    fn of(scale: Scale, values: impl Iterator<Item = f64>, begin: f64, end: f64) -> Self {
        let fit =
            values.filter(|value| value.is_finite() && (scale == Scale::Linear || *value > 0.0));
        let (least, most) = fit
            .fold((f64::MAX, 0.0_f64), |(least, most), value| (least.min(value), most.max(value)));
        let (from, to) = match scale {
            _ if most <= 0.0 => (scale.least(), 1.0 + scale.least()),
            Scale::Linear => (0.0, step(most) * (most / step(most)).ceil()),
            Scale::Log => {
                let (from, to) = (decade(least, f64::floor), decade(most, f64::ceil));
                // A narrow span shows more where it begins and ends inside its decades.
                let from = [5.0, 2.0]
                    .into_iter()
                    .map(|part| from * part)
                    .find(|part| *part <= least)
                    .unwrap_or(from);
                let to = [5.0, 2.0]
                    .into_iter()
                    .map(|part| to / part)
                    .filter(|part| *part >= most)
                    .fold(to, f64::min);
                (from, if to > from { to } else { from * 10.0 })
            }
        };
        Self { scale, from, to, begin, end }
    }

    fn has(&self, value: f64) -> bool {
        value.is_finite() && value >= self.from && value <= self.to
    }

    fn place(&self, value: f64) -> f64 {
        let part = match self.scale {
            Scale::Linear => (value - self.from) / (self.to - self.from),
            Scale::Log => (value / self.from).ln() / (self.to / self.from).ln(),
        };
        self.begin + part * (self.end - self.begin)
    }

    fn ticks(&self) -> Vec<f64> {
        match self.scale {
            Scale::Linear => {
                let step = step(self.to);
                (0..)
                    .map(|tick| f64::from(tick) * step)
                    .take_while(|tick| *tick <= self.to * 1.0001)
                    .collect()
            }
            Scale::Log => {
                let parts: &[f64] =
                    if self.to / self.from > 200.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
                let decades = (0..40).map(|up| decade(self.from, f64::floor) * 10_f64.powi(up));
                let ticks = decades.flat_map(|decade| parts.iter().map(move |part| decade * part));
                // Rounding must not lose the ends.
                ticks
                    .filter(|tick| *tick >= self.from * 0.9999 && *tick <= self.to * 1.0001)
                    .collect()
            }
        }
    }
}

impl Scale {
    fn least(self) -> f64 {
        if self == Self::Linear { 0.0 } else { 1.0 }
    }
}

/// The power of ten at or beside `value`.
fn decade(value: f64, round: fn(f64) -> f64) -> f64 {
    let exponent = value.log10();
    // The logarithm of a power of ten may be a hair off.
    let exact = exponent.round();
    let exponent = if (exponent - exact).abs() < 1e-9 { exact } else { round(exponent) };
    10_f64.powi(exponent as i32)
}

/// A round step of which about five make `most`.
fn step(most: f64) -> f64 {
    let size = 10_f64.powf((most / 5.0).log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|part| part * size)
        .find(|step| most / step <= 6.0)
        .unwrap_or(size * 10.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(scale: Scale) -> Chart {
        let line = |name: &str, points: &[(f64, f64)], is_reference| Line {
            name: name.to_owned(),
            points: points.to_vec(),
            is_reference,
        };
        Chart {
            name: "test".to_owned(),
            title: "fast & <slow>".to_owned(),
            x: Axis::new("policy index", Scale::Log),
            y: Axis::new("Mpps", scale),
            lines: vec![
                line(
                    "linear",
                    &[(1.0, 20.0), (10.0, 14.0), (100.0, 3.0), (100_000.0, 0.004)],
                    false,
                ),
                line("\"published\"", &[(1.0, 5.2), (f64::NAN, 1.0), (0.0, 1.0)], true),
                line("nothing", &[], false),
            ],
        }
    }

    /// Elements are closed in the order in which they were opened, and nothing stands outside.
    fn assert_well_formed(svg: &str) {
        let mut open: Vec<&str> = Vec::new();
        for tag in svg.split('<').skip(1) {
            let (tag, text) = tag.split_once('>').expect("a tag ends");
            assert!(!text.contains('>') && tag.matches('"').count() % 2 == 0, "{tag}>{text}");
            let text = text
                .replace("&amp;", "")
                .replace("&lt;", "")
                .replace("&gt;", "")
                .replace("&quot;", "");
            assert!(!text.contains('&'), "{text}");
            if let Some(name) = tag.strip_prefix('/') {
                assert_eq!(open.pop(), Some(name));
            } else if !tag.ends_with('/') {
                open.push(tag.split(' ').next().unwrap());
            }
        }
        assert!(open.is_empty(), "{open:?}");
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }

    #[test]
    fn every_line_is_drawn_and_named() {
        for scale in [Scale::Linear, Scale::Log] {
            let svg = chart(scale).svg();
            assert_well_formed(&svg);
            assert_eq!(svg.matches("<polyline").count(), 3);
            assert!(
                svg.contains("&lt;slow&gt;")
                    && svg.contains("&quot;published&quot;")
                    && svg.contains("stroke-dasharray")
            );
            // Four points, one point, and the legend's three.
            let marks = svg.matches("<circle").count()
                + svg.matches("width=\"7\"").count()
                + svg.matches("<path").count();
            assert_eq!(marks, 4 + 1 + 3);
        }
    }

    #[test]
    fn a_chart_of_nothing_is_still_a_chart() {
        let svg = Chart { lines: Vec::new(), ..chart(Scale::Log) }.svg();
        assert_well_formed(&svg);
    }

    #[test]
    fn points_are_on_the_page_and_ticks_are_round() {
        let span = Span::of(Scale::Log, [1.0, 100_000.0].into_iter(), LEFT, RIGHT);
        assert_eq!(
            span.ticks(),
            [1.0, 10.0, 100.0, 1000.0, 10_000.0, 100_000.0].map(|tick: f64| tick)
        );
        assert!(
            (span.place(1.0) - LEFT).abs() < 1e-6 && (span.place(100_000.0) - RIGHT).abs() < 1e-6
        );
        let span = Span::of(Scale::Linear, [3.0, 23.0].into_iter(), BOTTOM, TOP);
        assert_eq!(span.ticks(), [0.0, 5.0, 10.0, 15.0, 20.0, 25.0]);
        assert_eq!((span.place(0.0), span.place(25.0)), (BOTTOM, TOP));
        let narrow = Span::of(Scale::Log, [110.0, 700.0].into_iter(), LEFT, RIGHT);
        assert_eq!(narrow.ticks(), [100.0, 200.0, 500.0, 1000.0]);
        assert_eq!(
            (short(1000.0), short(2_500_000.0), short(0.05)),
            ("1k".into(), "2.5M".into(), "0.05".into())
        );
    }
}
