//! Memory against time: every plan worth having, and where the budget cuts.

use super::svg::{Anchor, BUDGET, FAINT, GRID, INK, Svg, TextStyle, nice_step, style};
use plimsoll_base::units::{format_bytes, unit_of};
use plimsoll_planner::whatif::{FrontierPoint, Outline};
use std::fmt::Write;

const WIDTH: f64 = 1080.0;
const HEIGHT: f64 = 600.0;
const LEFT: f64 = 96.0;
const RIGHT: f64 = 1040.0;
const TOP: f64 = 104.0;
const BOTTOM: f64 = 520.0;

const CURVE: &str = "#0072b2";
const BEYOND: &str = "#aaaaaa";
const TAKEN: &str = "#009e73";

/// `points` by memory, as `frontier_of` gives them. Memory is on a logarithmic scale: halving it matters alike
/// everywhere.
pub fn frontier_svg(points: &[FrontierPoint], budget_bytes: u64, title: &str) -> String {
    let mut svg = Svg::new(WIDTH, HEIGHT);
    let bold = TextStyle { bold: true, ..style(20, INK, Anchor::Start) };
    svg.text(LEFT, 38.0, bold, title);
    svg.text(LEFT, 62.0, style(14, FAINT, Anchor::Start), &subtitle(points, budget_bytes));
    if let Some(scales) = Scales::new(points, budget_bytes) {
        draw_axes(&mut svg, &scales);
        draw_budget(&mut svg, &scales, budget_bytes);
        draw_curve(&mut svg, points, &scales);
        draw_points(&mut svg, points, &scales);
        draw_labels(&mut svg, points, &scales, budget_bytes);
    }
    svg.finish(title)
}

/// The fastest that fits.
fn taken(points: &[FrontierPoint]) -> Option<usize> {
    points.iter().rposition(|point| point.fits)
}

fn subtitle(points: &[FrontierPoint], budget: u64) -> String {
    let count = points.len();
    let verdict = match taken(points) {
        Some(index) => {
            let Outline { planned_peak_bytes, predicted_step_ms, .. } = points[index].plan;
            format!("the fastest that fits takes {predicted_step_ms:.1} ms in {}", format_bytes(planned_peak_bytes))
        }
        None => "none fits".into(),
    };
    format!("Time of a step against memory: {count} plans; with {} {verdict}", format_bytes(budget))
}

/// Bytes to x, milliseconds to y.
struct Scales {
    bytes: (f64, f64),
    ms: (f64, f64),
}

impl Scales {
    /// `None` without points. A budget far off the plans is not in the picture.
    fn new(points: &[FrontierPoint], budget: u64) -> Option<Scales> {
        let (first, last) = (&points.first()?.plan, &points.last()?.plan);
        let (low, high) = (first.planned_peak_bytes.max(1) as f64, last.planned_peak_bytes.max(2) as f64);
        let near = |budget: f64| budget > low / 2.0 && budget < high * 2.0;
        let budget = Some(budget as f64).filter(|budget| near(*budget));
        let (low, high) = (budget.map_or(low, |b| b.min(low)), budget.map_or(high, |b| b.max(high)));
        let (fastest, slowest) = (last.predicted_step_ms, first.predicted_step_ms);
        let margin = 0.08 * (slowest - fastest).max(0.1 * slowest).max(1e-6);
        Some(Scales { bytes: (low / 1.12, high * 1.12), ms: ((fastest - margin).max(0.0), slowest + margin) })
    }

    fn x(&self, bytes: f64) -> f64 {
        let (low, high) = self.bytes;
        LEFT + (RIGHT - LEFT) * (bytes / low).ln() / (high / low).ln()
    }

    fn y(&self, ms: f64) -> f64 {
        let (low, high) = self.ms;
        BOTTOM - (BOTTOM - TOP) * (ms - low) / (high - low)
    }

    fn at(&self, plan: &Outline) -> (f64, f64) {
        (self.x(plan.planned_peak_bytes as f64), self.y(plan.predicted_step_ms))
    }
}

/// Round values inside of a range: 1, 2 or 5 times powers of ten, and finer ones where these are few.
fn round_bytes((low, high): (f64, f64)) -> Vec<(f64, String)> {
    let (unit, name) = unit_of(high);
    let fine: Vec<f64> = (10..100).map(|n| f64::from(n) / 10.0).collect();
    let whole: Vec<f64> = (1..10).map(f64::from).collect();
    let sets: [&[f64]; 4] = [&[1.0, 2.0, 5.0], &[1.0, 1.5, 2.0, 3.0, 5.0, 7.0], &whole, &fine];
    let inside = |set: &&[f64]| -> Vec<f64> {
        let powers = (-3..6).map(|power| 10f64.powi(power));
        let values = powers.flat_map(|power| set.iter().map(move |m| m * power));
        values.filter(|value| (low..=high).contains(&(value * unit))).collect()
    };
    let values = sets.iter().map(inside).find(|values| values.len() >= 4).unwrap_or_default();
    let label = |value: f64| {
        let digits = format!("{value:.2}");
        format!("{} {name}", digits.trim_end_matches('0').trim_end_matches('.'))
    };
    values.into_iter().map(|value| (value * unit, label(value))).collect()
}

