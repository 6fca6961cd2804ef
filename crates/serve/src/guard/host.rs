//! The name that a browser thinks it talks to. A page from elsewhere whose name was made to point here (DNS rebinding)
//! still sends its own name: that is refused. An address cannot be rebound, so addresses are taken where they can reach
//! us at all.

use crate::options::Options;
use crate::problem::Problem;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use std::net::{IpAddr, Ipv6Addr};

/// The host that the request is for, as it was written.
pub(crate) fn check(uri: &Uri, headers: &HeaderMap, options: &Options) -> Result<String, Problem> {
    let named: Vec<&str> = headers.get_all(header::HOST).iter().filter_map(|host| host.to_str().ok()).collect();
    let refused = |cause: &str| Problem::new(StatusCode::BAD_REQUEST, cause).field("host");
    let [host] = named[..] else { return Err(refused("a request names its host, once")) };
    let authority: Authority = host.parse().map_err(|_| refused("this is no name of a host"))?;
    if host.contains('@') || uri.authority().is_some_and(|other| other.as_str() != host) {
        return Err(refused("a request names one host"));
    }
    match is_allowed(authority.host(), options) {
        true => Ok(host.to_ascii_lowercase()),
        false => Err(Problem::new(StatusCode::FORBIDDEN, "the server is not called that (a rebound name?)")
            .field("host")
            .hint("call it by its address, or start it with --allow-host NAME")),
    }
}

fn is_allowed(host: &str, options: &Options) -> bool {
    let host = host.to_ascii_lowercase();
    if options.allowed_hosts.iter().any(|name| name.eq_ignore_ascii_case(&host)) {
        return true;
    }
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let address = match bare {
        Some(bare) => bare.parse::<Ipv6Addr>().map(IpAddr::V6).ok(),
        None => host.parse::<IpAddr>().ok(),
    };
    match address {
        Some(address) => address.is_loopback() || !options.is_loopback(),
        None => host == "localhost",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Limits;
    use std::path::PathBuf;

    fn options(listen: &str, allowed: &[&str]) -> Options {
        Options {
            listen: listen.parse().unwrap(),
            token: None,
            allowed_hosts: allowed.iter().map(ToString::to_string).collect(),
            read_only: false,
            runs: PathBuf::new(),
            data: PathBuf::new(),
            studies: PathBuf::new(),
            program: PathBuf::new(),
            parallel: None,
            limits: Limits::default(),
            variables: Vec::new(),
        }
    }

    fn allowed(host: &str, options: &Options) -> bool {
        let headers = HeaderMap::from_iter([(header::HOST, host.parse().unwrap())]);
        check(&Uri::from_static("/"), &headers, options).is_ok()
    }

    #[test]
    fn names_that_are_not_ours_are_refused() {
        let local = options("127.0.0.1:8642", &["box.lan"]);
        for host in ["localhost:8642", "127.0.0.1:8642", "[::1]:8642", "LOCALHOST", "localhost:9999", "box.lan:1"] {
            assert!(allowed(host, &local), "{host}");
        }
        for host in [
            "evil.example:8642",
            "127.0.0.1.evil.example",
            "localhost.evil.example:8642",
            "10.0.0.7:8642",
            "a@localhost",
            "localhost@evil.example",
            "evil.example#localhost",
            "box.lan.evil.example",
            "[::1",
            "0x7f.1",
            "",
        ] {
            assert!(!allowed(host, &local), "{host}");
        }
    }

    #[test]
    fn elsewhere_addresses_are_taken_and_names_are_not() {
        let wide = options("0.0.0.0:8642", &[]);
        assert!(allowed("10.0.0.7:8642", &wide) && allowed("[fe80::1]:8642", &wide) && allowed("localhost", &wide));
        assert!(!allowed("10.evil.example", &wide) && !allowed("evil.example", &wide));
    }

    #[test]
    fn two_hosts_or_none_are_refused() {
        let local = options("127.0.0.1:8642", &[]);
        let mut headers = HeaderMap::new();
        assert!(check(&Uri::from_static("/"), &headers, &local).is_err());
        headers.append(header::HOST, "localhost".parse().unwrap());
        assert!(check(&Uri::from_static("/"), &headers, &local).is_ok());
        assert!(check(&Uri::from_static("http://evil.example/"), &headers, &local).is_err());
        headers.append(header::HOST, "evil.example".parse().unwrap());
        assert!(check(&Uri::from_static("/"), &headers, &local).is_err());
    }
}
