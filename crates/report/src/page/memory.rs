//! Where the memory goes: over the step, and at its peak by component, by layer and by buffer.

use super::chart::{Range, plain};
use super::html::Html;
use crate::kinds::kinds;
use crate::svg::escaped;
use crate::timeline::{Bands, STACK, bytes_of, merged};
use plimsoll_base::units::{format_bytes, unit_of};
use plimsoll_core::graph::Component;
use plimsoll_core::plan::{Summary, live_by_tick};
use plimsoll_planner::choose::Planned;
use serde::Serialize;
use std::fmt::Write;

const WIDTH: f64 = 1120.0;
const HEIGHT: f64 = 330.0;
const LEFT: f64 = 56.0;
const RIGHT: f64 = WIDTH - 10.0;
const TOP: f64 = 16.0;
const BOTTOM: f64 = HEIGHT - 42.0;

const COLUMNS: usize = 480;
const LAYERS_SHOWN: usize = 14;
const BUFFERS_SHOWN: usize = 14;

pub(super) fn sections(planned: &Planned, budget_bytes: u64, page: &mut Html) {
    let choice = &planned.choice;
    let summary = Summary::of(&choice.program, &choice.layout);
    let peak = &summary.peak;
    let sub = format!("live bytes tick by tick; the peak is tick {} of {}: {}", peak.tick, peak.phase, peak.node);
    page.section("Memory over one step", &sub);
    let timeline = Timeline::new(planned, budget_bytes.saturating_sub(planned.reserve_bytes));
    page.raw(&timeline.svg()).raw(&legend(&summary)).raw(&timeline.data()).end_section();
    page.raw("<div class=\"columns\">");
    breakdown(planned, &summary, page);
    layers(&summary, page);
    page.raw("</div>");
    buffers(&summary, page);
}

/// One column of the picture, for the pointer.
#[derive(Serialize)]
struct Column {
    phase: usize,
    tick: usize,
    node: String,
    /// In the order of the stack.
    bytes: [usize; 7],
}

struct Timeline {
    /// (name, ticks, first column, one past its last)
    phases: Vec<(String, usize, usize, usize)>,
    rows: Vec<(Bands, usize)>,
    columns: Vec<Column>,
    arena: u64,
    budget: u64,
    /// Largest value of the vertical axis.
    top: f64,
}

impl Timeline {
    /// The phases of a step; those beside it (evaluation) only if they set the peak.
    fn new(planned: &Planned, budget: u64) -> Timeline {
        let (program, layout) = (&planned.choice.program, &planned.choice.layout);
        let peak = layout.peak_phase();
        let drawn: Vec<usize> = (0..program.phases.len())
            .filter(|&i| (program.phases[i].repeat > 0 || i == peak) && !layout.phases[i].order.is_empty())
            .collect();
        let ticks: usize = drawn.iter().map(|&i| layout.phases[i].order.len()).sum();
        let arena = layout.arena_bytes as u64;
        let top = if budget > 3 * arena { arena } else { arena.max(budget) } as f64 * 1.08;
        let mut timeline = Timeline { phases: Vec::new(), rows: Vec::new(), columns: Vec::new(), arena, budget, top };
        for phase in drawn {
            let (definition, order) = (&program.phases[phase], &layout.phases[phase].order);
            let share = COLUMNS * order.len() / ticks.max(1);
            let rows = merged(&live_by_tick(program, layout, phase), share.max(1));
            let first = timeline.rows.len();
            for (row, tick) in &rows {
                let node = definition.graph.node(order[*tick]).name.to_string();
                let bytes = STACK.map(|(component, _)| bytes_of(row, component));
                timeline.columns.push(Column { phase: timeline.phases.len(), tick: *tick, node, bytes });
            }
            timeline.rows.extend(rows);
            let times = if definition.repeat > 1 { format!(" × {}", definition.repeat) } else { String::new() };
            timeline.phases.push((format!("{}{times}", definition.name), order.len(), first, timeline.rows.len()));
        }
        timeline
    }

