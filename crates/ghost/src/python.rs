//! Which Python a command runs, and which torch that Python has. Nothing is imported to find out: importing a torch
//! takes seconds, and one without its libraries cannot be imported at all.

use serde::Deserialize;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;
use thiserror::Error;

#[derive(Debug, Error)]
pub enum PythonError {
    #[error("{python}: {cause}")]
    NotStarted { python: String, cause: std::io::Error },
    #[error("{python} does not answer as a Python does: {answer}")]
    NotPython { python: String, answer: String },
    #[error("{python} does not answer within {} seconds which torch it has", PATIENCE.as_secs())]
    Silent { python: String },
    #[error("{python} has no torch")]
    NoTorch { python: String },
    #[error("the torch {version} of {python} is built without CUDA")]
    NoCuda { python: String, version: String },
}

impl PythonError {
    pub fn hint(&self) -> &'static str {
        match self {
            PythonError::NotStarted { .. } | PythonError::NotPython { .. } | PythonError::Silent { .. } => {
                "give the command as you would run it, e.g. `plimsoll ghost -- python train.py`, or name the \
                 interpreter with --python"
            }
            PythonError::NoTorch { .. } => "`pip install torch` there, or name another interpreter with --python",
            PythonError::NoCuda { .. } => {
                "install the CUDA build, which needs no GPU to be installed: `pip install --force-reinstall torch` \
                 from PyPI on Linux"
            }
        }
    }
}

/// A torch that is built for CUDA.
#[derive(Clone, Debug, PartialEq)]
pub struct Torch {
    pub python: String,
    pub version: String,
    /// 13000 for CUDA 13.0.
    pub cuda: u32,
    /// 91900 for cuDNN 9.19.0, as far as the wheel says.
    pub cudnn: Option<u32>,
    pub nccl: Option<u32>,
    /// Where its libraries lie.
    pub libraries: PathBuf,
    /// Where packages lie that may bring libraries of their own.
    pub packages: PathBuf,
}

#[derive(Deserialize)]
struct Answer {
    folder: Option<PathBuf>,
    version: String,
    cuda: Option<String>,
    requires: Vec<String>,
}

/// How long an interpreter may take to say which torch it has: from a network file system it may take long.
const PATIENCE: Duration = Duration::from_secs(60);
/// More than any Python answers.
const MOST_ANSWER: u64 = 1 << 20;

/// Prints what is known without importing torch.
const ASK: &str = r#"
import importlib.metadata as metadata, importlib.util, json, os, re, sys
spec = importlib.util.find_spec("torch")
found = {"folder": None, "version": "", "cuda": None, "requires": []}
if spec is not None and spec.submodule_search_locations:
    found["folder"] = list(spec.submodule_search_locations)[0]
    try:
        text = open(os.path.join(found["folder"], "version.py")).read()
        cuda = re.search(r"^cuda.*=\s*['\"]([0-9.]+)['\"]", text, re.M)
        version = re.search(r"^__version__\s*=\s*['\"]([^'\"]+)['\"]", text, re.M)
        found["cuda"] = cuda and cuda.group(1)
        found["version"] = version and version.group(1) or "?"
        found["requires"] = [line.split(";")[0] for line in metadata.requires("torch") or []]
    except Exception:
        pass
print("plimsoll:" + json.dumps(found))
"#;

impl Torch {
    /// The torch of this interpreter.
    pub fn of(python: &str) -> Result<Torch, PythonError> {
        let answer = ask(python)?;
        let Some(folder) = answer.folder else { return Err(PythonError::NoTorch { python: python.into() }) };
        let Some(cuda) = answer.cuda.as_deref().and_then(cuda_number) else {
            return Err(PythonError::NoCuda { python: python.into(), version: answer.version });
        };
        Ok(Torch {
            python: python.into(),
            version: answer.version,
            cuda,
            cudnn: required(&answer.requires, "nvidia-cudnn").map(|[a, b, c]| a * 10_000 + b * 100 + c),
            nccl: required(&answer.requires, "nvidia-nccl").map(|[a, b, c]| a * 10_000 + b * 100 + c),
            libraries: folder.join("lib"),
            packages: folder.parent().map_or_else(|| folder.clone(), Path::to_path_buf),
        })
    }
}

fn ask(python: &str) -> Result<Answer, PythonError> {
    let text = answer_of(python)?;
    let line = text.lines().find_map(|line| line.strip_prefix("plimsoll:"));
    let answer = line.and_then(|line| serde_json::from_str(line).ok());
    answer.ok_or_else(|| PythonError::NotPython { python: python.into(), answer: text.chars().take(80).collect() })
}

