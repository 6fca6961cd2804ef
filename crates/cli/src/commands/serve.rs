//! `plimsoll serve`: the page and the API.

use crate::environment::{self, variable};
use crate::failure::Failure;
use crate::printer::{self, say};
use clap::Args;
use plimsoll_serve::{Limits, Options, Server, Token};
use std::fs;
use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};

/// A thousand streams keep a fifth of a core busy. With more threads each keeps what connections leave behind: on sixteen
/// cores the server grew with every thousand that came back.
const LISTENING_THREADS: usize = 1;
const LAST_MOMENT: Duration = Duration::from_secs(1);
/// Those that read files and plan.
const MOST_THINKING_THREADS: usize = 64;

#[derive(Args)]
pub(crate) struct Arguments {
    /// Where to listen (default: 127.0.0.1:8642, this machine only)
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with_all = ["host", "port"])]
    listen: Option<SocketAddr>,
    /// The address to listen on; any but a loopback address asks for a token
    #[arg(long, value_name = "ADDRESS")]
    host: Option<IpAddr>,
    /// The port to listen on; 0 takes a free one
    #[arg(long, value_name = "N")]
    port: Option<u16>,
    /// Ask for a token: env:NAME, file:PATH or - (standard input) says where it is, nothing makes one up (default: the
    /// one in PLIMSOLL_TOKEN, if there is one)
    #[arg(long, value_name = "WHERE", num_args = 0..=1, default_missing_value = "")]
    token: Option<String>,
    /// Another name that the server may be called by, behind a proxy for example (repeatable)
    #[arg(long, value_name = "NAME", value_parser = host_name)]
    allow_host: Vec<String>,
    /// Show everything, change nothing
    #[arg(long)]
    read_only: bool,
    /// The folder of runs
    #[arg(long, value_name = "DIR", default_value = "runs")]
    runs: PathBuf,
    /// The folder of studies, as `plimsoll tune` has it
    #[arg(long, value_name = "DIR", default_value = "studies")]
    studies: PathBuf,
    /// The folder of data, checkpoints and recipes: nothing outside of it is read
    #[arg(long, value_name = "DIR", default_value = ".")]
    data: PathBuf,
    /// Trainings at one time on a device (default: one on the CPU, on a GPU as many as there is memory for)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    parallel: Option<u16>,
}

/// Where a token is looked for by itself (in the environment, then in .env), and where one waits that was given on the command line: it is not seen in lists
/// of processes there.
const TOKEN: &str = "PLIMSOLL_TOKEN";
const PORT: u16 = 8642;

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let listen = arguments.listen.unwrap_or_else(|| {
        let host = arguments.host.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        SocketAddr::new(host, arguments.port.unwrap_or(PORT))
    });
    let program = std::env::current_exe().map_err(|cause| Failure::failed(cause.to_string(), "is /proc mounted?"))?;
    let env_file = std::path::absolute(environment::file());
    let env_file = env_file.map_err(|cause| Failure::failed(cause.to_string(), "is the working directory there?"))?;
    let mut options = Options {
        listen,
        token: token(arguments.token.as_deref())?,
        allowed_hosts: arguments.allow_host.clone(),
        read_only: arguments.read_only,
        runs: arguments.runs.clone(),
        studies: arguments.studies.clone(),
        data: arguments.data.clone(),
        program,
        parallel: arguments.parallel.map(usize::from),
        limits: Limits::default(),
        variables: vec![(environment::FILE.into(), env_file.into())],
    };
    let made_up = options.token.is_none() && (arguments.token.is_some() || !options.is_loopback());
    if made_up {
        options.token = Some(Token::random().map_err(|cause| Failure::failed(cause.to_string(), "try again"))?);
    }
    plimsoll_serve::raise_file_limit();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .worker_threads(LISTENING_THREADS)
        .max_blocking_threads(MOST_THINKING_THREADS)
        .build();
    let runtime = runtime.map_err(|cause| Failure::failed(cause.to_string(), "are there threads left?"))?;
    until_ended(runtime, serve(options, made_up))
}

/// Who thinks at the end is not waited for: a plan may take minutes, and nobody is there to hear it any more. What writes
/// has a moment to finish.
fn until_ended<T>(runtime: Runtime, serving: impl Future<Output = T>) -> T {
    let ended = runtime.block_on(serving);
    runtime.shutdown_timeout(LAST_MOMENT);
    ended
}

