//! Bytes against time: what more or less memory would buy.

use super::chart::{Range, plain};
use super::html::{Html, escaped};
use super::milliseconds;
use crate::train::Planned;
use crate::units::format_bytes;
use std::fmt::Write;

/// A plan on the frontier.
#[derive(Clone, Debug, PartialEq)]
pub struct Mark {
    pub peak_bytes: u64,
    pub step_ms: f64,
    pub label: String,
}

const WIDTH: f64 = 1120.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = WIDTH - 14.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = HEIGHT - 40.0;

/// Nothing where fewer than two plans are known: a point is no frontier.
pub fn section(marks: &[Mark], planned: &Planned, page: &mut Html) {
    let mut marks: Vec<&Mark> = marks.iter().filter(|mark| mark.step_ms.is_finite()).collect();
    marks.sort_by_key(|mark| mark.peak_bytes);
    let gib = (1u64 << 30) as f64;
    let bytes = marks.iter().map(|mark| mark.peak_bytes as f64 / gib);
    let (Some(x), Some(y)) = (Range::of(bytes, true), Range::of(marks.iter().map(|m| m.step_ms), true)) else { return };
    if marks.len() < 2 {
        return;
    }
    let (x, y) = (x.padded(), y.padded());
    let at = |bytes: u64, ms: f64| (x.place(bytes as f64 / gib, LEFT, RIGHT), y.place(ms, BOTTOM, TOP));
    let mut svg = format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">");
    axes(&mut svg, x, y);
    draw_budget(&mut svg, at(planned.budget_bytes, 0.0).0, planned.budget_bytes);
    let line: Vec<String> =
        marks.iter().map(|m| at(m.peak_bytes, m.step_ms)).map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
    // Writing to a string cannot fail.
    let _ = write!(svg, "<path class=\"line loss\" d=\"M{}\"/>", line.join("L"));
    for mark in &marks {
        let (cx, cy) = at(mark.peak_bytes, mark.step_ms);
        let chosen = mark.peak_bytes == planned.planned_peak_bytes();
        let title = format!("{}: {}, {}", mark.label, format_bytes(mark.peak_bytes), milliseconds(mark.step_ms));
        let (class, radius) = if chosen { ("peak", 6.0) } else { ("dot loss", 4.0) };
        let _ = write!(
            svg,
            "<circle class=\"{class}\" cx=\"{cx:.1}\" cy=\"{cy:.1}\" r=\"{radius}\"><title>{}</title></circle>",
            escaped(&title)
        );
    }
    svg.push_str("</svg>");
    page.section("Frontier", "peak memory against predicted step time; every point is a plan that was laid out");
    page.raw(&svg).end_section();
}

fn axes(svg: &mut String, x: Range, y: Range) {
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
    let _ = write!(svg, "<text class=\"end faint\" x=\"{RIGHT}\" y=\"{}\">GiB at the peak</text>", HEIGHT - 4.0);
}

fn draw_budget(svg: &mut String, x: f64, budget: u64) {
    if (LEFT..=RIGHT).contains(&x) {
        let _ = write!(svg, "<line class=\"budget\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{BOTTOM}\"/>");
        let _ = write!(
            svg,
            "<text class=\"budget end halo\" x=\"{:.1}\" y=\"{}\">budget {}</text>",
            x - 5.0,
            TOP + 10.0,
            format_bytes(budget)
        );
    }
}
