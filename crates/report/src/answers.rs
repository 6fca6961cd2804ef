//! Tables of many plans.

use super::tables::{Side, Table, signed_seconds};
use plimsoll_base::units::{format_bytes, format_seconds};
use plimsoll_planner::whatif::{
    Attempt, CardAnswer, CardRow, FrontierPoint, Grid, LargestRow, Margins, Neighbour, Outline, Rung,
};

/// From the smallest plan to the fastest; the one to take within the budget is marked.
pub fn frontier_table(points: &[FrontierPoint]) -> String {
    let columns = [("peak", Side::Right), ("step", Side::Right), ("batch", Side::Left), ("recompute", Side::Left)];
    let mut table = Table::new(&[&columns[..], &[("attention", Side::Left), ("fits", Side::Left)]].concat());
    let taken = points.iter().rposition(|point| point.fits);
    for (index, FrontierPoint { plan, fits }) in points.iter().enumerate() {
        let mark = if Some(index) == taken { "yes ← the fastest that fits" } else { yes_no(*fits) };
        let cells = [peak(plan), step(plan), plan.batch(), plan.recompute.into(), plan.attention.into(), mark.into()];
        table.row(cells);
    }
    table.to_text()
}

/// One row for each combination, and how many fit.
pub fn grid_table(grid: &Grid) -> String {
    let keys = grid.keys.iter().map(|key| (key.as_str(), Side::Right));
    let why = why_column(grid.rows.iter().map(|row| &row.attempt));
    let columns: Vec<(&str, Side)> = keys.chain(PLAN_COLUMNS).chain(why).collect();
    let mut table = Table::new(&columns);
    for row in &grid.rows {
        table.row(row.written.iter().cloned().chain(plan_cells(&row.attempt)).chain(why_cell(&row.attempt)));
    }
    let plans = match grid.plans == grid.rows.len() {
        true => String::new(),
        false => format!(" ({} different plans)", grid.plans),
    };
    format!("{}\n{} of {} fit{plans}\n", table.to_text(), grid.fitting(), grid.rows.len())
}

const PLAN_COLUMNS: [(&str, Side); 5] = [
    ("fits", Side::Left),
    ("peak", Side::Right),
    ("batch", Side::Left),
    ("recompute", Side::Left),
    ("step", Side::Right),
];

/// A plan that does not fit is the smallest there is, and has no speed worth telling.
fn plan_cells(attempt: &Attempt) -> [String; 5] {
    match (&attempt.plan, attempt.fits) {
        (Some(plan), true) => ["yes".into(), peak(plan), plan.batch(), plan.recompute.into(), step(plan)],
        (Some(plan), false) => ["no".into(), peak(plan), plan.batch(), plan.recompute.into(), "-".into()],
        (None, _) => ["refused", "-", "-", "-", "-"].map(String::from),
    }
}

/// Only where something was refused.
fn why_column<'a>(mut attempts: impl Iterator<Item = &'a Attempt>) -> Option<(&'static str, Side)> {
    attempts.any(|attempt| attempt.refused.is_some()).then_some(("why", Side::Left))
}

fn why_cell(attempt: &Attempt) -> Option<String> {
    attempt.refused.as_deref().map(|cause| cause.lines().next().unwrap_or_default().to_string())
}

/// The best plan on each card.
pub fn cards_table(rows: &[CardRow]) -> String {
    let ends = [("precision", Side::Left), ("samples/s", Side::Right), ("run", Side::Right)];
    let start = [("card", Side::Left), ("budget", Side::Right)];
    let why = why_column(rows.iter().map(|row| &row.attempt));
    let mut table = Table::new(&[&start[..], &PLAN_COLUMNS, &ends, why.as_slice()].concat());
    for row in rows {
        let speed = row.samples_per_s.map_or("-".into(), |speed| format!("{speed:.1}"));
        let run = row.run_seconds.map_or("-".into(), format_seconds);
        let start = [row.card.clone(), format_bytes(row.attempt.budget_bytes)];
        let ends = [row.precision.to_string(), speed, run].into_iter().chain(why_cell(&row.attempt));
        table.row(start.into_iter().chain(plan_cells(&row.attempt)).chain(ends));
    }
    table.to_text()
}

