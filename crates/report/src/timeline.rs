//! Live memory over the ticks of a step, stacked by component, with the arena and the budget.

use super::svg::{Anchor, BUDGET, FAINT, GRID, INK, Svg, TextStyle, nice_step, style};
use plimsoll_base::units::{format_bytes, unit_of};
use plimsoll_core::graph::Component;
use plimsoll_core::plan::{Layout, Program, live_by_tick};
use std::fmt::Write;

/// More columns than this are not seen anyway; neighbours are merged.
const MAX_COLUMNS: usize = 1200;

const WIDTH: f64 = 1440.0;
const HEIGHT: f64 = 680.0;
const PLOT: Frame = Frame { left: 92.0, right: 1150.0, top: 96.0, bottom: 590.0 };
/// Every phase is at least this wide, so that its name has room.
const MIN_PHASE_WIDTH: f64 = 90.0;

/// From the bottom of the stack to its top: what stays over the step lies below what comes and goes. The colours are
/// the seven of Okabe and Ito, which differ for colour-blind readers as well.
pub(super) const STACK: [(Component, &str); 7] = [
    (Component::Weights, "#0072b2"),
    (Component::Optimizer, "#009e73"),
    (Component::Gradients, "#d55e00"),
    (Component::Inputs, "#f0e442"),
    (Component::Activations, "#56b4e9"),
    (Component::AttentionScores, "#e69f00"),
    (Component::Workspace, "#cc79a7"),
];

struct Frame {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

/// Draws the phases of one step in program order, each once; a phase that repeats says how often. Phases that are not
/// part of a step (evaluation) are not drawn, but the arena line includes them.
pub fn timeline_svg(program: &Program, layout: &Layout, budget_bytes: u64, title: &str) -> String {
    let strips = strips(program, layout);
    let peak = peak(program, layout, &strips);
    let scale = Scale::new(layout.arena_bytes as u64, budget_bytes);
    let mut svg = Svg::new(WIDTH, HEIGHT);
    draw_heading(&mut svg, title, &peak, layout.arena_bytes as u64, budget_bytes);
    draw_grid(&mut svg, &scale);
    for component in 0..STACK.len() {
        draw_band(&mut svg, &strips, &scale, component);
    }
    strips.iter().for_each(|strip| draw_phase_name(&mut svg, strip));
    draw_limits(&mut svg, &scale, layout.arena_bytes as u64, budget_bytes);
    draw_peak(&mut svg, &scale, &peak);
    draw_legend(&mut svg, &peak, layout, budget_bytes);
    svg.finish(title)
}

/// Bytes of the seven components, in the order of `Component::ALL`.
pub(super) type Bands = [usize; 7];

fn total(row: &Bands) -> usize {
    row.iter().sum()
}

pub(super) fn bytes_of(row: &Bands, component: Component) -> usize {
    Component::ALL.iter().zip(row).find(|(c, _)| **c == component).map_or(0, |(_, &bytes)| bytes)
}

/// One phase in the picture.
struct Strip {
    phase: usize,
    name: String,
    ticks: usize,
    left: f64,
    right: f64,
    /// The row of the tick with most bytes of each column, and that tick.
    columns: Vec<(Bands, usize)>,
}

impl Strip {
    fn x(&self, column: usize) -> f64 {
        self.left + (self.right - self.left) * column as f64 / self.columns.len().max(1) as f64
    }
}

fn strips(program: &Program, layout: &Layout) -> Vec<Strip> {
    let drawn: Vec<usize> = (0..program.phases.len())
        .filter(|&i| program.phases[i].repeat > 0 && !layout.phases[i].order.is_empty())
        .collect();
    let all_ticks: usize = drawn.iter().map(|&i| layout.phases[i].order.len()).sum();
    let whole = PLOT.right - PLOT.left;
    let least = MIN_PHASE_WIDTH.min(whole / (2 * drawn.len().max(1)) as f64);
    let shared = whole - least * drawn.len() as f64;
    let mut left = PLOT.left;
    let mut strips = Vec::with_capacity(drawn.len());
    for phase in drawn {
        let rows = live_by_tick(program, layout, phase);
        let share = rows.len() as f64 / all_ticks as f64;
        let right = left + least + shared * share;
        let columns = merged(&rows, ((MAX_COLUMNS as f64 * share) as usize).max(1));
        let (definition, ticks) = (&program.phases[phase], rows.len());
        let times = if definition.repeat > 1 { format!(" ×{}", definition.repeat) } else { String::new() };
        strips.push(Strip { phase, name: format!("{}{times}", definition.name), ticks, left, right, columns });
        left = right;
    }
    strips
}

/// At most `count` columns; each shows the fullest of the ticks it stands for.
pub(super) fn merged(rows: &[Bands], count: usize) -> Vec<(Bands, usize)> {
    let count = count.min(rows.len());
    let fullest = |column: usize| {
        let (first, end) = (column * rows.len() / count, (column + 1) * rows.len() / count);
        // The first of equal ones, as the plan counts its peak.
        let tick = (first..end).rev().max_by_key(|&tick| total(&rows[tick])).unwrap_or(first);
        (rows[tick], tick)
    };
    (0..count).map(fullest).collect()
}

struct PeakMark {
    row: Bands,
    x: f64,
    node: String,
    phase: String,
}

fn peak(program: &Program, layout: &Layout, strips: &[Strip]) -> PeakMark {
    let mut mark = PeakMark { row: [0; 7], x: PLOT.left, node: String::new(), phase: String::new() };
    for strip in strips {
        for (column, (row, tick)) in strip.columns.iter().enumerate() {
            if total(row) > total(&mark.row) {
                let id = layout.phases[strip.phase].order[*tick];
                let graph = &program.phases[strip.phase].graph;
                let x = (strip.x(column) + strip.x(column + 1)) / 2.0;
                let phase = program.phases[strip.phase].name.clone();
                mark = PeakMark { row: *row, x, node: graph.node(id).name.to_string(), phase };
            }
        }
    }
    mark
}

/// Bytes to height.
struct Scale {
    top_bytes: f64,
    step: f64,
    unit: f64,
    unit_name: &'static str,
}

impl Scale {
    /// A budget far above the arena would press the picture flat: it is then only stated.
    fn new(arena: u64, budget: u64) -> Scale {
        let shown = if budget as f64 > BUDGET_IN_VIEW * arena as f64 { arena } else { arena.max(budget) };
        let top_bytes = (shown as f64 * 1.12).max(1024.0);
        let (unit, unit_name) = unit_of(top_bytes);
        Scale { top_bytes, step: nice_step(top_bytes / unit, 8.0), unit, unit_name }
    }

