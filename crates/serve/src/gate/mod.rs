//! The token: shown as a bearer by scripts, exchanged for a cookie by browsers, compared in constant time.
//!
//! A cookie and the code of the printed link are 256 random bits: nobody guesses them, so a wrong one is no guess and a
//! right one always opens. The token may be a word that somebody chose: wrong ones are counted by address. Pages from
//! elsewhere can only follow links, so what links show is counted apart, and stops nothing but links.

mod guesses;
mod key;
mod turns;

pub(crate) use key::cookie_key;

use crate::options::Token;
use crate::problem::Problem;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode, header};
use guesses::Guesses;
use sha2::{Digest, Sha256};
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;
use subtle::ConstantTimeEq;
use turns::Turns;

const COOKIE: &str = "plimsoll";

/// Who holds the token comes in; without one, everybody does.
pub(crate) struct Gate {
    /// Digests, so that what is compared has one length.
    token: Option<[u8; 32]>,
    cookie: String,
    /// A code that is good for one sign-in, in the link that is printed at the start.
    launch: Mutex<Option<[u8; 32]>>,
    tokens: Mutex<Guesses>,
    links: Mutex<Guesses>,
    turns: Turns,
}

impl Gate {
    /// `key` makes cookies that nobody can guess, whatever the token is.
    pub(crate) fn new(token: Option<&Token>, launch: Option<&Token>, key: &Token) -> Gate {
        let cookie = |token: &Token| hex(&digest(&format!("{} makes the cookie of {}", key.secret(), token.secret())));
        Gate {
            token: token.map(|token| digest(token.secret())),
            cookie: token.map(cookie).unwrap_or_default(),
            launch: Mutex::new(launch.map(|code| digest(code.secret()))),
            tokens: Mutex::default(),
            links: Mutex::default(),
            turns: Turns::new(),
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.token.is_none()
    }

    pub(crate) async fn check(&self, headers: &HeaderMap, from: IpAddr) -> Result<(), Problem> {
        if self.is_open() || self.has_cookie(headers) {
            return Ok(());
        }
        match bearer(headers) {
            Some(shown) => self.weigh(shown, from).await,
            None => Err(unauthorized("this server asks for its token")),
        }
    }

    /// Whether this is the token. After too many wrong ones it is looked at slowly, even if it is right: else who guesses
    /// would learn as much as before.
    pub(crate) async fn weigh(&self, shown: &str, from: IpAddr) -> Result<(), Problem> {
        let wait = lock(&self.tokens).wait(from, Instant::now());
        if let Some(seconds) = wait
            && !self.turns.wait().await
        {
            return Err(too_many(seconds));
        }
        if self.is_token(shown) {
            return Ok(());
        }
        lock(&self.tokens).wrong(from);
        Err(wait.map_or_else(|| unauthorized("this is not the token"), too_many))
    }

    /// The code of the printed link, once.
    pub(crate) fn takes_code(&self, shown: &str) -> bool {
        let shown = digest(shown);
        lock(&self.launch).take_if(|code| is_same(&shown, code)).is_some()
    }

    /// The token in a link. After too many wrong ones none is looked at: the page asks for the token by itself.
    pub(crate) fn takes_link(&self, shown: &str, from: IpAddr) -> bool {
        let mut links = lock(&self.links);
        let is_right = links.wait(from, Instant::now()).is_none() && self.is_token(shown);
        if !is_right {
            links.wrong(from);
        }
        is_right
    }

    fn is_token(&self, shown: &str) -> bool {
        self.token.is_some_and(|token| is_same(&digest(shown), &token))
    }

    /// For the server that was called by this name: another one on this machine has a cookie of its own.
    pub(crate) fn set_cookie(&self, headers: &HeaderMap) -> String {
        format!("{}={}; Path=/; HttpOnly; SameSite=Strict; Max-Age=2592000", cookie_name(headers), self.cookie)
    }

    /// Any of that name: another server of this machine may have set one for a path.
    fn has_cookie(&self, headers: &HeaderMap) -> bool {
        let own = digest(&self.cookie);
        cookies(headers, &cookie_name(headers)).any(|shown| is_same(&digest(shown), &own))
    }
}

fn lock<T>(guarded: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    guarded.lock().unwrap_or_else(PoisonError::into_inner)
}

fn digest(text: &str) -> [u8; 32] {
    Sha256::digest(text).into()
}

fn is_same(one: &[u8; 32], other: &[u8; 32]) -> bool {
    one.ct_eq(other).into()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Browsers send a cookie to every port of a host: the port is in its name.
fn cookie_name(headers: &HeaderMap) -> String {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()?.parse::<Authority>().ok());
    match host.and_then(|host| host.port_u16()) {
        Some(port) => format!("{COOKIE}-{port}"),
        None => COOKIE.into(),
    }
}

fn cookies<'a>(headers: &'a HeaderMap, name: &str) -> impl Iterator<Item = &'a str> {
    let lines = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
    let pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.filter(move |(named, _)| *named == name).map(|(_, value)| value)
}

