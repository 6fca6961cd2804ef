//! Sequences from sequences: the encoder once, then the decoder step by step inside the same arena, its keys and values
//! kept from step to step. Greedy, drawn or by beams.

mod beam;
mod line;
mod pick;

pub use pick::{Draw, pick};

use crate::RunError;
use beam::{Beams, Rules};
use line::Line;
use plimsoll_core::plan::Program;
use plimsoll_exec::Executor;
use plimsoll_models::families::{Decoder, GenerationShape, generation_names as names};
use plimsoll_planner::program::generation::{DECODE, ENCODE};

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GenerationOptions {
    pub max_new_tokens: usize,
    /// 1 for a single continuation, greedy or drawn.
    pub beams: usize,
    /// 0 takes the likeliest token.
    pub temperature: f64,
    /// 0 for all tokens.
    pub top_k: usize,
    /// 1 for all tokens.
    pub top_p: f64,
    pub seed: u64,
    /// Hypotheses are ranked by their log-probability over length^penalty.
    pub length_penalty: f64,
    /// End a source as soon as it has as many hypotheses as beams.
    pub early_stopping: bool,
}

impl Default for GenerationOptions {
    fn default() -> Self {
        GenerationOptions {
            max_new_tokens: 64,
            beams: 1,
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            seed: 0,
            length_penalty: 1.0,
            early_stopping: false,
        }
    }
}

/// What the next step of a source's row is: a token, and the row it continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Continuation {
    token: i32,
    parent: usize,
}

/// How one source's answer is found.
trait Search {
    /// One per row, at most as many as there are beams.
    fn next(&self) -> &[Continuation];
    /// Takes the logits of those rows.
    fn advance(&mut self, logits: &[f32], vocabulary: usize);
    fn is_done(&self) -> bool;
    fn result(&mut self) -> Vec<i32>;
}

/// The phases of a program that write text, and what they were planned for.
#[derive(Clone, Debug)]
pub struct Generator {
    encode: usize,
    decode: usize,
    shape: GenerationShape,
    vocabulary: usize,
    start: i32,
    end: i32,
    padding: i32,
}

impl Generator {
    /// `None` if generation was not planned.
    pub fn find(program: &Program, decoder: &dyn Decoder) -> Option<Generator> {
        let (encode, decode) = (program.phase(ENCODE)?, program.phase(DECODE)?);
        let (source, step) = (&program.phases[encode].graph, &program.phases[decode].graph);
        let ids = source.shape(source.find(names::IDS)?);
        let rows = step.shape(step.find(names::IDS)?)[0];
        let steps = program.residents[program.resident("cache.0.self")?].ty.shape[1];
        let shape = GenerationShape {
            sources: ids[0],
            beams: rows / ids[0].max(1),
            source_length: ids[1],
            max_new_tokens: steps,
        };
        let tokens = decoder.tokens();
        Some(Generator {
            encode,
            decode,
            shape,
            vocabulary: tokens.vocabulary,
            start: tokens.start as i32,
            end: tokens.end as i32,
            padding: tokens.padding as i32,
        })
    }

    pub fn shape(&self) -> &GenerationShape {
        &self.shape
    }

    /// The answer to each source, without the token that ends it.
    pub fn generate(
        &self,
        executor: &mut dyn Executor,
        sources: &[Vec<i32>],
        options: &GenerationOptions,
    ) -> Result<Vec<Vec<i32>>, RunError> {
        self.check(sources, options)?;
        let mut answers = Vec::with_capacity(sources.len());
        for group in sources.chunks(self.shape.sources) {
            let searches = (0..group.len()).map(|i| self.search(answers.len() + i, options)).collect();
            self.encode(executor, group);
            answers.extend(self.decode(executor, searches, options.max_new_tokens));
        }
        executor.check()?;
        Ok(answers)
    }

