//! Completions and manual pages.

use crate::common::Desk;

#[test]
fn every_shell_gets_a_script_that_knows_every_command() {
    let desk = Desk::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = desk.run(&["completions", shell]);
        script.must(0, &[]);
        for word in ["plimsoll", "advise", "--device", "--frontier", "presets"] {
            let word = if shell == "fish" { word.trim_start_matches("--") } else { word };
            assert!(script.stdout.contains(word), "{shell}: no {word}");
        }
    }
    desk.run(&["completions", "tcsh"]).must(2, &["bash", "zsh", "fish"]);
}

#[test]
fn bash_reads_its_script() {
    let desk = Desk::new();
    desk.write("plimsoll.bash", &desk.run(&["completions", "bash"]).stdout);
    let words = "source plimsoll.bash; COMP_WORDS=(plimsoll pre); COMP_CWORD=1; _plimsoll plimsoll pre plimsoll; \
                 echo ${COMPREPLY[@]}";
    let Ok(answer) = std::process::Command::new("bash").args(["-c", words]).current_dir(desk.path("")).output() else {
        eprintln!("no bash on this machine");
        return;
    };
    let (out, error) = (String::from_utf8_lossy(&answer.stdout), String::from_utf8_lossy(&answer.stderr));
    assert!(out.contains("predict presets"), "{out}{error}");
}

#[test]
fn there_is_a_manual_page_for_every_command() {
    let desk = Desk::new();
    assert!(desk.run(&["man"]).stdout.contains(".TH plimsoll"));
    desk.run(&["man", "--out", "man/man1"]).must(0, &[]);
    for page in ["plimsoll.1", "plimsoll-plan.1", "plimsoll-train.1", "plimsoll-init.1"] {
        let text = std::fs::read_to_string(desk.path("man/man1").join(page)).unwrap();
        assert!(text.contains(".SH NAME") && text.contains(".SH SYNOPSIS"), "{page}");
    }
    desk.write("taken", "");
    desk.run(&["man", "--out", "taken"]).must(1, &["taken", "hint:"]);
}
