//! Bytes against time: what more or less memory would buy.

use super::chart::{Range, plain};
use super::html::Html;
use super::milliseconds;
use crate::svg::escaped;
use plimsoll_base::units::{format_bytes, unit_of};
use plimsoll_planner::choose::Planned;
use plimsoll_planner::whatif::{FrontierPoint, Outline};
use std::fmt::Write;

const WIDTH: f64 = 1120.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = WIDTH - 14.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = HEIGHT - 40.0;

/// Nothing where fewer than two plans are known: a point is no frontier.
pub fn section(points: &[FrontierPoint], planned: &Planned, page: &mut Html) {
    let chosen = Outline::from(planned);
    let plans: Vec<&Outline> = points.iter().map(|point| &point.plan).collect();
    let all = || plans.iter().copied().chain([&chosen]);
    let (unit, name) = unit_of(all().map(|plan| plan.planned_peak_bytes).max().unwrap_or(0) as f64);
    let bytes = Range::of(all().map(|plan| plan.planned_peak_bytes as f64 / unit), true);
    let (Some(x), Some(y)) = (bytes, Range::of(all().map(|plan| plan.predicted_step_ms), true)) else { return };
    if plans.len() < 2 {
        return;
    }
    let scale = Scale { x: x.padded(), y: y.padded(), unit };
    let mut svg = format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">");
    axes(&mut svg, &scale, name);
    draw_budget(&mut svg, &scale, planned.budget_bytes);
    let line: Vec<String> = plans.iter().map(|plan| scale.at(plan)).map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
    // Writing to a string cannot fail.
    let _ = write!(svg, "<path class=\"line loss\" d=\"M{}\"/>", line.join("L"));
    plans.iter().for_each(|plan| draw(&mut svg, &scale, plan, "dot loss", 4.5));
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
    fn at(&self, plan: &Outline) -> (f64, f64) {
        (self.x(plan.planned_peak_bytes), self.y.place(plan.predicted_step_ms, BOTTOM, TOP))
    }

    fn x(&self, bytes: u64) -> f64 {
        self.x.place(bytes as f64 / self.unit, LEFT, RIGHT)
    }
}

fn draw(svg: &mut String, scale: &Scale, plan: &Outline, class: &str, radius: f64) {
    let (x, y) = scale.at(plan);
    let (peak, step) = (format_bytes(plan.planned_peak_bytes), milliseconds(plan.predicted_step_ms));
    let title = escaped(&format!("{}, recompute {}: {peak}, {step}", plan.batch(), plan.recompute));
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