/// The largest batch of each card at once, at full speed and at all.
pub fn largest_table(rows: &[LargestRow]) -> String {
    let start = [("card", Side::Left), ("budget", Side::Right), ("precision", Side::Left)];
    let plain = [("at full speed", Side::Right), ("peak", Side::Right), ("samples/s", Side::Right)];
    let most = [("at most", Side::Right), ("peak", Side::Right), ("samples/s", Side::Right)];
    let mut table = Table::new(&[&start[..], &plain, &most].concat());
    for LargestRow { card, budget_bytes, precision, plain, largest } in rows {
        let start = [card.clone(), format_bytes(*budget_bytes), precision.to_string()];
        table.row(start.into_iter().chain(batch_cells(plain.as_ref())).chain(batch_cells(largest.as_ref())));
    }
    table.to_text()
}

fn batch_cells(plan: Option<&Outline>) -> [String; 3] {
    let Some(plan) = plan else { return ["none", "-", "-"].map(String::from) };
    let speed = 1e3 * plan.micro_batch as f64 / plan.predicted_step_ms.max(1e-9);
    [plan.micro_batch.to_string(), peak(plan), format!("{speed:.1}")]
}

/// Each way out: whether it fits and what it changes; below it how to ask for it, and what else to adjust. Narrow enough
/// for a terminal of 80 columns.
pub fn ladder_table(rungs: &[Rung]) -> String {
    let columns = [("change", Side::Left), ("learning", Side::Left), ("fits", Side::Left), ("peak", Side::Right)];
    let mut table = Table::new(&[&columns[..], &[("step", Side::Right)]].concat());
    for rung in rungs {
        let learning = if rung.changes_learning { "changes" } else { "the same" };
        let [fits, peak, _, _, step] = plan_cells(&rung.attempt);
        table.row([rung.change.clone(), learning.into(), fits, peak, step]);
    }
    let text = table.to_text();
    let mut lines = text.lines();
    let mut all: Vec<String> = lines.by_ref().take(2).map(String::from).collect();
    for (line, rung) in lines.zip(rungs) {
        all.extend([line.to_string(), format!("    {}", rung.flags())]);
        all.extend(wrapped(&rung.adjust, WORDS_WIDE).into_iter().map(|words| format!("    {words}")));
    }
    all.join("\n") + "\n"
}

/// Characters of a line of words below a row.
const WORDS_WIDE: usize = 72;

/// Text in lines of at most so many characters, broken between words.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => *line += &format!(" {word}"),
            _ => lines.push(word.into()),
        }
    }
    lines
}

/// One step of each lever, against the plan.
pub fn neighbours_table(neighbours: &[Neighbour]) -> String {
    let columns = [("lever", Side::Left), ("from", Side::Left), ("to", Side::Left), ("memory", Side::Right)];
    let mut table = Table::new(&[&columns[..], &[("time", Side::Right), ("fits", Side::Left)]].concat());
    for neighbour in neighbours {
        let Neighbour { lever, from, to, extra_bytes, extra_ms, fits } = neighbour;
        let cells = [lever.to_string(), from.clone(), to.clone(), signed_bytes(*extra_bytes), signed_ms(*extra_ms)];
        table.row(cells.into_iter().chain([yes_no(*fits).to_string()]));
    }
    table.to_text()
}

/// What a little more memory, a larger micro-batch or a smaller card would mean for the plan.
pub fn margins_text(margins: &Margins, plan: &Outline) -> String {
    let gib = margins.another_gib.as_ref().map(|richer| another_gib(richer, plan));
    let nothing = || "none of the catalog".to_string();
    let rows = [
        ("another GiB", gib.unwrap_or_else(|| "buys nothing".into())),
        ("largest micro-batch", largest_micro_batch(&margins.largest_micro_batch, plan)),
        ("smallest card at all", margins.smallest_card.as_ref().map_or_else(nothing, card_words)),
        ("smallest at full speed", margins.full_speed_card.as_ref().map_or_else(nothing, card_words)),
    ];
    rows.map(|(name, words)| format!("{name:<22}  {words}\n")).concat()
}

fn another_gib(richer: &Outline, plan: &Outline) -> String {
    let saved = plan.predicted_step_ms - richer.predicted_step_ms;
    if saved < 0.001 * plan.predicted_step_ms {
        return "buys nothing".into();
    }
    format!("saves {} a step: {}", format_seconds(saved / 1e3), plan_words(richer))
}

fn largest_micro_batch(largest: &Outline, plan: &Outline) -> String {
    if largest.micro_batch == plan.micro_batch {
        return format!("{}, as planned", largest.micro_batch);
    }
    let extra = signed_ms(largest.predicted_step_ms - plan.predicted_step_ms);
    format!("{} with recompute {}, {} and {extra} a step", largest.micro_batch, largest.recompute, peak(largest))
}

