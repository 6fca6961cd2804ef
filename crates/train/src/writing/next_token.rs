//! Text, token by token: each token runs the model over the window before it, inside the same arena.

use super::generation::{Draw, pick};
use plimsoll_base::random::{Stream, site};
use plimsoll_exec::Executor;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    pub tokens: usize,
    /// 0 takes the likeliest token.
    pub temperature: f64,
    pub seed: u64,
    /// Distinguishes samples of one run.
    pub stream: u64,
    /// Generation ends before this token.
    pub stop: Option<u32>,
}

/// Continues `prompt` (at least one token) with the phase's model, which sees `length` tokens at most.
pub fn generate(
    executor: &mut dyn Executor,
    phase: usize,
    prompt: &[i32],
    length: usize,
    sampling: &Sampling,
) -> Vec<i32> {
    let stream = Stream::new(sampling.seed, site("generate"), sampling.stream);
    let mut text = prompt.to_vec();
    let mut window = vec![0i32; length];
    for token in 0..sampling.tokens {
        let seen = &text[text.len().saturating_sub(length)..];
        let Some(last) = seen.len().checked_sub(1) else { break };
        window.fill(0);
        window[..seen.len()].copy_from_slice(seen);
        executor.write_input(phase, "ids", bytemuck::cast_slice(&window));
        executor.write_input(phase, "position", bytemuck::bytes_of(&(last as i64)));
        executor.run(phase);
        let Some(logits) = executor.read_floats(phase, "head.logits") else { break };
        let chance = (stream.word(0, 0, token as u32) as f64 + 0.5) / 4294967296.0;
        let draw = Draw { temperature: sampling.temperature, top_k: 0, top_p: 1.0 };
        let next = pick(&logits, &draw, chance);
        if sampling.stop == Some(next as u32) {
            break;
        }
        text.push(next as i32);
    }
    text.split_off(prompt.len())
}
