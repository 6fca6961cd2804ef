//! A server for tests: answers as it was told, and remembers what it was asked.

use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

#[derive(Clone)]
pub(crate) enum Answer {
    Status(u16),
    /// Closes in the middle.
    Cut,
    /// Reads and says nothing.
    Hang,
    Redirect,
    /// By path.
    Json(fn(&str) -> Value),
}

#[derive(Clone)]
pub(crate) struct Asked {
    pub(crate) path: String,
    pub(crate) headers: String,
    pub(crate) body: Value,
}

#[derive(Default)]
struct Memory {
    first: Vec<Answer>,
    asked: Vec<Asked>,
    redirect: String,
}

pub(crate) struct Receiver {
    port: u16,
    memory: Arc<Mutex<Memory>>,
}

impl Receiver {
    /// Gives the first answers one after the other, then always the last.
    pub(crate) fn start(first: Vec<Answer>, then: Answer) -> Receiver {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let memory = Arc::new(Mutex::new(Memory { first, ..Memory::default() }));
        let shared = memory.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (memory, then) = (shared.clone(), then.clone());
                // Clients that are gone are nobody's trouble here.
                thread::spawn(move || drop(serve(stream, &memory, &then)));
            }
        });
        Receiver { port, memory }
    }

    pub(crate) fn url(&self, scheme: &str, path: &str) -> String {
        format!("{scheme}://127.0.0.1:{}{path}", self.port)
    }

    pub(crate) fn redirect_to(&self, url: &str) {
        self.memory.lock().unwrap().redirect = url.into();
    }

    pub(crate) fn requests(&self) -> Vec<Asked> {
        self.memory.lock().unwrap().asked.clone()
    }

    pub(crate) fn bodies(&self) -> Vec<Value> {
        self.requests().into_iter().map(|asked| asked.body).collect()
    }
}

/// One connection, with as many requests as come.
fn serve(stream: TcpStream, memory: &Mutex<Memory>, then: &Answer) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut stream = stream;
    while let Some(asked) = read_request(&mut reader)? {
        let path = asked.path.clone();
        let (answer, redirect) = {
            let mut memory = memory.lock().unwrap();
            memory.asked.push(asked);
            let answer = if memory.first.is_empty() { then.clone() } else { memory.first.remove(0) };
            (answer, memory.redirect.clone())
        };
        match answer {
            Answer::Status(code) => write!(stream, "HTTP/1.1 {code} X\r\ncontent-length: 0\r\n\r\n")?,
            Answer::Cut => return write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf"),
            Answer::Hang => thread::sleep(Duration::from_secs(60)),
            Answer::Redirect => write!(stream, "HTTP/1.1 307 X\r\nlocation: {redirect}\r\ncontent-length: 0\r\n\r\n")?,
            Answer::Json(answer) => {
                let text = answer(&path).to_string();
                write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{text}", text.len())?;
            }
        }
    }
    Ok(())
}

fn read_request(reader: &mut BufReader<TcpStream>) -> std::io::Result<Option<Asked>> {
    let mut head = String::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        if line.trim().is_empty() {
            break;
        }
        head += &line;
    }
    let length =
        head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length:").map(|n| n.trim().parse()));
    let mut body = vec![0; length.and_then(Result::ok).unwrap_or(0)];
    reader.read_exact(&mut body)?;
    let path = head.split_whitespace().nth(1).unwrap_or_default().to_string();
    Ok(Some(Asked { path, headers: head, body: serde_json::from_slice(&body).unwrap_or(Value::Null) }))
}
