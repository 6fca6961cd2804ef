//! Who holds the token comes in, and nobody else.

use crate::desk::Desk;
use serde_json::json;

const SECRET: &str = "a long and secret token 0123456789";

#[test]
fn without_the_token_only_the_empty_page_is_shown() {
    let desk = Desk::with_token(SECRET);
    for path in
        ["/api/v1/runs", "/api/v1/devices", "/api/v1/openapi.json", "/metrics", "/api/v1/nowhere", "/api/v1/server"]
    {
        let answer = desk.get(path);
        assert_eq!(answer.status, 401, "{path}");
        assert!(!answer.text().contains(SECRET));
    }
    assert_eq!((desk.get("/").status, desk.get("/app.js").status, desk.get("/health").status), (200, 200, 200));
    let bearer = format!("Bearer {SECRET}");
    assert_eq!(desk.ask("GET", "/api/v1/runs", &[("Authorization", &bearer)], b"").status, 200);
}

#[test]
fn the_link_gives_a_cookie_that_scripts_cannot_read_and_is_good_once() {
    let desk = Desk::with_token(SECRET);
    assert!(!desk.link.contains(SECRET), "the link holds a code of its own");
    let path = &desk.link[desk.link.find("/?").unwrap()..];
    let answer = desk.get(path);
    let cookie = &answer.headers["set-cookie"];
    assert_eq!((answer.status, answer.headers["location"].as_str()), (303, "/"));
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict") && !cookie.contains(SECRET), "{cookie}");
    let pair = cookie.split(';').next().unwrap();
    assert_eq!(desk.ask("GET", "/api/v1/runs", &[("Cookie", pair)], b"").status, 200);
    assert!(!desk.get(path).headers.contains_key("set-cookie"), "the same link again");
    let again = desk.post("/api/v1/sign-in", &json!({"token": SECRET}));
    assert_eq!((again.status, again.headers["set-cookie"].split(';').next()), (204, Some(pair)));
}

#[test]
fn guessing_is_slowed_down_and_a_forged_cookie_is_a_guess() {
    let desk = Desk::with_token(SECRET);
    let mut seen = Vec::new();
    for n in 0..14 {
        let (bearer, cookie) = (format!("Bearer {n}"), format!("plimsoll={n}"));
        let header = if n % 2 == 0 { ("Authorization", bearer.as_str()) } else { ("Cookie", cookie.as_str()) };
        let answer = desk.ask("GET", "/api/v1/runs", &[header], b"");
        if answer.status == 429 {
            assert!(answer.headers["retry-after"].parse::<u64>().unwrap() <= 61);
        }
        seen.push(answer.status);
    }
    assert!(
        seen[..10].iter().all(|status| *status == 401) && seen[10..].iter().all(|status| *status == 429),
        "{seen:?}"
    );
    assert_eq!(desk.post("/api/v1/sign-in", &json!({"token": SECRET})).status, 429);
}