fn too_many(seconds: u64) -> Problem {
    Problem::new(StatusCode::TOO_MANY_REQUESTS, "too many wrong tokens")
        .retry_after(seconds)
        .hint(format!("ask again in {seconds} seconds; the link that `plimsoll serve` printed opens at once"))
}

pub(crate) fn unauthorized(error: &str) -> Problem {
    Problem::new(StatusCode::UNAUTHORIZED, error)
        .hint("open the link that `plimsoll serve` printed, or send Authorization: Bearer TOKEN")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: header::HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, value.parse().unwrap())])
    }

    fn gate(token: &str) -> Gate {
        Gate::new(Some(&Token::new(token)), Some(&Token::new("launch")), &Token::new("key"))
    }

    fn local() -> IpAddr {
        "127.0.0.1".parse().unwrap()
    }

    async fn status(gate: &Gate, name: header::HeaderName, value: &str) -> Result<(), u16> {
        gate.check(&headers(name, value), local()).await.map_err(|problem| problem.status)
    }

    #[tokio::test]
    async fn bearer_and_cookie_open_and_everything_else_does_not() {
        let gate = gate("correct horse");
        for right in ["Bearer correct horse", "bearer correct horse"] {
            assert_eq!(status(&gate, header::AUTHORIZATION, right).await, Ok(()), "{right}");
        }
        let stale = format!("a=b; {COOKIE}=stale; {COOKIE}={}", gate.cookie);
        assert_eq!(status(&gate, header::COOKIE, &stale).await, Ok(()));
        for wrong in ["Bearer", "Bearer ", "Bearer correct", "Basic correct horse", "correct horse"] {
            assert_eq!(status(&gate, header::AUTHORIZATION, wrong).await, Err(401), "{wrong}");
        }
        assert!(gate.check(&HeaderMap::new(), local()).await.is_err());
        assert_eq!(status(&gate, header::COOKIE, "plimsoll=correct horse").await, Err(401));
    }

    #[tokio::test]
    async fn guessing_is_slow_even_for_a_right_guess_and_shuts_nobody_out() {
        let gate = gate("right");
        let mut wrong = Vec::new();
        for n in 0..11 {
            wrong.push(status(&gate, header::AUTHORIZATION, &format!("Bearer {n}")).await);
        }
        assert!(wrong[..10].iter().all(|answer| *answer == Err(401)) && wrong[10] == Err(429), "{wrong:?}");
        let start = Instant::now();
        assert_eq!(status(&gate, header::AUTHORIZATION, "Bearer right").await, Ok(()));
        assert!(start.elapsed().as_secs() >= 1, "a right guess is no faster than a wrong one");
        let start = Instant::now();
        assert_eq!(status(&gate, header::COOKIE, &format!("{COOKIE}={}", gate.cookie)).await, Ok(()));
        let (right, elsewhere) = (headers(header::AUTHORIZATION, "Bearer right"), "10.0.0.2".parse().unwrap());
        assert!(gate.check(&right, elsewhere).await.is_ok());
        assert!(start.elapsed().as_millis() < 900, "neither of these waits");
    }

    #[tokio::test]
    async fn neither_stale_cookies_nor_links_are_guesses_of_the_token() {
        let gate = gate("right");
        for n in 0..40 {
            assert_eq!(status(&gate, header::COOKIE, &format!("{COOKIE}={n}")).await, Err(401));
            assert!(!gate.takes_code(&n.to_string()) && !gate.takes_link(&n.to_string(), local()));
        }
        assert!(!gate.takes_link("right", local()), "who guesses by links is not heard any more");
        assert!(gate.takes_code("launch"), "the code cannot be guessed and is always good");
        let start = Instant::now();
        assert_eq!(status(&gate, header::AUTHORIZATION, "Bearer right").await, Ok(()));
        assert!(start.elapsed().as_millis() < 900);
    }

    #[test]
    fn the_code_of_the_link_is_good_once_and_the_token_always() {
        let gate = gate("token");
        assert!(gate.takes_link("token", local()) && gate.takes_code("launch"));
        assert!(!gate.takes_code("launch") && gate.takes_link("token", local()));
    }

    #[test]
    fn servers_on_one_host_have_cookies_of_their_own() {
        let name = |host: &str| cookie_name(&headers(header::HOST, host));
        assert_eq!(name("localhost:8642"), "plimsoll-8642");
        assert_eq!(name("[::1]:9000"), "plimsoll-9000");
        assert_eq!(name("box.lan"), "plimsoll");
        assert!(gate("t").set_cookie(&headers(header::HOST, "localhost:1")).starts_with("plimsoll-1="));
        let [one, other] = ["key", "another"].map(|key| Gate::new(Some(&Token::new("t")), None, &Token::new(key)));
        assert_ne!(one.cookie, other.cookie);
    }
}