fn round_ms((low, high): (f64, f64)) -> Vec<(f64, String)> {
    let step = nice_step(high - low, 6.0);
    let decimals = (-step.log10().floor()).max(0.0) as usize;
    let (first, last) = ((low / step).ceil() as i64, (high / step).floor() as i64);
    (first..=last).map(|i| i as f64 * step).map(|ms| (ms, format!("{ms:.decimals$}"))).collect()
}

fn draw_axes(svg: &mut Svg, scales: &Scales) {
    let mut last_label = f64::NEG_INFINITY;
    for (bytes, label) in round_bytes(scales.bytes) {
        let x = scales.x(bytes);
        svg.line((x, TOP), (x, BOTTOM), GRID, 1.0, "");
        if x - last_label > 60.0 {
            svg.text(x, BOTTOM + 20.0, style(12, FAINT, Anchor::Middle), &label);
            last_label = x;
        }
    }
    for (ms, label) in round_ms(scales.ms) {
        let y = scales.y(ms);
        svg.line((LEFT, y), (RIGHT, y), GRID, 1.0, "");
        svg.text(LEFT - 8.0, y + 4.0, style(12, FAINT, Anchor::End), &label);
    }
    svg.line((LEFT, BOTTOM), (RIGHT, BOTTOM), INK, 1.0, "");
    svg.text(LEFT - 8.0, TOP - 14.0, style(12, FAINT, Anchor::End), "ms a step");
    let middle = (LEFT + RIGHT) / 2.0;
    svg.text(middle, BOTTOM + 46.0, style(13, INK, Anchor::Middle), "peak memory, with the device's reserve");
    svg.text(RIGHT, BOTTOM + 66.0, style(12, FAINT, Anchor::End), "labels: micro-batch × accumulation");
}

fn draw_budget(svg: &mut Svg, scales: &Scales, budget: u64) {
    let (low, high) = scales.bytes;
    let bold = |anchor| TextStyle { bold: true, ..style(12, BUDGET, anchor) };
    let text = format!("budget {}", format_bytes(budget));
    match budget as f64 {
        b if b > high => svg.text(RIGHT, TOP - 14.0, bold(Anchor::End), &format!("{text} is right of this scale →")),
        b if b < low => {
            svg.text(LEFT + 8.0, TOP - 14.0, bold(Anchor::Start), &format!("← {text} is left of this scale"))
        }
        b => {
            let x = scales.x(b);
            svg.line((x, TOP - 6.0), (x, BOTTOM), BUDGET, 2.0, "");
            svg.text(x, TOP - 14.0, bold(Anchor::Middle), &text);
        }
    }
}

/// Between two plans the budget buys the smaller one: a staircase.
fn draw_curve(svg: &mut Svg, points: &[FrontierPoint], scales: &Scales) {
    let mut outline = String::new();
    for (index, point) in points.iter().enumerate() {
        let (x, y) = scales.at(&point.plan);
        // Writing to a string cannot fail.
        let _ = if index == 0 { write!(outline, "M{x:.1} {TOP:.1}V{y:.1}") } else { write!(outline, "H{x:.1}V{y:.1}") };
    }
    let _ = write!(outline, "H{RIGHT:.1}");
    svg.stroke(&outline, CURVE, 2.0);
}

fn draw_points(svg: &mut Svg, points: &[FrontierPoint], scales: &Scales) {
    let taken = taken(points);
    for (index, point) in points.iter().enumerate() {
        let (x, y) = scales.at(&point.plan);
        let (radius, colour) = match (Some(index) == taken, point.fits) {
            (true, _) => (7.5, TAKEN),
            (false, true) => (5.0, CURVE),
            (false, false) => (5.0, BEYOND),
        };
        svg.point(x, y, radius, colour, &tooltip(&point.plan));
    }
}

fn tooltip(plan: &Outline) -> String {
    let (peak, ms) = (format_bytes(plan.planned_peak_bytes), plan.predicted_step_ms);
    format!("{}, recompute {}, attention {}: {peak}, {ms:.1} ms", plan.batch(), plan.recompute, plan.attention)
}

