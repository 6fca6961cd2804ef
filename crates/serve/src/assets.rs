//! The page's files, inside the binary: nothing is fetched from elsewhere, so it works offline. They are compressed once
//! and recognized by their digest.

use crate::problem::Problem;
use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest, Sha256};
use std::io::Write;
use std::sync::OnceLock;

macro_rules! files {
    ($($name:literal),* $(,)?) => { [$(($name, include_bytes!(concat!("../page/", $name)) as &[u8])),*] };
}

const FILES: [(&str, &[u8]); FILE_COUNT] = files![
    "index.html",
    "style.css",
    "app.js",
    "api.js",
    "dom.js",
    "format.js",
    "words.js",
    "charts.js",
    "memory.js",
    "route.js",
    "shell.js",
    "toml.js",
    "beginning.js",
    "sayings.js",
    "settings.js",
    "slider.js",
    "tables.js",
    "page-runs.js",
    "page-new.js",
    "page-run.js",
    "page-compare.js",
    "page-queue.js",
    "page-devices.js",
    "page-studies.js",
    "page-doctor.js",
    "page-docs.js",
    "en.json",
    "ru.json",
    "said.json",
    "sentences-ru.json",
    "icon.svg",
    "uplot/uPlot.js",
    "uplot/uPlot.css",
    "uplot/LICENSE",
];
const FILE_COUNT: usize = 34;

struct Asset {
    name: &'static str,
    plain: &'static [u8],
    packed: Bytes,
    tag: String,
}

fn assets() -> &'static [Asset] {
    static ASSETS: OnceLock<Vec<Asset>> = OnceLock::new();
    ASSETS.get_or_init(|| FILES.iter().map(|(name, bytes)| asset(name, bytes)).collect())
}

fn asset(name: &'static str, plain: &'static [u8]) -> Asset {
    let digest: String = Sha256::digest(plain).iter().take(12).map(|byte| format!("{byte:02x}")).collect();
    Asset { name, plain, packed: packed(plain).into(), tag: format!("\"{digest}\"") }
}

fn packed(plain: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    // Writing to memory does not fail.
    let _ = encoder.write_all(plain);
    encoder.finish().unwrap_or_default()
}

fn kind(name: &str) -> &'static str {
    match name.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("json") => "application/json",
        Some("svg") => "image/svg+xml",
        _ => "text/plain; charset=utf-8",
    }
}

