//! What a server is started with.

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

/// How `plimsoll serve` is set up.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where to listen.
    pub listen: SocketAddr,
    /// What to ask of whoever comes.
    pub token: Option<Token>,
    /// Names, besides addresses, under which the server may be called.
    pub allowed_hosts: Vec<String>,
    /// Nothing is started, stopped or written.
    pub read_only: bool,
    /// Where runs are.
    pub runs: PathBuf,
    /// Where studies of the search are; it need not be there.
    pub studies: PathBuf,
    /// Where data, checkpoints and recipes are: nothing outside of it is read for a client.
    pub data: PathBuf,
    /// The command that trains.
    pub program: PathBuf,
    /// Trainings at one time on one device, at most; bytes decide below that.
    pub parallel: Option<usize>,
    /// How much is taken on at one time.
    pub limits: Limits,
    /// Of the environment of trainings, beside what this process has.
    pub variables: Vec<(String, OsString)>,
}

/// How much there may be at one time; beyond, clients are asked to come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Streams of events.
    pub streams: usize,
    /// Connections, of which each stream is one.
    pub connections: usize,
    /// Trainings that wait in the queue.
    pub waiting: usize,
}

impl Default for Limits {
    /// As many connections for requests as for streams.
    fn default() -> Limits {
        Limits { streams: 2000, connections: 4000, waiting: 200 }
    }
}

impl Options {
    /// Whether only this machine can reach the server.
    pub fn is_loopback(&self) -> bool {
        is_loopback(self.listen.ip())
    }
}

fn is_loopback(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_loopback(),
        IpAddr::V6(v6) => v6.is_loopback() || v6.to_ipv4_mapped().is_some_and(|v4| v4.is_loopback()),
    }
}

/// The longest token that is looked at, in bytes.
pub(crate) const LONGEST_TOKEN: usize = 512;
/// A shorter one is guessed, at one guess a second; of six random letters and digits that takes decades.
const SHORTEST_TOKEN: usize = 6;

/// A secret that clients show. It is never printed by accident.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

/// Why a text is no token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnfitToken {
    /// It would be guessed.
    #[error("it has fewer than {SHORTEST_TOKEN} characters and would be guessed")]
    Short,
    /// No client could show it.
    #[error("it has more than {LONGEST_TOKEN} characters")]
    Long,
    /// A header cannot hold it.
    #[error("it holds something besides letters, digits, signs and spaces of ASCII, which no header can")]
    Odd,
}

impl Token {
    /// Characters of one that is made up.
    pub(crate) const RANDOM_LENGTH: usize = 64;

    /// A secret as it is.
    pub fn new(secret: impl Into<String>) -> Token {
        Token(secret.into())
    }

    /// What a user chose, where it can serve.
    ///
    /// # Errors
    /// It is too short, too long, or cannot stand in a header.
    pub fn chosen(secret: &str) -> Result<Token, UnfitToken> {
        match secret {
            _ if !secret.bytes().all(|byte| (b' '..=b'~').contains(&byte)) => Err(UnfitToken::Odd),
            _ if secret.len() < SHORTEST_TOKEN => Err(UnfitToken::Short),
            _ if secret.len() > LONGEST_TOKEN => Err(UnfitToken::Long),
            _ => Ok(Token(secret.into())),
        }
    }

    /// 256 random bits of the system.
    ///
    /// # Errors
    /// The system has no randomness to give.
    pub fn random() -> std::io::Result<Token> {
        let mut bytes = [0u8; 32];
        getrandom::fill(&mut bytes).map_err(std::io::Error::other)?;
        Ok(Token(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    /// The secret itself, to print once or to compare.
    pub fn secret(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_long_differs_and_is_not_printed() {
        let [one, two] = [Token::random().unwrap(), Token::random().unwrap()];
        assert!(one != two && one.secret().len() == Token::RANDOM_LENGTH);
        assert!(!format!("{one:?}").contains(one.secret()));
    }

    #[test]
    fn a_token_that_is_guessed_or_cannot_be_shown_is_refused() {
        for (secret, wrong) in [
            ("x", UnfitToken::Short),
            ("guess", UnfitToken::Short),
            ("пароль из многих букв", UnfitToken::Odd),
            ("sixteen letters\n and more", UnfitToken::Odd),
            (&"x".repeat(513), UnfitToken::Long),
        ] {
            assert_eq!(Token::chosen(secret), Err(wrong), "{secret}");
        }
        assert!(Token::chosen("six123").is_ok() && Token::chosen(Token::random().unwrap().secret()).is_ok());
    }

    #[test]
    fn mapped_loopback_addresses_are_loopback_and_everything_is_not() {
        for (address, expected) in
            [("127.0.0.1", true), ("127.8.8.8", true), ("::1", true), ("::ffff:127.0.0.1", true), ("0.0.0.0", false)]
        {
            assert_eq!(is_loopback(address.parse().unwrap()), expected, "{address}");
        }
    }
}
