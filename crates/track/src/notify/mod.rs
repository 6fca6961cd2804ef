//! Messages to people: which events are worth one, what it says, and the address it goes to.

mod messages;
mod occasions;
mod settings;
mod target;

pub use occasions::Occasion;
pub use settings::{Notify, ProgressEvery};
pub use target::Target;

use crate::http::{Http, Request, Tls};
use crate::sink::{Sink, Trouble};
use messages::Message;
use occasions::Herald;
use plimsoll_runs::Timed;
use serde_json::{Value, json};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Progress that is older than this is no news when it could be delivered at last.
const STALE_S: f64 = 3600.0;

/// One address: each has its own place in the log.
pub(crate) struct Messenger {
    http: Http,
    target: Target,
    number: usize,
    herald: Herald,
    /// Written and not sent yet: a failure in the middle of a piece sends none twice.
    sent: usize,
}

impl Messenger {
    pub(crate) fn new(notify: &Notify, number: usize, run: String) -> Result<Messenger, String> {
        let target = notify.targets[number].clone();
        let herald = Herald::new(run, notify.occasions.clone(), notify.every);
        Ok(Messenger { http: Http::new(&Tls::default())?, target, number, herald, sent: 0 })
    }

    fn send(&self, message: &Message) -> Result<(), Trouble> {
        send(&self.http, &self.target, message)
    }
}

fn send(http: &Http, target: &Target, message: &Message) -> Result<(), Trouble> {
    target.requests(message).iter().try_for_each(|(url, headers, body)| {
        let body = Some(body.to_string().into_bytes());
        http.send(&Request { url, headers, body }).map(drop)
    })
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

impl Sink for Messenger {
    fn name(&self) -> String {
        format!("{}-{}", self.target.service(), self.number + 1)
    }

    fn restore(&mut self, state: &Value) {
        self.herald.restore(state);
        self.sent = state["sent"].as_u64().unwrap_or(0) as usize;
    }

    fn deliver(&mut self, events: &[Timed]) -> Result<(), Trouble> {
        // The herald's memory is changed only once everything is out: a second try comes to the same messages.
        let mut herald = self.herald.clone();
        let messages: Vec<Message> = events.iter().filter_map(|timed| herald.message(timed)).collect();
        for message in &messages[self.sent.min(messages.len())..] {
            let stale = message.occasion == Occasion::Progress && now() - message.time > STALE_S;
            if !stale {
                self.send(message)?;
            }
            self.sent += 1;
        }
        (self.herald, self.sent) = (herald, 0);
        Ok(())
    }

    fn abandoned(&mut self) -> Result<(), Trouble> {
        self.herald.abandoned(now()).map_or(Ok(()), |message| self.send(&message))
    }

    fn state(&self) -> Value {
        let mut state = self.herald.state();
        state["sent"] = json!(self.sent);
        state
    }

    fn set_timeout(&mut self, timeout: Duration) {
        self.http.timeout = timeout;
    }
}

/// What became of a message to one address.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    pub service: String,
    /// Where it was written.
    pub place: String,
    pub trouble: Option<String>,
}

/// Sends a message to every address now.
pub fn test(targets: &[Target]) -> Vec<Outcome> {
    let message = Message::test(now());
    let outcome = |target: &Target| {
        let sent = Http::new(&Tls::default())
            .map_err(|cause| Trouble::Never { cause })
            .and_then(|http| send(&http, target, &message));
        Outcome {
            service: target.service().into(),
            place: target.place().into(),
            trouble: sent.err().map(|trouble| trouble.cause().to_string()),
        }
    };
    targets.iter().map(outcome).collect()
}
