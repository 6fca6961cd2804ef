//! The phases of a program that write text, put to use.
//!
//! With a cache, what was read is kept as keys and values from step to step: an encoder–decoder reads its source once, a
//! language model its prompt, and then each token is one row through the model. Without a cache each token reads the
//! whole window again: slower, but a training run has no bytes to spare for what it writes now and then.

use super::GenerationOptions;
use super::search::{Search, search};
use crate::RunError;
use plimsoll_core::plan::Program;
use plimsoll_exec::{ExecError, Executor};
use plimsoll_models::families::{Decoder, GenerationShape, generation_names as names};
use plimsoll_planner::program::NEXT_TOKEN;
use plimsoll_planner::program::generation::{DECODE, ENCODE};

/// The phases of a program that write text, and what they were planned for.
#[derive(Clone, Debug)]
pub struct Generator {
    reads: Reads,
    shape: GenerationShape,
    vocabulary: usize,
    end: i32,
    padding: i32,
}

/// What a step sees of the text so far.
#[derive(Clone, Copy, Debug)]
enum Reads {
    /// A source read once, and what was written since the token `start`.
    Source { encode: usize, decode: usize, start: i32 },
    /// The text itself, as far as the window reaches.
    Text { encode: usize, decode: usize },
    /// The same, without a cache.
    TextAgain { phase: usize },
}

/// The rows of one step.
struct Rows {
    ids: Vec<i32>,
    /// Which row each row continues.
    parents: Vec<i32>,
    /// Of models that read their own text: all of it, by row.
    texts: Vec<Vec<i32>>,
}

impl Generator {
    /// `None` if generation was not planned.
    pub fn find(program: &Program, decoder: &dyn Decoder) -> Option<Generator> {
        let (encode, decode) = (program.phase(ENCODE)?, program.phase(DECODE)?);
        let (source, step) = (&program.phases[encode].graph, &program.phases[decode].graph);
        let &[read, length] = source.shape(source.find(names::IDS)?) else { return None };
        let rows = step.shape(step.find(names::IDS)?)[0];
        let tokens = decoder.tokens();
        let (reads, sources, max_new_tokens) = match decoder.reads_itself() {
            true => (Reads::Text { encode, decode }, 1, usize::MAX),
            false => {
                let steps = program.residents[program.resident("cache.0.self")?].ty.shape[1];
                (Reads::Source { encode, decode, start: tokens.start as i32 }, read, steps)
            }
        };
        let beams = rows / sources.max(1);
        let shape = GenerationShape { sources, beams, source_length: length, max_new_tokens };
        let (end, padding) = (tokens.end as i32, tokens.padding as i32);
        Some(Generator { reads, shape, vocabulary: tokens.vocabulary, end, padding })
    }

    /// For a language model in a program that keeps no cache; `None` if writing was not planned.
    pub fn without_cache(program: &Program) -> Option<Generator> {
        let phase = program.phase(NEXT_TOKEN)?;
        let graph = &program.phases[phase].graph;
        let &[_, length] = graph.shape(graph.find(names::IDS)?) else { return None };
        let vocabulary = *graph.shape(graph.find(names::LOGITS)?).last()?;
        let shape = GenerationShape { sources: 1, beams: 1, source_length: length, max_new_tokens: usize::MAX };
        Some(Generator { reads: Reads::TextAgain { phase }, shape, vocabulary, end: -1, padding: 0 })
    }

    pub fn shape(&self) -> &GenerationShape {
        &self.shape
    }

    /// The answer to each source, or how it goes on, without the token that ends it.
    pub fn generate(
        &self,
        executor: &mut dyn Executor,
        sources: &[Vec<i32>],
        options: &GenerationOptions,
    ) -> Result<Vec<Vec<i32>>, RunError> {
        let options = self.planned(options);
        self.check(sources, &options)?;
        let mut answers = Vec::with_capacity(sources.len());
        for group in sources.chunks(self.shape.sources) {
            let numbered = group.iter().zip(answers.len() as u64..);
            let searches = numbered.map(|(source, index)| self.search(source, index, &options)).collect();
            if let Reads::Source { encode, .. } = self.reads {
                self.read_sources(executor, encode, group)?;
            }
            let written = self.write(executor, group, searches, options.max_new_tokens)?;
            answers.extend(written);
        }
        executor.check()?;
        Ok(answers)
    }

