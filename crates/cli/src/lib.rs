//! The command `plimsoll`. stdout is data (tables or one JSON value), stderr is talk.
//! Exit codes: 0 done, 1 failed, 2 bad input, 3 does not fit.
//!
//! A library, which is compiled beside the last ones it stands on; the program itself is only linked after them.
//!
//! ```text
//! environment, failure ◄─ flags, printer ◄─ arguments, counter, progress, tracking, verdict ◄─ advice, device ◄─ cards
//!   ◄─ commands
//! ```

mod advice;
mod arguments;
mod cards;
mod commands;
mod counter;
mod device;
mod environment;
mod failure;
mod flags;
mod printer;
mod progress;
mod tracking;
mod verdict;

use clap::{CommandFactory, Parser};
use commands::Cli;
use std::process::ExitCode;

/// Every command with its flags, for those who check that nothing of them is left out.
pub fn command() -> clap::Command {
    Cli::command()
}

/// What the program is called with, done.
pub fn run() -> ExitCode {
    let done = match Cli::try_parse_from(flags::with_dashes(std::env::args_os())) {
        Ok(cli) => cli.command.run(),
        Err(asked) if !asked.use_stderr() => printer::help(&asked),
        Err(wrong) => wrong.exit(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            printer::show_failure(&failure);
            failure.code.into()
        }
    }
}
