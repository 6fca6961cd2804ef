//! `plimsoll notify`: tries the notifications.

use crate::environment::Surroundings;
use crate::failure::Failure;
use crate::printer;
use crate::tracking::{self, refused};
use clap::Args;
use plimsoll_models::recipe::Recipe;
use plimsoll_track::{Notify, NotifyOutcome, test_notifications};
use serde::Serialize;
use std::path::PathBuf;

#[derive(Args)]
pub(crate) struct Arguments {
    /// A recipe whose [notify] names the addresses (default: DISCORD_WEBHOOK and APPRISE_URLS)
    recipe: Option<PathBuf>,
    /// Send a message to every address now
    #[arg(long)]
    test: bool,
    /// One JSON value on stdout
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct TriedTarget<'a> {
    service: &'a str,
    variable: &'a str,
    delivered: bool,
    trouble: Option<&'a str>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let targets = match &arguments.recipe {
        Some(path) => tracking::targets(&Recipe::load(path, &[])?),
        None => Notify::targets(None, &Surroundings),
    };
    let targets = targets.map_err(|error| refused(&error))?;
    if targets.is_empty() {
        return Err(Failure::bad_input(
            "there is nobody to notify",
            "set DISCORD_WEBHOOK or APPRISE_URLS, or name variables in [notify] of a recipe",
        ));
    }
    if !arguments.test {
        let hint = "`plimsoll notify --test` sends a message to each";
        return Err(Failure::bad_input(format!("{} addresses are set", targets.len()), hint));
    }
    show(&test_notifications(&targets), arguments.json)
}

fn show(outcomes: &[NotifyOutcome], json: bool) -> Result<(), Failure> {
    if json {
        printer::json(&outcomes.iter().map(row).collect::<Vec<_>>())?;
    } else {
        printer::out(&outcomes.iter().map(line).collect::<String>())?;
    }
    match outcomes.iter().filter(|outcome| outcome.trouble.is_some()).count() {
        0 => Ok(()),
        n => Err(Failure::failed(
            format!("{n} of {} addresses did not take the message", outcomes.len()),
            "check the address and its token, and whether this machine reaches the network",
        )),
    }
}

fn row(outcome: &NotifyOutcome) -> TriedTarget<'_> {
    TriedTarget {
        service: &outcome.service,
        variable: &outcome.place,
        delivered: outcome.trouble.is_none(),
        trouble: outcome.trouble.as_deref(),
    }
}

fn line(outcome: &NotifyOutcome) -> String {
    let became = outcome.trouble.as_deref().unwrap_or("delivered");
    format!("{} ({}): {became}\n", outcome.service, outcome.place)
}
