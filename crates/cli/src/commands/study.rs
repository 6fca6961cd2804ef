//! `plimsoll study`: what a study found.

use crate::environment;
use crate::failure::Failure;
use crate::printer::{self, say};
use clap::Args;
use plimsoll_base::files::write_whole;
use plimsoll_base::names::nearest;
use plimsoll_tune::report::{self, StudyReport};
use plimsoll_tune::trials::StudyFolder;
use std::path::{Path, PathBuf};

#[derive(Args)]
pub(crate) struct Arguments {
    /// The study's name
    pub name: String,
    /// Where it is kept: journal:FILE, sqlite:FILE or postgresql://… (default: the journal in its folder)
    ///
    /// env:NAME takes the address from the environment or from .env, so that no password stands in a list of processes
    #[arg(long, value_name = "STORAGE")]
    storage: Option<String>,
    /// Where studies are
    #[arg(long, value_name = "DIR", default_value = "studies")]
    studies: PathBuf,
    /// Every trial, in order
    #[arg(long)]
    all: bool,
    /// One JSON value on stdout
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// A row per trial, separated by commas
    #[arg(long)]
    csv: bool,
    /// Write a page about the study
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let address = address(arguments.storage.as_deref(), &arguments.studies, &arguments.name)?;
    if arguments.storage.is_none() {
        must_be_there(&arguments.studies, &arguments.name)?;
    }
    let found = report::study(&address, &arguments.name)?;
    if let Some(path) = &arguments.html {
        write_page(path, &found)?;
    }
    show(&found, arguments.json, arguments.csv, arguments.all)
}

fn must_be_there(studies: &Path, name: &str) -> Result<(), Failure> {
    if StudyFolder::of(studies, name).journal().exists() {
        return Ok(());
    }
    let entries = std::fs::read_dir(studies).into_iter().flatten().flatten();
    let there: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    let hint = match nearest(name, there.iter().map(String::as_str)) {
        Some(near) => format!("did you mean {near:?}?"),
        None => "`plimsoll tune` makes one; --studies and --storage name where it is".into(),
    };
    Err(Failure::bad_input(format!("there is no study {name:?} in {}", studies.display()), hint))
}

/// A page is written at the end: that it can be is known at the start.
pub(crate) fn can_be_written(page: &Path) -> Result<(), Failure> {
    let folder = page.parent().filter(|folder| !folder.as_os_str().is_empty());
    let cause = match folder {
        _ if page.is_dir() => "is a folder, not a file",
        Some(folder) if !folder.is_dir() => "is in no folder",
        _ => return Ok(()),
    };
    Err(Failure::bad_input(format!("--html {} {cause}", page.display()), "name a file in a folder that is there"))
}

/// The storage that is named, there or in the environment, or the journal in the study's own folder.
pub(crate) fn address(storage: Option<&str>, studies: &Path, name: &str) -> Result<String, Failure> {
    match storage {
        None => Ok(format!("journal:{}", StudyFolder::of(studies, name).journal().display())),
        Some(storage) => match storage.strip_prefix("env:") {
            None => Ok(storage.into()),
            Some(variable) => environment::variable(variable).ok_or_else(|| {
                let message =
                    format!("--storage env:{variable}: there is no {variable}, neither in the environment nor in .env");
                Failure::bad_input(message, format!("export {variable}=postgresql://…"))
            }),
        },
    }
}

pub(crate) fn show(found: &StudyReport, json: bool, csv: bool, all: bool) -> Result<(), Failure> {
    match (json, csv) {
        (true, _) => printer::json(found)?,
        (_, true) => printer::out(&found.csv())?,
        _ => printer::out(&found.text(all))?,
    };
    Ok(())
}

pub(crate) fn write_page(path: &Path, found: &StudyReport) -> Result<(), Failure> {
    write_whole(path, found.html().as_bytes()).map_err(|cause| Failure::writing(path, cause))?;
    say(&format!("page: {}", path.display()));
    Ok(())
}
