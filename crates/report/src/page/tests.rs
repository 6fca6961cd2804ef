use super::*;
use plimsoll_planner::Device;
use plimsoll_planner::choose::plan;
use plimsoll_planner::whatif::frontier_of;
use plimsoll_runs::{Event, Started, StepEvent};

const TEXT: &str = include_str!("../../../planner/tests/recipes/text.toml");

fn planned() -> (Recipe, Planned) {
    let text = format!("name = \"<script>alert(1)<script>\"\n{}", TEXT);
    let recipe = Recipe::parse(&text, "r.toml", &[]).unwrap();
    let device = Device { name: "a & b".into(), ..Device::cpu(1, 1 << 30) };
    let planned = plan(&recipe, &device).unwrap();
    (recipe, planned)
}

fn step(step: usize, loss: f64) -> Event {
    Event::Step(StepEvent {
        step,
        epoch: 1,
        loss,
        norm: 1.0,
        scale: None,
        skipped: false,
        lr: 1e-3,
        ms: 2.0,
        samples_per_s: 4000.0,
        tokens_per_s: None,
        data_samples_per_s: None,
        stall_ms: 0.1,
        remaining_s: 1.0,
        planned_peak_bytes: 1000,
        measured_peak_bytes: 1000,
    })
}

fn started() -> Event {
    Event::Started(Started {
        version: "1".into(),
        recipe: "r".into(),
        recipe_hash: "h".into(),
        device: "cpu".into(),
        budget_bytes: 1 << 30,
        planned_peak_bytes: 1000,
        parameters: 10,
        effective_batch: 8,
        micro_batch: 8,
        accumulation: 1,
        precision: None,
        recompute: None,
        attention: None,
        family: None,
        epochs: None,
        steps: 40,
        steps_per_epoch: 40,
        train_samples: 300,
        validation_samples: 30,
        best_accuracy: None,
        best_loss: Some(0.5),
    })
}

#[test]
fn a_page_is_whole_and_asks_nobody() {
    let (recipe, planned) = planned();
    let frontier = frontier_of(&recipe, &planned).unwrap();
    assert!(frontier.len() > 1);
    let page = Page {
        recipe: &recipe,
        planned: Some(&planned),
        frontier: &frontier,
        run: None,
        train_samples: None,
        notes: &[],
    }
    .html();
    assert!(page.starts_with("<!doctype html>") && page.trim_end().ends_with("</html>"));
    for outside in ["http://", "https://", "src=", "href=", "@import", "url("] {
        assert!(!page.contains(outside), "{outside}");
    }
    for words in
        ["Memory over one step", "by component", "by layer", "Alive at the peak", "Frontier", "Decisions", "fits"]
    {
        assert!(page.contains(words), "no {words}");
    }
    assert_eq!(page.matches("<section>").count(), page.matches("</section>").count());
    assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
}

#[test]
fn text_from_outside_stays_text() {
    let (recipe, planned) = planned();
    let notes = ["</p><img onerror=x>".to_string()];
    let sample = Event::Sample { step: 1, epoch: 1, prompt: "<b>".into(), text: "</blockquote><script>".into() };
    let story = RunStory::of(vec![started(), step(1, 2.0), sample]);
    let page = Page {
        recipe: &recipe,
        planned: Some(&planned),
        frontier: &[],
        run: Some(&story),
        train_samples: None,
        notes: &notes,
    }
    .html();
    assert!(page.contains("&lt;script&gt;alert(1)&lt;script&gt;"));
    assert!(!page.contains("<script>alert") && !page.contains("<img") && !page.contains("<b></b>&lt;"));
    assert_eq!(page.matches("<script").count(), 2, "the timeline's data and our own script");
}

#[test]
fn an_unfinished_run_and_losses_that_are_no_numbers_are_shown() {
    let (recipe, _) = planned();
    let story = RunStory::of(vec![started(), step(1, 2.0), step(2, f64::NAN), step(3, 1.5)]);
    let page =
        Page { recipe: &recipe, planned: None, frontier: &[], run: Some(&story), train_samples: None, notes: &[] }
            .html();
    assert!(page.contains("not finished: step 3 of 40") && page.contains("Loss") && !page.contains("NaN"));
    let empty = Page {
        recipe: &recipe,
        planned: None,
        frontier: &[],
        run: Some(&RunStory::default()),
        train_samples: None,
        notes: &[],
    }
    .html();
    assert!(empty.contains("not finished: step 0 of 0"));
}

/// What was done again after a crash replaces what was lost.
#[test]
fn a_resumed_run_is_told_once() {
    let resumed = Event::Resumed { step: 2, replanned: false };
    let story = RunStory::of(vec![started(), step(1, 3.0), step(2, 2.0), step(3, 9.0), resumed, step(3, 1.0)]);
    let losses: Vec<f64> = story.steps.iter().map(|s| s.loss).collect();
    assert_eq!((losses, story.resumed, story.last_step()), (vec![3.0, 2.0, 1.0], 1, 3));
}
