//! Short work of the same binary: export, generate, predict, advise. It ends with the client that asked, with its time,
//! or with its own answer, and never says more than there is room for.

use crate::problem::Problem;
use axum::http::StatusCode;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Of these at one time; each may load a model.
const MOST_AT_ONCE: usize = 2;
const LONGEST: Duration = Duration::from_secs(600);
const MOST_BYTES: u64 = 4 << 20;

pub(crate) struct Tools {
    program: PathBuf,
    data: PathBuf,
    places: Semaphore,
}

/// What a tool said.
pub(crate) struct Output {
    pub stdout: Vec<u8>,
    pub stderr: String,
    pub code: Option<i32>,
    /// There was more than fits.
    pub cut: bool,
}

impl Tools {
    pub(crate) fn new(program: &Path, data: &Path) -> Tools {
        Tools { program: program.into(), data: data.into(), places: Semaphore::new(MOST_AT_ONCE) }
    }

    pub(crate) async fn run(&self, arguments: &[String], input: Option<Vec<u8>>) -> Result<Output, Problem> {
        let busy = || Problem::busy("others are using models right now", "ask again when one of them has its answer");
        let _place = timeout(Duration::from_secs(20), self.places.acquire()).await.map_err(|_| busy())?;
        let failed = |cause: std::io::Error| Problem::failed(format!("plimsoll cannot be started: {cause}"));
        let mut child = self.command(arguments, input.is_some()).spawn().map_err(failed)?;
        match timeout(LONGEST, talk(&mut child, input)).await {
            Ok(output) => output.map_err(failed),
            Err(_) => Err(Problem::new(StatusCode::GATEWAY_TIMEOUT, "it took too long and was ended")),
        }
    }

    fn command(&self, arguments: &[String], listens: bool) -> Command {
        let mut command = Command::new(&self.program);
        command.args(arguments).current_dir(&self.data).env_remove("PLIMSOLL_TOKEN").process_group(0);
        command.stdin(if listens { Stdio::piped() } else { Stdio::null() });
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        command
    }
}

async fn talk(child: &mut Child, input: Option<Vec<u8>>) -> std::io::Result<Output> {
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let say = async {
        if let (Some(mut stdin), Some(input)) = (stdin, input) {
            // Who does not want to hear it all says so by its answer.
            let _ = stdin.write_all(&input).await;
        }
    };
    let ((), (stdout, cut), (stderr, _)) = tokio::join!(say, hear(stdout), hear(stderr));
    if cut {
        let _ = child.start_kill();
    }
    let code = child.wait().await?.code();
    Ok(Output { stdout, stderr: String::from_utf8_lossy(&stderr).into_owned(), code, cut })
}

/// As much as there is room for. A pipe that is dropped tells the writer to end.
async fn hear(pipe: Option<impl AsyncRead + Unpin>) -> (Vec<u8>, bool) {
    let mut bytes = Vec::new();
    let Some(pipe) = pipe else { return (bytes, false) };
    let _ = pipe.take(MOST_BYTES + 1).read_to_end(&mut bytes).await;
    let cut = bytes.len() as u64 > MOST_BYTES;
    bytes.truncate(MOST_BYTES as usize);
    (bytes, cut)
}

impl Output {
    /// The same with other words for what it names.
    pub(crate) fn reworded(self, reword: impl Fn(&str) -> String) -> Output {
        let stdout = reword(&String::from_utf8_lossy(&self.stdout)).into_bytes();
        Output { stdout, stderr: reword(&self.stderr), ..self }
    }

    /// The answer, or the failure in the tool's own words with its hint.
    pub(crate) fn answer(self) -> Result<Vec<u8>, Problem> {
        match self.code {
            Some(0) => Ok(self.stdout),
            _ if self.cut => Ok(self.stdout),
            _ => Err(self.problem()),
        }
    }

    /// Answers that came line by line stand, though some rows have none; what the tool says of those comes along.
    pub(crate) fn lines(self) -> Result<(Vec<u8>, Option<String>), Problem> {
        match self.code {
            Some(1) if !self.stdout.is_empty() && !self.cut => Ok((self.stdout.clone(), Some(self.problem().error))),
            _ => self.answer().map(|lines| (lines, None)),
        }
    }

    fn problem(&self) -> Problem {
        let status = match self.code {
            Some(2) => StatusCode::UNPROCESSABLE_ENTITY,
            Some(3) => StatusCode::CONFLICT,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let words = |prefix: &str| {
            self.stderr
                .lines()
                .find_map(|line| line.trim_start().strip_prefix(prefix))
                .map(|rest| rest.trim().to_string())
        };
        let last = || self.stderr.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it failed").to_string();
        let problem = Problem::new(status, words("error:").unwrap_or_else(last));
        match words("hint:").filter(|hint| !is_for_a_terminal(hint)) {
            Some(hint) => problem.hint(hint),
            None => problem,
        }
    }
}

/// Whether a hint is about what to type: who asks over the network types nothing.
fn is_for_a_terminal(hint: &str) -> bool {
    hint.contains("`plimsoll") || hint.split_whitespace().any(|word| word.trim_start_matches('`').starts_with("--"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(code: i32, stdout: &str, stderr: &str) -> Output {
        Output { stdout: stdout.into(), stderr: stderr.into(), code: Some(code), cut: false }
    }

    #[test]
    fn hints_for_a_terminal_are_kept_from_who_has_none() {
        let hint = |words: &str| said(2, "", &format!("error: no\n  hint: {words}\n")).answer().unwrap_err().hint;
        for words in ["name it with --family", "see `plimsoll devices --catalog`", "leave out `--set x=1`"] {
            assert_eq!(hint(words), None, "{words}");
        }
        assert_eq!(hint("paste the lines around -- the error").as_deref(), None);
        assert_eq!(hint("is the path right?").as_deref(), Some("is the path right?"));
    }

    #[test]
    fn answers_stand_where_some_rows_have_none() {
        let (lines, note) = said(1, "{\"row\":1}\n", "error: 1 of 2 rows have no answer\n").lines().unwrap();
        assert_eq!((&lines[..], note.as_deref()), (&b"{\"row\":1}\n"[..], Some("1 of 2 rows have no answer")));
        assert_eq!(said(1, "", "error: it broke\n").lines().unwrap_err().status, 500);
        assert_eq!(said(2, "{}\n", "error: x: no column\n").lines().unwrap_err().status, 422);
    }
}
