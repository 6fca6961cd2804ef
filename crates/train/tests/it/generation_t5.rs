//! T5's generation against transformers' `generate`, on models trained until their answers vary: the same tokens,
//! whatever the number of sources, beams and steps that the arena was planned for.

use crate::common::golden::Golden;
use plimsoll_core::graph::Target;
use plimsoll_core::plan::{LayoutOptions, Program, lay_out};
use plimsoll_core::types::DType;
use plimsoll_exec::cpu::CpuExecutor;
use plimsoll_models::families::{GenerationShape, T5};
use plimsoll_models::recipe::{Model, Recipe};
use plimsoll_planner::program::generation::phases;
use plimsoll_train::writing::{GenerationOptions, Generator};
use std::collections::HashSet;
use std::path::Path;

const THREADS: usize = 2;

struct Reference<'f> {
    golden: Golden<'f>,
    family: T5,
    sources: Vec<Vec<i32>>,
    max_new_tokens: usize,
}

impl<'f> Reference<'f> {
    fn new(bytes: &'f [u8]) -> Self {
        let golden = Golden::new(bytes);
        let model = toml::to_string(&serde_json::json!({ "model": golden.config["model"] })).unwrap();
        let data = "[data]\ntrain = \"data.jsonl\"\ntokenizer = \"tokenizer.json\"";
        let text = format!("{model}\n{data}\n[train]\neffective_batch = 1\nepochs = 1\n");
        let Model::T5(sizes) = Recipe::parse(&text, "golden.toml", &[]).unwrap().model else { panic!("not a t5") };
        let max_new_tokens = golden.config["max_new_tokens"].as_u64().unwrap() as usize;
        let sources = rows(&golden, "sources");
        Reference { golden, family: sizes, sources, max_new_tokens }
    }

    fn cases(&self) -> Vec<(String, GenerationOptions)> {
        let options = |case: &serde_json::Value| GenerationOptions {
            max_new_tokens: self.max_new_tokens,
            beams: case["num_beams"].as_u64().unwrap() as usize,
            length_penalty: case["length_penalty"].as_f64().unwrap_or(1.0),
            early_stopping: case["early_stopping"].as_bool().unwrap_or(false),
            ..GenerationOptions::default()
        };
        self.golden.config["cases"].as_object().unwrap().iter().map(|(k, v)| (k.clone(), options(v))).collect()
    }

    /// The model in an arena planned for this much.
    fn planned(&self, shape: GenerationShape) -> (Generator, CpuExecutor) {
        let program = Program::new(phases(&self.family, &shape, DType::F32, DType::F32).unwrap()).unwrap();
        let layout = lay_out(&program, LayoutOptions { target: Target::cpu(THREADS), sharing: true }).unwrap();
        let mut executor = CpuExecutor::new(&program, &layout, THREADS).unwrap();
        executor.poison_dead_slots();
        for resident in program.residents.iter().filter(|r| r.is_parameter) {
            let values = self.golden.parameter("param", &resident.name, &resident.ty.shape);
            let to = executor.resident_mut::<f32>(&resident.name).unwrap();
            to.iter_mut().zip(values).for_each(|(to, x)| *to = x as f32);
        }
        (Generator::find(&program, &self.family).unwrap(), executor)
    }
}

/// Rows of token ids up to the first −1.
fn rows(golden: &Golden, name: &str) -> Vec<Vec<i32>> {
    let width = golden.shape(name).unwrap()[1];
    let ids = |row: &[f64]| row.iter().map(|&id| id as i32).take_while(|&id| id >= 0).collect();
    golden.floats(name).chunks(width).map(ids).collect()
}

fn longest(sources: &[Vec<i32>]) -> usize {
    sources.iter().map(Vec::len).max().unwrap()
}

fn for_each_reference(check: impl Fn(&Reference)) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens/t5-generation");
    let files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    assert!(files.len() >= 2);
    for file in files {
        check(&Reference::new(&std::fs::read(file).unwrap()));
    }
}

#[test]
fn answers_are_those_of_transformers() {
    for_each_reference(|reference| {
        let roomy = GenerationShape {
            sources: 7,
            beams: 4,
            source_length: longest(&reference.sources) + 3,
            max_new_tokens: reference.max_new_tokens + 2,
        };
        let (generator, mut executor) = reference.planned(roomy);
        assert_eq!(*generator.shape(), roomy);
        for (case, options) in reference.cases() {
            let expected = rows(&reference.golden, &case);
            assert!(expected.iter().collect::<HashSet<_>>().len() > expected.len() / 2, "{case}: answers vary");
            let answers = generator.generate(&mut executor, &reference.sources, &options).unwrap();
            assert_eq!(answers, expected, "{case}");
        }
    });
}

#[test]
fn a_tight_arena_gives_the_same_answers() {
    for_each_reference(|reference| {
        for (case, options) in reference.cases() {
            let tight = GenerationShape {
                sources: 1,
                beams: options.beams,
                source_length: longest(&reference.sources),
                max_new_tokens: reference.max_new_tokens,
            };
            let (generator, mut executor) = reference.planned(tight);
            let answers = generator.generate(&mut executor, &reference.sources[..5], &options).unwrap();
            assert_eq!(answers, rows(&reference.golden, &case)[..5], "{case}");
        }
    });
}

#[test]
fn draws_depend_on_the_seed_alone_and_what_was_not_planned_is_refused() {
    for_each_reference(|reference| {
        let shape = GenerationShape { sources: 4, beams: 1, source_length: 9, max_new_tokens: 12 };
        let (generator, mut executor) = reference.planned(shape);
        let sources = &reference.sources[..6];
        let mut drawn = |seed, temperature| {
            let options = GenerationOptions { max_new_tokens: 12, temperature, seed, top_k: 9, ..Default::default() };
            generator.generate(&mut executor, sources, &options).unwrap()
        };
        assert_eq!(drawn(1, 1.5), drawn(1, 1.5));
        assert_ne!(drawn(1, 1.5), drawn(2, 1.5));
        assert_eq!(drawn(1, 0.0), rows(&reference.golden, "greedy")[..6]);

        let plain = GenerationOptions { max_new_tokens: 12, ..Default::default() };
        let refused = [
            (vec![1; 10], plain),
            (vec![99], plain),
            (vec![-1], plain),
            (vec![1], GenerationOptions { max_new_tokens: 13, ..plain }),
            (vec![1], GenerationOptions { beams: 2, ..plain }),
            (vec![1], GenerationOptions { beams: 0, ..plain }),
        ];
        for (source, options) in refused {
            assert!(generator.generate(&mut executor, &[source], &options).is_err());
        }
        assert_eq!(generator.generate(&mut executor, &[], &plain).unwrap().len(), 0);
    });
}