    fn x(&self, column: usize) -> f64 {
        LEFT + (RIGHT - LEFT) * column as f64 / self.rows.len().max(1) as f64
    }

    fn y(&self, bytes: f64) -> f64 {
        BOTTOM - (BOTTOM - TOP) * (bytes / self.top).min(1.0)
    }

    fn svg(&self) -> String {
        let mut svg = format!(
            "<svg id=\"timeline\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" data-left=\"{LEFT}\" data-right=\"{RIGHT}\" data-width=\"{WIDTH}\">"
        );
        self.grid(&mut svg);
        for band in 0..STACK.len() {
            self.band(&mut svg, band);
        }
        self.names(&mut svg);
        self.limits(&mut svg);
        self.peak(&mut svg);
        // Writing to a string cannot fail.
        let _ = write!(
            svg,
            "<line id=\"cursor\" class=\"cursor\" y1=\"{TOP}\" y2=\"{BOTTOM}\" x1=\"-9\" x2=\"-9\"/></svg>"
        );
        svg
    }

    fn grid(&self, svg: &mut String) {
        let (unit, name) = unit_of(self.top);
        for tick in (Range { low: 0.0, high: self.top / unit }).ticks(5) {
            let y = self.y(tick * unit);
            let _ = write!(svg, "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>");
            let _ = write!(svg, "<text class=\"end\" x=\"{}\" y=\"{:.1}\">{}</text>", LEFT - 8.0, y + 4.0, plain(tick));
        }
        let _ = write!(svg, "<text class=\"end faint\" x=\"{}\" y=\"{}\">{name}</text>", LEFT - 8.0, BOTTOM + 18.0);
    }

    /// One component from left to right along its upper edge, and back along its lower.
    fn band(&self, svg: &mut String, band: usize) {
        let edge =
            |column: usize, upto: usize| -> f64 { self.columns[column].bytes[..upto].iter().sum::<usize>() as f64 };
        if self.columns.iter().all(|column| column.bytes[band] == 0) {
            return;
        }
        let mut path = String::from("M");
        for i in 0..self.columns.len() {
            let y = self.y(edge(i, band + 1));
            let _ = write!(path, "{:.1} {y:.1}H{:.1}L", self.x(i), self.x(i + 1));
        }
        for i in (0..self.columns.len()).rev() {
            let y = self.y(edge(i, band));
            let _ = write!(path, "{:.1} {y:.1}H{:.1}", self.x(i + 1), self.x(i));
            path.push(if i == 0 { 'Z' } else { 'L' });
        }
        let _ = write!(svg, "<path class=\"fill {}\" d=\"{path}\"/>", class(STACK[band].0));
    }

    fn names(&self, svg: &mut String) {
        for (name, ticks, first, end) in &self.phases {
            let (left, right) = (self.x(*first), self.x(*end));
            if *first > 0 {
                let _ = write!(
                    svg,
                    "<line class=\"cut\" x1=\"{left:.1}\" x2=\"{left:.1}\" y1=\"{TOP}\" y2=\"{}\"/>",
                    BOTTOM + 6.0
                );
            }
            // A name that has no room is left to the pointer.
            if right - left > 7.5 * name.chars().count() as f64 {
                let middle = (left + right) / 2.0;
                let _ = write!(
                    svg,
                    "<text class=\"mid strong\" x=\"{middle:.1}\" y=\"{}\">{}</text>",
                    BOTTOM + 20.0,
                    escaped(name)
                );
                let _ = write!(
                    svg,
                    "<text class=\"mid faint\" x=\"{middle:.1}\" y=\"{}\">{ticks} ticks</text>",
                    BOTTOM + 35.0
                );
            }
        }
    }

