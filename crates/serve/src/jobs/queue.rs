//! The queue: takes jobs, starts those that there is room for, hears of their ends.

use super::keeper::{Keeper, keeper};
use super::process::{Process, Signal};
use super::record::{Job, JobState, Records, folder};
use super::schedule::{Demand, Supply, schedule};
use crate::folders::{OWN, RunId, unix_seconds};
use crate::glance::glance;
use crate::options::Options;
use crate::problem::Problem;
use plimsoll::{Holder, Machine};
use plimsoll_runs::holder;
use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

/// Ended jobs that are remembered.
const MOST_ENDED: usize = 5000;
/// How long a job whose length is unknown is taken to last.
const UNKNOWN_SECONDS: f64 = 3600.0;
/// Not for children: secrets of the server.
const SECRETS: [&str; 1] = ["PLIMSOLL_TOKEN"];

pub(crate) struct Queue {
    root: PathBuf,
    data: PathBuf,
    options: Options,
    /// Held by the server that starts what waits; one that only shows follows what that one writes.
    keeper: Option<Keeper>,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    jobs: Vec<Job>,
    /// Those of a server that only shows, as they were read.
    records: Records,
    /// Those that this server started, to hear their exit codes.
    children: HashMap<RunId, Child>,
    /// Ends were heard of since the last tick.
    changed: bool,
}

/// A training to be run.
pub(crate) struct Submission {
    pub name: String,
    /// The recipe's text, for a new run.
    pub text: String,
    pub set: Vec<String>,
    pub device: String,
    pub bytes: u64,
    /// It may take these bytes and no more, for others are to run beside it.
    pub pinned: bool,
    pub seconds: Option<f64>,
}

/// When a job is expected to run, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Expected {
    pub start: u64,
    /// Unknown where its length is.
    pub end: Option<u64>,
}

impl Queue {
    /// Takes up what an earlier server left.
    pub(crate) fn open(root: &Path, data: &Path, options: &Options, keeper: Option<Keeper>) -> Queue {
        let inner = Inner { jobs: Records::default().look(root), ..Inner::default() };
        Queue { root: root.into(), data: data.into(), options: options.clone(), keeper, inner: Mutex::new(inner) }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// With every end that can be heard of by now: whoever asks right after one is not told of a run that lives.
    fn heard(&self) -> MutexGuard<'_, Inner> {
        let mut inner = self.lock();
        if self.keeper.is_some() {
            inner.changed |= inner.hear(&self.root);
        }
        inner
    }

    pub(crate) fn jobs(&self) -> Vec<Job> {
        self.heard().jobs.clone()
    }

    /// Whether trainings run beside each other on a device.
    pub(crate) fn shares(&self, device: &str) -> bool {
        self.options.parallel.map_or(device != "cpu", |most| most > 1)
    }

    pub(crate) fn job(&self, id: &RunId) -> Option<Job> {
        self.heard().jobs.iter().find(|job| job.id == *id).cloned()
    }

    /// The file that a run's words go to.
    pub(crate) fn log(&self, id: &RunId) -> PathBuf {
        folder(&self.root, id).join("log.txt")
    }

    /// A new run under the first free number.
    pub(crate) fn submit(&self, submission: Submission) -> Result<Job, Problem> {
        let mut inner = self.lock();
        inner.refuse_more(self.options.limits.waiting)?;
        let id = self.claim(&submission.name)?;
        let (own, out) = (folder(&self.root, &id), self.root.join(id.as_str()));
        let recipe = own.join(format!("{}.toml", submission.name));
        fs::write(&recipe, &submission.text).map_err(|cause| unwritten(&recipe, &cause))?;
        let dir = toml::Value::String(self.data.display().to_string());
        let set = submission.set.iter().cloned().chain([format!("dir={dir}")]);
        let arguments = ["train".into(), recipe.display().to_string(), "--json".into()]
            .into_iter()
            .chain([format!("--out={}", out.display()), format!("--device={}", submission.device)])
            .chain(set.map(|set| format!("--set={set}")))
            .chain(submission.pinned.then(|| format!("--memory={}", submission.bytes)))
            .collect();
        self.add(&mut inner, id, arguments, &submission.device, submission.bytes, submission.seconds)
    }

