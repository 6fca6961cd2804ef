//! What a hostile page, client or file tries.

use crate::desk::{Desk, QUICKSTART, step};
use serde_json::json;
use std::io::{Read, Write};
use std::time::{Duration, Instant};

#[test]
fn no_path_leads_out_of_the_folders() {
    let desk = Desk::new();
    desk.run("real", &step(1, 2.0));
    std::fs::write(desk.folder.path().join("secret.txt"), "the secret").unwrap();
    std::fs::create_dir(desk.folder.path().join("outside")).unwrap();
    std::fs::write(desk.folder.path().join("outside/recipe.toml"), "the secret").unwrap();
    std::os::unix::fs::symlink(desk.folder.path().join("outside"), desk.runs().join("link")).unwrap();
    let names = [
        "..",
        "%2e%2e",
        "..%2f..%2fetc%2fpasswd",
        "%2fetc%2fpasswd",
        "..\\..",
        "%00",
        "real%00",
        ".serve",
        "link",
        "real%2f..%2f..",
        "..%252f..",
        "real/../../outside",
        "%c0%ae%c0%ae",
        "outside",
        "%2e%2e%2foutside",
    ];
    for name in names {
        for rest in ["", "/log", "/recipe", "/curves", "/plan", "/checkpoints", "/events", "/export/model.safetensors"]
        {
            let answer = desk.get(&format!("/api/v1/runs/{name}{rest}"));
            assert!(matches!(answer.status, 400 | 404 | 405), "{name}{rest}: {}", answer.status);
            assert!(!answer.text().contains("the secret"), "{name}{rest}");
        }
    }
    for file in ["/../Cargo.toml", "/..%2fCargo.toml", "//etc/passwd", "/page/../secret.txt", "/uplot/../../secret.txt"]
    {
        let answer = desk.get(file);
        assert!(answer.status == 404 && !answer.text().contains("secret"), "{file}: {}", answer.status);
    }
    for name in ["..%2f..", "link", "%2e%2e"] {
        assert_eq!(desk.get(&format!("/api/v1/studies/{name}")).status, 404, "{name}");
    }
    assert_eq!(desk.get("/api/v1/runs/real/recipe").status, 200);
}

#[test]
fn recipes_reach_nothing_outside_of_the_data_folder() {
    let desk = Desk::new();
    std::os::unix::fs::symlink("/etc", desk.data().join("etc")).unwrap();
    let tries = [
        "dir=/etc",
        "data.train=/etc/passwd",
        "data.train=../secret",
        "data.train=etc/passwd",
        "model={family=\"bert\",checkpoint=\"/etc\"}",
        "data.validation=/etc/passwd",
        "data.tokenizer=/etc/hostname",
        "model.checkpoint=/root",
        "data={train=\"/etc/passwd\"}",
    ];
    for path in ["/api/v1/plan", "/api/v1/runs", "/api/v1/cards", "/api/v1/plan/timeline"] {
        for set in tries {
            let answer = desk.post(path, &json!({"recipe": QUICKSTART, "set": [set]}));
            assert_eq!(answer.status, 422, "{path} {set}: {}", answer.text());
            assert!(answer.text().contains("outside of the folders"), "{path} {set}: {}", answer.text());
        }
    }
    let answer = desk.post("/api/v1/advise", &json!({"question": {"recipe": QUICKSTART, "set": ["dir=/etc"]}}));
    assert_eq!(answer.status, 422);
    desk.run("real", &step(1, 2.0));
    let answer = desk.post("/api/v1/runs/real/predict", &json!({"file": "/etc/passwd"}));
    assert_eq!((answer.status, answer.json()["field"].as_str()), (422, Some("file")));
}

#[test]
fn a_rebound_name_and_a_foreign_page_get_nothing() {
    let desk = Desk::new();
    for host in ["evil.example", "evil.example:8642", "127.0.0.1.evil.example", "localhost.evil.example"] {
        for path in ["/", "/api/v1/runs", "/health", "/app.js"] {
            let answer = desk.ask("GET", path, &[("Host", host)], b"");
            assert_eq!(answer.status, 403, "{host} {path}");
        }
    }
    let body = json!({"recipe": QUICKSTART}).to_string();
    let foreign: [&[(&str, &str)]; 5] = [
        &[("Origin", "http://evil.example")],
        &[("Origin", "null")],
        &[("Sec-Fetch-Site", "cross-site")],
        &[("Sec-Fetch-Site", "same-site"), ("Origin", "http://localhost:1")],
        &[("Origin", "https://127.0.0.1.evil.example")],
    ];
    for headers in foreign {
        assert_eq!(desk.ask("POST", "/api/v1/runs", headers, body.as_bytes()).status, 403, "{headers:?}");
        assert_eq!(desk.ask("GET", "/api/v1/runs", headers, b"").status, 403, "{headers:?}");
    }
    for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"] {
        let answer = desk.ask("POST", "/api/v1/runs", &[("Content-Type", kind)], body.as_bytes());
        assert_eq!(answer.status, 415, "{kind}");
    }
    let own = format!("http://{}", desk.address);
    assert_eq!(desk.ask("POST", "/api/v1/plan", &[("Origin", &own)], body.as_bytes()).status, 200);
    // Nothing was started by any of them.
    assert_eq!(desk.get("/api/v1/runs").json(), json!([]));
}

