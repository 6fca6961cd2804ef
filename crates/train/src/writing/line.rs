//! One continuation per source: each token the likeliest, or drawn.

use super::pick::{Draw, pick};
use super::search::{Continuation, Search};
use plimsoll_base::random::{Stream, site};

pub(super) struct Line {
    draw: Draw,
    stream: Stream,
    most: usize,
    end: i32,
    tokens: Vec<i32>,
    next: [Continuation; 1],
    done: bool,
}

impl Line {
    /// `index` tells the sources of one call apart, so that each has draws of its own.
    pub(super) fn new(draw: Draw, seed: u64, index: u64, start: i32, end: i32, most: usize) -> Line {
        let next = [Continuation { token: start, parent: 0 }];
        Line {
            draw,
            stream: Stream::new(seed, site("generate"), index),
            most,
            end,
            tokens: Vec::new(),
            next,
            done: most == 0,
        }
    }
}

impl Search for Line {
    fn next(&self) -> &[Continuation] {
        &self.next
    }

    fn advance(&mut self, logits: &[f32], vocabulary: usize) {
        let chance = (self.stream.word(0, 0, self.tokens.len() as u32) as f64 + 0.5) / 4294967296.0;
        let token = pick(&logits[..vocabulary], &self.draw, chance) as i32;
        if token == self.end {
            self.done = true;
            return;
        }
        self.tokens.push(token);
        self.next[0].token = token;
        self.done = self.tokens.len() == self.most;
    }

    fn is_done(&self) -> bool {
        self.done
    }

    fn result(&mut self) -> Vec<i32> {
        std::mem::take(&mut self.tokens)
    }
}