    fn limits(&self, svg: &mut String) {
        let arena = self.y(self.arena as f64);
        let _ = write!(svg, "<line class=\"arena\" x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{arena:.1}\" y2=\"{arena:.1}\"/>");
        let shown = self.budget as f64 <= self.top;
        let budget = if shown { self.y(self.budget as f64) } else { TOP - 8.0 };
        let close = shown && (budget - arena).abs() < 18.0;
        let text = format!("arena {}", format_bytes(self.arena));
        let _ = write!(
            svg,
            "<text class=\"end halo\" x=\"{}\" y=\"{:.1}\">{text}</text>",
            RIGHT - 4.0,
            arena + if close { 14.0 } else { -5.0 }
        );
        if shown {
            let _ = write!(
                svg,
                "<line class=\"budget\" x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{budget:.1}\" y2=\"{budget:.1}\"/>"
            );
        }
        let more = if shown { "" } else { ", above this scale" };
        let text = format!("room for the arena {}{more}", format_bytes(self.budget));
        let _ = write!(
            svg,
            "<text class=\"budget halo\" x=\"{}\" y=\"{:.1}\">{text}</text>",
            LEFT + 6.0,
            if shown { budget - 5.0 } else { TOP - 3.0 }
        );
    }

    fn peak(&self, svg: &mut String) {
        let total = |column: &Column| column.bytes.iter().sum::<usize>();
        // The first of equal ones, as the plan counts its peak.
        let Some((index, column)) = self.columns.iter().enumerate().rev().max_by_key(|(_, c)| total(c)) else { return };
        let (x, y) = ((self.x(index) + self.x(index + 1)) / 2.0, self.y(total(column) as f64));
        let (dx, anchor) = if x < WIDTH / 2.0 { (10.0, "start") } else { (-10.0, "end") };
        let text = format!("peak {}", format_bytes(total(column) as u64));
        let _ = write!(svg, "<circle class=\"peak\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4.5\"/>");
        let _ =
            write!(svg, "<text class=\"{anchor} strong halo\" x=\"{:.1}\" y=\"{:.1}\">{text}</text>", x + dx, y + 19.0);
    }

    /// What the pointer shows, as JSON that cannot end the element it stands in.
    fn data(&self) -> String {
        #[derive(Serialize)]
        struct Data<'a> {
            phases: Vec<&'a str>,
            components: Vec<String>,
            columns: &'a [Column],
        }
        let data = Data {
            phases: self.phases.iter().map(|(name, ..)| name.as_str()).collect(),
            components: STACK.iter().map(|(component, _)| label(*component)).collect(),
            columns: &self.columns,
        };
        let json = serde_json::to_string(&data).unwrap_or_else(|_| "null".into()).replace('<', "\\u003c");
        format!("<script type=\"application/json\" id=\"timeline-data\">{json}</script>")
    }
}

fn class(component: Component) -> &'static str {
    match component {
        Component::AttentionScores => "scores",
        other => other.name(),
    }
}

fn label(component: Component) -> String {
    component.name().replace('_', " ")
}

fn bytes_at_peak(summary: &Summary, component: Component) -> usize {
    summary.breakdown.get(component.name()).copied().unwrap_or(0)
}

fn legend(summary: &Summary) -> String {
    let there = STACK.iter().rev().filter(|(component, _)| bytes_at_peak(summary, *component) > 0);
    let entries: String =
        there.map(|(c, _)| format!("<span><i class=\"key {}\"></i>{}</span>", class(*c), label(*c))).collect();
    format!("<div class=\"legend\">{entries}</div>")
}