    /// [`GenerationOptions::AS_PLANNED`] in numbers.
    fn planned(&self, options: &GenerationOptions) -> GenerationOptions {
        let as_planned = |asked: usize, most: usize| if asked == usize::MAX { most } else { asked };
        GenerationOptions {
            max_new_tokens: as_planned(options.max_new_tokens, self.shape.max_new_tokens),
            beams: as_planned(options.beams, self.shape.beams),
            ..*options
        }
    }

    fn check(&self, sources: &[Vec<i32>], options: &GenerationOptions) -> Result<(), RunError> {
        planned("max_new_tokens", options.max_new_tokens, self.shape.max_new_tokens)?;
        planned("beams", options.beams, self.shape.beams)?;
        for (index, source) in sources.iter().enumerate() {
            self.check_source(index, source)?;
        }
        match options.beams {
            0 => refused("beams is 0".into(), "1 is a single continuation".into()),
            2.. if options.temperature > 0.0 => {
                refused("beams and a temperature exclude each other".into(), "set one beam, or temperature 0".into())
            }
            _ => Ok(()),
        }
    }

    fn check_source(&self, index: usize, source: &[i32]) -> Result<(), RunError> {
        match self.reads {
            Reads::Source { .. } => {
                planned(&format!("source {index}: length"), source.len(), self.shape.source_length)?;
            }
            _ if source.is_empty() => {
                return refused("the prompt has no token".into(), "give it one to go on from".into());
            }
            _ => {}
        }
        match source.iter().find(|&&id| id < 0 || id as usize >= self.vocabulary) {
            Some(id) => refused(
                format!("source {index}: token {id} is not in the vocabulary of {}", self.vocabulary),
                "use the tokenizer that belongs to the model".into(),
            ),
            None => Ok(()),
        }
    }

    fn search(&self, source: &[i32], index: u64, options: &GenerationOptions) -> Box<dyn Search> {
        let start = match self.reads {
            Reads::Source { start, .. } => start,
            _ => source.last().copied().unwrap_or(self.padding),
        };
        search(options, index, start, options.end.map_or(self.end, |end| end as i32))
    }

    /// Runs the encoder over at most as many sources as were planned.
    fn read_sources(&self, executor: &mut dyn Executor, phase: usize, sources: &[Vec<i32>]) -> Result<(), ExecError> {
        let (ids, mask) = self.padded(self.shape.sources, sources.iter().map(Vec::as_slice));
        executor.write_input(phase, names::IDS, bytemuck::cast_slice(&ids))?;
        executor.write_resident(names::MASK, bytemuck::cast_slice(&mask))?;
        executor.run(phase);
        Ok(())
    }

