//! `plimsoll advise`: for a training that stays in PyTorch.

use crate::arguments::{Machine, Overrides};
use crate::commands::ghost;
use crate::device;
use crate::failure::{Code, Failure};
use crate::printer::{self, Paint};
use clap::Args;
use plimsoll::Device;
use plimsoll::advise::{Advice, Reading, advise, read, remedies};
use plimsoll_base::units::format_bytes;
use plimsoll_ghost::report::Report;
use plimsoll_models::recipe::Recipe;
use plimsoll_planner::PlanFailure;
use plimsoll_planner::cards::catalog;
use plimsoll_planner::choose::plan;
use serde::Serialize;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

mod text;

#[derive(Args)]
pub(crate) struct Arguments {
    /// The recipe: settings under which it fits in PyTorch; beside an error, which tensor the request was
    recipe: Option<PathBuf>,
    /// A log that ends in an out-of-memory error; `-` reads standard input
    #[arg(long, value_name = "FILE", conflicts_with = "message")]
    log: Option<PathBuf>,
    /// The error itself, pasted
    #[arg(long, value_name = "TEXT")]
    message: Option<String>,
    /// A card of the catalog (default: the one in the error, or all of them)
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    #[command(flatten)]
    overrides: Overrides,
    /// Every cause, every tensor of that size, and the verdict on every folk remedy
    #[arg(long)]
    explain: bool,
    /// One JSON value on stdout
    #[arg(long)]
    json: bool,
    /// A PyTorch program: it is run on a card that is not there (`plimsoll ghost`) rather than estimated
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

#[derive(Serialize)]
struct Findings {
    /// What a program takes that was given, by running it.
    #[serde(skip_serializing_if = "Option::is_none")]
    program: Option<Report>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Reading>,
    /// Why the recipe cannot be the run that died.
    #[serde(skip_serializing_if = "Option::is_none")]
    mismatch: Option<String>,
    /// Settings for one card.
    #[serde(skip_serializing_if = "Option::is_none")]
    pytorch: Option<Advice>,
    /// What the same recipe takes in plimsoll on that card.
    #[serde(skip_serializing_if = "Option::is_none")]
    plimsoll: Option<Ours>,
    /// One line per card, where none is named.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    cards: Vec<Advice>,
}

#[derive(Serialize)]
struct Ours {
    fits: bool,
    micro_batch: usize,
    accumulation: usize,
    recompute: &'static str,
    planned_peak_bytes: u64,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let text = arguments.text()?;
    let recipe = match &arguments.recipe {
        Some(path) => Some(Recipe::load(path, &arguments.overrides.settings(&[]))?),
        None => None,
    };
    let reading = text.map(|text| arguments.read(&text, recipe.as_ref())).transpose()?;
    let program = match arguments.command.is_empty() {
        true => None,
        false => Some(ghost::look_at(&arguments.command, arguments.device.as_deref())?),
    };
    if reading.is_none() && recipe.is_none() && program.is_none() {
        return Err(Failure::bad_input(
            "nothing to advise on",
            "name a recipe, a program after `--`, or give an error with --log FILE or --message \"CUDA out of memory. …\"",
        ));
    }
    let mut answer =
        Findings { program, error: reading, mismatch: None, pytorch: None, plimsoll: None, cards: Vec::new() };
    if let Some(recipe) = &recipe {
        arguments.settle(recipe, &mut answer)?;
    }
    match arguments.json {
        true => printer::json(&answer)?,
        false => {
            let program = answer.program.as_ref().map_or_else(String::new, plimsoll_ghost::text::report);
            printer::out(&(program + &answer.text(arguments.explain, Paint::stdout())))?
        }
    };
    answer.verdict()
}

impl Arguments {
    fn text(&self) -> Result<Option<String>, Failure> {
        match (&self.message, &self.log) {
            (Some(message), _) => Ok(Some(message.clone())),
            (None, Some(path)) => read_end(path).map(Some).map_err(|cause| {
                let hint = "name a readable text file, or `-` for standard input";
                Failure::bad_input(format!("{}: {cause}", path.display()), hint)
            }),
            (None, None) => Ok(None),
        }
    }

    fn source(&self) -> String {
        self.log.as_ref().map_or("the message".into(), |path| path.display().to_string())
    }

    fn read(&self, text: &str, recipe: Option<&Recipe>) -> Result<Reading, Failure> {
        let reading = read(text, recipe)?.ok_or_else(|| {
            Failure::bad_input(
                format!("{}: no out-of-memory error in it", self.source()),
                "paste the lines around \"CUDA out of memory\", with the traceback above them",
            )
        })?;
        let all = self.explain.then(|| remedies().to_vec());
        Ok(Reading { remedies: all.unwrap_or(reading.remedies), ..reading })
    }

