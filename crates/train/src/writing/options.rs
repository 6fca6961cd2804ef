//! What is asked for when a text is written.

#![deny(missing_docs)]

/// How a text is written. The default is greedy: always the likeliest token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GenerationOptions {
    /// It ends after these, if it has not by itself; room for as many must have been planned.
    pub max_new_tokens: usize,
    /// 1 for a single continuation, greedy or drawn.
    pub beams: usize,
    /// 0 takes the likeliest token.
    pub temperature: f64,
    /// 0 for all tokens.
    pub top_k: usize,
    /// 1 for all tokens.
    pub top_p: f64,
    /// The same seed draws the same text.
    pub seed: u64,
    /// Tells calls with one seed apart.
    pub stream: u64,
    /// The text ends before this token; `None` for what the family ends with.
    pub end: Option<u32>,
    /// Hypotheses are ranked by their log-probability over length^penalty.
    pub length_penalty: f64,
    /// End a source as soon as it has as many hypotheses as beams.
    pub early_stopping: bool,
}

impl GenerationOptions {
    /// As many tokens and beams as there is room for.
    pub(crate) const AS_PLANNED: GenerationOptions =
        GenerationOptions { max_new_tokens: usize::MAX, beams: usize::MAX, ..GenerationOptions::USUAL };

    const USUAL: GenerationOptions = GenerationOptions {
        max_new_tokens: 64,
        beams: 1,
        temperature: 0.0,
        top_k: 0,
        top_p: 1.0,
        seed: 0,
        stream: 0,
        end: None,
        length_penalty: 1.0,
        early_stopping: false,
    };
}

impl Default for GenerationOptions {
    fn default() -> Self {
        Self::USUAL
    }
}
