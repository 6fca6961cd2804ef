//! Starts the program with the stand-in in front, waits for it inside a time limit, and leaves no process behind.

use crate::card::Card;
use crate::python::Torch;
use crate::stand_in::StandIn;
use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

const SITECUSTOMIZE: &str = include_str!("python/sitecustomize.py");
const HOOK: &str = include_str!("python/plimsoll_ghost.py");

/// How a run is to go.
#[derive(Clone, Debug)]
pub struct Launch {
    pub command: Vec<String>,
    pub card: Card,
    /// Optimizer steps after which the program is stopped; none for its own end.
    pub steps: Option<usize>,
    pub time_limit: Duration,
    /// Ranks of a distributed training, of which the program is the first.
    pub world: Option<usize>,
    /// More of the environment, over what there is.
    pub environment: Vec<(String, String)>,
    /// Whether what the program prints is shown.
    pub show_output: bool,
}

/// How the program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    Exit(i32),
    Signal(i32),
    TimeLimit,
    Interrupted,
}

/// How it ended, and the last lines of its stderr where those were not shown.
#[derive(Clone, Debug)]
pub struct Ended {
    pub ending: Ending,
    pub last_words: Vec<String>,
}

/// The end of what a program says on stderr.
struct LastWords {
    bytes: Arc<Mutex<VecDeque<u8>>>,
    done: mpsc::Receiver<()>,
}

impl LastWords {
    const MOST_BYTES: usize = 16 << 10;
    const MOST_LINES: usize = 20;

    fn listen(mut stderr: ChildStderr) -> LastWords {
        let bytes = Arc::new(Mutex::new(VecDeque::new()));
        let (kept, (say_done, done)) = (bytes.clone(), mpsc::channel());
        thread::spawn(move || {
            let mut part = [0; 4096];
            while let Ok(count @ 1..) = stderr.read(&mut part) {
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                kept.extend(&part[..count]);
                let surplus = kept.len().saturating_sub(Self::MOST_BYTES);
                kept.drain(..surplus);
            }
            let _ = say_done.send(());
        });
        LastWords { bytes, done }
    }

    /// The program is gone; something that it started and that could not be ended may hold its stderr open for ever.
    fn lines(self) -> Vec<String> {
        let _ = self.done.recv_timeout(Duration::from_secs(1));
        let bytes: Vec<u8> = self.bytes.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect();
        let text = String::from_utf8_lossy(&bytes);
        // Bars of progress begin lines anew without ending them.
        let shown = text.lines().map(|line| line.rsplit('\r').next().unwrap_or(line).trim_end());
        let lines: Vec<String> = shown.filter(|line| !line.is_empty()).map(String::from).collect();
        lines[lines.len().saturating_sub(Self::MOST_LINES)..].to_vec()
    }
}

