//! Line charts as SVG; colours come from the page's style, so that they follow light and dark.

#![deny(missing_docs)]

use crate::svg::escaped;
use std::fmt::Write;

/// A line, or single points.
pub struct Series {
    /// What it is called beside the chart.
    pub name: &'static str,
    /// A class of the style sheet.
    pub class: &'static str,
    /// From left to right.
    pub points: Vec<(f64, f64)>,
    /// Single points instead of a line.
    pub dots: bool,
}

/// Some lines over one axis.
pub struct Chart<'a> {
    /// What is drawn, the first at the bottom.
    pub series: &'a [Series],
    /// What the horizontal axis counts.
    pub x_name: &'a str,
    /// How a value of the vertical axis is written.
    pub y_text: fn(f64) -> String,
    /// The vertical axis begins at 0.
    pub from_zero: bool,
    /// Values lie in it whatever happens: the axis does not go beyond.
    pub within: Option<Range>,
}

impl Default for Chart<'_> {
    fn default() -> Self {
        Chart { series: &[], x_name: "step", y_text: plain, from_zero: false, within: None }
    }
}

pub(super) const WIDTH: f64 = 560.0;
pub(super) const HEIGHT: f64 = 250.0;
const LEFT: f64 = 58.0;
const RIGHT: f64 = WIDTH - 12.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = HEIGHT - 34.0;

/// More points than this are not seen anyway.
const MOST_POINTS: usize = 500;

impl Chart<'_> {
    /// Nothing where there is nothing to draw.
    pub fn svg(&self) -> Option<String> {
        let finite = |p: &&(f64, f64)| p.0.is_finite() && p.1.is_finite();
        let points: Vec<(f64, f64)> = self.series.iter().flat_map(|s| &s.points).filter(finite).copied().collect();
        let x = Range::of(points.iter().map(|p| p.0), false)?;
        let y = Range::of(points.iter().map(|p| p.1), self.from_zero)?.padded();
        let y = self.within.map_or(y, |within| y.cut(within));
        let mut svg = format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">");
        self.axes(&mut svg, x, y);
        for series in self.series {
            let at: Vec<(f64, f64)> = series
                .points
                .iter()
                .filter(finite)
                .map(|p| (x.place(p.0, LEFT, RIGHT), y.place(p.1, BOTTOM, TOP)))
                .collect();
            draw(&mut svg, series, &at);
        }
        svg.push_str("</svg>");
        Some(svg + &self.legend())
    }

    fn axes(&self, svg: &mut String, x: Range, y: Range) {
        // Writing to a string cannot fail.
        for tick in y.ticks(5) {
            let at = y.place(tick, BOTTOM, TOP);
            let _ = write!(svg, "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>");
            let text = escaped(&(self.y_text)(tick));
            let _ = write!(svg, "<text x=\"{}\" y=\"{:.1}\" class=\"end\">{text}</text>", LEFT - 8.0, at + 4.0);
        }
        for tick in x.ticks(6) {
            let at = x.place(tick, LEFT, RIGHT);
            let _ = write!(svg, "<text x=\"{at:.1}\" y=\"{}\" class=\"mid\">{}</text>", BOTTOM + 17.0, plain(tick));
        }
        let name = escaped(self.x_name);
        let _ = write!(svg, "<text x=\"{RIGHT}\" y=\"{}\" class=\"end faint\">{name}</text>", HEIGHT - 3.0);
    }

    fn legend(&self) -> String {
        let named = self.series.iter().filter(|s| !s.name.is_empty() && !s.points.is_empty());
        let entries: String =
            named.map(|s| format!("<span><i class=\"key {}\"></i>{}</span>", s.class, escaped(s.name))).collect();
        format!("<div class=\"legend\">{entries}</div>")
    }
}

fn draw(svg: &mut String, series: &Series, at: &[(f64, f64)]) {
    if series.dots {
        for (x, y) in at {
            let _ = write!(svg, "<circle class=\"dot {}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\"/>", series.class);
        }
        return;
    }
    let line: Vec<String> = thinned(at).iter().map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
    if !line.is_empty() {
        let _ = write!(svg, "<path class=\"line {}\" d=\"M{}\"/>", series.class, line.join("L"));
    }
}

/// Means of neighbours, so that at most `MOST_POINTS` are left.
fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let size = points.len().div_ceil(MOST_POINTS).max(1);
    let mean = |chunk: &[(f64, f64)]| {
        let n = chunk.len() as f64;
        (chunk.iter().map(|p| p.0).sum::<f64>() / n, chunk.iter().map(|p| p.1).sum::<f64>() / n)
    };
    points.chunks(size).map(mean).collect()
}