/// A file of the page by its name.
pub(crate) fn serve(name: &str, asked: &HeaderMap) -> Result<Response, Problem> {
    let asset = assets().iter().find(|asset| asset.name == name);
    let asset = asset.ok_or_else(|| Problem::not_found("there is no such page"))?;
    let has = |name: header::HeaderName, text: &str| {
        asked.get(name).and_then(|value| value.to_str().ok()).is_some_and(|value| value.contains(text))
    };
    let mut response = match (has(header::IF_NONE_MATCH, &asset.tag), has(header::ACCEPT_ENCODING, "gzip")) {
        (true, _) => StatusCode::NOT_MODIFIED.into_response(),
        (false, true) => ([(header::CONTENT_ENCODING, "gzip")], asset.packed.clone()).into_response(),
        (false, false) => Bytes::from_static(asset.plain).into_response(),
    };
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind(name)));
    headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    // The browser asks whether its copy is the current one; an upgrade is seen at once.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    if let Ok(tag) = HeaderValue::from_str(&asset.tag) {
        headers.insert(header::ETAG, tag);
    }
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};
    use std::path::Path;

    #[test]
    fn the_whole_page_is_small() {
        let bytes: usize = assets().iter().map(|asset| asset.packed.len()).sum();
        assert!(bytes < 150 << 10, "{bytes} bytes compressed");
    }

    #[test]
    fn every_file_of_the_page_is_served() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("page");
        let names = |folder: &Path| -> Vec<String> {
            let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap).filter(|e| e.path().is_file());
            entries.map(|e| e.path().strip_prefix(&root).unwrap().display().to_string()).collect()
        };
        let there: BTreeSet<String> = names(&root).into_iter().chain(names(&root.join("uplot"))).collect();
        assert_eq!(there, FILES.iter().map(|(name, _)| name.to_string()).collect());
    }

    /// Behind a name may stand the words that go with its number: `{count|run|runs}`.
    fn blanks(text: &str) -> BTreeSet<&str> {
        let inside = text.split('{').skip(1).filter_map(|rest| rest.split_once('}'));
        inside.map(|(inside, _)| inside.split('|').next().unwrap_or(inside)).collect()
    }

    fn words(name: &str) -> BTreeMap<String, String> {
        let bytes = FILES.iter().find(|(file, _)| *file == name).unwrap().1;
        serde_json::from_slice(bytes).unwrap()
    }

    #[test]
    fn both_languages_say_the_same_things_with_the_same_blanks() {
        let (english, russian) = (words("en.json"), words("ru.json"));
        let keys = |words: &BTreeMap<String, String>| words.keys().cloned().collect::<Vec<_>>();
        assert_eq!(keys(&english), keys(&russian));
        for (key, text) in &english {
            assert_eq!(blanks(text), blanks(&russian[key]), "{key}");
            assert!(!text.trim().is_empty() && !russian[key].trim().is_empty(), "{key}");
        }
    }

    #[test]
    fn what_the_planner_says_has_a_text_in_every_language() {
        let (patterns, english) = (words("said.json"), words("en.json"));
        for (key, pattern) in &patterns {
            assert!(blanks(&english[key]).is_subset(&blanks(pattern)), "{key}: a blank that no sentence fills");
        }
        let said = english.keys().filter(|key| key.starts_with("said."));
        assert!(said.eq(patterns.keys()), "a text without a sentence");
    }

    #[test]
    fn every_key_of_a_recipe_is_described_in_russian() {
        let texts = words("sentences-ru.json");
        let keys = plimsoll::reference::keys().unwrap();
        let told = keys.iter().flat_map(|key| [Some(key.about), key.unset]).flatten();
        // A value stands for itself.
        let is_words = |text: &&str| text.contains(|c: char| c.is_ascii_lowercase()) && !text.starts_with('"');
        let missing: BTreeSet<&str> = told.filter(is_words).filter(|text| !texts.contains_key(*text)).collect();
        assert!(missing.is_empty(), "no Russian text for {missing:#?}");
    }

    #[test]
    fn russian_sentences_have_the_blanks_of_the_english_ones() {
        let patterns: BTreeSet<String> = words("said.json").values().map(|pattern| bare(pattern)).collect();
        for (sentence, text) in words("sentences-ru.json") {
            assert!(blanks(&text).is_subset(&blanks(&sentence)), "{sentence}: a blank that nothing fills");
            assert!(!patterns.contains(&bare(&sentence)), "{sentence}: said.json has it, too");
            let is_russian = text.contains(|c: char| ('а'..='я').contains(&c.to_lowercase().next().unwrap_or(c)));
            assert!(is_russian || sentence.starts_with('{'), "{sentence}: {text}");
        }
    }

    /// What stands between quotes in a source's own part, blanks as they are, beside attributes and comments.
    fn literals(source: &str) -> Vec<String> {
        let own = source.split("#[cfg(test)]").next().unwrap_or(source);
        let lines =
            own.lines().map(str::trim).filter(|line| !line.starts_with("//") && !line.contains("description = "));
        let text = lines.collect::<Vec<_>>().join("\n").replace("\\\n", "").replace("\\\"", "\u{1}");
        text.split('"').skip(1).step_by(2).map(|literal| literal.replace('\u{1}', "\"")).collect()
    }

    /// Blanks without their names.
    fn bare(sentence: &str) -> String {
        let mut pieces = sentence.split('{').map(|piece| piece.split_once('}').map_or(piece, |(_, rest)| rest));
        let first = pieces.next().unwrap_or_default().to_string();
        pieces.fold(first, |bare, piece| bare + "{}" + piece)
    }

    #[test]
    fn what_the_server_says_of_runs_and_files_has_a_russian_text() {
        let texts = words("sentences-ru.json").into_keys().chain(words("said.json").into_values());
        let known: BTreeSet<String> = texts.map(|sentence| bare(&sentence)).collect();
        let mut strange = BTreeSet::new();
        for source in [
            include_str!("api/reason.rs"),
            include_str!("api/runs.rs"),
            include_str!("api/files.rs"),
            include_str!("api/tools.rs"),
            include_str!("jobs/queue.rs"),
            include_str!("planning/answers.rs"),
            include_str!("planning/paths.rs"),
            include_str!("planning/readiness.rs"),
        ] {
            let sentences = literals(source).into_iter().filter(|literal| literal.split(' ').count() > 3);
            let said = sentences.map(|sentence| bare(sentence.trim_start_matches("error: ").trim_end_matches("\\n")));
            strange.extend(said.filter(|sentence| !known.contains(sentence)));
        }
        let expected = BTreeSet::from(UNSEEN.map(String::from));
        assert_eq!(strange, expected, "a page may show these, and there is no Russian text for them");
    }

    /// What no page shows, for it asks for nothing that is answered so; `said.json` has the bounds of numbers as patterns.
    const UNSEEN: [&str; 6] = [
        "a number from 0 to 100",
        "an integer from 1 to 4096",
        "an integer from 1 to 64",
        "from: 0 to {}",
        "points: {} to {}",
        "run: name 1 to {} runs to compare",
    ];

    #[test]
    fn every_text_that_a_page_asks_for_is_in_the_catalog() {
        let english = words("en.json");
        let scripts = FILES.iter().filter(|(name, _)| name.ends_with(".js") && !name.contains('/'));
        for (name, bytes) in scripts {
            let text = std::str::from_utf8(bytes).unwrap();
            // `t('key')`, and not the end of another function's name.
            let calls = text.match_indices("t('").filter(|(at, _)| !text[..*at].ends_with(char::is_alphanumeric));
            for (at, call) in calls {
                let key = text[at + call.len()..].split('\'').next().unwrap();
                let whole = !key.ends_with('.');
                let known = english.contains_key(key) || !whole && english.keys().any(|k| k.starts_with(key));
                assert!(known, "{name} says `{key}`, which no catalog has");
            }
        }
    }

    #[test]
    fn nothing_on_the_page_is_inline_or_from_elsewhere() {
        let text = std::str::from_utf8(FILES[0].1).unwrap();
        assert!(!text.contains("<style") && !text.contains("style=\"") && !text.contains(" on"), "inline");
        assert!(text.matches("<script").count() == text.matches("<script type=\"module\" src=\"/").count());
        for (name, bytes) in FILES.iter().filter(|(name, _)| name.ends_with(".js") && !name.contains('/')) {
            let text = std::str::from_utf8(bytes).unwrap();
            assert!(!text.contains("innerHTML") && !text.contains("eval(") && !text.contains("://"), "{name}");
        }
    }
}