fn breakdown(planned: &Planned, summary: &Summary, page: &mut Html) {
    let total: usize = summary.breakdown.values().sum();
    page.section("At the peak, by component", "");
    page.raw("<table><tbody>");
    for (component, _) in STACK.iter().filter(|(c, _)| bytes_at_peak(summary, *c) > 0) {
        let bytes = bytes_at_peak(summary, *component);
        page.raw("<tr><td><i class=\"key ").raw(class(*component)).raw("\"></i>").text(&label(*component));
        page.raw("</td><td class=\"n\">").text(&format_bytes(bytes as u64)).raw("</td>");
        page.raw(&bar(bytes, total, total, class(*component)));
        page.raw("</tr>");
    }
    let layout = &planned.choice.layout;
    let rows = [
        ("live peak", format_bytes(total as u64)),
        ("fragmentation", format_bytes(layout.fragmentation_bytes() as u64)),
        ("arena", format_bytes(layout.arena_bytes as u64)),
        ("reserve of the device", format_bytes(planned.reserve_bytes)),
    ];
    for (name, text) in rows.iter().filter(|(name, _)| !name.starts_with("reserve") || planned.reserve_bytes > 0) {
        page.raw("<tr class=\"sum\"><td>")
            .text(name)
            .raw("</td><td class=\"n\">")
            .text(text)
            .raw("</td><td></td></tr>");
    }
    page.raw("</tbody></table>").end_section();
}

/// The cell with a bar, as long as it is large against `most`, and its share of all.
fn bar(bytes: usize, total: usize, most: usize, class: &str) -> String {
    let share = 100.0 * bytes as f64 / total.max(1) as f64;
    let width = (bytes as f64 / most.max(1) as f64).min(1.0);
    format!("<td class=\"bar\"><i class=\"{class}\" style=\"--share:{width:.4}\"></i><span>{share:.1} %</span></td>")
}

fn layers(summary: &Summary, page: &mut Html) {
    let total: usize = summary.layers.values().sum();
    let mut rows: Vec<(&str, usize)> = summary.layers.iter().map(|(name, &bytes)| (name.as_str(), bytes)).collect();
    // Equal sizes in the order of their layers: 2 before 10.
    rows.sort_by_key(|(name, bytes)| (std::cmp::Reverse(*bytes), name.len(), *name));
    // What would read 0.0 % says nothing by itself.
    let telling = rows.iter().filter(|row| 2000 * row.1 >= total).count();
    let rest = rows.split_off(telling.min(LAYERS_SHOWN));
    let others: usize = rest.iter().map(|row| row.1).sum();
    let most = rows.first().map_or(1, |row| row.1).max(others);
    page.section("At the peak, by layer", "").raw("<table><tbody>");
    let mut row = |name: &str, bytes: usize| {
        page.raw("<tr><td class=\"name\">").dotted(name).raw("</td><td class=\"n\">").text(&format_bytes(bytes as u64));
        page.raw("</td>").raw(&bar(bytes, total, most, "layer")).raw("</tr>");
    };
    rows.iter().for_each(|(name, bytes)| row(name, *bytes));
    if !rest.is_empty() {
        row(&format!("{} more", rest.len()), others);
    }
    page.raw("</tbody></table>").end_section();
}

fn buffers(summary: &Summary, page: &mut Html) {
    let kinds = kinds(summary);
    let most = kinds.first().map_or(1, |kind| kind.bytes * kind.count);
    let sub = format!("{} buffers; those of all layers together, the largest first", summary.live.len());
    page.section("Alive at the peak", &sub);
    page.raw("<table><thead><tr><th>buffer</th><th>component</th><th class=\"n\">each</th><th class=\"n\">together</th><th></th></tr></thead><tbody>");
    for kind in kinds.iter().take(BUFFERS_SHOWN) {
        let (class, together) = (class(kind.component), kind.bytes * kind.count);
        let width = together as f64 / most.max(1) as f64;
        let times = if kind.count > 1 { format!("{} × ", kind.count) } else { String::new() };
        page.raw("<tr><td class=\"name\"><i class=\"key ").raw(class).raw("\"></i>").dotted(&kind.name);
        page.raw("</td><td>").text(&label(kind.component)).raw("</td><td class=\"n\">");
        page.text(&format!("{times}{}", format_bytes(kind.bytes as u64))).raw("</td><td class=\"n\">");
        page.text(&format_bytes(together as u64));
        page.raw(&format!("</td><td class=\"bar\"><i class=\"{class}\" style=\"--share:{width:.4}\"></i></td></tr>"));
    }
    page.raw("</tbody></table>").end_section();
}
