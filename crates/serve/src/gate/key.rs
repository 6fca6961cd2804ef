//! The key that cookies are made with. It is random, so that a cookie tells nothing about the token and cannot be
//! guessed with it, and kept beside the runs, so that a page goes on when the server comes back with the same token.

use crate::folders::OWN;
use crate::options::Token;
use plimsoll_runs::open_inside;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

const FILE: &str = "cookie-key";

/// The key of a folder of runs. A server that writes nothing, or cannot, has one of its own until it ends.
pub(crate) fn cookie_key(runs: &Path, writes: bool) -> io::Result<Token> {
    let folder = runs.join(OWN);
    if let Some(kept) = read(&folder) {
        return Ok(kept);
    }
    let fresh = Token::random()?;
    // Where another process was faster, the next start takes up its key.
    let _ = if writes { keep(&folder, &fresh) } else { Ok(()) };
    Ok(fresh)
}

fn read(folder: &Path) -> Option<Token> {
    let file = open_inside(&folder.join(FILE)).ok()?;
    let mut text = String::new();
    io::Read::read_to_string(&mut io::Read::take(file, 256), &mut text).ok()?;
    let is_whole = text.len() == Token::RANDOM_LENGTH && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_whole.then(|| Token::new(text))
}

/// For this user's eyes only; a damaged one is replaced.
fn keep(folder: &Path, key: &Token) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let draft = folder.join(format!("{FILE}.{}.tmp", std::process::id()));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    file.write_all(key.secret().as_bytes())?;
    fs::rename(draft, folder.join(FILE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_key_is_kept_for_its_user_and_a_server_that_writes_nothing_leaves_none() {
        let runs = tempfile::tempdir().unwrap();
        let key = |writes: bool| cookie_key(runs.path(), writes).unwrap().secret().to_string();
        assert_ne!(key(false), key(false));
        assert!(!runs.path().join(OWN).exists());
        let kept = key(true);
        assert!(kept == key(true) && kept == key(false));
        let path = runs.path().join(OWN).join(FILE);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        fs::write(&path, "short").unwrap();
        assert!(key(true) != kept && key(true) == key(true), "a damaged key is made anew");
    }
}