    fn y(&self, bytes: f64) -> f64 {
        PLOT.bottom - (PLOT.bottom - PLOT.top) * (bytes / self.top_bytes).min(1.0)
    }

    fn shows(&self, bytes: u64) -> bool {
        bytes as f64 <= self.top_bytes
    }
}

/// Up to so many times the arena, the budget line is drawn.
const BUDGET_IN_VIEW: f64 = 2.5;

fn draw_heading(svg: &mut Svg, title: &str, peak: &PeakMark, arena: u64, budget: u64) {
    let bold = TextStyle { bold: true, ..style(20, INK, Anchor::Start) };
    svg.text(PLOT.left, 38.0, bold, title);
    let live = format_bytes(total(&peak.row) as u64);
    let verdict = match budget.checked_sub(arena) {
        Some(room) => format!("{} below its room of {}", format_bytes(room), format_bytes(budget)),
        None => format!("{} above its room of {}", format_bytes(arena - budget), format_bytes(budget)),
    };
    let line = format!("Live memory over one step: peak {live}, arena {}, {verdict}", format_bytes(arena));
    svg.text(PLOT.left, 62.0, style(14, FAINT, Anchor::Start), &line);
}

fn draw_grid(svg: &mut Svg, scale: &Scale) {
    let lines = (scale.top_bytes / scale.unit / scale.step) as usize;
    let decimals = (-scale.step.log10().floor()).max(0.0) as usize;
    for i in 0..=lines {
        let value = i as f64 * scale.step;
        let y = scale.y(value * scale.unit);
        svg.line((PLOT.left, y), (PLOT.right, y), if i == 0 { INK } else { GRID }, 1.0, "");
        svg.text(PLOT.left - 8.0, y + 4.0, style(12, FAINT, Anchor::End), &format!("{value:.decimals$}"));
    }
    svg.text(PLOT.left - 8.0, PLOT.top - 10.0, style(12, FAINT, Anchor::End), scale.unit_name);
}

/// One component over all phases: its upper edge from left to right, then its lower edge back.
fn draw_band(svg: &mut Svg, strips: &[Strip], scale: &Scale, band: usize) {
    let (component, colour) = STACK[band];
    if strips.iter().flat_map(|s| &s.columns).all(|(row, _)| bytes_of(row, component) == 0) {
        return;
    }
    let below = |row: &Bands| STACK[..band].iter().map(|(c, _)| bytes_of(row, *c)).sum::<usize>() as f64;
    let above = |row: &Bands| below(row) + bytes_of(row, component) as f64;
    let columns: Vec<(f64, f64, &Bands)> = strips
        .iter()
        .flat_map(|s| s.columns.iter().enumerate().map(|(i, (row, _))| (s.x(i), s.x(i + 1), row)))
        .collect();
    let mut outline = String::new();
    edge(&mut outline, columns.iter().map(|&(left, right, row)| (left, right, scale.y(above(row)))));
    edge(&mut outline, columns.iter().rev().map(|&(left, right, row)| (right, left, scale.y(below(row)))));
    outline.push('Z');
    let most = strips.iter().flat_map(|s| &s.columns).map(|(row, _)| bytes_of(row, component)).max().unwrap_or(0);
    svg.area(&outline, colour, &format!("{}: at most {}", label(component), format_bytes(most as u64)));
}

/// Steps: a horizontal piece per column, joined where the height does not change.
fn edge(outline: &mut String, columns: impl Iterator<Item = (f64, f64, f64)>) {
    let mut at: Option<(f64, f64)> = None;
    for (from, to, y) in columns {
        // Writing to a string cannot fail.
        let _ = match at {
            None if outline.is_empty() => write!(outline, "M{from:.1} {y:.1}"),
            None => write!(outline, "L{from:.1} {y:.1}"),
            Some((x, before)) if (before - y).abs() >= 0.05 => write!(outline, "H{x:.1}V{y:.1}"),
            Some(_) => Ok(()),
        };
        at = Some((to, y));
    }
    if let Some((x, _)) = at {
        let _ = write!(outline, "H{x:.1}");
    }
}

fn draw_phase_name(svg: &mut Svg, strip: &Strip) {
    let middle = (strip.left + strip.right) / 2.0;
    svg.line((strip.right, PLOT.top), (strip.right, PLOT.bottom + 40.0), "#bbbbbb", 1.0, "2 3");
    let bold = TextStyle { bold: true, ..style(13, INK, Anchor::Middle) };
    let room = ((strip.right - strip.left) / 8.0) as usize;
    svg.text(middle, PLOT.bottom + 22.0, bold, &shortened(&strip.name, room.max(4)));
    svg.text(middle, PLOT.bottom + 39.0, style(12, FAINT, Anchor::Middle), &format!("{} ticks", strip.ticks));
}

fn draw_limits(svg: &mut Svg, scale: &Scale, arena: u64, budget: u64) {
    let (arena_y, budget_y) = (scale.y(arena as f64), scale.y(budget as f64));
    svg.line((PLOT.left, arena_y), (PLOT.right, arena_y), INK, 1.2, "6 4");
    // Labels of two lines that are close keep apart: the lower line's label goes below it.
    let close = scale.shows(budget) && (arena_y - budget_y).abs() < 20.0;
    let (arena_dy, budget_dy) = match (close, arena_y >= budget_y) {
        (true, true) => (16.0, -6.0),
        (true, false) => (-6.0, 16.0),
        _ => (-6.0, -6.0),
    };
    let text = format!("arena {}", format_bytes(arena));
    svg.text(PLOT.right - 6.0, arena_y + arena_dy, style(12, INK, Anchor::End), &text);
    let bold = TextStyle { bold: true, ..style(12, BUDGET, Anchor::End) };
    if scale.shows(budget) {
        svg.line((PLOT.left, budget_y), (PLOT.right, budget_y), BUDGET, 2.0, "");
        svg.text(PLOT.right - 6.0, budget_y + budget_dy, bold, &format!("room for the arena {}", format_bytes(budget)));
    } else {
        svg.text(
            PLOT.right - 6.0,
            PLOT.top - 10.0,
            bold,
            &format!("room for the arena {} is above this scale ↑", format_bytes(budget)),
        );
    }
}

fn draw_peak(svg: &mut Svg, scale: &Scale, peak: &PeakMark) {
    let y = scale.y(total(&peak.row) as f64);
    svg.line((peak.x, PLOT.bottom), (peak.x, y), INK, 1.0, "3 3");
    svg.dot(peak.x, y, 4.5, INK);
    let left_half = peak.x < (PLOT.left + PLOT.right) / 2.0;
    let (dx, anchor) = if left_half { (12.0, Anchor::Start) } else { (-12.0, Anchor::End) };
    let bold = TextStyle { bold: true, ..style(13, INK, anchor) };
    svg.text(peak.x + dx, y + 22.0, bold, &format!("peak {}", format_bytes(total(&peak.row) as u64)));
    let place = format!("{} in {}", shortened(&peak.node, 60), peak.phase);
    svg.text(peak.x + dx, y + 39.0, style(12, INK, anchor), &place);
}

/// In the order of the stack, top first, with the bytes at the peak.
fn draw_legend(svg: &mut Svg, peak: &PeakMark, layout: &Layout, budget: u64) {
    let (left, right) = (PLOT.right + 28.0, WIDTH - 28.0);
    let bold = |anchor| TextStyle { bold: true, ..style(13, INK, anchor) };
    svg.text(left, PLOT.top + 6.0, bold(Anchor::Start), "at the peak");
    let mut y = PLOT.top + 32.0;
    for (component, colour) in STACK.into_iter().rev() {
        let bytes = bytes_of(&peak.row, component);
        let ink = if bytes == 0 { "#aaaaaa" } else { INK };
        svg.rect(left, y - 11.0, 14.0, 14.0, colour);
        svg.text(left + 22.0, y, style(13, ink, Anchor::Start), &label(component));
        svg.text(right, y, style(13, ink, Anchor::End), &format_bytes(bytes as u64));
        y += 25.0;
    }
    svg.line((left, y - 14.0), (right, y - 14.0), "#bbbbbb", 1.0, "");
    svg.text(left, y + 4.0, bold(Anchor::Start), "live peak");
    svg.text(right, y + 4.0, bold(Anchor::End), &format_bytes(total(&peak.row) as u64));
    let gaps = layout.fragmentation_bytes();
    let share = 100.0 * gaps as f64 / layout.arena_bytes.max(1) as f64;
    let gap_text = if gaps == 0 { "0 B".into() } else { format!("{} ({share:.2} %)", format_bytes(gaps as u64)) };
    let rows = [
        ("fragmentation", gap_text),
        ("arena", format_bytes(layout.arena_bytes as u64)),
        ("room for it", format_bytes(budget)),
    ];
    for (index, (name, text)) in rows.into_iter().enumerate() {
        let y = y + 30.0 + 23.0 * index as f64;
        svg.text(left, y, style(13, FAINT, Anchor::Start), name);
        svg.text(right, y, style(13, FAINT, Anchor::End), &text);
    }
}

fn label(component: Component) -> String {
    component.name().replace('_', " ")
}

/// A name that fits: its end says more than its middle.
fn shortened(name: &str, room: usize) -> String {
    let count = name.chars().count();
    if count <= room {
        return name.into();
    }
    let tail: String = name.chars().skip(count - (room - 1)).collect();
    format!("…{tail}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merging_keeps_the_fullest_tick() {
        let mut rows = vec![[0usize; 7]; 1000];
        rows[517] = [1, 2, 3, 4, 5, 6, 7];
        let columns = merged(&rows, 30);
        assert_eq!(columns.len(), 30);
        assert!(columns.contains(&([1, 2, 3, 4, 5, 6, 7], 517)));
        assert_eq!(merged(&rows[..5], 30).len(), 5);
    }

    #[test]
    fn a_far_budget_does_not_flatten_the_picture() {
        let scale = Scale::new(1 << 20, 1 << 30);
        assert!(!scale.shows(1 << 30));
        assert!(Scale::new(1 << 30, 2 << 30).shows(2 << 30));
    }

    #[test]
    fn equal_columns_are_joined() {
        let mut outline = String::new();
        edge(&mut outline, [(0.0, 1.0, 5.0), (1.0, 2.0, 5.0), (2.0, 3.0, 7.0)].into_iter());
        assert_eq!(outline, "M0.0 5.0H2.0V7.0H3.0");
    }

    #[test]
    fn long_names_keep_their_end() {
        assert_eq!(shortened("layers.3.ffn.up.grad", 8), "…up.grad");
        assert_eq!(shortened("head", 8), "head");
    }
}