    /// The same run once more, from its last checkpoint.
    pub(crate) fn resume(&self, id: &RunId, device: &str, bytes: u64, seconds: Option<f64>) -> Result<Job, Problem> {
        let mut inner = self.lock();
        inner.refuse_more(self.options.limits.waiting)?;
        let out = self.root.join(id.as_str());
        if holder(&out).is_some() || inner.jobs.iter().any(|job| job.id == *id && !job.is_over()) {
            return Err(Problem::conflict("this run is in the queue or training already")
                .hint("wait for its end, or stop it first"));
        }
        let own = folder(&self.root, id);
        fs::create_dir_all(&own).map_err(|cause| unwritten(&own, &cause))?;
        let recipe = out.join("recipe.toml").display().to_string();
        let arguments = ["train".into(), recipe, "--json".into(), "--resume".into()]
            .into_iter()
            .chain([format!("--out={}", out.display()), format!("--device={device}")])
            .collect();
        self.add(&mut inner, id.clone(), arguments, device, bytes, seconds)
    }

    fn add(
        &self,
        inner: &mut Inner,
        id: RunId,
        arguments: Vec<String>,
        device: &str,
        bytes: u64,
        seconds: Option<f64>,
    ) -> Result<Job, Problem> {
        let job = Job {
            id,
            state: JobState::Queued,
            arguments,
            device: device.into(),
            bytes,
            seconds,
            asked: unix_seconds(SystemTime::now()),
            turn: inner.jobs.iter().map(|job| job.turn).max().unwrap_or(0) + 1,
            process: None,
            began: None,
            ended: None,
            stopping: false,
            log_from: 0,
        };
        job.store(&self.root).map_err(|cause| unwritten(&folder(&self.root, &job.id), &cause))?;
        // Only now: what was known of the attempt before stands until this one is written down.
        inner.jobs.retain(|before| before.id != job.id);
        inner.jobs.push(job.clone());
        Ok(job)
    }

    /// A number that neither a run nor a job has; its folder is made by nobody else.
    fn claim(&self, name: &str) -> Result<RunId, Problem> {
        let own = self.root.join(OWN);
        fs::create_dir_all(&own).map_err(|cause| unwritten(&own, &cause))?;
        for number in 1usize.. {
            let id = RunId::parse(&format!("{name}-{number}")).ok_or_else(|| {
                Problem::bad("name", "name: a run's name is that of a folder").hint("use letters, digits and dashes")
            })?;
            if self.root.join(id.as_str()).exists() {
                continue;
            }
            match fs::create_dir(folder(&self.root, &id)) {
                Ok(()) => return Ok(id),
                Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists => {}
                Err(cause) => return Err(unwritten(&own, &cause)),
            }
        }
        Err(Problem::busy("every number is taken", "give the run another name"))
    }

    /// Leaves the queue, or ends the training: first with a checkpoint; a second time, or `now`, at once.
    pub(crate) fn stop(&self, id: &RunId, now: bool) -> Result<(), Problem> {
        let mut inner = self.lock();
        let held = holder(&self.root.join(id.as_str())).filter(|&pid| pid > 0).and_then(Process::find);
        let held = held.filter(|process| process.runs(&self.options.program));
        let job = inner.jobs.iter_mut().find(|job| job.id == *id);
        let process = held.or_else(|| job.as_ref().filter(|job| job.is_alive()).and_then(|job| job.process));
        let Some(job) = job else { return tell(process, now) };
        if job.state == JobState::Queued {
            job.end(None, None);
            return job.store(&self.root).map_err(|cause| unwritten(&self.root, &cause));
        }
        tell(process, now)?;
        job.stopping = true;
        let _ = job.store(&self.root);
        Ok(())
    }

    /// Hears of ends and starts what there is room for. True where something changed.
    pub(crate) fn tick(&self) -> bool {
        let mut inner = self.heard();
        if self.keeper.is_none() {
            return inner.follow(&self.root);
        }
        let heard = std::mem::take(&mut inner.changed);
        let waits = inner.jobs.iter().any(|job| job.state == JobState::Queued);
        heard | (waits && self.start_what_fits(&mut inner))
    }

    fn start_what_fits(&self, inner: &mut Inner) -> bool {
        let expected = self.expect(&inner.jobs);
        let mut changed = false;
        for index in 0..inner.jobs.len() {
            let starts = expected.get(&inner.jobs[index].id).is_some_and(|slot| slot.0 <= 0.0);
            if inner.jobs[index].state == JobState::Queued && starts {
                self.start(inner, index);
                changed = true;
            }
        }
        changed
    }

