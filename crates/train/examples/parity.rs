//! Compares plimsoll with the golden files of a folder, made by `tools/reference/golden.py`; exits 1 on a difference.

#[path = "../tests/common/parity.rs"]
mod parity;

use std::process::ExitCode;

fn main() -> ExitCode {
    let Some(folder) = std::env::args().nth(1) else {
        eprintln!("usage: parity FOLDER");
        return ExitCode::from(2);
    };
    let mut files: Vec<_> = match std::fs::read_dir(&folder) {
        Ok(entries) => {
            entries.flatten().map(|e| e.path()).filter(|p| p.extension().is_some_and(|e| e == "safetensors")).collect()
        }
        Err(error) => {
            eprintln!("{folder}: {error}");
            return ExitCode::from(2);
        }
    };
    files.sort();
    let verdicts: Vec<_> = files
        .iter()
        .map(|file| {
            let verdict = parity::compare(file, &parity::on_cpu);
            println!("{verdict}");
            verdict
        })
        .collect();
    let failed = verdicts.iter().filter(|v| !v.holds()).count();
    println!("{} of {} agree with PyTorch", verdicts.len() - failed, verdicts.len());
    if failed == 0 && !verdicts.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