/// What it prints before it ends, or before its time is up.
fn answer_of(python: &str) -> Result<String, PythonError> {
    let mut command = Command::new(python);
    command.args(["-c", ASK]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let started = command.spawn();
    let mut child = started.map_err(|cause| PythonError::NotStarted { python: python.into(), cause })?;
    let (send, receive) = mpsc::channel();
    if let Some(stdout) = child.stdout.take() {
        // On a thread of its own: a program that is no Python may say nothing, or never stop.
        thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = stdout.take(MOST_ANSWER).read_to_end(&mut bytes);
            let _ = send.send(String::from_utf8_lossy(&bytes).into_owned());
        });
    }
    let answer = receive.recv_timeout(PATIENCE);
    let _ = child.kill();
    let _ = child.wait();
    answer.map_err(|_| PythonError::Silent { python: python.into() })
}

/// `12.8` is 12080.
fn cuda_number(text: &str) -> Option<u32> {
    let mut parts = text.split('.').map(|part| part.parse::<u32>().ok());
    Some(parts.next()?? * 1000 + parts.next().flatten().unwrap_or(0) * 10)
}

/// The version of a package that a wheel requires: `nvidia-cudnn-cu13==9.19.0.56`.
fn required(lines: &[String], package: &str) -> Option<[u32; 3]> {
    let line = lines.iter().find(|line| line.starts_with(package))?;
    let version = line.split_once("==")?.1;
    let mut parts = version.trim().split('.').map(|part| part.trim().parse().ok());
    Some([parts.next()??, parts.next()??, parts.next().flatten().unwrap_or(0)])
}

/// The interpreter that a command runs: named by it, by the first line of the script that it names, or the usual one.
pub(crate) fn interpreter_of(command: &[String]) -> String {
    let Some(program) = command.first() else { return "python3".into() };
    if is_python(program) {
        return program.clone();
    }
    let script = find_program(program);
    script.and_then(|script| shebang(&script)).unwrap_or_else(|| usual_python(command))
}

/// By its name: `python`, `python3`, `python3.13t`, `pythonw`; not a script that is called after it, which would run.
fn is_python(program: &str) -> bool {
    let name = Path::new(program).file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let version = name.strip_prefix("python").map(|rest| rest.trim_end_matches(['t', 'd', 'w', 'm']));
    version.is_some_and(|version| version.chars().all(|letter| letter.is_ascii_digit() || letter == '.'))
}

/// A Python named further on (`nice python train.py`), or the one of this shell.
fn usual_python(command: &[String]) -> String {
    let named = command.iter().find(|word| is_python(word));
    named.cloned().unwrap_or_else(|| if find_program("python").is_some() { "python".into() } else { "python3".into() })
}

fn find_program(program: &str) -> Option<PathBuf> {
    if program.contains('/') {
        return Some(program.into());
    }
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join(program)).find(|path| path.is_file())
}

fn shebang(script: &Path) -> Option<String> {
    let bytes = std::fs::read(script).ok().filter(|bytes| bytes.starts_with(b"#!"))?;
    let line = String::from_utf8_lossy(bytes.split(|byte| *byte == b'\n').next()?).into_owned();
    line.trim_start_matches("#!").split_whitespace().find(|word| is_python(word)).map(String::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_their_own_libraries_number_them() {
        assert_eq!(cuda_number("12.8"), Some(12_080));
        assert_eq!(cuda_number("13.0"), Some(13_000));
        assert_eq!(cuda_number("thirteen"), None);
        let lines = ["nvidia-cudnn-cu13==9.19.0.56".to_string(), "nvidia-nccl-cu13==2.28.9".into(), "sympy".into()];
        assert_eq!(required(&lines, "nvidia-cudnn"), Some([9, 19, 0]));
        assert_eq!(required(&lines, "nvidia-cufft"), None);
    }

    #[test]
    fn the_interpreter_is_the_one_that_the_command_names_or_its_script_asks_for() {
        let words = |text: &str| text.split(' ').map(String::from).collect::<Vec<_>>();
        assert_eq!(interpreter_of(&words("/opt/a/bin/python3.11 train.py")), "/opt/a/bin/python3.11");
        assert_eq!(interpreter_of(&words("/no/such/launcher /b/python train.py")), "/b/python");
        assert_eq!(interpreter_of(&words("/no/such/python_train.py /b/python3.13t")), "/b/python3.13t");
        assert!(!is_python("./python-lab") && !is_python("python.py") && is_python("python") && is_python("python3"));
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("torchrun");
        std::fs::write(&script, "#!/venv/bin/python\nprint()\n").unwrap();
        assert_eq!(interpreter_of(&[script.to_string_lossy().into()]), "/venv/bin/python");
    }

    #[test]
    fn a_program_that_is_no_python_and_one_that_is_not_there_are_told_apart() {
        assert!(matches!(Torch::of("/no/such/python"), Err(PythonError::NotStarted { .. })));
        assert!(matches!(Torch::of("/bin/echo"), Err(PythonError::NotPython { .. })));
    }
}
