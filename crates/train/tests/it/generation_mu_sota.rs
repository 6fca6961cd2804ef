//! A language model writes the same with a cache as without one: greedy and drawn, inside its window and beyond it; and
//! beams find what trying everything finds.

use crate::common::fresh_seed;
use plimsoll_base::random::Stream;
use plimsoll_core::graph::{Graph, Target};
use plimsoll_core::plan::{LayoutOptions, Phase, Program, lay_out};
use plimsoll_core::types::DType;
use plimsoll_exec::Executor;
use plimsoll_exec::cpu::CpuExecutor;
use plimsoll_models::families::{AttentionForm, Build, Family, FeedForwardForm, GenerationShape, MuSota};
use plimsoll_planner::program::NEXT_TOKEN;
use plimsoll_planner::program::generation::phases;
use plimsoll_train::writing::{GenerationOptions, Generator};

struct Case {
    family: MuSota,
    window: usize,
    program: Program,
    executor: CpuExecutor,
}

impl Case {
    /// A model of random sizes and weights, with both ways to write in one arena.
    fn new(draw: &mut impl FnMut(usize) -> usize, vocab: usize, beams: usize) -> Case {
        let (blocks, heads) = (1 + draw(3), 1 + draw(2));
        let window = 3 + draw(9);
        let family = MuSota {
            vocab,
            layers: 1 + draw(3),
            blocks,
            block_width: 4 * heads,
            block_heads: heads,
            cross_heads: blocks,
            ffn: 8 + draw(9),
            max_length: window + draw(3),
        };
        let shape = GenerationShape { sources: 1, beams, source_length: window, max_new_tokens: window };
        let mut all = phases(&family, &shape, DType::F32, DType::F32).unwrap();
        all.push(again(&family, window, 1 + draw(blocks)));
        let program = Program::new(all).unwrap();
        let layout = lay_out(&program, LayoutOptions { target: Target::cpu(1), sharing: true }).unwrap();
        let mut executor = CpuExecutor::new(&program, &layout, 1).unwrap();
        executor.poison_dead_slots();
        for (i, resident) in program.residents.iter().enumerate().filter(|(_, r)| r.is_parameter) {
            let stream = Stream::new(draw(1 << 30) as u64, 7, i as u64);
            let weights = executor.resident_mut::<f32>(&resident.name).unwrap();
            let at = |i: usize| f64::from(stream.word(0, 0, i as u32)) / f64::from(u32::MAX) * 2.0 - 1.0;
            weights.iter_mut().enumerate().for_each(|(i, w)| *w = at(i) as f32);
        }
        Case { family, window, program, executor }
    }

    /// With a cache, and without.
    fn both(&self) -> [Generator; 2] {
        [Generator::find(&self.program, &self.family).unwrap(), Generator::without_cache(&self.program).unwrap()]
    }

    /// Log-probabilities of the token after a text that fits the window, read anew.
    fn next(&mut self, text: &[i32]) -> Vec<f64> {
        let phase = self.program.phase(NEXT_TOKEN).unwrap();
        let mut ids = vec![0i32; self.window];
        ids[..text.len()].copy_from_slice(text);
        self.executor.write_input(phase, "ids", bytemuck::cast_slice(&ids)).unwrap();
        self.executor.write_input(phase, "position", bytemuck::bytes_of(&(text.len() as i64 - 1))).unwrap();
        self.executor.run(phase);
        let logits = self.executor.read_floats(phase, "head.logits").unwrap();
        let total: f64 = logits.iter().map(|&x| f64::from(x).exp()).sum();
        logits.iter().map(|&x| f64::from(x) - total.ln()).collect()
    }
}

fn again(family: &MuSota, window: usize, block_group: usize) -> Phase {
    let mut graph = Graph::mixed(NEXT_TOKEN, DType::F32, DType::F32);
    let build = Build {
        batch: 1,
        length: window,
        target_length: 0,
        training: false,
        attention: AttentionForm::Fused,
        block_group,
        loss_chunk: usize::MAX,
        feed_forward: FeedForwardForm::Plain,
    };
    let logits = family.next_token(&mut graph, &build).unwrap().unwrap();
    graph.keep(logits);
    Phase { name: NEXT_TOKEN.into(), graph, repeat: 0 }
}

/// Numbers below what is asked for, from one seed.
fn dice(seed: u64) -> impl FnMut(usize) -> usize {
    let (stream, mut at) = (Stream::new(seed, 3, 1), 0);
    move |below| {
        at += 1;
        stream.word(0, 0, at) as usize % below
    }
}

#[test]
fn a_cache_changes_nothing_inside_the_window_and_beyond_it() {
    let seed = fresh_seed();
    for round in 0..24 {
        let mut draw = dice(seed.wrapping_add(round));
        let mut case = Case::new(&mut draw, 11, 1);
        let prompt: Vec<i32> = (0..1 + draw(case.window + 4)).map(|_| draw(11) as i32).collect();
        let options = GenerationOptions {
            max_new_tokens: 2 * case.window,
            temperature: if round % 2 == 0 { 0.0 } else { 0.9 },
            top_k: draw(4),
            seed: round,
            ..GenerationOptions::default()
        };
        let [cached, again] =
            case.both().map(|way| way.generate(&mut case.executor, std::slice::from_ref(&prompt), &options).unwrap());
        assert_eq!(cached, again, "seed {seed}, round {round}: {:?}, prompt {prompt:?}", case.family);
        assert_eq!(cached[0].len(), options.max_new_tokens);
    }
}

#[test]
fn a_text_ends_before_the_token_that_ends_it() {
    let mut draw = dice(5);
    let mut case = Case::new(&mut draw, 7, 1);
    let options = GenerationOptions { max_new_tokens: 6, ..GenerationOptions::default() };
    let [cached, _] = case.both();
    let whole = cached.generate(&mut case.executor, &[vec![1]], &options).unwrap().remove(0);
    let end = whole[3];
    let cut = cached
        .generate(&mut case.executor, &[vec![1]], &GenerationOptions { end: Some(end as u32), ..options })
        .unwrap()
        .remove(0);
    let first = whole.iter().position(|&token| token == end).unwrap();
    assert_eq!(cut, whole[..first]);
}

#[test]
fn enough_beams_find_the_likeliest_text_of_all() {
    let (vocab, tokens) = (4usize, 3);
    for round in 0..6 {
        let mut draw = dice(90 + round);
        let mut case = Case::new(&mut draw, vocab, vocab * vocab);
        let prompt = vec![draw(vocab) as i32];
        let options =
            GenerationOptions { max_new_tokens: tokens, beams: vocab * vocab, ..GenerationOptions::default() };
        let [cached, _] = case.both();
        let found = cached.generate(&mut case.executor, std::slice::from_ref(&prompt), &options).unwrap().remove(0);
        let mut texts = vec![(0.0, prompt.clone())];
        for _ in 0..tokens {
            let longer = |(score, text): (f64, Vec<i32>)| {
                let next = case.next(&text);
                next.into_iter().enumerate().map(move |(token, p)| (score + p, [&text[..], &[token as i32]].concat()))
            };
            texts = texts.into_iter().flat_map(longer).collect();
        }
        let best = texts.into_iter().max_by(|a, b| a.0.total_cmp(&b.0)).unwrap().1;
        assert_eq!(found, best[prompt.len()..], "round {round}: {:?}", case.family);
    }
}

#[test]
fn an_empty_prompt_is_refused() {
    let mut case = Case::new(&mut dice(1), 7, 1);
    for way in case.both() {
        assert!(way.generate(&mut case.executor, &[vec![]], &GenerationOptions::default()).is_err());
    }
}