    fn start(&self, inner: &mut Inner, index: usize) {
        let job = &mut inner.jobs[index];
        job.began = Some(unix_seconds(SystemTime::now()));
        let log = folder(&self.root, &job.id).join("log.txt");
        job.log_from = fs::metadata(&log).map_or(0, |there| there.len());
        match self.spawn(job) {
            Ok(child) => {
                (job.state, job.process) = (JobState::Started, Process::find(child.id()));
                let _ = job.store(&self.root);
                inner.children.insert(job.id.clone(), child);
            }
            Err(cause) => {
                job.end(Some(1), None);
                let _ = say(&log, &format!("error: it cannot be started: {cause}\n"));
                let _ = job.store(&self.root);
            }
        }
    }

    /// A process group of its own: neither Ctrl-C in the server's terminal nor the server's end reaches it. Its words go
    /// to files, so it never waits for a reader.
    fn spawn(&self, job: &Job) -> io::Result<Child> {
        let own = folder(&self.root, &job.id);
        let log = OpenOptions::new().create(true).append(true).open(own.join("log.txt"))?;
        let mut command = Command::new(&self.options.program);
        command.args(&job.arguments).current_dir(&self.data).process_group(0);
        command.envs(self.options.variables.iter().map(|(name, value)| (name, value)));
        SECRETS.iter().for_each(|name| _ = command.env_remove(name));
        command.stdin(Stdio::null()).stdout(File::create(own.join("result.json"))?).stderr(log).spawn()
    }

    /// When each waiting job is expected to start and end; never, where no server keeps the queue.
    pub(crate) fn expected(&self, remaining: &HashMap<RunId, f64>) -> HashMap<RunId, Expected> {
        if self.keeper.is_none() && keeper(&self.root).is_none() {
            return HashMap::new();
        }
        let mut jobs = self.jobs();
        for job in &mut jobs {
            job.seconds = remaining.get(&job.id).copied().or(job.seconds);
        }
        let now = unix_seconds(SystemTime::now());
        let slots = self.expect(&jobs);
        let known = |id: &RunId| jobs.iter().any(|job| job.id == *id && job.seconds.is_some());
        slots
            .into_iter()
            .map(|(id, (start, end))| {
                let end = known(&id).then_some(now + end.max(0.0) as u64);
                (id, Expected { start: now + start.max(0.0) as u64, end })
            })
            .collect()
    }

    /// Starts and ends in seconds from now, device by device.
    fn expect(&self, jobs: &[Job]) -> HashMap<RunId, (f64, f64)> {
        let machine = glance();
        let mut devices: Vec<&str> = jobs.iter().filter(|job| !job.is_over()).map(|job| job.device.as_str()).collect();
        devices.sort_unstable();
        devices.dedup();
        let mut expected = HashMap::new();
        for device in devices {
            let here = || jobs.iter().filter(|job| job.device == device);
            let running: Vec<&Job> = here().filter(|job| job.state == JobState::Started).collect();
            let waiting: Vec<&Job> = here().filter(|job| job.state == JobState::Queued).collect();
            let demand = |job: &&Job| Demand { bytes: job.bytes, seconds: left(job) };
            let supply = self.supply(device, &machine, &running);
            let running: Vec<Demand> = running.iter().map(demand).collect();
            let slots = schedule(supply, &running, &waiting.iter().map(demand).collect::<Vec<_>>());
            let timed = waiting.iter().zip(slots).filter_map(|(job, slot)| Some((job.id.clone(), slot?)));
            expected.extend(timed.map(|(id, slot)| (id, (slot.start, slot.end))));
        }
        expected
    }

    /// What is free, and what running jobs give back when they end.
    fn supply(&self, device: &str, machine: &Machine, running: &[&Job]) -> Supply {
        let ordinal =
            device.strip_prefix("cuda").map(|rest| rest.trim_start_matches(':').parse::<usize>().unwrap_or(0));
        let gpu = ordinal.and_then(|ordinal| machine.gpus.iter().find(|gpu| gpu.ordinal == ordinal));
        let (free, is_cpu) = match gpu {
            Some(gpu) => (gpu.free_bytes, false),
            None => (machine.cpu.available_bytes, true),
        };
        let held: u64 = running.iter().map(|job| held(job, gpu.map(|gpu| &gpu.holders[..]))).sum();
        // Trainings share a card's time well; on the CPU each would take the others' cores.
        let places = self.options.parallel.unwrap_or(if is_cpu { 1 } else { 16 });
        Supply { bytes: free.saturating_add(held), places }
    }
}

