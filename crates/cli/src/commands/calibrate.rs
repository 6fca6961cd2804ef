//! `plimsoll calibrate`: measure the device, keep its profile for later predictions.

use crate::arguments::Machine;
use crate::device;
use crate::failure::Failure;
use crate::printer::{self, say};
use clap::Args;
use indicatif::ProgressBar;
use plimsoll::{Calibration, calibrate, store_profile};
use plimsoll_core::plan::{Amount, Amounts};
use serde::Serialize;
use std::path::Path;
use std::time::Duration;

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    machine: Machine,
    /// Measure for about this many seconds
    #[arg(long, value_name = "S", default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// One JSON value on stdout
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct CalibrateJson<'a> {
    device: &'a str,
    threads: usize,
    file: &'a Path,
    #[serde(flatten)]
    calibration: &'a Calibration,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let device = device::to_run_on(&arguments.machine)?;
    let Some(measured) = device.measured() else {
        return Err(Failure::bad_input("this device is not here", "measure cpu, cuda or cuda:N"));
    };
    say(&format!("measuring {measured}; other work on it makes it look slower"));
    // Invisible unless stderr is a terminal.
    let bar = ProgressBar::new(100);
    let time = Duration::from_secs(arguments.seconds);
    let calibration = calibrate(&device, time, |share| bar.set_position((100.0 * share.min(1.0)) as u64));
    bar.finish_and_clear();
    let calibration = calibration?;
    let file = store_profile(&measured, &calibration.profile)
        .map_err(|cause| Failure::failed(format!("the profile cannot be kept: {cause}"), "set XDG_CACHE_HOME"))?;
    match arguments.json {
        true => {
            let (device, threads) = (measured.name(), device.target.threads);
            let answer = CalibrateJson { device, threads, file: &file, calibration: &calibration };
            printer::json(&answer)?
        }
        false => printer::out(&tables(&calibration, &file))?,
    };
    Ok(())
}

fn tables(calibration: &Calibration, file: &Path) -> String {
    let mut text = format!(
        "{:<23} {:>9} {:>10} {:>9} {:>9} {:>10} {:>7}\n",
        "class", "us/node", "GFLOP/s", "near GB/s", "far GB/s", "measured", "off by"
    );
    for check in &calibration.classes {
        let profile = &calibration.profile;
        let rates = if check.half { &profile.half_seconds } else { &profile.seconds };
        let rates = rates.get(&check.class).copied().unwrap_or_default();
        let name = format!("{}{}", check.class.name(), if check.half { ", half" } else { "" });
        text += &format!(
            "{name:<23} {:>9.1} {:>10} {:>9} {:>9} {:>7.2} ms {:>5.0} %\n",
            1e6 * rates.of(Amount::Node),
            per_second(&rates, Amount::Flops),
            per_second(&rates, Amount::NearBytes),
            per_second(&rates, Amount::FarBytes),
            check.measured_ms,
            100.0 * check.error
        );
    }
    text += &format!("\n{:<23} {:>9} {:>10}\n", "step of", "measured", "predicted");
    for step in &calibration.steps {
        text += &format!("{:<23} {:>6.2} ms {:>7.2} ms\n", step.model, step.measured_ms, step.predicted_ms);
    }
    text + &format!("\n{:.0} s; kept in {}\n", calibration.seconds, file.display())
}

/// Billions per second; a dash where it takes no time of its own, but for what a fit leaves over.
fn per_second(rates: &Amounts, amount: Amount) -> String {
    match 1e-9 / rates.of(amount) {
        billions if billions < 1e6 => format!("{billions:.1}"),
        _ => "-".into(),
    }
}