async fn serve(options: Options, made_up: bool) -> Result<(), Failure> {
    let (read_only, shown) = (options.read_only, options.token.clone().filter(|_| made_up));
    let server = Server::bind(options).await?;
    let failed = |cause: io::Error| Failure::failed(cause.to_string(), "try again");
    printer::out(&format!("{}\n", server.link().map_err(failed)?))?;
    if let Some(token) = shown {
        say(&format!("the link is good once; the token for other browsers and scripts: {}", token.secret()));
    }
    say(if read_only { "read-only; Ctrl-C ends it" } else { "Ctrl-C ends it; trainings go on" });
    let mut ended = signal(SignalKind::terminate()).map_err(failed)?;
    let stop = async {
        tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            _ = ended.recv() => {}
        }
    };
    Ok(server.run(stop).await?)
}

/// The token that is given, from where it is not seen by others; `None` where one is to be made up, or none asked for.
fn token(given: Option<&str>) -> Result<Option<Token>, Failure> {
    let (place, given) = match given {
        Some("") => return Ok(None),
        Some(given) => ("--token", from_place(given)?),
        // A variable that is not filled in is none.
        None => match variable(TOKEN) {
            Some(secret) => (TOKEN, secret),
            None => return Ok(None),
        },
    };
    let hint = "give a long random text, such as `openssl rand -hex 32` makes, or --token alone to make one up";
    match given.trim() {
        "" => Err(Failure::bad_input(format!("{place}: it is empty"), hint)),
        secret => {
            Token::chosen(secret).map(Some).map_err(|unfit| Failure::bad_input(format!("{place}: {unfit}"), hint))
        }
    }
}

fn from_place(given: &str) -> Result<String, Failure> {
    match (given, given.strip_prefix("env:"), given.strip_prefix("file:")) {
        ("-", _, _) => {
            let mut text = String::new();
            let read = io::stdin().lock().take(4096).read_to_string(&mut text);
            read.map(|_| text).map_err(|cause| unreadable("standard input", &cause))
        }
        (_, Some(name), _) => variable(name).ok_or_else(|| {
            let message = format!("--token: there is no {name}, neither in the environment nor in .env");
            Failure::bad_input(message, "export it first")
        }),
        (_, _, Some(path)) => fs::read_to_string(path).map_err(|cause| unreadable(path, &cause)),
        (written, None, None) => Err(hide(written)),
    }
}

/// One name, as browsers send it: neither a pattern nor an address with scheme or port, which would never be met.
fn host_name(text: &str) -> Result<String, String> {
    let is_sound = !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c));
    match text {
        _ if is_sound => Ok(text.into()),
        _ if text.contains('*') => {
            Err("patterns are not taken, for they would let in pages of anybody (DNS rebinding): name each host".into())
        }
        _ => Err("this is no name of a host: give it without http:// and without a port, such as box.example".into()),
    }
}

fn unreadable(what: &str, cause: &io::Error) -> Failure {
    Failure::bad_input(format!("--token: {what}: {cause}"), "name a readable file with the token in it")
}

/// A token on the command line stands in every list of processes: the same command takes our place, with the token in
/// its environment. Comes back only where that fails.
fn hide(secret: &str) -> Failure {
    let mut arguments = std::env::args_os().skip(1).peekable();
    let mut kept = Vec::new();
    while let Some(argument) = arguments.next() {
        if argument == "--token" {
            arguments.next();
        } else if !argument.to_string_lossy().starts_with("--token=") {
            kept.push(argument);
        }
    }
    kept.push(format!("--token=env:{TOKEN}").into());
    let cause = match std::env::current_exe() {
        Ok(program) => Command::new(program).args(kept).env(TOKEN, secret).exec(),
        Err(cause) => cause,
    };
    Failure::failed(
        format!("the token cannot be hidden: {cause}"),
        format!("export {TOKEN} and use --token env:{TOKEN}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_told_to_end_waits_for_no_plan() {
        let began = std::time::Instant::now();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let ended = until_ended(runtime, async {
            tokio::task::spawn_blocking(|| std::thread::sleep(Duration::from_secs(60)));
            "ended"
        });
        assert_eq!(ended, "ended");
        assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    }

    #[test]
    fn hosts_are_names_and_no_patterns() {
        assert_eq!(host_name("box.example").as_deref(), Ok("box.example"));
        assert!(host_name("*").unwrap_err().contains("patterns") && host_name("*.example").is_err());
        for wrong in ["", "box.example:8642", "http://box.example", "box example", "a@b", "бокс"] {
            assert!(host_name(wrong).unwrap_err().contains("no name of a host"), "{wrong}");
        }
    }
}