impl Launch {
    /// Runs it, with the notes of the program's side in `out`.
    pub fn run(&self, torch: &Torch, stand_in: &StandIn, out: &Path, stop: &AtomicBool) -> io::Result<Ended> {
        let python = stand_in.folder.join("python");
        fs::create_dir_all(&python)?;
        fs::write(python.join("sitecustomize.py"), SITECUSTOMIZE)?;
        fs::write(python.join("plimsoll_ghost.py"), HOOK)?;
        let (program, arguments) = self.command.split_first().ok_or_else(|| io::Error::other("no command is given"))?;
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).process_group(0);
        self.set_environment(&mut command, torch, stand_in, out, &python);
        self.set_output(&mut command)?;
        die_with_us(&mut command);
        let mut child = command.spawn()?;
        let words = child.stderr.take().map(LastWords::listen);
        let ending = self.wait(child, out, stop);
        Ok(Ended { ending, last_words: words.map_or_else(Vec::new, LastWords::lines) })
    }

    /// stdout is data of ours: what the program prints there is talk.
    fn set_output(&self, command: &mut Command) -> io::Result<()> {
        if self.show_output {
            // SAFETY: the duplicate is owned by the child's side alone.
            let talk = unsafe { libc::dup(2) };
            if talk < 0 {
                return Err(io::Error::last_os_error());
            }
            // SAFETY: just made, and nobody else's.
            command.stdout(unsafe { <Stdio as std::os::fd::FromRawFd>::from_raw_fd(talk) });
        } else {
            command.stdout(Stdio::null()).stderr(Stdio::piped());
        }
        Ok(())
    }

    fn set_environment(&self, command: &mut Command, torch: &Torch, stand_in: &StandIn, out: &Path, python: &Path) {
        let card = &self.card;
        let facts = [
            ("NAME", card.name.clone()),
            ("TOTAL", card.total_bytes.to_string()),
            ("CONTEXT", card.context_bytes.to_string()),
            ("MAJOR", card.compute_capability.0.to_string()),
            ("MINOR", card.compute_capability.1.to_string()),
            ("SMS", card.multiprocessors.to_string()),
            ("CACHE", card.cache_bytes.to_string()),
            ("CUDA", torch.cuda.to_string()),
            ("CUDNN", torch.cudnn.unwrap_or(91_000).to_string()),
            ("NCCL", torch.nccl.unwrap_or(22_800).to_string()),
            ("STEPS", self.steps.unwrap_or(0).to_string()),
        ];
        for (key, value) in facts {
            command.env(format!("PLIMSOLL_GHOST_{key}"), value);
        }
        command.env("PLIMSOLL_GHOST_OUT", out).env("PLIMSOLL_GHOST_LIBRARIES", &stand_in.folder);
        command.env("TRITON_LIBCUDA_PATH", &stand_in.folder);
        // A card that is hidden, or a choice among several, was meant for cards that are there.
        command.env_remove("CUDA_VISIBLE_DEVICES");
        if let Some(world) = self.world {
            set_world(command, world);
        }
        command.envs(self.environment.iter().cloned());
        let preload = stand_in.preload.iter().map(|path| path.as_os_str().into()).collect();
        command.env("LD_PRELOAD", self.in_front(preload, "LD_PRELOAD"));
        command.env("LD_LIBRARY_PATH", self.in_front(vec![stand_in.absent.as_os_str().into()], "LD_LIBRARY_PATH"));
        command.env("PYTHONPATH", self.in_front(vec![python.as_os_str().into()], "PYTHONPATH"));
    }

    /// A list of paths in front of what the user sets, or else of what the environment has.
    fn in_front(&self, mut paths: Vec<OsString>, key: &str) -> OsString {
        let set = self.environment.iter().rev().find(|(name, _)| name == key);
        let theirs = set.map_or_else(|| std::env::var_os(key), |(_, value)| Some(value.into()));
        paths.extend(theirs.filter(|value| !value.is_empty()));
        paths.join(std::ffi::OsStr::new(":"))
    }

    fn wait(&self, mut child: Child, out: &Path, stop: &AtomicBool) -> Ending {
        let group = child.id() as i32;
        // None for one that lies beyond what a clock can say.
        let deadline = Instant::now().checked_add(self.time_limit);
        let ending = loop {
            match child.try_wait() {
                Ok(Some(status)) => {
                    break status.code().map_or(Ending::Signal(status.signal().unwrap_or(0)), Ending::Exit);
                }
                Err(_) => break Ending::Signal(0),
                Ok(None) if stop.load(Ordering::Relaxed) => break Ending::Interrupted,
                Ok(None) if deadline.is_some_and(|deadline| Instant::now() > deadline) => break Ending::TimeLimit,
                Ok(None) => thread::sleep(Duration::from_millis(10)),
            }
        };
        match ending {
            Ending::TimeLimit => ask_to_finish(&mut child, out, GRACE),
            Ending::Interrupted => ask_to_finish(&mut child, out, SHORT_GRACE),
            Ending::Exit(_) | Ending::Signal(_) => {}
        }
        end_group(group);
        end_strays(out);
        // Reaps it, so that nothing is left.
        let _ = child.wait();
        ending
    }
}

/// A program does not go on by itself where whoever asked about it was killed.
fn die_with_us(command: &mut Command) {
    // SAFETY: one system call, which may be made between fork and exec.
    unsafe {
        command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        })
    };
}

/// How long a program is given to hear that it is to end, and then to write down what it knows: a long history takes
/// minutes.
const GRACE: (Duration, Duration) = (Duration::from_secs(20), Duration::from_secs(300));
/// The same when somebody waits at the keyboard.
const SHORT_GRACE: (Duration, Duration) = (Duration::from_secs(15), Duration::from_secs(15));

/// What `torchrun` would set for the first of so many ranks.
fn set_world(command: &mut Command, world: usize) {
    let ranks = world.to_string();
    let facts = [("WORLD_SIZE", ranks.as_str()), ("PLIMSOLL_GHOST_WORLD", &ranks), ("RANK", "0"), ("LOCAL_RANK", "0")];
    command.envs(facts).env("LOCAL_WORLD_SIZE", "1").env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", "29500");
}

