//! What goes where: data to stdout, talk to stderr; colour only on a terminal and never under NO_COLOR.

use crate::failure::Failure;
use serde::Serialize;
use std::io::{self, IsTerminal, Write};

pub(crate) use plimsoll_base::units::format_seconds as duration;

/// Data for stdout. A reader that has seen enough (`| head`) is no error; false says that it is gone. What cannot be
/// written for any other reason, as on a full disk, is one: half an answer must not look like a whole one.
pub(crate) fn out(text: &str) -> Result<bool, Failure> {
    let mut stdout = io::stdout().lock();
    heard(stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()))
}

/// Help, or the version, that was asked for.
pub(crate) fn help(asked: &clap::Error) -> Result<(), Failure> {
    heard(asked.print().and_then(|()| io::stdout().flush())).map(drop)
}

fn heard(written: io::Result<()>) -> Result<bool, Failure> {
    match written {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(cause) => Err(Failure::failed(
            format!("cannot write to standard output: {cause}"),
            "what was written so far is not whole: make room, or send it elsewhere",
        )),
    }
}

/// One JSON value on one line.
pub(crate) fn json(value: &impl Serialize) -> Result<bool, Failure> {
    let mut text = serde_json::to_string(value).map_err(|e| {
        Failure::failed(format!("the answer is not JSON: {e}"), "this is a defect of plimsoll: please report it")
    })?;
    text.push('\n');
    out(&text)
}

/// One JSON value over many lines: for files that people read.
pub(crate) fn pretty_json(value: &impl Serialize) -> Result<bool, Failure> {
    let text = serde_json::to_string_pretty(value).map_err(|e| {
        Failure::failed(format!("the answer is not JSON: {e}"), "this is a defect of plimsoll: please report it")
    })?;
    out(&(text + "\n"))
}

/// Text from files and models as a terminal may show it: control characters but line ends and tabs become pictures of
/// themselves, so that no data can move the cursor, change the title or hide a line.
pub(crate) fn plain(text: &str) -> String {
    let shown = |c: char| match c {
        '\n' | '\t' => c,
        '\0'..='\x1f' => char::from_u32(0x2400 + c as u32).unwrap_or('\u{fffd}'),
        '\x7f' => '\u{2421}',
        c if c.is_control() => '\u{fffd}',
        c => c,
    };
    text.chars().map(shown).collect()
}

/// The same for stdout: what goes into a file or another program stays as it is.
pub(crate) fn plain_on_terminal(text: String) -> String {
    if io::stdout().is_terminal() { plain(&text) } else { text }
}

/// Talk. Nobody has to listen.
pub(crate) fn say(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

pub(crate) fn show_failure(failure: &Failure) {
    let paint = Paint::stderr();
    say(&format!("{} {}", paint.red("error:"), plain(&failure.message)));
    for hint in &failure.hints {
        say(&format!("  {} {}", paint.cyan("hint:"), plain(hint)));
    }
}

/// Colours, or none.
#[derive(Clone, Copy)]
pub(crate) struct Paint {
    on: bool,
}

impl Paint {
    pub(crate) fn stderr() -> Paint {
        Paint { on: io::stderr().is_terminal() && allowed(std::env::var_os("NO_COLOR").as_deref()) }
    }

    pub(crate) fn stdout() -> Paint {
        Paint { on: io::stdout().is_terminal() && allowed(std::env::var_os("NO_COLOR").as_deref()) }
    }

    pub(crate) fn red(self, text: &str) -> String {
        self.with("1;31", text)
    }
    pub(crate) fn green(self, text: &str) -> String {
        self.with("1;32", text)
    }
    pub(crate) fn cyan(self, text: &str) -> String {
        self.with("36", text)
    }
    pub(crate) fn bold(self, text: &str) -> String {
        self.with("1", text)
    }

    fn with(self, code: &str, text: &str) -> String {
        if self.on { format!("\x1b[{code}m{text}\x1b[0m") } else { text.into() }
    }
}

/// NO_COLOR counts when it is there and not empty.
fn allowed(no_color: Option<&std::ffi::OsStr>) -> bool {
    no_color.is_none_or(|value| value.is_empty())
}

/// Lines set off from the margin.
pub(crate) fn indented(text: &str) -> String {
    text.lines().map(|line| if line.is_empty() { "\n".into() } else { format!("  {line}\n") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_from_data_reaches_the_terminal_as_a_command() {
        let nasty = "a\x1b]0;PWNED\x07b\r\n\tc\u{9b}31m\x7f";
        assert_eq!(plain(nasty), "a␛]0;PWNED␇b␍\n\tc\u{fffd}31m␡");
        assert_eq!(plain("gewöhnlich 文字"), "gewöhnlich 文字");
    }

    #[test]
    fn no_color_is_respected() {
        assert!(!allowed(Some("1".as_ref())) && allowed(Some("".as_ref())) && allowed(None));
        assert_eq!(Paint { on: false }.red("x"), "x");
        assert!(Paint { on: true }.red("x").starts_with('\x1b'));
    }
}