#[test]
fn every_answer_forbids_foreign_scripts_and_frames() {
    let desk = Desk::new();
    for path in ["/", "/ml-management", "/app.js", "/api/v1/runs", "/nowhere", "/api/v1/nowhere", "/health"] {
        let answer = desk.get(path);
        let policy = &answer.headers["content-security-policy"];
        assert!(policy.contains("script-src 'self'") && !policy.contains("unsafe"), "{path}: {policy}");
        assert!(policy.contains("frame-ancestors 'none'"), "{path}");
        assert_eq!(answer.headers["x-content-type-options"], "nosniff", "{path}");
        assert!(!answer.headers.contains_key("access-control-allow-origin"), "{path}");
    }
    assert_eq!(desk.get("/api/v1/runs").headers["cache-control"], "no-store");
}

#[test]
fn large_and_endless_bodies_are_cut_off() {
    let desk = Desk::new();
    let large = vec![b' '; (1 << 20) + 1];
    assert_eq!(desk.ask("POST", "/api/v1/plan", &[], &large).status, 413);
    let head = format!(
        "POST /api/v1/plan HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n",
        desk.address
    );
    let mut stream = desk.connect();
    stream.write_all(head.as_bytes()).unwrap();
    let piece = [format!("{:x}\r\n", 64 << 10).into_bytes(), vec![b' '; 64 << 10], b"\r\n".to_vec()].concat();
    let sent = (0..64).take_while(|_| stream.write_all(&piece).is_ok()).count();
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    assert!(answer.starts_with("HTTP/1.1 413") || sent < 64, "an endless body was taken: {answer:?}");
    let deep = "[".repeat(100_000);
    assert_eq!(desk.ask("POST", "/api/v1/plan", &[], deep.as_bytes()).status, 400);
    let many: Vec<String> = (0..1000).map(|n| format!("train.seed={n}")).collect();
    assert_eq!(desk.post("/api/v1/plan", &json!({"recipe": QUICKSTART, "set": many})).status, 422);
    let dotted = json!({"recipe": QUICKSTART, "set": [format!("{}b=1", "a.".repeat(8_000))]});
    let answer = desk.post("/api/v1/plan", &dotted);
    assert!(answer.status == 422 && answer.text().contains("8001 parts"), "{}: {}", answer.status, answer.text());
    let long = format!("# {}\n{QUICKSTART}", "x".repeat(100_000));
    assert_eq!(desk.post("/api/v1/plan", &json!({"recipe": long})).json()["field"], "recipe");
}

#[test]
fn headers_cannot_be_injected_or_doubled() {
    let desk = Desk::new();
    for path in [
        "/%0d%0aSet-Cookie:%20a=b",
        "/?token=%0d%0aSet-Cookie:%20a=b",
        "/api/v1/runs/%0d%0aX:%20y",
        "/?token=a%0aLocation:%20x",
    ] {
        let answer = desk.get(path);
        assert!(!answer.headers.contains_key("set-cookie") && !answer.headers.contains_key("x"), "{path}");
    }
    for request in [
        format!("GET / HTTP/1.1\r\nHost: {0}\r\nHost: evil.example\r\nConnection: close\r\n\r\n", desk.address),
        "GET / HTTP/1.1\r\nConnection: close\r\n\r\n".to_string(),
        format!("GET http://evil.example/ HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", desk.address),
        format!("GET / HTTP/1.1\r\nHost: a@{}\r\nConnection: close\r\n\r\n", desk.address),
        format!("GET / HTTP/1.1\r\nHost: {}\r\n X: folded\r\nConnection: close\r\n\r\n", desk.address),
        format!(
            "POST /api/v1/runs HTTP/1.1\r\nHost: {}\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n12345",
            desk.address
        ),
        "\0\x01\x02\r\n\r\n".to_string(),
        format!("GET /{} HTTP/1.1\r\nHost: {}\r\n\r\n", "a".repeat(70_000), desk.address),
    ] {
        let answer = String::from_utf8_lossy(&desk.raw(request.as_bytes())).into_owned();
        let refused = answer.is_empty() || answer.starts_with("HTTP/1.1 4");
        assert!(refused, "{:?} → {:?}", &request[..request.len().min(80)], &answer[..answer.len().min(120)]);
    }
    assert_eq!(desk.get("/health").status, 200);
}