/// Everybody who writes notes is asked: the program may be a child of what was started.
fn ask_to_finish(child: &mut Child, out: &Path, (to_hear, to_write): (Duration, Duration)) {
    let asked = processes_with(out, "notes");
    for process in asked.iter().filter(|process| runs(**process)) {
        // SAFETY: a signal to a process that descends from the one we started, and listens for it.
        unsafe { libc::kill(*process, libc::SIGUSR2) };
    }
    let started = Instant::now();
    while asked.iter().any(|process| runs(*process)) {
        let patience = if processes_with(out, "ending").is_empty() { to_hear } else { to_write };
        if started.elapsed() > patience {
            break;
        }
        // Reaps it, so that it is seen to be gone.
        let _ = child.try_wait();
        thread::sleep(Duration::from_millis(20));
    }
}

/// The processes that have left a file of this kind.
fn processes_with(out: &Path, kind: &str) -> Vec<i32> {
    let files = fs::read_dir(out).into_iter().flatten().flatten().map(|entry| entry.path());
    let files = files.filter(|path| path.extension().is_some_and(|name| name == kind));
    files.filter_map(|path| path.file_stem()?.to_str()?.parse().ok()).collect()
}

/// Whether it is there and not just waiting to be reaped.
fn runs(process: i32) -> bool {
    let state = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let after_name = state.rsplit(')').next().unwrap_or_default().trim_start();
    !after_name.is_empty() && !after_name.starts_with(['Z', 'X'])
}

/// Ends processes that left the program's group and still carry its environment: nothing else has this folder in it.
fn end_strays(out: &Path) {
    let marker = [&b"PLIMSOLL_GHOST_OUT="[..], out.as_os_str().as_encoded_bytes(), &b"\0"[..]].concat();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    for process in processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok()) {
        let environment = fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
        if environment.windows(marker.len()).any(|part| part == marker) {
            // SAFETY: a signal to a process that descends from the one we started.
            unsafe { libc::kill(process, libc::SIGKILL) };
        }
    }
}

/// Ends whatever the program left behind: workers of its loaders, compilers.
fn end_group(group: i32) {
    if group > 1 {
        // SAFETY: the group that was made for the program, and holds only what it started.
        unsafe { libc::killpg(group, libc::SIGKILL) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(command: &[&str], environment: &[(&str, &str)]) -> Launch {
        let card = Card {
            name: "test-card".into(),
            total_bytes: 1 << 30,
            context_bytes: 0,
            compute_capability: (8, 9),
            multiprocessors: 128,
            cache_bytes: 72 << 20,
        };
        Launch {
            command: command.iter().map(ToString::to_string).collect(),
            card,
            steps: None,
            time_limit: Duration::MAX,
            world: None,
            environment: environment.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect(),
            show_output: false,
        }
    }

    #[test]
    fn paths_of_the_user_come_behind_ours() {
        let launch = launch(&["true"], &[("PYTHONPATH", "old"), ("PYTHONPATH", "src"), ("LD_PRELOAD", "")]);
        assert_eq!(launch.in_front(vec!["/ours".into()], "PYTHONPATH"), "/ours:src");
        assert_eq!(launch.in_front(vec!["/a".into(), "/b".into()], "LD_PRELOAD"), "/a:/b");
    }

    #[test]
    fn the_last_lines_of_stderr_are_kept() {
        let mut command = Command::new("sh");
        let script = "seq 1000 >&2; printf '10%%\\r50%%\\r100%%\\n\\nbad config' >&2";
        let mut child = command.args(["-c", script]).stderr(Stdio::piped()).spawn().unwrap();
        let lines = LastWords::listen(child.stderr.take().unwrap()).lines();
        child.wait().unwrap();
        assert_eq!((lines.len(), lines[0].as_str()), (20, "983"));
        assert_eq!(lines[17..], ["1000", "100%", "bad config"]);
    }

    #[test]
    fn a_process_that_waits_to_be_reaped_does_not_run() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let process = child.id() as i32;
        assert!(runs(process));
        child.kill().unwrap();
        while runs(process) {
            thread::sleep(Duration::from_millis(5));
        }
        child.wait().unwrap();
        assert!(!runs(process));
    }

    #[test]
    fn a_time_limit_beyond_all_clocks_is_none() {
        let child = Command::new("sh").args(["-c", "exit 7"]).process_group(0).spawn().unwrap();
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(launch(&["true"], &[]).wait(child, folder.path(), &AtomicBool::new(false)), Ending::Exit(7));
    }
}