fn label(plan: &Outline) -> String {
    match plan.recompute {
        "none" => plan.batch(),
        recompute => format!("{}, recompute {recompute}", plan.batch()),
    }
}

/// Where a label is.
#[derive(Clone, Copy)]
struct Extent {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

impl Extent {
    fn meets(&self, other: &Extent) -> bool {
        self.left < other.right && other.left < self.right && self.top < other.bottom && other.top < self.bottom
    }

    fn is_inside(&self) -> bool {
        self.left >= LEFT && self.right <= RIGHT && self.top >= TOP && self.bottom <= BOTTOM
    }
}

/// The plan to take first, then the ends, then whatever still has room. The curve runs left above and right below, so
/// labels go right above, or left below.
fn draw_labels(svg: &mut Svg, points: &[FrontierPoint], scales: &Scales, budget: u64) {
    let taken = taken(points);
    let around = |point: &FrontierPoint| {
        let (x, y) = scales.at(&point.plan);
        Extent { left: x - 6.0, right: x + 6.0, top: y - 6.0, bottom: y + 6.0 }
    };
    let budget_x = scales.x(budget.max(1) as f64);
    let budget_line = Extent { left: budget_x - 3.0, right: budget_x + 3.0, top: TOP, bottom: BOTTOM };
    let mut filled: Vec<Extent> = points.iter().map(around).chain([budget_line]).collect();
    let last = points.len().saturating_sub(1);
    let others = [0, last].into_iter().chain(1..last).filter(|&index| Some(index) != taken);
    for index in taken.into_iter().chain(others) {
        let (text, (x, y)) = (label(&points[index].plan), scales.at(&points[index].plan));
        let bold = Some(index) == taken;
        let width = 6.6 * text.chars().count() as f64;
        let places = [(x + 11.0, y - 9.0, Anchor::Start), (x - 11.0, y + 18.0, Anchor::End)];
        let extent = |x: f64, y: f64, anchor: Anchor| {
            let left = if anchor == Anchor::Start { x } else { x - width };
            Extent { left, right: left + width, top: y - 11.0, bottom: y + 3.0 }
        };
        let free = places.into_iter().find(|&(x, y, anchor)| {
            let extent = extent(x, y, anchor);
            extent.is_inside() && !filled.iter().any(|other| other.meets(&extent))
        });
        if let Some((x, y, anchor)) = free {
            filled.push(extent(x, y, anchor));
            svg.text(x, y, TextStyle { bold, ..style(12, INK, anchor) }, &text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(micro_batch: usize, peak: u64, ms: f64, fits: bool) -> FrontierPoint {
        let plan = Outline {
            micro_batch,
            accumulation: 64 / micro_batch,
            recompute: "none",
            attention: "fused",
            offload: "none",
            arena_bytes: peak,
            planned_peak_bytes: peak,
            predicted_step_ms: ms,
        };
        FrontierPoint { plan, fits }
    }

    #[test]
    fn every_plan_is_a_point_and_the_one_to_take_is_marked() {
        let points = [point(8, 2 << 30, 90.0, true), point(16, 4 << 30, 60.0, true), point(64, 9 << 30, 50.0, false)];
        let svg = frontier_svg(&points, 5 << 30, "a <b>");
        assert_eq!(svg.matches("<circle").count(), 3);
        assert_eq!(svg.matches(&format!("fill=\"{TAKEN}\"")).count(), 1);
        for words in ["budget 5 GiB", ">16 × 4<", "60.0 ms in 4 GiB", "a &lt;b&gt;"] {
            assert!(svg.contains(words), "{words}");
        }
    }

    #[test]
    fn one_plan_or_none_still_makes_a_picture() {
        for (points, budget) in
            [(vec![], 1), (vec![point(1, 1, 0.0, false)], 0), (vec![point(1, 7, 1.0, true)], u64::MAX)]
        {
            let svg = frontier_svg(&points, budget, "few");
            assert!(svg.ends_with("</svg>\n") && !svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
    }

    #[test]
    fn axes_have_round_numbers() {
        let gib = (1u64 << 30) as f64;
        let labels = |low: f64, high: f64| round_bytes((low * gib, high * gib)).into_iter().map(|(_, text)| text);
        assert_eq!(labels(0.9, 24.0).collect::<Vec<_>>(), ["1 GiB", "2 GiB", "5 GiB", "10 GiB", "20 GiB"]);
        assert!(labels(20.0, 24.0).count() >= 4);
        assert_eq!(
            round_ms((12.0, 61.0)).into_iter().map(|(_, t)| t).collect::<Vec<_>>(),
            ["20", "30", "40", "50", "60"]
        );
    }
}
