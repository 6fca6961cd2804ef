//! What a release says of itself.

use crate::common::{Answer, Desk};
use std::path::Path;
use std::process::Command;

const CHANGELOG: &str = "# Changelog\n\n## Unreleased\n\n- soon\n\n## 1.2.0 (2030-01-02)\n\n### Added\n- one\n\n- two\n\n\
                         ## 1.2.0-rc.1\n\n- a candidate\n\n## 1.1.0\n## 1x2.0\n- not a version\n";

fn notes(version: &str, changelog: &Path) -> Answer {
    let tool = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/release-notes");
    Command::new(tool).arg(version).arg(changelog).output().unwrap().into()
}

#[test]
fn notes_are_the_whole_section_of_the_version_and_nothing_else() {
    let desk = Desk::new();
    desk.write("CHANGELOG.md", CHANGELOG);
    let of = |version: &str| notes(version, &desk.path("CHANGELOG.md"));
    assert_eq!(of("1.2.0").stdout, "### Added\n- one\n\n- two\n");
    assert_eq!(of("1.2.0-rc.1").stdout, "- a candidate\n");
    assert_eq!(of("1x2.0").stdout, "- not a version\n", "the last section ends with the file");
    of("1.1.0").must(1, &["says nothing about 1.1.0"]);
    of("1.2").must(1, &["no section of 1.2", "hint:"]);
}

#[test]
fn the_last_release_has_its_last_line() {
    let changelog = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../CHANGELOG.md");
    let notes = notes("0.1.0", &changelog);
    notes.must(0, &[]);
    assert!(notes.stdout.starts_with("The first version."), "{}", notes.stdout);
    assert!(notes.stdout.ends_with("- `devices`, `bench`, `calibrate`.\n"), "{}", notes.stdout);
}