#[test]
fn script_in_names_and_events_stays_text() {
    let desk = Desk::new();
    let hostile = "<script>alert(1)</script>";
    let note = json!({"event": "note", "text": format!("{hostile}\r\nid: 999\r\nevent: start-over")}).to_string();
    let raw = "{\"event\":\"note\",\r\"text\":\"x\"}\r\n{\"event\":\"note\",\"text\":\"a\u{2028}b\"}\nnot json\n";
    desk.run("<img src=x onerror=alert(1)>", &(note + "\n" + raw));
    let listed = desk.get("/api/v1/runs");
    assert_eq!(listed.headers["content-type"], "application/json");
    assert_eq!(listed.json()[0]["id"], "<img src=x onerror=alert(1)>");
    let name = "%3Cimg%20src=x%20onerror=alert(1)%3E";
    let recipe = desk.get(&format!("/api/v1/runs/{name}/recipe"));
    assert!(recipe.headers["content-type"].starts_with("text/plain"), "{:?}", recipe.headers);
    let mut stream = desk.connect();
    write!(stream, "GET /api/v1/runs/{name}/events HTTP/1.1\r\nHost: {}\r\n\r\n", desk.address).unwrap();
    let text = read_until(&mut stream, "a\u{2028}b");
    assert!(text.contains("alert(1)") && !text.contains("start-over\n") && !text.contains("\nid: 999"), "{text}");
    assert!(!text.split("\r\n\r\n").nth(1).unwrap().replace("\r\n", "").contains('\r'), "{text:?}");
    // A page never makes markup of it: `nothing_on_the_page_is_inline_or_from_elsewhere` holds it to text nodes.
}

pub(crate) fn read_until(stream: &mut std::net::TcpStream, wanted: &str) -> String {
    let (mut text, mut piece, start) = (Vec::<u8>::new(), vec![0u8; 64 << 10], Instant::now());
    let mut seen = 0;
    // Only what is new is looked at: of a long history, all of it every time would be the test's own slowness.
    while !String::from_utf8_lossy(&text[seen..]).contains(wanted) {
        let end = String::from_utf8_lossy(&text[text.len().saturating_sub(300)..]).into_owned();
        assert!(start.elapsed() < Duration::from_secs(60), "{wanted} did not come after {} bytes: {end}", text.len());
        seen = text.len().saturating_sub(wanted.len());
        let read = stream.read(&mut piece).unwrap();
        assert!(read > 0, "closed before {wanted}, after {} bytes: {end}", text.len());
        text.extend(&piece[..read]);
    }
    String::from_utf8_lossy(&text).into_owned()
}

#[test]
fn a_read_only_server_starts_stops_and_writes_nothing() {
    let desk = Desk::with(|options| options.read_only = true);
    desk.run("real", &step(1, 2.0));
    let body = json!({"recipe": QUICKSTART});
    assert_eq!(desk.post("/api/v1/plan", &body).status, 200);
    assert_eq!(desk.get("/api/v1/runs").status, 200);
    for (path, body) in [
        ("/api/v1/runs", body),
        ("/api/v1/runs/real/stop", json!({})),
        ("/api/v1/runs/real/resume", json!({})),
        ("/api/v1/runs/real/export", json!({})),
        ("/api/v1/runs/real/generate", json!({"prompt": "x"})),
        ("/api/v1/runs/real/predict", json!({"rows": "a\n1\n"})),
    ] {
        assert_eq!(desk.post(path, &body).status, 403, "{path}");
    }
    assert!(!desk.runs().join(".serve").exists());
}

