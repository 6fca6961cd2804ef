//! The token: shown as a bearer by scripts, exchanged for a cookie by browsers, compared in constant time.

mod guesses;

use crate::options::Token;
use crate::problem::Problem;
use axum::http::{HeaderMap, StatusCode, header};
use guesses::Guesses;
use sha2::{Digest, Sha256};
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;
use subtle::ConstantTimeEq;

const COOKIE: &str = "plimsoll";

/// Who holds the token comes in; without one, everybody does.
pub(crate) struct Gate {
    /// Digests, so that what is compared has one length.
    token: Option<[u8; 32]>,
    cookie: String,
    /// A code that is good for one sign-in, in the link that is printed at the start.
    launch: Mutex<Option<[u8; 32]>>,
    guesses: Mutex<Guesses>,
}

impl Gate {
    pub(crate) fn new(token: Option<&Token>, launch: Option<&Token>) -> Gate {
        Gate {
            token: token.map(|token| digest(token.secret())),
            // It survives the server, so that a page goes on when the server comes back with the same token.
            cookie: token.map(|token| hex(&digest(&format!("cookie of {}", token.secret())))).unwrap_or_default(),
            launch: Mutex::new(launch.map(|code| digest(code.secret()))),
            guesses: Mutex::default(),
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.token.is_none()
    }

    pub(crate) fn check(&self, headers: &HeaderMap, from: IpAddr) -> Result<(), Problem> {
        let Some(token) = &self.token else { return Ok(()) };
        self.refuse_guessers(from)?;
        let shown = bearer(headers);
        if shown.is_some_and(|shown| is_same(&digest(shown), token)) || self.has_cookie(headers) {
            return Ok(());
        }
        if shown.is_some() || cookie(headers).is_some() {
            self.count(from);
        }
        Err(unauthorized("this server asks for its token"))
    }

    pub(crate) fn refuse_guessers(&self, from: IpAddr) -> Result<(), Problem> {
        let mut guesses = self.guesses.lock().unwrap_or_else(PoisonError::into_inner);
        match guesses.wait(from, Instant::now()) {
            Some(seconds) => {
                Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, "too many wrong tokens").retry_after(seconds))
            }
            None => Ok(()),
        }
    }

    pub(crate) fn count(&self, from: IpAddr) {
        self.guesses.lock().unwrap_or_else(PoisonError::into_inner).wrong(from);
    }

    pub(crate) fn set_cookie(&self) -> String {
        format!("{COOKIE}={}; Path=/; HttpOnly; SameSite=Strict; Max-Age=2592000", self.cookie)
    }

    fn has_cookie(&self, headers: &HeaderMap) -> bool {
        cookie(headers).is_some_and(|shown| is_same(&digest(shown), &digest(&self.cookie)))
    }

    /// The token itself, or the code of the printed link, once.
    pub(crate) fn takes(&self, shown: &str) -> bool {
        let shown = digest(shown);
        if self.token.is_some_and(|token| is_same(&shown, &token)) {
            return true;
        }
        let mut launch = self.launch.lock().unwrap_or_else(PoisonError::into_inner);
        launch.take_if(|code| is_same(&shown, code)).is_some()
    }
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

fn cookie(headers: &HeaderMap) -> Option<&str> {
    let lines = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
    let mut pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, _)| *name == COOKIE).map(|(_, value)| value)
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

    #[test]
    fn bearer_and_cookie_open_and_everything_else_does_not() {
        let gate = Gate::new(Some(&Token::new("correct horse")), None);
        let from = "10.0.0.1".parse().unwrap();
        assert!(gate.check(&headers(header::AUTHORIZATION, "Bearer correct horse"), from).is_ok());
        assert!(gate.check(&headers(header::AUTHORIZATION, "bearer correct horse"), from).is_ok());
        let cookie = format!("a=b; {COOKIE}={}", gate.cookie);
        assert!(gate.check(&headers(header::COOKIE, &cookie), from).is_ok());
        for wrong in ["Bearer", "Bearer ", "Bearer correct", "Basic correct horse", "correct horse"] {
            assert!(gate.check(&headers(header::AUTHORIZATION, wrong), from).is_err(), "{wrong}");
        }
        assert!(gate.check(&HeaderMap::new(), from).is_err());
        assert!(gate.check(&headers(header::COOKIE, "plimsoll=correct horse"), from).is_err());
    }

    #[test]
    fn guessing_is_stopped_even_for_a_right_guess() {
        let gate = Gate::new(Some(&Token::new("right")), None);
        let from = "10.0.0.1".parse().unwrap();
        let status = |token: &str| {
            gate.check(&headers(header::AUTHORIZATION, &format!("Bearer {token}")), from).map_err(|p| p.status)
        };
        let wrong: Vec<_> = (0..12).map(|n| status(&n.to_string())).collect();
        assert!(wrong[..10].iter().all(|answer| *answer == Err(401)) && wrong[11] == Err(429), "{wrong:?}");
        assert_eq!(status("right"), Err(429));
        assert!(gate.check(&headers(header::AUTHORIZATION, "Bearer right"), "10.0.0.2".parse().unwrap()).is_ok());
    }

    #[test]
    fn the_code_of_the_link_is_good_once() {
        let gate = Gate::new(Some(&Token::new("token")), Some(&Token::new("launch")));
        assert!(gate.takes("token") && gate.takes("launch"));
        assert!(!gate.takes("launch") && gate.takes("token"));
    }
}
