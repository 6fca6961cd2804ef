//! A server on a free port with folders of its own, and requests written byte by byte.

use plimsoll_serve::{Limits, Options, ServeError, Server, Token};
use serde_json::Value;
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;

pub(crate) const QUICKSTART: &str = include_str!("../../../../recipes/quickstart.toml");

pub(crate) struct Desk {
    pub(crate) address: SocketAddr,
    pub(crate) link: String,
    pub(crate) folder: Arc<tempfile::TempDir>,
    runtime: Runtime,
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HashMap<String, String>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.text()))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl Desk {
    pub(crate) fn new() -> Desk {
        Desk::with(|_| ())
    }

    pub(crate) fn with(change: impl FnOnce(&mut Options)) -> Desk {
        Desk::in_folder(Arc::new(tempfile::tempdir().unwrap()), change).unwrap()
    }

    /// The server ends; its folders are left.
    pub(crate) fn close(self) -> Arc<tempfile::TempDir> {
        self.runtime.shutdown_timeout(Duration::from_secs(20));
        self.folder
    }

    pub(crate) fn in_folder(
        folder: Arc<tempfile::TempDir>,
        change: impl FnOnce(&mut Options),
    ) -> Result<Desk, ServeError> {
        let data = folder.path().join("data");
        std::fs::create_dir_all(&data).unwrap();
        let mut options = Options {
            listen: "127.0.0.1:0".parse().unwrap(),
            token: None,
            allowed_hosts: Vec::new(),
            read_only: false,
            runs: folder.path().join("runs"),
            studies: folder.path().join("studies"),
            data,
            // It fails at once: what trains is tested with the command itself.
            program: PathBuf::from("/bin/false"),
            parallel: None,
            limits: Limits::default(),
            variables: Vec::new(),
        };
        change(&mut options);
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().worker_threads(2).build().unwrap();
        let server = runtime.block_on(Server::bind(options))?;
        let (address, link) = (server.address().unwrap(), server.link().unwrap());
        runtime.spawn(server.run(std::future::pending()));
        Ok(Desk { address, link, folder, runtime })
    }

    pub(crate) fn with_token(secret: &str) -> Desk {
        Desk::with(|options| options.token = Some(Token::new(secret)))
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream
    }

    /// Bytes as they are, and whatever comes back until the server closes.
    pub(crate) fn raw(&self, request: &[u8]) -> Vec<u8> {
        let mut stream = self.connect();
        // The server may answer and close before it has read everything.
        let _ = stream.write_all(request);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        answer
    }

    pub(crate) fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let has = |name: &str| headers.iter().any(|(other, _)| other.eq_ignore_ascii_case(name));
        let mut head = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
        if !has("host") {
            head += &format!("Host: {}\r\n", self.address);
        }
        if !body.is_empty() || method == "POST" {
            head += &format!("Content-Length: {}\r\n", body.len());
            if !has("content-type") {
                head += "Content-Type: application/json\r\n";
            }
        }
        headers.iter().for_each(|(name, value)| head += &format!("{name}: {value}\r\n"));
        parse(&self.raw(&[head.as_bytes(), b"\r\n", body].concat()))
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &[], b"")
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Answer {
        self.ask("POST", path, &[], body.to_string().as_bytes())
    }

    pub(crate) fn runs(&self) -> PathBuf {
        self.folder.path().join("runs")
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// A run's folder with these events.
    pub(crate) fn run(&self, name: &str, events: &str) -> PathBuf {
        let folder = self.runs().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("recipe.toml"), QUICKSTART).unwrap();
        std::fs::write(folder.join("events.jsonl"), events).unwrap();
        folder
    }
}

pub(crate) fn step(step: usize, loss: f64) -> String {
    format!(
        "{{\"event\":\"step\",\"step\":{step},\"epoch\":0,\"loss\":{loss},\"norm\":1.0,\"lr\":0.001,\"ms\":1.0,\
         \"samples_per_s\":10.0,\"stall_ms\":0.0,\"remaining_s\":5.0,\"planned_peak_bytes\":100,\"measured_peak_bytes\":90}}\n"
    )
}

fn parse(bytes: &[u8]) -> Answer {
    let end = bytes
        .windows(4)
        .position(|w| w == b"\r\n\r\n")
        .unwrap_or_else(|| panic!("no answer: {:?}", String::from_utf8_lossy(&bytes[..bytes.len().min(300)])));
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let mut lines = head.lines();
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let headers: HashMap<String, String> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_string()))
        .collect();
    let body = bytes[end + 4..].to_vec();
    let body =
        if headers.get("transfer-encoding").is_some_and(|kind| kind == "chunked") { unchunked(&body) } else { body };
    Answer { status, headers, body }
}

fn unchunked(mut bytes: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(end) = bytes.windows(2).position(|w| w == b"\r\n") {
        let size = usize::from_str_radix(std::str::from_utf8(&bytes[..end]).unwrap(), 16).unwrap();
        body.extend(&bytes[end + 2..end + 2 + size]);
        bytes = &bytes[end + 2 + size + 2..];
        if size == 0 {
            break;
        }
    }
    body
}
