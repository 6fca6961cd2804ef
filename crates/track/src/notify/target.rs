//! Addresses in the forms that Apprise made usual, and what is sent to each. An address holds its token: it is never shown.

use super::messages::Message;
use crate::base64::base64;
use crate::error::TrackError;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// One address, and where it was written.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct Target {
    service: Service,
    place: String,
}

#[derive(Clone, PartialEq, Serialize, Deserialize)]
enum Service {
    Discord { url: String },
    Slack { url: String, channel: Option<String> },
    Telegram { url: String, chats: Vec<String> },
    Ntfy { url: String, topic: String, authorization: Option<String> },
    Gotify { url: String, token: String },
    Json { url: String, authorization: Option<String> },
}

/// The kind and the place; the rest is secret.
impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {}", self.service(), self.place)
    }
}

/// An address, its headers and a body.
pub(super) type Sent = (String, Vec<(String, String)>, Value);

impl Target {
    /// Every address of a text, between white space or commas. `place` is where it was written.
    ///
    /// # Errors
    /// What is no address of a known kind; the text itself is not in the message.
    pub(crate) fn parse_all(text: &str, place: &str) -> Result<Vec<Target>, TrackError> {
        split(text).into_iter().map(|url| Target::parse(url, place)).collect()
    }

    fn parse(url: &str, place: &str) -> Result<Target, TrackError> {
        let wrong = |cause: String| TrackError::Url { place: place.into(), cause };
        Ok(Target { service: Parts::of(url).and_then(|parts| parts.service()).map_err(wrong)?, place: place.into() })
    }

    /// `discord`, `slack`, `telegram`, `ntfy`, `gotify` or `json`.
    pub(crate) fn service(&self) -> &'static str {
        match self.service {
            Service::Discord { .. } => "discord",
            Service::Slack { .. } => "slack",
            Service::Telegram { .. } => "telegram",
            Service::Ntfy { .. } => "ntfy",
            Service::Gotify { .. } => "gotify",
            Service::Json { .. } => "json",
        }
    }

    /// The name of the variable that holds it.
    pub(crate) fn place(&self) -> &str {
        &self.place
    }

    /// What has to be sent for one message.
    pub(super) fn requests(&self, message: &Message) -> Vec<Sent> {
        let both = format!("{}\n{}", message.title, message.body);
        let header = |name: &str, value: &Option<String>| value.iter().map(|v| (name.into(), v.clone())).collect();
        match &self.service {
            Service::Discord { url } => {
                // Nothing in it may call anybody, whatever a label or a run's name says.
                let body = json!({ "username": "plimsoll", "content": both, "allowed_mentions": { "parse": [] } });
                vec![(url.clone(), vec![], body)]
            }
            Service::Slack { url, channel } => {
                let mut body = json!({ "text": escaped_for_slack(&both), "username": "plimsoll" });
                if let Some(channel) = channel {
                    body["channel"] = channel.as_str().into();
                }
                vec![(url.clone(), vec![], body)]
            }
            Service::Telegram { url, chats } => {
                let to = |chat: &String| (url.clone(), vec![], json!({ "chat_id": chat, "text": both }));
                chats.iter().map(to).collect()
            }
            Service::Ntfy { url, topic, authorization } => {
                let body = json!({ "topic": topic, "title": message.title, "message": message.body, "priority": priority(message, 4, 3) });
                vec![(url.clone(), header("authorization", authorization), body)]
            }
            Service::Gotify { url, token } => {
                let body =
                    json!({ "title": message.title, "message": message.body, "priority": priority(message, 8, 5) });
                vec![(url.clone(), vec![("x-gotify-key".into(), token.clone())], body)]
            }
            Service::Json { url, authorization } => {
                let body = json!({ "version": "1.0", "title": message.title, "message": message.body, "type": message.kind() });
                vec![(url.clone(), header("authorization", authorization), body)]
            }
        }
    }
}

fn priority(message: &Message, bad: u8, usual: u8) -> u8 {
    if matches!(message.kind(), "failure" | "warning") { bad } else { usual }
}