    /// Texts in rows of the planned length, and where they are.
    fn padded<'t>(&self, rows: usize, texts: impl Iterator<Item = &'t [i32]>) -> (Vec<i32>, Vec<i32>) {
        let length = self.shape.source_length;
        let mut ids = vec![self.padding; rows * length];
        let mut mask = vec![0i32; ids.len()];
        for (row, text) in texts.enumerate() {
            ids[row * length..][..text.len()].copy_from_slice(text);
            mask[row * length..][..text.len()].fill(1);
        }
        (ids, mask)
    }

    fn write(
        &self,
        executor: &mut dyn Executor,
        sources: &[Vec<i32>],
        mut searches: Vec<Box<dyn Search>>,
        most: usize,
    ) -> Result<Vec<Vec<i32>>, ExecError> {
        let mut rows = Rows::new(&self.shape, sources);
        for step in 0..most {
            if searches.iter().all(|search| search.is_done()) {
                break;
            }
            rows.advance(&searches, self.shape.beams, self.padding);
            let phase = self.step(executor, step, &mut rows)?;
            let Some(logits) = executor.read_floats(phase, names::LOGITS) else { break };
            for (search, logits) in searches.iter_mut().zip(logits.chunks_exact(self.shape.beams * self.vocabulary)) {
                if !search.is_done() {
                    search.advance(logits, self.vocabulary);
                }
            }
        }
        Ok(searches.iter_mut().map(|search| search.result()).collect())
    }

    /// Runs the model for the next token of every row, and says which phase has the logits.
    fn step(&self, executor: &mut dyn Executor, step: usize, rows: &mut Rows) -> Result<usize, ExecError> {
        match self.reads {
            Reads::Source { decode, .. } => self.decode(executor, decode, rows, step),
            Reads::Text { encode, decode } => {
                let position = rows.position(self.shape.source_length);
                // The cache holds what stands before this token, unless there is none yet or the window has moved.
                if step == 0 || rows.length() > self.shape.source_length {
                    self.read_texts(executor, encode, rows)?;
                    rows.stay();
                }
                self.decode(executor, decode, rows, position)
            }
            Reads::TextAgain { phase } => {
                self.read_texts(executor, phase, rows)?;
                let position = rows.position(self.shape.source_length) as i64;
                executor.write_input(phase, names::POSITION, bytemuck::bytes_of(&position))?;
                executor.run(phase);
                Ok(phase)
            }
        }
    }

    /// Gives a phase the last tokens of each row, as many as the window holds; a phase that fills a cache is run.
    fn read_texts(&self, executor: &mut dyn Executor, phase: usize, rows: &Rows) -> Result<(), ExecError> {
        let window = self.shape.source_length;
        let seen = rows.texts.iter().map(|text| &text[text.len().saturating_sub(window)..]);
        let (ids, _) = self.padded(rows.texts.len(), seen);
        executor.write_input(phase, names::IDS, bytemuck::cast_slice(&ids))?;
        if let Reads::Text { .. } = self.reads {
            executor.run(phase);
        }
        Ok(())
    }

    fn decode(
        &self,
        executor: &mut dyn Executor,
        phase: usize,
        rows: &Rows,
        position: usize,
    ) -> Result<usize, ExecError> {
        executor.write_input(phase, names::IDS, bytemuck::cast_slice(&rows.ids))?;
        executor.write_input(phase, names::POSITION, bytemuck::bytes_of(&(position as i64)))?;
        if self.shape.beams > 1 {
            executor.write_input(phase, names::BEAM, bytemuck::cast_slice(&rows.parents))?;
        }
        executor.run(phase);
        Ok(phase)
    }
}

impl Rows {
    /// The last token of a prompt is the first that is read: what stands before it is the text so far.
    fn new(shape: &GenerationShape, sources: &[Vec<i32>]) -> Rows {
        let text =
            |row: usize| sources.get(row / shape.beams).and_then(|s| s.split_last()).map(|(_, text)| text.to_vec());
        Rows {
            ids: vec![0; shape.rows()],
            parents: vec![0; shape.rows()],
            texts: (0..shape.rows()).map(|row| text(row).unwrap_or_default()).collect(),
        }
    }

    /// The token of every row and the row it continues; rows without a search stay as they are.
    fn advance(&mut self, searches: &[Box<dyn Search>], beams: usize, padding: i32) {
        self.ids.fill(padding);
        self.stay();
        for (source, search) in searches.iter().enumerate().filter(|(_, search)| !search.is_done()) {
            let first = source * beams;
            for (beam, next) in search.next().iter().enumerate() {
                self.ids[first + beam] = next.token;
                self.parents[first + beam] = (first + next.parent) as i32;
            }
        }
        let longer = |(&id, &parent): (&i32, &i32)| [&self.texts[parent as usize][..], &[id]].concat();
        self.texts = self.ids.iter().zip(&self.parents).map(longer).collect();
    }

    /// Every row continues itself.
    fn stay(&mut self) {
        self.parents.iter_mut().enumerate().for_each(|(row, parent)| *parent = row as i32);
    }

    fn length(&self) -> usize {
        self.texts.first().map_or(0, Vec::len)
    }

    /// Where the last token stands in a window.
    fn position(&self, window: usize) -> usize {
        self.length().min(window).saturating_sub(1)
    }
}

fn planned(what: &str, asked: usize, most: usize) -> Result<(), RunError> {
    match asked <= most {
        true => Ok(()),
        false => refused(
            format!("{what} {asked} is more than the {most} that was planned"),
            format!("ask for {most} at most, or plan for more"),
        ),
    }
}

fn refused<T>(cause: String, hint: String) -> Result<T, RunError> {
    Err(RunError::Refused { cause, hint })
}