/// From the smallest to the largest value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range {
    /// Its lower end.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
}

impl Range {
    pub(super) fn of(values: impl Iterator<Item = f64>, from_zero: bool) -> Option<Range> {
        let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
        let low = if from_zero { low.min(0.0) } else { low };
        // A single value still needs room around it.
        let room = if high > low {
            0.0
        } else if high == 0.0 {
            0.5
        } else {
            high.abs() * 0.1
        };
        (low.is_finite() && high.is_finite())
            .then_some(Range { low: low - if from_zero { 0.0 } else { room }, high: high + room })
    }

    pub(super) fn padded(self) -> Range {
        let room = 0.06 * (self.high - self.low);
        Range { low: if self.low == 0.0 { 0.0 } else { self.low - room }, high: self.high + room }
    }

    fn cut(self, within: Range) -> Range {
        Range { low: self.low.max(within.low), high: self.high.min(within.high) }
    }

    pub(super) fn place(self, value: f64, from: f64, to: f64) -> f64 {
        from + (to - from) * (value - self.low) / (self.high - self.low)
    }

    /// Round values inside the range, about `count` of them.
    pub(super) fn ticks(self, count: usize) -> Vec<f64> {
        let raw = (self.high - self.low) / count.max(1) as f64;
        let power = 10f64.powf(raw.log10().floor());
        // Of round steps the one nearest in proportion.
        let far = |step: &f64| (step / raw).ln().abs();
        let step = [1.0, 2.0, 5.0, 10.0].map(|m| m * power).into_iter().min_by(|a, b| far(a).total_cmp(&far(b)));
        let step = step.unwrap_or(power);
        let first = (self.low / step).ceil() as i64;
        let last = (self.high / step).floor() as i64;
        (first..=last).take(20).map(|i| i as f64 * step).collect()
    }
}

/// `0.25` → `25 %`
pub(super) fn percent(value: f64) -> String {
    format!("{} %", plain(100.0 * value))
}

/// `0.0003` → `3e-4`: for values over many powers of ten.
pub(super) fn scientific(value: f64) -> String {
    if value == 0.0 { "0".into() } else { format!("{value:.1e}").replace(".0e", "e") }
}

/// `1200` → `1200`, `0.25` → `0.25`, without noise in the last digits.
pub fn plain(value: f64) -> String {
    let text = format!("{value:.6}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".into() } else { text.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside() {
        assert_eq!(Range { low: 0.0, high: 10.0 }.ticks(5), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(Range { low: 0.31, high: 0.92 }.ticks(3).len(), 3);
        assert_eq!(plain(0.1 + 0.2), "0.3");
    }

    #[test]
    fn values_that_are_no_numbers_are_left_out() {
        let points = vec![(1.0, f64::NAN), (2.0, f64::INFINITY), (3.0, 1.5)];
        let series = [Series { name: "<loss>", class: "a", points, dots: false }];
        let chart = Chart { series: &series, ..Chart::default() };
        let svg = chart.svg().unwrap();
        assert!(!svg.contains("NaN") && !svg.contains("inf") && svg.contains("&lt;loss&gt;"), "{svg}");
        let empty = [Series { name: "", class: "a", points: vec![(0.0, f64::NAN)], dots: true }];
        assert!(Chart { series: &empty, ..chart }.svg().is_none());
    }

    #[test]
    fn a_share_is_never_drawn_beyond_all_or_nothing() {
        let whole = Some(Range { low: 0.0, high: 1.0 });
        let series = [Series { name: "", class: "a", points: vec![(40.0, 0.97)], dots: true }];
        let svg = Chart { series: &series, y_text: percent, within: whole, ..Chart::default() }.svg().unwrap();
        assert!(svg.contains(">96 %<") && svg.contains(">100 %<") && !svg.contains(">102 %<"), "{svg}");
        assert_eq!((percent(0.125), scientific(3e-4), scientific(0.0)), ("12.5 %".into(), "3e-4".into(), "0".into()));
    }

    #[test]
    fn long_runs_are_thinned() {
        let points: Vec<(f64, f64)> = (0..100_000).map(|i| (f64::from(i), 1.0)).collect();
        let thin = thinned(&points);
        assert!(thin.len() <= MOST_POINTS && thin.iter().all(|p| p.1 == 1.0));
    }
}