/// What a running job has taken of what it will take.
fn held(job: &Job, holders: Option<&[Holder]>) -> u64 {
    let Some(process) = job.process else { return 0 };
    let held = match holders {
        Some(holders) => holders.iter().find(|holder| holder.pid == process.pid).map(|holder| holder.bytes),
        None => process.resident_bytes(),
    };
    held.unwrap_or(0).min(job.bytes)
}

/// Seconds until a job ends, counted from its start.
fn left(job: &Job) -> f64 {
    let all = job.seconds.unwrap_or(UNKNOWN_SECONDS);
    let gone = job.began.map_or(0, |began| unix_seconds(SystemTime::now()).saturating_sub(began));
    // One that takes longer than expected may end any moment.
    if job.state == JobState::Started { (all - gone as f64).max(5.0) } else { all }
}

impl Job {
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.state, JobState::Ended { .. })
    }
}

impl Inner {
    fn refuse_more(&self, most: usize) -> Result<(), Problem> {
        let waiting = self.jobs.iter().filter(|job| job.state == JobState::Queued).count();
        let full = || Problem::busy("the queue is full", "wait for a training to end, or take one out of the queue");
        if waiting < most { Ok(()) } else { Err(full()) }
    }

    /// What was written by the server that keeps the queue. Where it is gone, so may be what it had started.
    fn follow(&mut self, root: &Path) -> bool {
        let mut jobs = self.records.look(root);
        let gone = |job: &&mut Job| job.state == JobState::Started && !job.is_alive();
        jobs.iter_mut().filter(gone).for_each(|job| job.state = JobState::Ended { code: None, signal: None });
        let changed = jobs != self.jobs;
        self.jobs = jobs;
        changed
    }

    /// Started jobs whose process is gone have ended.
    fn hear(&mut self, root: &Path) -> bool {
        let mut changed = false;
        for job in self.jobs.iter_mut().filter(|job| job.state == JobState::Started) {
            let (code, signal) = match self.children.get_mut(&job.id).map(Child::try_wait) {
                Some(Ok(None)) => continue,
                Some(Ok(Some(status))) => (status.code(), status.signal()),
                _ if job.process.is_some_and(|process| process.is_alive()) => continue,
                _ => (None, None),
            };
            self.children.remove(&job.id);
            job.end(code, signal);
            let _ = job.store(root);
            changed = true;
        }
        if self.jobs.len() > MOST_ENDED
            && let Some(oldest) = self.jobs.iter().position(Job::is_over)
        {
            self.jobs.remove(oldest);
        }
        changed
    }
}

/// More words at the end of a log.
fn say(log: &Path, words: &str) -> io::Result<()> {
    OpenOptions::new().create(true).append(true).open(log)?.write_all(words.as_bytes())
}

fn tell(process: Option<Process>, now: bool) -> Result<(), Problem> {
    let gone =
        || Problem::conflict("this run is not training").hint("there is nothing to stop: GET /queue lists what is");
    let process = process.ok_or_else(gone)?;
    process.send(if now { Signal::Kill } else { Signal::Interrupt }).map_err(|_| gone())
}

fn unwritten(path: &Path, cause: &io::Error) -> Problem {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    Problem::failed(format!("{name} cannot be written: {cause}")).hint("check the space left and the permissions")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Limits;

    #[test]
    fn a_server_that_comes_back_has_its_queue_in_the_order_it_was_asked_in() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("runs");
        let options = Options {
            listen: "127.0.0.1:0".parse().unwrap(),
            token: None,
            allowed_hosts: Vec::new(),
            read_only: false,
            runs: root.clone(),
            studies: folder.path().join("studies"),
            data: folder.path().into(),
            program: "/bin/false".into(),
            parallel: None,
            limits: Limits::default(),
            variables: Vec::new(),
        };
        let open = || Queue::open(&root, folder.path(), &options, None);
        let submission = |name: &str| Submission {
            name: name.into(),
            text: String::new(),
            set: Vec::new(),
            device: "cpu".into(),
            bytes: 1,
            pinned: false,
            seconds: None,
        };
        let asked = |queue: &Queue, names: &[&str]| {
            let ids = names.iter().map(|name| queue.submit(submission(name)).unwrap().id);
            ids.collect::<Vec<RunId>>()
        };
        let mut ids = asked(&open(), &["c", "a", "b"]);
        ids.extend(asked(&open(), &["b", "a"]));
        assert_eq!(open().jobs().into_iter().map(|job| job.id).collect::<Vec<_>>(), ids);
    }
}
