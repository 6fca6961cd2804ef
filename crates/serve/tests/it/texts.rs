//! What is said in English somewhere behind the page has a text in the page's other language.

use plimsoll_planner::Device;
use plimsoll_planner::advise::{Advice, Reading, advise, remedies};
use std::collections::BTreeSet;
use std::path::Path;

/// Whether a sentence is the pattern with something in each of its blanks.
pub(crate) fn fills(pattern: &str, sentence: &str) -> bool {
    let mut pieces = pattern.split('{').map(|piece| piece.split_once('}').map_or(piece, |(_, literal)| literal));
    let Some(mut rest) = sentence.strip_prefix(pieces.next().unwrap_or_default()) else { return false };
    let pieces: Vec<&str> = pieces.collect();
    for (at, literal) in pieces.iter().enumerate() {
        let is_last = at + 1 == pieces.len();
        let found = if is_last { rest.len().checked_sub(literal.len()) } else { rest.find(literal) };
        match found.filter(|&from| rest.is_char_boundary(from) && rest[from..].starts_with(literal)) {
            Some(from) => rest = &rest[from + literal.len()..],
            None => return false,
        }
    }
    rest.is_empty()
}

/// Every sentence that has a Russian text.
fn sentences() -> Vec<String> {
    let texts: std::collections::BTreeMap<String, String> =
        serde_json::from_str(include_str!("../../page/sentences-ru.json")).unwrap();
    texts.into_keys().collect()
}

/// Whether there is a text for a sentence, or for each of several that are strung together.
fn is_known(known: &[String], sentence: &str) -> bool {
    let is_one = |sentence: &str| known.iter().any(|pattern| fills(pattern, sentence));
    is_one(sentence)
        || sentence
            .match_indices("; ")
            .any(|(at, between)| is_one(&sentence[..at]) && is_known(known, &sentence[at + between.len()..]))
}

fn must_be_known(heard: BTreeSet<String>) {
    let known = sentences();
    let strange: Vec<&String> = heard.iter().filter(|sentence| !is_known(&known, sentence)).collect();
    assert!(strange.is_empty(), "no Russian text for: {strange:#?}");
}

const FULL: &str = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 128.00 MiB. GPU 0 has a total capacity of \
     14.56 GiB of which 111.81 MiB is free. Including non-PyTorch memory, this process has 14.45 GiB memory in use. Of the \
     allocated memory 14.25 GiB is allocated by PyTorch, and 60.81 MiB is reserved by PyTorch but unallocated.";

/// A complaint for every cause, and for every form of the words about it.
fn complaints() -> Vec<String> {
    let crowded = "CUDA out of memory. Tried to allocate 42.00 MiB. GPU 0 has a total capacity of 47.27 GiB of which 9.38 MiB \
                   is free. Process 3053273 has 29.04 GiB memory in use. Including non-PyTorch memory, this process has 3.14 \
                   GiB memory in use. Of the allocated memory 2.92 GiB is allocated by PyTorch, and 34.62 MiB is reserved by \
                   PyTorch but unallocated.";
    let pieces = "CUDA out of memory. Tried to allocate 1.65 GiB (GPU 1; 7.79 GiB total capacity; 3.53 GiB already allocated; \
                  0.40 GiB free; 5.28 GiB reserved in total by PyTorch)";
    let limited = "CUDA out of memory. Tried to allocate 96.00 MiB (GPU 0; 15.78 GiB total capacity; 3.90 GiB already \
                   allocated; 11.20 GiB free; 4.00 GiB allowed; 3.95 GiB reserved in total by PyTorch)";
    let rising: String = [4.0, 4.8, 5.5, 6.1].iter().map(|size| format!("step 50 mem {size} GiB\n")).collect();
    let traced = |file: &str, function: &str| {
        format!("  File \"/x/lib/python3.12/site-packages/torch/{file}\", line 9, in {function}\n{FULL}")
    };
    let plain = [crowded, pieces, limited, FULL, "out of memory", "exit code 137", "workers are out of shared memory"];
    let others = [
        FULL.replace("128.00 MiB", "900.00 GiB"),
        pieces.replace("1.65 GiB", "1.95 GiB"),
        "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 17179869184 bytes.".into(),
        "CUDNN_STATUS_ALLOC_FAILED".into(),
        format!("99%|## | 900/910 [1:00<2:00]\n{FULL}"),
        format!("step 3, during validation\n{FULL}"),
        "Out of memory in the backward pass of epoch 2 of 20".into(),
        "epoch 2, step 7: out of memory in the forward pass".into(),
        format!("{rising}{FULL}"),
        traced("optim/adamw.py", "step"),
        traced("nn/modules/module.py", "_apply"),
        traced("nn/modules/module.py", "_call_impl"),
        traced("_tensor.py", "backward"),
    ];
    plain.map(String::from).into_iter().chain(others).collect()
}

#[test]
fn what_the_doctor_says_of_an_error_has_a_russian_text() {
    let mut heard = BTreeSet::new();
    for complaint in complaints() {
        let reading = Reading::of(&complaint, None).unwrap().unwrap_or_else(|| panic!("no error in {complaint}"));
        for cause in reading.causes {
            heard.insert(cause.why);
            heard.extend(cause.actions.into_iter().map(String::from));
        }
    }
    assert!(heard.len() > 40, "{} heard", heard.len());
    heard.extend(remedies().iter().map(|remedy| remedy.reason.to_string()));
    // What Python calls something needs no translation.
    let is_code = |name: &str| name.contains(['(', '_', '=', ':']) && !name.contains(", ") && !name.contains(" in ");
    heard.extend(
        remedies().iter().map(|remedy| remedy.name.to_string()).filter(|name| !is_code(name) && name != "del tensor"),
    );
    must_be_known(heard);
}

/// Every recipe that comes with plimsoll.
fn recipes() -> Vec<plimsoll::Recipe> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recipes");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let recipes = files.filter(|path| path.extension().is_some_and(|extension| extension == "toml"));
    recipes.map(|path| plimsoll::Recipe::load(&path, &[]).unwrap()).collect()
}

fn told(advice: &Advice) -> impl Iterator<Item = String> {
    let settings = advice
        .settings
        .iter()
        .flat_map(|setting| [setting.memory.clone(), setting.speed.into(), setting.learning.into()]);
    let ways = advice.ways_out.iter().map(|way| way.learning.to_string());
    settings.chain(ways).chain(advice.notes.iter().cloned())
}

#[test]
fn what_the_doctor_says_of_a_recipe_has_a_russian_text() {
    let mut heard = BTreeSet::new();
    for recipe in recipes() {
        for card in ["t4", "rtx-4090"] {
            let device = Device::catalog().into_iter().find(|device| device.name == card).unwrap();
            heard.extend(told(&advise(&recipe, &device).unwrap()));
        }
        let reading = Reading::of(FULL, Some(&recipe)).unwrap().unwrap();
        heard.extend(reading.tensors.iter().map(|tensor| tensor.what.to_string()));
    }
    assert!(heard.len() > 30, "{} heard", heard.len());
    must_be_known(heard);
}
