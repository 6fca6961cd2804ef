//! A plan file may hold anything: reading 100,000 damaged ones never panics, and what is accepted is sound.

use crate::common::fresh_seed;
use plimsoll_core::autodiff::gradients;
use plimsoll_core::graph::{Component, Graph, Init, Role};
use plimsoll_core::ops::{Activate, Activation, CrossEntropy, MatMul, SampleRng, StoreToHost};
use plimsoll_core::plan::{Phase, PlanFile, Program, Summary, lay_out, live_by_tick, offload};
use plimsoll_core::types::{DType, Type};

const TEXTS: usize = 100_000;

/// One hidden layer, with gradients.
fn small_mlp() -> Program {
    let mut graph = Graph::new("mlp", DType::F32);
    let x = graph.data("x", Type::new(DType::F32, &[4, 6])).unwrap();
    let targets = graph.data("targets", Type::new(DType::I32, &[4])).unwrap();
    let weights = graph.data("weights", Type::new(DType::F32, &[4])).unwrap();
    let up = graph.parameter("up", &[8, 6], Init::Normal(0.1), true).unwrap();
    let down = graph.parameter("down", &[3, 8], Init::Normal(0.1), true).unwrap();
    let hidden = graph.apply("hidden", MatMul::TRANSPOSED, &[x, up]).unwrap();
    let active = graph.apply("active", Activate(Activation::Gelu), &[hidden]).unwrap();
    let logits = graph.apply("logits", MatMul::TRANSPOSED, &[active, down]).unwrap();
    let loss = graph.apply("loss", CrossEntropy, &[logits, targets, weights]).unwrap();
    let seed = graph.scalar("seed").unwrap();
    let grads = gradients(&mut graph, loss, seed, &[up, down]).unwrap();
    grads.into_iter().flatten().for_each(|grad| graph.keep(grad));
    Program::new(vec![Phase { name: "step".into(), graph, repeat: 1 }]).unwrap()
}

/// The same with an accumulator and a saved value in host memory.
fn offloaded_mlp() -> Program {
    let mut graph = small_mlp().phases.remove(0).graph;
    let logits = graph.find("logits").unwrap();
    let ty = graph.ty(logits).clone();
    let total = graph.host_resident("total", ty, Component::Optimizer, Init::Zeros).unwrap();
    graph
        .with_role(Role::Update, |graph| graph.add("total.store", StoreToHost { first: 0 }, &[logits, total]))
        .unwrap();
    let chosen: Vec<bool> = graph.values().iter().map(|v| ["hidden", "active"].contains(&&*v.name)).collect();
    let graph = offload(&graph, &chosen).unwrap();
    Program::new(vec![Phase { name: "step".into(), graph, repeat: 1 }]).unwrap()
}

#[test]
fn damaged_plans_are_refused_or_sound() {
    check(small_mlp());
}

#[test]
fn damaged_plans_with_host_memory_are_too() {
    check(offloaded_mlp());
}

fn check(program: Program) {
    let layout = lay_out(&program, crate::common::options(true)).unwrap();
    let text = serde_json::to_string(&PlanFile::new(&program, &layout, crate::common::options(true))).unwrap();
    let tokens = tokens(&text);
    let seed = fresh_seed();
    println!("PLIMSOLL_TEST_SEED={seed}");
    let mut rng = SampleRng::new(seed);
    let (mut read, mut accepted) = (0, 0);
    for _ in 0..TEXTS {
        let damaged = damage(&text, &tokens, &mut rng);
        let Ok(file) = serde_json::from_str::<PlanFile>(&damaged) else { continue };
        read += 1;
        if let Ok(layout) = file.layout(&program) {
            accepted += 1;
            // What reads an accepted layout must not fall over it either.
            let summary = Summary::of(&program, &layout);
            assert_eq!(summary.breakdown.values().sum::<usize>(), layout.live_peak_bytes, "{damaged}");
            assert_eq!(live_by_tick(&program, &layout, 0).len(), layout.phases[0].order.len());
        }
    }
    println!("{TEXTS} texts, {read} were plan files, {accepted} were accepted");
    // The damage must reach beyond the JSON reader to test anything.
    assert!(read > TEXTS / 10 && accepted < read, "{read} {accepted}");
}

/// Start and end of every number, string and bracket in the text.
fn tokens(text: &str) -> Vec<(usize, usize)> {
    let bytes = text.as_bytes();
    let (mut found, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let start = at;
        at += 1;
        match bytes[start] {
            b'"' => {
                at += bytes[at..].iter().position(|&b| b == b'"').map_or(0, |n| n + 1);
                found.push((start, at));
            }
            b'0'..=b'9' => {
                at += bytes[at..].iter().take_while(|b| b.is_ascii_digit()).count();
                found.push((start, at));
            }
            b'[' | b']' | b'{' | b'}' => found.push((start, at)),
            _ => {}
        }
    }
    found
}

/// One change, or two; most keep the text near to a plan file.
fn damage(text: &str, tokens: &[(usize, usize)], rng: &mut SampleRng) -> String {
    let (start, end) = tokens[rng.size(0, tokens.len() - 1)];
    let (other_start, other_end) = tokens[rng.size(0, tokens.len() - 1)];
    let replaced = |with: &str| format!("{}{with}{}", &text[..start], &text[end..]);
    match rng.size(0, 6) {
        0 => flipped(text, rng),
        1 => replaced(&number(rng, "64")),
        2 | 3 => change_number(text, tokens, rng),
        4 => replaced(&text[other_start..other_end]),
        5 => without_or_twice(text, rng),
        _ => {
            let once = change_number(text, tokens, rng);
            let again = self::tokens(&once);
            change_number(&once, &again, rng)
        }
    }
}

/// A number near `known`, or an extreme one.
fn number(rng: &mut SampleRng, known: &str) -> String {
    let known: u64 = known.parse().unwrap_or(0);
    match rng.size(0, 7) {
        0 => u64::MAX.to_string(),
        1 => (u64::MAX - 63).to_string(),
        2 => (i64::MAX as u64).to_string(),
        3 => "-1".into(),
        4 => "1.5".into(),
        5 => known.wrapping_add(64 * rng.size(0, 8) as u64).to_string(),
        6 => known.saturating_sub(rng.size(0, 128) as u64).to_string(),
        _ => rng.size(0, 2000).to_string(),
    }
}

/// Puts a changed number where a number is.
fn change_number(text: &str, tokens: &[(usize, usize)], rng: &mut SampleRng) -> String {
    let numbers: Vec<_> = tokens.iter().filter(|t| text.as_bytes()[t.0].is_ascii_digit()).collect();
    let Some(&&(start, end)) = numbers.get(rng.size(0, numbers.len().max(1) - 1)) else { return text.into() };
    format!("{}{}{}", &text[..start], number(rng, &text[start..end]), &text[end..])
}

fn flipped(text: &str, rng: &mut SampleRng) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..rng.size(1, 3) {
        let at = rng.size(0, bytes.len() - 1);
        bytes[at] ^= 1 << rng.size(0, 7);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Deletes or repeats one comma-separated piece: a key with its value, or an element of a list.
fn without_or_twice(text: &str, rng: &mut SampleRng) -> String {
    let commas: Vec<usize> = text.match_indices(',').map(|(at, _)| at).collect();
    let at = rng.size(0, commas.len() - 2);
    let piece = &text[commas[at]..commas[at + 1]];
    let insert = if rng.size(0, 1) == 0 { String::new() } else { piece.repeat(2) };
    format!("{}{insert}{}", &text[..commas[at]], &text[commas[at + 1]..])
}