    fn check(&self, sources: &[Vec<i32>], options: &GenerationOptions) -> Result<(), RunError> {
        let planned = |what: &str, asked: usize, most: usize| match asked <= most {
            true => Ok(()),
            false => refused(
                format!("{what} {asked} is more than the {most} that was planned"),
                format!("ask for {most} at most, or plan for more"),
            ),
        };
        planned("max_new_tokens", options.max_new_tokens, self.shape.max_new_tokens)?;
        planned("beams", options.beams, self.shape.beams)?;
        for (index, source) in sources.iter().enumerate() {
            planned(&format!("source {index}: length"), source.len(), self.shape.source_length)?;
            if let Some(id) = source.iter().find(|&&id| id < 0 || id as usize >= self.vocabulary) {
                let cause = format!("source {index}: token {id} is not in the vocabulary of {}", self.vocabulary);
                return refused(cause, "use the tokenizer that belongs to the model".into());
            }
        }
        match options.beams {
            0 => refused("beams is 0".into(), "1 is a single continuation".into()),
            2.. if options.temperature > 0.0 => {
                refused("beams and a temperature exclude each other".into(), "set one beam, or temperature 0".into())
            }
            _ => Ok(()),
        }
    }

    fn search(&self, index: usize, options: &GenerationOptions) -> Box<dyn Search> {
        let GenerationOptions { max_new_tokens: most, beams, length_penalty, early_stopping, .. } = *options;
        if beams > 1 {
            let rules = Rules { beams, most, end: self.end, length_penalty, early_stopping };
            return Box::new(Beams::new(rules, self.start));
        }
        let draw = Draw { temperature: options.temperature, top_k: options.top_k, top_p: options.top_p };
        Box::new(Line::new(draw, options.seed, index as u64, self.start, self.end, most))
    }

    /// Runs the encoder over at most as many sources as were planned.
    fn encode(&self, executor: &mut dyn Executor, sources: &[Vec<i32>]) {
        let length = self.shape.source_length;
        let mut ids = vec![self.padding; self.shape.sources * length];
        let mut mask = vec![0i32; ids.len()];
        for (row, source) in sources.iter().enumerate() {
            ids[row * length..][..source.len()].copy_from_slice(source);
            mask[row * length..][..source.len()].fill(1);
        }
        executor.write_input(self.encode, names::IDS, bytemuck::cast_slice(&ids));
        executor.write_resident(names::MASK, bytemuck::cast_slice(&mask));
        executor.run(self.encode);
    }

    fn decode(&self, executor: &mut dyn Executor, mut searches: Vec<Box<dyn Search>>, most: usize) -> Vec<Vec<i32>> {
        let (beams, vocabulary) = (self.shape.beams, self.vocabulary);
        let (mut ids, mut parents) = (vec![0i32; self.shape.rows()], vec![0i32; self.shape.rows()]);
        for position in 0..most as i64 {
            if searches.iter().all(|search| search.is_done()) {
                break;
            }
            self.next_rows(&searches, &mut ids, &mut parents);
            executor.write_input(self.decode, names::IDS, bytemuck::cast_slice(&ids));
            executor.write_input(self.decode, names::POSITION, bytemuck::bytes_of(&position));
            if beams > 1 {
                executor.write_input(self.decode, names::BEAM, bytemuck::cast_slice(&parents));
            }
            executor.run(self.decode);
            let Some(logits) = executor.read_floats(self.decode, names::LOGITS) else { break };
            for (search, logits) in searches.iter_mut().zip(logits.chunks_exact(beams * vocabulary)) {
                if !search.is_done() {
                    search.advance(logits, vocabulary);
                }
            }
        }
        searches.iter_mut().map(|search| search.result()).collect()
    }

    /// The token of every row and the row it continues; rows without a search stay as they are.
    fn next_rows(&self, searches: &[Box<dyn Search>], ids: &mut [i32], parents: &mut [i32]) {
        ids.fill(self.padding);
        parents.iter_mut().enumerate().for_each(|(row, parent)| *parent = row as i32);
        for (source, search) in searches.iter().enumerate().filter(|(_, search)| !search.is_done()) {
            let first = source * self.shape.beams;
            for (beam, next) in search.next().iter().enumerate() {
                ids[first + beam] = next.token;
                parents[first + beam] = (first + next.parent) as i32;
            }
        }
    }
}

fn refused<T>(cause: String, hint: String) -> Result<T, RunError> {
    Err(RunError::Refused { cause, hint })
}
