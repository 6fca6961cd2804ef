//! Kinds of work: a device's rates are measured and kept by class, and an op says which is its own.

use super::Cost;
use crate::types::Type;
use serde::{Deserialize, Serialize};

/// What the time of an op is made of, as far as ops differ in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// Nothing is computed: it takes no time.
    View,
    /// Elements are only moved or converted.
    Move,
    /// A few operations per element.
    Elementwise,
    /// An exponential or the like per element.
    Function,
    /// A random number per element.
    Random,
    /// Statistics of rows, and what is done with them.
    Norm,
    NormGrad,
    Softmax,
    /// Many elements into few.
    Reduction,
    /// Rows picked by number.
    Gather,
    /// Rows added to where a number says.
    Scatter,
    /// Matrix products.
    Product,
    /// Many narrow linear layers side by side.
    Grouped,
    Attention,
    AttentionGrad,
    /// Attention whose scores also depend on relative positions by products of their own.
    Disentangled,
    DisentangledGrad,
    /// Two products with a function between them that is never written down.
    FeedForward,
    FeedForwardGrad,
    /// One step after the other through time.
    Recurrent,
    RecurrentGrad,
    Convolution,
    ConvolutionGrad,
    Loss,
    /// A weight and its moments by its gradient.
    Update,
    /// A weight by moments of whole rows and columns, in several passes.
    FactoredUpdate,
}

impl Class {
    pub const ALL: [Class; 26] = [
        Class::View,
        Class::Move,
        Class::Elementwise,
        Class::Function,
        Class::Random,
        Class::Norm,
        Class::NormGrad,
        Class::Softmax,
        Class::Reduction,
        Class::Gather,
        Class::Scatter,
        Class::Product,
        Class::Grouped,
        Class::Attention,
        Class::AttentionGrad,
        Class::Disentangled,
        Class::DisentangledGrad,
        Class::FeedForward,
        Class::FeedForwardGrad,
        Class::Recurrent,
        Class::RecurrentGrad,
        Class::Convolution,
        Class::ConvolutionGrad,
        Class::Loss,
        Class::Update,
        Class::FactoredUpdate,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Class::View => "view",
            Class::Move => "move",
            Class::Elementwise => "elementwise",
            Class::Function => "function",
            Class::Random => "random",
            Class::Norm => "norm",
            Class::NormGrad => "norm-grad",
            Class::Softmax => "softmax",
            Class::Reduction => "reduction",
            Class::Gather => "gather",
            Class::Scatter => "scatter",
            Class::Product => "product",
            Class::Grouped => "grouped",
            Class::Attention => "attention",
            Class::AttentionGrad => "attention-grad",
            Class::Disentangled => "disentangled",
            Class::DisentangledGrad => "disentangled-grad",
            Class::FeedForward => "feed-forward",
            Class::FeedForwardGrad => "feed-forward-grad",
            Class::Recurrent => "recurrent",
            Class::RecurrentGrad => "recurrent-grad",
            Class::Convolution => "convolution",
            Class::ConvolutionGrad => "convolution-grad",
            Class::Loss => "loss",
            Class::Update => "update",
            Class::FactoredUpdate => "factored-update",
        }
    }

    /// Whether most of its operations are multiply-adds of matrices, which tensor cores do.
    pub(crate) fn multiplies_matrices(self) -> bool {
        matches!(
            self,
            Class::Product
                | Class::Attention
                | Class::AttentionGrad
                | Class::Disentangled
                | Class::DisentangledGrad
                | Class::FeedForward
                | Class::FeedForwardGrad
                | Class::Recurrent
                | Class::RecurrentGrad
                | Class::Convolution
                | Class::ConvolutionGrad
        )
    }
}

/// `count` matrix products (m × k) · (k × n): how fast one runs depends on its sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Products {
    pub count: usize,
    pub m: usize,
    pub n: usize,
    pub k: usize,
}

impl Products {
    pub(crate) fn flops(&self) -> f64 {
        2.0 * self.count as f64 * self.m as f64 * self.n as f64 * self.k as f64
    }

    /// What they cost in one op with these operands.
    pub fn cost(&self, inputs: &[Type], outputs: &[Type]) -> Cost {
        Cost { flops: self.flops(), bytes: Cost::traffic(inputs, outputs) }
    }
}
