//! Bytes against time: what more or less memory would buy.

use super::chart::{Range, plain};
use super::html::{Html, escaped};
use super::memory::unit_of;
use super::milliseconds;
use crate::recipe::Recipe;
use crate::train::answers::{Outline, frontier_of};
use crate::train::{Device, Planned};
use crate::units::format_bytes;
use std::fmt::Write;

/// A plan on the frontier.
#[derive(Clone, Debug, PartialEq)]
pub struct Mark {
    pub peak_bytes: u64,
    pub step_ms: f64,
    pub label: String,
}

/// Plans of which none is both smaller and faster than another, from the smallest on. Empty where planning fails.
pub fn marks(recipe: &Recipe, device: &Device) -> Vec<Mark> {
    let mark = |plan: Outline| {
        let label = label(plan.micro_batch, plan.accumulation, plan.recompute);
        Mark { peak_bytes: plan.planned_peak_bytes, step_ms: plan.predicted_step_ms, label }
    };
    frontier_of(recipe, device).map_or(Vec::new(), |points| points.into_iter().map(|point| mark(point.plan)).collect())
}

fn label(micro_batch: usize, accumulation: usize, recompute: &str) -> String {
    format!("{micro_batch} × {accumulation}, recompute {recompute}")
}

fn mark_of(planned: &Planned) -> Mark {
    let settings = &planned.choice.settings;
    let label = label(settings.micro_batch, settings.accumulation, settings.recompute.name());
    Mark { peak_bytes: planned.planned_peak_bytes(), step_ms: planned.choice.predicted_step_ms, label }
}

const WIDTH: f64 = 1120.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = WIDTH - 14.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = HEIGHT - 40.0;

/// Nothing where fewer than two plans are known: a point is no frontier.
pub fn section(marks: &[Mark], planned: &Planned, page: &mut Html) {
    let marks: Vec<&Mark> = marks.iter().filter(|mark| mark.step_ms.is_finite()).collect();
    let chosen = mark_of(planned);
    let all = || marks.iter().copied().chain([&chosen]);
    let (unit, name) = unit_of(all().map(|mark| mark.peak_bytes).max().unwrap_or(0) as f64);
    let bytes = Range::of(all().map(|mark| mark.peak_bytes as f64 / unit), true);
    let (Some(x), Some(y)) = (bytes, Range::of(all().map(|mark| mark.step_ms), true)) else { return };
    if marks.len() < 2 {
        return;
    }
    let scale = Scale { x: x.padded(), y: y.padded(), unit };
    let mut svg = format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">");
    axes(&mut svg, &scale, name);
    draw_budget(&mut svg, &scale, planned.budget_bytes);
    let line: Vec<String> = marks.iter().map(|m| scale.at(m)).map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
    // Writing to a string cannot fail.
    let _ = write!(svg, "<path class=\"line loss\" d=\"M{}\"/>", line.join("L"));
    marks.iter().for_each(|mark| draw(&mut svg, &scale, mark, "dot loss", 4.5));
    draw(&mut svg, &scale, &chosen, "peak", 6.5);
    svg.push_str("</svg>");
    page.section("Frontier", "peak memory against predicted step time; every point is a plan, the dark one is this");
    page.raw(&svg).end_section();
}

/// From bytes and milliseconds to places.
struct Scale {
    x: Range,
    y: Range,
    unit: f64,
}

impl Scale {
    fn at(&self, mark: &Mark) -> (f64, f64) {
        (self.x(mark.peak_bytes), self.y.place(mark.step_ms, BOTTOM, TOP))
    }

    fn x(&self, bytes: u64) -> f64 {
        self.x.place(bytes as f64 / self.unit, LEFT, RIGHT)
    }
}

fn draw(svg: &mut String, scale: &Scale, mark: &Mark, class: &str, radius: f64) {
    let (x, y) = scale.at(mark);
    let title = format!("{}: {}, {}", mark.label, format_bytes(mark.peak_bytes), milliseconds(mark.step_ms));
    let title = escaped(&title);
    let _ = write!(
        svg,
        "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\"><title>{title}</title></circle>"
    );
}

fn axes(svg: &mut String, scale: &Scale, unit_name: &str) {
    let Scale { x, y, .. } = scale;
    for tick in y.ticks(5) {
        let at = y.place(tick, BOTTOM, TOP);
        let _ = write!(svg, "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>");
        let _ =
            write!(svg, "<text class=\"end\" x=\"{}\" y=\"{:.1}\">{}</text>", LEFT - 8.0, at + 4.0, milliseconds(tick));
    }
    for tick in x.ticks(8) {
        let at = x.place(tick, LEFT, RIGHT);
        let _ = write!(svg, "<text class=\"mid\" x=\"{at:.1}\" y=\"{}\">{}</text>", BOTTOM + 18.0, plain(tick));
    }
    let _ =
        write!(svg, "<text class=\"end faint\" x=\"{RIGHT}\" y=\"{}\">{unit_name} at the peak</text>", HEIGHT - 4.0);
}

/// Left out where it lies beyond every plan.
fn draw_budget(svg: &mut String, scale: &Scale, budget: u64) {
    let x = scale.x(budget);
    if (LEFT..=RIGHT).contains(&x) {
        let _ = write!(svg, "<line class=\"budget\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{BOTTOM}\"/>");
        let (anchor, dx) = if x > WIDTH / 2.0 { ("end", -6.0) } else { ("start", 6.0) };
        let _ = write!(
            svg,
            "<text class=\"budget {anchor} halo\" x=\"{:.1}\" y=\"{}\">budget {}</text>",
            x + dx,
            TOP + 10.0,
            format_bytes(budget)
        );
    }
}
