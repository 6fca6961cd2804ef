//! The page that asks. Browsers say where a request comes from; one from another page neither changes nor reads
//! anything here, token or not. Scripts say nothing of the kind and are judged by their token alone.

use crate::problem::Problem;
use axum::http::{HeaderMap, Method, StatusCode, header};

pub(crate) fn check(method: &Method, path: &str, headers: &HeaderMap, host: &str) -> Result<(), Problem> {
    let from_elsewhere = match headers.get(header::ORIGIN) {
        Some(origin) => !origin.to_str().is_ok_and(|origin| is_same(origin, host)),
        None => false,
    };
    let said = |name: &str| headers.get(name).map(|value| value.as_bytes());
    // Following a link to the page itself is no question to the API. What another page has in it, an image or a frame, is
    // no link.
    let navigates = matches!(said("sec-fetch-mode"), None | Some(b"navigate"))
        && matches!(said("sec-fetch-dest"), None | Some(b"document"));
    let follows_link = method.is_safe() && !path.starts_with("/api/") && navigates;
    let site = said("sec-fetch-site");
    let across = !matches!(site, None | Some(b"same-origin" | b"none")) && !follows_link;
    if from_elsewhere || across {
        return Err(Problem::new(StatusCode::FORBIDDEN, "another page asks for this")
            .field("origin")
            .hint("use the page of this server, or a script with the token"));
    }
    Ok(())
}

fn is_same(origin: &str, host: &str) -> bool {
    let authority = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    authority.is_some_and(|authority| authority.eq_ignore_ascii_case(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(method: &Method, path: &str, more: &[(&'static str, &str)]) -> Result<(), u16> {
        let mut headers = HeaderMap::new();
        more.iter().for_each(|(name, value)| _ = headers.insert(*name, value.parse().unwrap()));
        check(method, path, &headers, "localhost:8642").map_err(|problem| problem.status)
    }

    #[test]
    fn other_pages_are_refused_and_our_own_and_scripts_are_not() {
        let runs = "/api/v1/runs";
        for method in [Method::GET, Method::POST, Method::DELETE] {
            assert_eq!(verdict(&method, runs, &[]), Ok(()));
            assert_eq!(
                verdict(&method, runs, &[("origin", "http://localhost:8642"), ("sec-fetch-site", "same-origin")]),
                Ok(())
            );
            for bad in [
                [("origin", "http://evil.example"), ("sec-fetch-site", "cross-site")],
                [("origin", "null"), ("sec-fetch-site", "none")],
                [("origin", "http://localhost:9000"), ("sec-fetch-site", "same-site")],
                [("origin", "http://localhost:8642.evil.example"), ("sec-fetch-site", "none")],
                [("origin", "http://localhost:8642"), ("sec-fetch-site", "cross-site")],
            ] {
                assert_eq!(verdict(&method, runs, &bad), Err(403), "{method} {bad:?}");
            }
        }
    }

    #[test]
    fn a_link_from_elsewhere_opens_the_page_and_nothing_more() {
        let link = [("sec-fetch-site", "cross-site")];
        assert_eq!(verdict(&Method::GET, "/", &link), Ok(()));
        assert_eq!(verdict(&Method::GET, "/api/v1/runs", &link), Err(403));
        assert_eq!(verdict(&Method::POST, "/", &link), Err(403));
        let with = |mode, dest| [link[0], ("sec-fetch-mode", mode), ("sec-fetch-dest", dest)];
        assert_eq!(verdict(&Method::GET, "/", &with("navigate", "document")), Ok(()));
        for (mode, dest) in [("no-cors", "image"), ("navigate", "iframe"), ("cors", "empty")] {
            assert_eq!(verdict(&Method::GET, "/", &with(mode, dest)), Err(403), "{mode} {dest}");
        }
    }
}
