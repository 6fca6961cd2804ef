//! Who holds the token comes in, and nobody else.

use crate::desk::Desk;
use plimsoll_serve::Token;
use serde_json::json;
use std::time::{Duration, Instant};

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
fn guessing_is_slowed_down_and_who_holds_the_token_gets_in_all_the_same() {
    let desk = Desk::with_token(SECRET);
    let mut seen = Vec::new();
    for n in 0..12 {
        let answer = match n % 2 {
            0 => desk.ask("GET", "/api/v1/runs", &[("Authorization", &format!("Bearer {n}"))], b""),
            _ => desk.post("/api/v1/sign-in", &json!({"token": n.to_string()})),
        };
        if answer.status == 429 {
            assert!(answer.headers["retry-after"].parse::<u64>().unwrap() <= 61);
        }
        seen.push(answer.status);
    }
    assert!(seen[..10].iter().all(|status| *status == 401) && seen[10..] == [429, 429], "{seen:?}");
    let bearer = format!("Bearer {SECRET}");
    assert_eq!(desk.ask("GET", "/api/v1/runs", &[("Authorization", &bearer)], b"").status, 200);
    assert_eq!(desk.post("/api/v1/sign-in", &json!({"token": SECRET})).status, 204);
}

#[test]
fn what_other_pages_and_stale_cookies_show_shuts_nobody_out() {
    let desk = Desk::with_token(SECRET);
    let image = [("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "no-cors"), ("Sec-Fetch-Dest", "image")];
    let link = [("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "navigate"), ("Sec-Fetch-Dest", "document")];
    let stale = format!("plimsoll-{}=of-a-server-that-is-gone", desk.address.port());
    for _ in 0..15 {
        assert_eq!(desk.ask("GET", "/?token=x", &image, b"").status, 403);
        assert_eq!(desk.ask("GET", "/?token=x", &link, b"").status, 303);
        // Browsers say nothing of the kind to an address without TLS that is not this machine's.
        assert_eq!(desk.ask("GET", "/?token=x", &[], b"").status, 303);
        assert_eq!(desk.ask("GET", "/api/v1/runs", &[("Cookie", &stale)], b"").status, 401);
    }
    let path = &desk.link[desk.link.find("/?").unwrap()..];
    let entered = desk.get(path).headers["set-cookie"].split(';').next().unwrap().to_string();
    let bearer = format!("Bearer {SECRET}");
    let start = Instant::now();
    assert_eq!(desk.ask("GET", "/api/v1/runs", &[("Cookie", &format!("{stale}; {entered}"))], b"").status, 200);
    assert_eq!(desk.ask("GET", "/api/v1/runs", &[("Authorization", &bearer)], b"").status, 200);
    assert_eq!(desk.post("/api/v1/sign-in", &json!({"token": SECRET})).status, 204);
    assert!(start.elapsed() < Duration::from_secs(1), "nobody waits for what others did: {:?}", start.elapsed());
}

#[test]
fn a_cookie_is_for_one_server_of_a_host_and_outlives_it() {
    let signed_in = |desk: &Desk| {
        let answer = desk.post("/api/v1/sign-in", &json!({"token": SECRET}));
        answer.headers["set-cookie"].split(';').next().unwrap().to_string()
    };
    let (one, other) = (Desk::with_token(SECRET), Desk::with_token(SECRET));
    let pairs = [signed_in(&one), signed_in(&other)];
    // As the browser sends them: both, to both.
    let both = pairs.join("; ");
    for desk in [&one, &other] {
        assert_eq!(desk.ask("GET", "/api/v1/runs", &[("Cookie", &both)], b"").status, 200);
    }
    let port = one.address.port();
    let folder = one.close();
    let again = Desk::in_folder(folder, |options| options.token = Some(Token::new(SECRET))).unwrap();
    let value = pairs[0].strip_prefix(&format!("plimsoll-{port}=")).unwrap();
    let kept = format!("plimsoll-{}={value}", again.address.port());
    assert_eq!(again.ask("GET", "/api/v1/runs", &[("Cookie", &kept)], b"").status, 200);
}

#[test]
fn no_route_of_the_document_answers_without_the_token() {
    let desk = Desk::with_token("correct horse battery");
    let bearer = ("Authorization", "Bearer correct horse battery");
    let document = desk.ask("GET", "/api/v1/openapi.json", &[bearer], b"").json();
    assert_eq!(document["security"], json!([{"token": []}, {"cookie": []}]));
    assert_eq!(
        Desk::new().get("/api/v1/openapi.json").json()["security"][0],
        json!({}),
        "an open server asks for none"
    );
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let (method, path) = (method.to_uppercase(), format!("/api/v1{}", path.replace(['{', '}'], "")));
            let status = desk.ask(&method, &path, &[], b"{}").status;
            assert_eq!(status == 401, operation.get("security").is_none(), "{method} {path}: {status}");
        }
    }
}