#[test]
fn every_route_that_takes_a_body_refuses_what_forms_of_other_pages_can_send() {
    let (desk, document) = (Desk::new(), plimsoll_serve::openapi());
    let document = serde_json::to_value(document).unwrap();
    let paths = document["paths"].as_object().unwrap();
    let takes: Vec<&String> =
        paths.iter().filter(|(_, item)| item.get("post").is_some()).map(|(path, _)| path).collect();
    assert!(takes.len() >= 10, "{takes:?}");
    for path in takes {
        let path = format!("/api/v1{}", path.replace("{id}", "a"));
        for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/jsonx"] {
            let answer = desk.ask("POST", &path, &[("Content-Type", kind)], b"{}");
            assert_eq!(answer.status, 415, "{path} {kind}: {}", answer.text());
        }
    }
    // What speaks other methods one day has to be looked at by the guard too.
    let methods = paths.values().flat_map(|item| item.as_object().unwrap().keys());
    assert!(methods.into_iter().all(|method| ["get", "post"].contains(&method.as_str())));
}

#[test]
fn addresses_and_questions_that_cannot_be_read_are_problems_with_a_field() {
    let desk = Desk::new();
    desk.run("a", "");
    for (path, field) in [("/api/v1/runs/a/curves?points=x", "points"), ("/api/v1/runs/a/log?from=-1", "from")] {
        let answer = desk.get(path);
        assert_eq!((answer.status, answer.json()["field"].as_str()), (422, Some(field)), "{}", answer.text());
    }
    let answer = desk.get("/api/v1/runs/%ff");
    assert_eq!((answer.status, answer.headers["content-type"].as_str()), (404, "application/problem+json"));
    for (method, path) in [("PUT", "/api/v1/runs"), ("POST", "/api/v1/catalog"), ("DELETE", "/api/v1/runs/a")] {
        assert_eq!(desk.ask(method, path, &[], b"").status, 405, "{method} {path}");
    }
}

#[test]
fn text_that_no_program_can_be_called_with_is_a_problem_of_its_field() {
    let desk = Desk::new();
    desk.run("a", &step(1, 2.0));
    let question = |field: &str, value: serde_json::Value| {
        let mut question = json!({"recipe": QUICKSTART, "device": "cpu"});
        question[field] = value;
        question
    };
    let long = "x".repeat(200_000);
    for odd in ["a\0b", "\0", &long] {
        for (path, body, field) in [
            ("/api/v1/runs/a/predict", json!({"file": odd}), "file"),
            ("/api/v1/runs/a/generate", json!({"prompt": odd}), "prompt"),
            ("/api/v1/advise", json!({"question": question("device", json!(odd))}), "device"),
            ("/api/v1/advise", json!({"question": question("memory", json!(odd))}), "memory"),
            ("/api/v1/advise", json!({"question": question("set", json!([format!("name={odd}")]))}), "set"),
            ("/api/v1/runs", question("device", json!(odd)), "device"),
            ("/api/v1/runs", question("set", json!([format!("name={odd}")])), "set"),
            ("/api/v1/plan", question("ahead", json!([odd])), "ahead"),
            ("/api/v1/plan", question("name", json!(odd)), "name"),
            ("/api/v1/cards", question("recipe", json!(odd)), "recipe"),
        ] {
            let answer = desk.post(path, &body);
            let shown = answer.text().chars().take(300).collect::<String>();
            assert_eq!(answer.status, 422, "{path} {field}: {shown}");
            assert!(field == "recipe" || answer.json()["field"] == field, "{path} {field}: {shown}");
        }
    }
    for (body, field) in [
        (json!(null), "body"),
        (json!("words"), "body"),
        (json!({"recipe": 5}), "recipe"),
        (json!({"recipe": QUICKSTART, "set": [1]}), "set[0]"),
        (json!({"recipe": "name = "}), "recipe"),
        (json!({"recipe": QUICKSTART, "set": ["train.seed"]}), "set"),
        (json!({"recipe": QUICKSTART, "set": ["train.seed=[1"]}), "set"),
        (json!({"recipe": QUICKSTART, "set": ["train.sead=1"]}), "train.sead"),
    ] {
        let answer = desk.post("/api/v1/plan", &body);
        assert_eq!((answer.status, answer.json()["field"].as_str()), (422, Some(field)), "{}", answer.text());
    }
    for gone in ["nowhere.csv", "a\nb", &"deep/".repeat(900), "~", "-h", "*", "\u{202e}"] {
        let answer = desk.post("/api/v1/runs/a/predict", &json!({"file": gone}));
        assert_eq!((answer.status, answer.json()["field"].as_str()), (422, Some("file")), "{gone}: {}", answer.text());
    }
    let answer = desk.post("/api/v1/advise", &json!({"question": question("device", json!("no such card"))}));
    assert_eq!((answer.status, answer.json()["field"].as_str()), (422, Some("device")), "{}", answer.text());
    assert_eq!(desk.get("/api/v1/runs").json().as_array().map(Vec::len), Some(1), "nothing was started");
}
