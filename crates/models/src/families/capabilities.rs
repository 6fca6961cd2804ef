//! What only some families can: each is a trait or a table that a family hands out, so that nothing else has to know its
//! name.

use super::{Build, Outputs};
use plimsoll_base::named;
use plimsoll_core::graph::{Graph, GraphError, ValueId};

named! {
    /// What a classifier head learns.
    pub enum ProblemType {
        Single = "single_label_classification",
        Multi = "multi_label_classification",
        Regression = "regression",
    }
}

/// A head that classifies texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Classifier {
    pub labels: usize,
    pub problem: ProblemType,
    /// The token that fills rows.
    pub padding: usize,
    /// Kinds of segments that it tells apart; texts of a pair are of two.
    pub segments: usize,
    /// Whether the padding token stands at a position like any other, should a text spell it out.
    pub padding_has_a_place: bool,
}

/// Two towers whose embeddings are compared.
pub trait Contrast {
    /// Embeddings of length 1 of images, (B, P).
    fn embed_images(&self, graph: &mut Graph, build: &Build) -> Result<ValueId, GraphError>;

    /// The same of texts.
    fn embed_texts(&self, graph: &mut Graph, build: &Build) -> Result<ValueId, GraphError>;

    /// Both. Declares the inputs of both towers.
    fn embed(&self, graph: &mut Graph, build: &Build) -> Result<(ValueId, ValueId), GraphError> {
        Ok((self.embed_images(graph, build)?, self.embed_texts(graph, build)?))
    }

    /// How wide embeddings are.
    fn width(&self) -> usize;

    /// The loss over embeddings (N, P). Rows of weight 0 are not there.
    fn contrast(
        &self,
        graph: &mut Graph,
        image: ValueId,
        text: ValueId,
        weight: ValueId,
    ) -> Result<Outputs, GraphError>;

    fn images(&self) -> Images;
}

/// The images and captions that towers take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Images {
    pub channels: usize,
    pub side: usize,
    pub vocab: usize,
    /// The token whose position is read out. 2 is an old convention for "the largest id".
    pub end: usize,
}

/// What writes a text: `encode` once for each source or prompt, then `decode` for each token. Keys and values of what was read and
/// written are residents, the position is a runtime scalar.
pub trait Decoder {
    /// The keys and values of the sources.
    fn encode(&self, graph: &mut Graph, shape: &GenerationShape) -> Result<(), GraphError>;

    /// One token for every beam of every source. The logits are kept for the host.
    fn decode(&self, graph: &mut Graph, shape: &GenerationShape) -> Result<(), GraphError>;

    fn tokens(&self) -> Tokens;

    /// Whether what it writes goes on from what it read, in one window: its prompt is all it has of a source.
    fn reads_itself(&self) -> bool {
        false
    }
}

/// The tokens that a decoder knows by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tokens {
    pub vocabulary: usize,
    pub start: usize,
    pub end: usize,
    pub padding: usize,
}

/// Sizes by their keys, `("num_heads", 8)`, that a smaller model would have half of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Halves {
    pub heads: Vec<(&'static str, usize)>,
    pub layers: Vec<(&'static str, usize)>,
    pub widths: Vec<(&'static str, usize)>,
}

/// What the host writes and reads.
pub mod generation_names {
    /// An input of both phases.
    pub const IDS: &str = "ids";
    /// A resident that both phases read.
    pub const MASK: &str = "generation.mask";
    /// Inputs of a decoder's step: where it stands, and which row each row continues (only with several beams).
    pub const POSITION: &str = "position";
    pub const BEAM: &str = "beam";
    /// Kept by a decoder's step: (sources · beams, V).
    pub const LOGITS: &str = "head.logits";
}

/// The most that generation takes at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GenerationShape {
    pub sources: usize,
    pub beams: usize,
    pub source_length: usize,
    pub max_new_tokens: usize,
}

impl GenerationShape {
    /// Rows of a decoder's step.
    pub fn rows(&self) -> usize {
        self.sources * self.beams
    }
}