    /// The settings: for the card that was named, for the one in the error, or for every card there is.
    fn settle(&self, recipe: &Recipe, answer: &mut Findings) -> Result<(), Failure> {
        let failed_on = answer.error.as_ref().and_then(|reading| reading.oom.total_bytes);
        let device = match (&self.device, failed_on) {
            (Some(name), _) => Some(named(name)?),
            (None, Some(total)) => Some(Device::of_memory(total)),
            (None, None) => None,
        };
        match device {
            Some(device) => {
                let advice = advise(recipe, &device)?;
                answer.mismatch = answer.error.as_ref().and_then(|reading| reading.mismatch(&advice));
                answer.pytorch = Some(advice);
                answer.plimsoll = ours(recipe, &device);
            }
            None => {
                for card in catalog() {
                    answer.cards.push(advise(recipe, &Device::from_card(card))?);
                }
            }
        }
        Ok(())
    }
}

impl Findings {
    /// Settings that do not fit are a failure; an error that was explained is none.
    fn verdict(&self) -> Result<(), Failure> {
        if let Some(report) = &self.program {
            ghost::told(report)?;
        }
        let Some(advice) = self.pytorch.as_ref().filter(|advice| !advice.fits && self.error.is_none()) else {
            return Ok(());
        };
        let ways = advice.ways_out.iter().filter(|way| way.fits);
        let mut hints: Vec<String> =
            ways.map(|way| format!("{} fits, and learns differently: {}", way.what, way.learning)).collect();
        if let Some(ours) = self.plimsoll.as_ref().filter(|ours| ours.fits) {
            hints.push(format!("plimsoll trains it there in {}", format_bytes(ours.planned_peak_bytes)));
        }
        let message = format!(
            "it does not fit in PyTorch: the smallest step needs about {}, the budget is {}",
            format_bytes(advice.card_bytes),
            format_bytes(advice.budget_bytes)
        );
        Err(Failure { code: Code::DoesNotFit, message, hints })
    }
}

fn named(name: &str) -> Result<Device, Failure> {
    let device = device::to_plan_for(&Machine { device: name.into(), threads: None })?;
    match device.name == "cpu" {
        true => Err(Failure::bad_input(
            "settings are made for a card, not for the CPU",
            "`plimsoll devices --catalog` lists the cards",
        )),
        false => Ok(device),
    }
}

fn ours(recipe: &Recipe, device: &Device) -> Option<Ours> {
    let (planned, fits) = match plan(recipe, device) {
        Ok(planned) => (planned, true),
        Err(PlanFailure::DoesNotFit(smallest)) => (*smallest, false),
        Err(_) => return None,
    };
    let settings = &planned.choice.settings;
    Some(Ours {
        fits,
        micro_batch: settings.micro_batch,
        accumulation: settings.accumulation,
        recompute: settings.recompute.name(),
        planned_peak_bytes: planned.planned_peak_bytes(),
    })
}

/// Errors stand at the end; what is further up than this is not kept.
const MOST_LOG_BYTES: usize = 32 << 20;

/// The end of a file, of a pipe, or of standard input.
fn read_end(path: &Path) -> io::Result<String> {
    let bytes = match path.as_os_str() == "-" {
        true => last_bytes(io::stdin().lock(), MOST_LOG_BYTES)?,
        false => {
            let mut file = File::open(path)?;
            let beyond = file.metadata()?.len().saturating_sub(MOST_LOG_BYTES as u64);
            if beyond > 0 {
                file.seek(SeekFrom::Start(beyond))?;
            }
            last_bytes(file, MOST_LOG_BYTES)?
        }
    };
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// At most `most` bytes, the last ones.
fn last_bytes(mut from: impl Read, most: usize) -> io::Result<Vec<u8>> {
    let mut kept = Vec::new();
    loop {
        if from.by_ref().take(most.max(1) as u64).read_to_end(&mut kept)? == 0 {
            return Ok(kept);
        }
        kept.drain(..kept.len().saturating_sub(most));
    }
}

#[cfg(test)]
mod tests {
    use super::last_bytes;

    #[test]
    fn of_a_long_stream_the_end_is_kept() {
        let text: Vec<u8> = (0..100).collect();
        for (most, kept) in [(7, &text[93..]), (100, &text[..]), (1000, &text[..]), (99, &text[1..])] {
            assert_eq!(last_bytes(&text[..], most).unwrap(), kept, "{most}");
        }
        assert!(last_bytes(&[][..], 7).unwrap().is_empty());
    }
}