fn card_words(answer: &CardAnswer) -> String {
    format!("{} ({}): {}", answer.card, format_bytes(answer.total_bytes), plan_words(&answer.plan))
}

fn plan_words(plan: &Outline) -> String {
    format!("{}, recompute {}, {}, {}", plan.batch(), plan.recompute, peak(plan), step(plan))
}

fn peak(plan: &Outline) -> String {
    format_bytes(plan.planned_peak_bytes)
}

fn step(plan: &Outline) -> String {
    format_seconds(plan.predicted_step_ms / 1e3)
}

fn yes_no(yes: bool) -> &'static str {
    if yes { "yes" } else { "no" }
}

fn signed_bytes(bytes: i64) -> String {
    let sign = if bytes < 0 { "−" } else { "+" };
    format!("{sign}{}", format_bytes(bytes.unsigned_abs()))
}

fn signed_ms(ms: f64) -> String {
    signed_seconds(ms / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_planner::whatif::GridRow;

    fn plan(peak: u64, ms: f64) -> Outline {
        Outline {
            micro_batch: 8,
            accumulation: 2,
            recompute: "cheap",
            attention: "fused",
            offload: "none",
            arena_bytes: peak,
            planned_peak_bytes: peak,
            predicted_step_ms: ms,
        }
    }

    #[test]
    fn the_fastest_plan_that_fits_is_marked() {
        let point = |peak, ms, fits| FrontierPoint { plan: plan(peak, ms), fits };
        let text = frontier_table(&[point(1 << 20, 9.0, true), point(2 << 20, 8.0, true), point(4 << 20, 7.0, false)]);
        let rows: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(rows[0], "1 MiB  9.0 ms  8 × 2  cheap      fused      yes");
        assert_eq!(rows[1], "2 MiB  8.0 ms  8 × 2  cheap      fused      yes ← the fastest that fits");
        assert_eq!(rows[2], "4 MiB  7.0 ms  8 × 2  cheap      fused      no");
    }

    #[test]
    fn a_grid_counts_what_fits() {
        let row = |value: &str, attempt| GridRow {
            settings: [("a.b".to_string(), value.to_string())].into(),
            written: vec![value.into()],
            attempt,
        };
        let attempt = |fits| Attempt { fits, budget_bytes: 9, plan: Some(plan(1024, 1.0)), ..Attempt::default() };
        let refused = Attempt { refused: Some("no\nreally".into()), ..Attempt::default() };
        let rows = vec![row("1", attempt(true)), row("2", attempt(false)), row("3", refused)];
        let text = grid_table(&Grid { keys: vec!["a.b".into()], rows, plans: 2 });
        assert!(text.ends_with("\n\n1 of 3 fit (2 different plans)\n"), "{text}");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[2].split_whitespace().collect::<Vec<_>>()[..4], ["1", "yes", "1", "KiB"]);
        assert!(lines[3].ends_with("-") && lines[4].ends_with("-  no"), "{text}");
    }

    #[test]
    fn ways_out_are_readable_at_80_columns() {
        let rung = Rung {
            kind: "micro",
            change: "effective batch 256 → 128".into(),
            set: vec!["train.effective_batch=128".into(), "train.optimizer.lr=7.07e-4".into()],
            changes_learning: true,
            adjust: "gradients are noisier: the learning rate by the square root, and an epoch has twice the steps"
                .into(),
            attempt: Attempt { fits: true, budget_bytes: 9, plan: Some(plan(3 << 30, 61_000.0)), ..Attempt::default() },
        };
        let text = ladder_table(&[rung.clone(), rung]);
        assert!(text.lines().all(|line| line.chars().count() <= 78), "{text}");
        assert_eq!(
            text.matches("--set train.effective_batch=128 --set train.optimizer.lr=7.07e-4").count(),
            2,
            "{text}"
        );
        assert!(text.contains("1 min 1 s") && text.contains("twice the steps"), "{text}");
        assert_eq!(wrapped("", 10), [""; 0]);
    }

    #[test]
    fn differences_have_a_sign() {
        assert_eq!((signed_bytes(-1024), signed_bytes(1 << 30)), ("−1 KiB".into(), "+1 GiB".into()));
        assert_eq!((signed_ms(-1.26), signed_ms(63_000.0)), ("−1.3 ms".into(), "+1 min 3 s".into()));
    }
}
