//! `plimsoll torch snapshot` and `replay` for many files without the rest of plimsoll: one line of JSON a file.

use plimsoll_ghost::doctor::Diagnosis;
use plimsoll_ghost::replay::Replay;
use plimsoll_ghost::snapshot::Snapshot;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for path in std::env::args().skip(1) {
        let snapshot = Snapshot::open(path.as_ref())?;
        let (replay, diagnosis) = (Replay::of(&snapshot, None, &[]), Diagnosis::of(&snapshot, None));
        println!("{}", serde_json::json!({"file": path, "replay": replay, "diagnosis": diagnosis}));
    }
    Ok(())
}