/// Three signs have a meaning there.
fn escaped_for_slack(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// At white space, and at commas that another address follows: a comma may be part of one.
fn split(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for words in text.split_whitespace() {
        let mut start = 0;
        for (at, _) in words.match_indices(',') {
            let next = &words[at + 1..];
            let is_scheme = |s: &str| !s.is_empty() && s.chars().all(|c| c.is_ascii_alphanumeric());
            if next.split_once("://").is_some_and(|(scheme, _)| is_scheme(scheme)) {
                found.push(&words[start..at]);
                start = at + 1;
            }
        }
        found.push(words[start..].trim_end_matches(','));
    }
    found.retain(|url| !url.is_empty());
    found
}

/// An address taken apart.
struct Parts {
    scheme: String,
    user: Option<String>,
    password: Option<String>,
    /// With its port.
    host: String,
    path: Vec<String>,
    query: Vec<(String, String)>,
}

impl Parts {
    fn of(url: &str) -> Result<Parts, String> {
        let (scheme, rest) = url.split_once("://").ok_or("holds something that is no address (SCHEME://…)")?;
        if rest.contains(|c: char| c.is_control() || c.is_whitespace()) {
            return Err("holds an address with white space in it".into());
        }
        let rest = rest.split('#').next().unwrap_or_default();
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, host) = authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
        let (user, password) = match user.map(|user| user.split_once(':').unwrap_or((user, ""))) {
            Some((user, password)) => (Some(user), Some(password).filter(|p| !p.is_empty())),
            None => (None, None),
        };
        let pair = |text: &str| text.split_once('=').map(|(key, value)| (key.to_string(), decoded(value)));
        Ok(Parts {
            scheme: scheme.to_lowercase(),
            user: user.map(decoded),
            password: password.map(decoded),
            host: host.into(),
            path: path.split('/').filter(|part| !part.is_empty()).map(String::from).collect(),
            query: query.split('&').filter_map(pair).collect(),
        })
    }

    /// `http` or `https`, by the letter at the end of the scheme.
    fn base(&self) -> String {
        let scheme = if self.scheme.ends_with('s') { "https" } else { "http" };
        format!("{scheme}://{}", self.host)
    }

    /// The colons of an address of version 6 stand inside its brackets.
    fn check_port(&self) -> Result<(), String> {
        let port = self.host.rsplit_once(':').map(|(_, port)| port).filter(|port| !port.contains(']'));
        match port {
            Some(port) if port.parse::<u16>().is_ok_and(|port| port > 0) => Ok(()),
            Some(_) => Err("holds an address whose port is none: ports are numbers from 1 to 65535".into()),
            None => Ok(()),
        }
    }

    fn authorization(&self) -> Option<String> {
        let password = self.password.as_deref().unwrap_or_default();
        self.user.as_ref().map(|user| format!("Basic {}", base64(format!("{user}:{password}").as_bytes())))
    }

    fn service(&self) -> Result<Service, String> {
        // Of the others, what stands there is a token.
        if !["discord", "slack", "tgram"].contains(&self.scheme.as_str()) {
            self.check_port()?;
        }
        match (self.scheme.as_str(), self.host.as_str()) {
            ("discord", _) => self.discord(),
            ("slack", _) => self.slack(),
            ("tgram", _) => self.telegram(),
            ("ntfy" | "ntfys", _) => self.ntfy(),
            ("gotify" | "gotifys", _) => self.gotify(),
            ("json" | "jsons" | "http" | "https", "") => Err("holds an address without a host".into()),
            ("https", "discord.com" | "discordapp.com" | "ptb.discord.com" | "canary.discord.com") => {
                match &self.path[..] {
                    [api, hooks, .., _, _] if api == "api" && (hooks == "webhooks" || hooks.starts_with('v')) => {
                        Ok(Service::Discord { url: format!("{}/{}", self.base(), self.path.join("/")) })
                    }
                    _ => Err("holds an address of Discord that is no webhook".into()),
                }
            }
            ("https", "hooks.slack.com") => {
                Ok(Service::Slack { url: format!("{}/{}", self.base(), self.path.join("/")), channel: None })
            }
            ("json" | "jsons" | "http" | "https", _) => Ok(self.json()),
            (other, _) if other.len() < 12 => {
                Err(format!("holds an address of a kind that is not known here: {other}://"))
            }
            _ => Err("holds an address of a kind that is not known here".into()),
        }
    }

    /// `discord://ID/TOKEN`
    fn discord(&self) -> Result<Service, String> {
        match (self.host.as_str(), &self.path[..]) {
            (id, [token, ..]) if !id.is_empty() => {
                Ok(Service::Discord { url: format!("https://discord.com/api/webhooks/{id}/{token}") })
            }
            _ => Err("discord:// needs an id and a token: discord://ID/TOKEN".into()),
        }
    }

    /// `slack://[BOT@]A/B/C[/#CHANNEL]`; what follows `#` is cut off by then, so a channel is written without it.
    fn slack(&self) -> Result<Service, String> {
        match (self.host.as_str(), &self.path[..]) {
            (a, [b, c, rest @ ..]) if !a.is_empty() => {
                let url = format!("https://hooks.slack.com/services/{a}/{b}/{c}");
                Ok(Service::Slack {
                    url,
                    channel: rest.first().map(|name| format!("#{}", decoded(name).trim_start_matches('#'))),
                })
            }
            _ => Err("slack:// needs three tokens: slack://A/B/C".into()),
        }
    }

    /// `tgram://BOT_TOKEN/CHAT…`; a bot's token holds a colon.
    fn telegram(&self) -> Result<Service, String> {
        let url = format!("https://api.telegram.org/bot{}/sendMessage", self.host);
        match (self.host.contains(':'), self.path.is_empty()) {
            (true, false) => Ok(Service::Telegram { url, chats: self.path.iter().map(|chat| decoded(chat)).collect() }),
            _ => Err("tgram:// needs a bot's token and a chat: tgram://123456:TOKEN/CHAT".into()),
        }
    }

    /// `ntfy://TOPIC` is of ntfy.sh, `ntfy[s]://HOST/TOPIC` of one's own server.
    fn ntfy(&self) -> Result<Service, String> {
        let token = self.query.iter().find(|(key, _)| key == "token").map(|(_, token)| format!("Bearer {token}"));
        let authorization = token.or_else(|| self.authorization());
        match (self.host.as_str(), &self.path[..]) {
            ("", _) => Err("ntfy:// needs a topic: ntfy://TOPIC or ntfys://HOST/TOPIC".into()),
            (topic, []) => Ok(Service::Ntfy { url: "https://ntfy.sh".into(), topic: topic.into(), authorization }),
            (_, [topic, ..]) => Ok(Service::Ntfy { url: self.base(), topic: decoded(topic), authorization }),
        }
    }

    /// `gotify[s]://HOST[/PATH]/TOKEN`
    fn gotify(&self) -> Result<Service, String> {
        match self.path.split_last() {
            Some((token, path)) if !self.host.is_empty() => {
                let path: String = path.iter().map(|part| format!("/{part}")).collect();
                Ok(Service::Gotify { url: format!("{}{path}/message", self.base()), token: decoded(token) })
            }
            _ => Err("gotify:// needs a host and a token: gotifys://HOST/TOKEN".into()),
        }
    }

    /// `json[s]://[USER[:PASSWORD]@]HOST[:PORT][/PATH]`
    fn json(&self) -> Service {
        let query: Vec<String> = self.query.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let query = if query.is_empty() { String::new() } else { format!("?{}", query.join("&")) };
        let url = format!("{}/{}{query}", self.base(), self.path.join("/"));
        Service::Json { url, authorization: self.authorization() }
    }
}

