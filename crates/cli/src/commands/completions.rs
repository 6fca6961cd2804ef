//! `plimsoll completions` and `plimsoll man`: what shells and `man` want to know about the command line.

use super::Cli;
use crate::failure::Failure;
use crate::printer;
use clap::{Args, CommandFactory};
use clap_complete::Shell;
use std::path::PathBuf;

#[derive(Args)]
pub(crate) struct Arguments {
    /// The shell: `plimsoll completions bash > ~/.local/share/bash-completion/completions/plimsoll`
    shell: Shell,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Cli::command(), "plimsoll", &mut script);
    printer::out(&String::from_utf8_lossy(&script))?;
    Ok(())
}

#[derive(Args)]
pub(crate) struct ManArguments {
    /// Write a page for plimsoll and one for each command into this folder, instead of the first to stdout
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub(crate) fn run_man(arguments: &ManArguments) -> Result<(), Failure> {
    match &arguments.out {
        Some(folder) => {
            std::fs::create_dir_all(folder).map_err(|cause| Failure::writing(folder, cause))?;
            clap_mangen::generate_to(Cli::command(), folder).map_err(|cause| Failure::writing(folder, cause))
        }
        None => {
            let mut page = Vec::new();
            let rendered = clap_mangen::Man::new(Cli::command()).render(&mut page);
            rendered.map_err(|cause| Failure::failed(format!("the page cannot be made: {cause}"), "try --out DIR"))?;
            printer::out(&String::from_utf8_lossy(&page))?;
            Ok(())
        }
    }
}
