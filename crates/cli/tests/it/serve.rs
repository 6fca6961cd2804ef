//! `plimsoll serve` with real trainings: started, stopped, found again after a kill, resumed, exported.

use crate::common::Desk;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const QUICKSTART: &str = include_str!("../../../../recipes/quickstart.toml");
const PATIENCE: Duration = Duration::from_secs(120);

struct Server {
    process: Child,
    host: String,
}

impl Server {
    fn start(desk: &Desk, flags: &[&str]) -> Server {
        Server::with_token(desk, flags, "")
    }

    /// With a token in the environment; an empty one is none.
    fn with_token(desk: &Desk, flags: &[&str], token: &str) -> Server {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        std::fs::create_dir_all(desk.path("data")).unwrap();
        command.args(["serve", "--port", "0", "--runs"]).arg(desk.path("runs")).arg("--data").arg(desk.path("data"));
        command.env("PLIMSOLL_TOKEN", token);
        let mut process = command.args(flags).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut link = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut link).unwrap();
        let host = link.trim().trim_start_matches("http://").split('/').next().unwrap().to_string();
        Server { process, host }
    }

    fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
        let mut stream = TcpStream::connect(&self.host).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let body = body.map(Value::to_string).unwrap_or_default();
        let head = format!(
            "{method} /api/v1{path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n",
            self.host,
            body.len()
        );
        stream.write_all((head + &body).as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
        let body = answer.split_once("\r\n\r\n").unwrap().1;
        (status, serde_json::from_str(body).unwrap_or(Value::Null))
    }

    fn wait_for(&self, run: &str, state: &str, least: u64) -> Value {
        let start = Instant::now();
        loop {
            let (_, found) = self.ask("GET", &format!("/runs/{run}"), None);
            if found["state"] == state && found["step"].as_u64() >= Some(least) {
                return found;
            }
            assert!(start.elapsed() < PATIENCE, "{run} is not {state} at {least}: {found}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

fn question() -> Value {
    json!({"recipe": QUICKSTART, "name": "quickstart", "device": "cpu", "set": ["train.epochs=50"]})
}

#[test]
fn a_training_outlives_its_server_and_the_next_one_finds_stops_resumes_and_exports_it() {
    let desk = Desk::new();
    let server = Server::start(&desk, &[]);
    let (status, started) = server.ask("POST", "/runs", Some(&question()));
    assert_eq!((status, &started["id"]), (201, &json!("quickstart-1")), "{started}");
    server.wait_for("quickstart-1", "running", 3);
    let (_, queued) = server.ask("POST", "/runs", Some(&question()));
    assert_eq!(queued["id"], "quickstart-2");
    let (_, queue) = server.ask("GET", "/queue", None);
    assert_eq!((&queue[0]["state"], &queue[1]["state"]), (&json!("started"), &json!("queued")), "{queue}");
    assert!(queue[1]["expected_start"].as_u64() > queue[0]["began"].as_u64(), "{queue}");
    let step = server.wait_for("quickstart-1", "running", 3)["step"].as_u64().unwrap();
    server.kill();

    let server = Server::start(&desk, &[]);
    server.wait_for("quickstart-1", "running", step + 2);
    let (status, _) = server.ask("POST", "/runs/quickstart-2/stop", Some(&json!({})));
    assert_eq!(status, 202);
    let (status, _) = server.ask("POST", "/runs/quickstart-1/stop", Some(&json!({})));
    assert_eq!(status, 202);
    let stopped = server.wait_for("quickstart-1", "interrupted", step);
    assert_eq!(stopped["resumable"], true, "{stopped}");
    // Its last event is written before its process has gone, and until then it cannot be resumed.
    let resumed = (0..100).find_map(|_| {
        let (status, answer) = server.ask("POST", "/runs/quickstart-1/resume", Some(&json!({})));
        std::thread::sleep(Duration::from_millis(100));
        assert!(status == 201 || status == 409, "{answer}");
        (status == 201).then_some(answer)
    });
    assert!(resumed.is_some(), "it cannot be resumed");
    let stopped_at = stopped["step"].as_u64().unwrap();
    server.wait_for("quickstart-1", "running", stopped_at + 1);
    let (status, _) = server.ask("POST", "/runs/quickstart-1/resume", Some(&json!({})));
    assert_eq!(status, 409);
    server.ask("POST", "/runs/quickstart-1/stop", Some(&json!({})));
    server.wait_for("quickstart-1", "interrupted", stopped_at + 1);
    let (status, export) = server.ask("POST", "/runs/quickstart-1/export", Some(&json!({})));
    assert_eq!(status, 200, "{export}");
    assert!(export["files"].as_array().unwrap().iter().any(|file| file["name"] == "model.safetensors"), "{export}");
    let (_, map) = server.ask("GET", "/runs/quickstart-1/plan", None);
    assert!(map["arena_bytes"].as_u64() > Some(0), "{map}");
    let (_, log) = server.ask("GET", "/runs/quickstart-1/log", None);
    assert!(log["text"].as_str().unwrap().contains("ready to train"), "{log}");
    server.kill();
}

#[test]
fn what_fails_says_why_and_a_token_is_in_no_list_of_processes() {
    let desk = Desk::new();
    let server = Server::start(&desk, &["--token", "a-secret-that-nobody-sees"]);
    let line = std::fs::read(format!("/proc/{}/cmdline", server.process.id())).unwrap();
    assert!(!String::from_utf8_lossy(&line).contains("nobody-sees"), "{line:?}");
    assert_eq!(server.ask("GET", "/runs", None).0, 401);
    server.kill();

    let server = Server::start(&desk, &[]);
    // More than a plan looks at, with a word at its end where a number should stand.
    let rows = (0..40_000).map(|row| format!("1.5,2.5,3.5,4.5,5.5,6.5,7.5,{row},{}\n", row % 3)).collect::<String>();
    let header = "a,b,c,d,e,f,g,h,x\n";
    std::fs::write(desk.path("data/long.csv"), format!("{header}{rows}1,2,3,4,5,6,7,eight,1\n")).unwrap();
    let of_file = |file: &str| {
        let said = format!("train = \"{file}\"\nlabel = \"x\"");
        let recipe = QUICKSTART.replace("source = \"synthetic:regimes\"\nsamples = 30000", &said);
        json!({"recipe": recipe, "name": "failing", "device": "cpu"})
    };
    let (status, missing) = server.ask("POST", "/runs", Some(&of_file("gone.csv")));
    assert_eq!((status, &missing["field"]), (422, &json!("data.train")), "{missing}");
    let (status, started) = server.ask("POST", "/runs", Some(&of_file("long.csv")));
    assert_eq!(status, 201, "{started}");
    let failed = server.wait_for("failing-1", "failed", 0);
    assert!(failed["reason"].as_str().unwrap().contains("long.csv"), "{failed}");
    let (status, advice) = server.ask("POST", "/advise", Some(&json!({"text": "CUDA out of memory. Tried to allocate 2.69 GiB. GPU 0 has a total capacity of 12.00 GiB of which 0 bytes is free."})));
    assert!(status == 200 && advice["error"]["causes"].is_array(), "{advice}");
    server.kill();
}

#[test]
fn the_log_of_a_run_has_its_end_and_what_was_ended_says_by_what() {
    let desk = Desk::new();
    let server = Server::start(&desk, &[]);
    let mut short = question();
    short["set"] = json!(["train.steps=3", "data.samples=600"]);
    assert_eq!(server.ask("POST", "/runs", Some(&short)).0, 201);
    server.wait_for("quickstart-1", "finished", 3);
    // The process has a few words to say after its last event.
    let log = (0..100).find_map(|_| {
        std::thread::sleep(Duration::from_millis(100));
        let (_, log) = server.ask("GET", "/runs/quickstart-1/log", None);
        log["text"].as_str().filter(|text| text.contains("success:")).map(String::from)
    });
    assert!(log.is_some_and(|log| log.contains("measured")), "the log ends without saying how it went");
    let (status, refused) = server.ask("POST", "/runs/quickstart-1/resume", Some(&json!({})));
    assert_eq!(status, 409, "{refused}");

    assert_eq!(server.ask("POST", "/runs", Some(&question())).0, 201);
    server.wait_for("quickstart-2", "running", 2);
    assert_eq!(server.ask("POST", "/runs/quickstart-2/stop", Some(&json!({"now": true}))).0, 202);
    let ended = server.wait_for("quickstart-2", "interrupted", 2);
    assert!(ended["reason"].as_str().unwrap().contains("as asked"), "{ended}");

    assert_eq!(server.ask("POST", "/runs", Some(&question())).0, 201);
    let pid = server.wait_for("quickstart-3", "running", 2)["pid"].as_u64().unwrap();
    assert!(Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap().success());
    let killed = server.wait_for("quickstart-3", "failed", 2);
    assert!(killed["reason"].as_str().unwrap().contains("signal 9"), "{killed}");
    server.kill();
}

#[test]
fn what_no_server_starts_with_is_said_and_a_token_may_wait_in_the_environment() {
    let desk = Desk::new();
    let first = Server::start(&desk, &[]);
    let refused = |flags: &[&str], token: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        command.args(["serve", "--port", "0", "--runs"]).arg(desk.path("runs")).arg("--data").arg(desk.path("data"));
        let output = command.args(flags).env("PLIMSOLL_TOKEN", token).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for (flags, token, words) in [
        (&["--token", "sesam"][..], "", "fewer than 6 characters"),
        (&[], "sesam", "PLIMSOLL_TOKEN: it has fewer"),
        (&["--allow-host", "*"], "", "patterns are not taken"),
        (&["--allow-host", "box.example:8642"], "", "without a port"),
        // Whatever starts is refused in the end, for the folder has its server.
        (&[], "", &format!("process {} at http://{}", first.process.id(), first.host)),
    ] {
        let (code, said) = refused(flags, token);
        assert!(code == Some(2) && said.contains(words), "{flags:?}: {code:?} {said}");
        assert!(!said.contains("sesam"), "{said}");
    }
    let beside = Server::start(&desk, &["--read-only"]);
    assert_eq!(beside.ask("GET", "/runs", None).0, 200);
    beside.kill();
    first.kill();
    let asking = Server::with_token(&desk, &[], "a token of the environment");
    assert_eq!(asking.ask("GET", "/runs", None).0, 401);
    asking.kill();
}