/// `%2F` → `/`; what is no such code stays as it is.
fn decoded(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((&first, after)) = rest.split_first() {
        let code = (first == b'%').then(|| after.get(..2)).flatten();
        let code = code.and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        bytes.push(code.unwrap_or(first));
        rest = if code.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(url: &str) -> Sent {
        let target = Target::parse(url, "X").unwrap_or_else(|error| panic!("{url}: {error}"));
        let message = Message::test(0.0);
        target.requests(&message).remove(0)
    }

    #[test]
    fn every_form_leads_to_its_services_address() {
        for (url, wanted) in [
            ("discord://12/tok", "https://discord.com/api/webhooks/12/tok"),
            ("https://discord.com/api/webhooks/12/tok", "https://discord.com/api/webhooks/12/tok"),
            ("https://discordapp.com/api/v10/webhooks/12/tok", "https://discordapp.com/api/v10/webhooks/12/tok"),
            ("slack://T1/B2/c3", "https://hooks.slack.com/services/T1/B2/c3"),
            ("slack://bot@T1/B2/c3/general", "https://hooks.slack.com/services/T1/B2/c3"),
            ("https://hooks.slack.com/services/T1/B2/c3", "https://hooks.slack.com/services/T1/B2/c3"),
            ("tgram://123:abc/-456", "https://api.telegram.org/bot123:abc/sendMessage"),
            ("ntfy://topic", "https://ntfy.sh"),
            ("ntfy://host:8080/topic", "http://host:8080"),
            ("ntfys://host/topic", "https://host"),
            ("gotify://host:80/tok", "http://host:80/message"),
            ("gotifys://host/sub/path/tok", "https://host/sub/path/message"),
            ("json://host:9000/a/b?k=v", "http://host:9000/a/b?k=v"),
            ("jsons://user:pw@host/a", "https://host/a"),
            ("http://127.0.0.1:1/x", "http://127.0.0.1:1/x"),
        ] {
            assert_eq!(request(url).0, wanted, "{url}");
        }
        assert_eq!(request("slack://A/B/C/general").2["channel"], "#general");
        assert_eq!(request("gotify://host/tok").1, [("x-gotify-key".to_string(), "tok".to_string())]);
        assert_eq!(request("json://user:p%40w@host").1[0].1, format!("Basic {}", base64(b"user:p@w")));
        assert_eq!(request("ntfy://host/t?token=tk_1").1[0].1, "Bearer tk_1");
        assert_eq!(request("tgram://1:a/7").2["chat_id"], "7");
    }

    #[test]
    fn what_is_no_address_is_refused_without_repeating_it() {
        for url in [
            "secret",
            "discord://secret",
            "slack://secret/secret",
            "tgram://secret",
            "ntfy://",
            "gotify://secret",
            "ftp://secret",
            "https://discord.com/secret",
            "json:///secret",
            "://secret",
            "json://ho st/secret",
        ] {
            match Target::parse_all(url, "VARIABLE") {
                Ok(targets) => assert!(url.contains(' '), "{url} was taken for {targets:?}"),
                Err(error) => {
                    let text = error.to_string();
                    assert!(text.starts_with("VARIABLE: ") && !text.contains("secret"), "{url}: {text}");
                }
            }
        }
    }

    #[test]
    fn a_port_that_is_none_is_refused_before_anything_is_sent() {
        for url in [
            "json://host:99999",
            "ntfy://host:0/topic",
            "gotifys://host:x/tok",
            "https://host:/a",
            "json://[::1]:65536",
        ] {
            let error = Target::parse(url, "X").unwrap_err().to_string();
            assert!(error.contains("port") && !error.contains("tok"), "{url}: {error}");
        }
        for url in ["json://host:65535", "json://[::1]:1/a", "json://[::1]/a", "tgram://123:abc/7"] {
            assert!(Target::parse(url, "X").is_ok(), "{url}");
        }
    }

    #[test]
    fn lists_are_split_at_spaces_and_at_commas_before_another_address() {
        let found = split(" json://a/1,2,json://b  discord://1/x,\nntfy://t");
        assert_eq!(found, ["json://a/1,2", "json://b", "discord://1/x", "ntfy://t"]);
    }

    #[test]
    fn nothing_shown_of_a_target_holds_its_token() {
        let targets = Target::parse_all("discord://1/secret json://u:secret@h/secret", "D").unwrap();
        assert!(!format!("{targets:?}").contains("secret"));
    }

    #[test]
    fn no_text_of_a_run_calls_anybody() {
        let mut message = Message::test(0.0);
        message.body = "@everyone <!channel> <script>".into();
        let body = |url: &str| Target::parse(url, "X").unwrap().requests(&message).remove(0).2;
        assert_eq!(body("discord://1/x")["allowed_mentions"]["parse"], json!([]));
        assert!(!body("slack://a/b/c")["text"].as_str().unwrap().contains('<'));
    }
}
