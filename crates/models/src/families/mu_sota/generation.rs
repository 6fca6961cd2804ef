//! Text token by token: the prompt once, then one token at a time over the keys and values of those before it.

use super::MuSota;
use super::graph::{Reach, Reaches};
use crate::families::layers::reshape;
use crate::families::{
    AttentionForm, Build, Decoder, FeedForwardForm, GenerationShape, Tokens, generation_names as names,
};
use plimsoll_core::graph::{Component, Graph, GraphError, Init, ValueId};
use plimsoll_core::ops::*;
use plimsoll_core::types::{DType, Type};

impl Decoder for MuSota {
    /// The whole window of every row goes into the cache.
    fn encode(&self, graph: &mut Graph, shape: &GenerationShape) -> Result<(), GraphError> {
        let build = self.inference(shape.rows(), shape.source_length);
        let reaches = self.reaches(graph, shape, &Reach::Remember)?;
        let x = self.embed(graph, &build)?;
        self.layers_and_norm(graph, &build, x, &reaches).map(drop)
    }

    fn decode(&self, graph: &mut Graph, shape: &GenerationShape) -> Result<(), GraphError> {
        let build = self.inference(shape.rows(), 1);
        let ids = graph.data(names::IDS, Type::new(DType::I32, &[shape.rows(), 1]))?;
        let position = graph.data(names::POSITION, Type::new(DType::I64, &[1]))?;
        let beam = match shape.beams {
            1 => None,
            _ => Some(graph.data(names::BEAM, Type::new(DType::I32, &[shape.rows()]))?),
        };
        let reaches = self.reaches(graph, shape, &|cache| Reach::Step { cache, position, beam })?;
        let x = self.embed_at(graph, ids, position, shape.rows())?;
        let x = self.layers_and_norm(graph, &build, x, &reaches)?;
        let logits = self.head(graph, x)?;
        graph.keep(logits);
        Ok(())
    }

    /// A text has no end of its own: the vocabulary's, if it has one, is for the host to know.
    fn tokens(&self) -> Tokens {
        Tokens { vocabulary: self.vocab, start: 0, end: usize::MAX, padding: 0 }
    }

    fn reads_itself(&self) -> bool {
        true
    }
}

impl MuSota {
    /// One token of every row, all at the same position.
    fn embed_at(&self, graph: &mut Graph, ids: ValueId, position: ValueId, rows: usize) -> Result<ValueId, GraphError> {
        let (tok, pos) = self.tables(graph)?;
        let words = graph.apply("tok", Embedding, &[tok, ids])?; // (R, 1, D)
        let words = reshape(graph, "rows", words, &[rows, self.width()])?;
        let pos = reshape(graph, "pos.by_time", pos, &[1, self.max_length, self.width()])?;
        let place = graph.add("pos", SelectRow, &[pos, position])?[0]; // (1, D)
        let place = reshape(graph, "place", place, &[self.width()])?;
        graph.apply("embed", Binary::ADD, &[words, place])
    }

    /// The caches of every layer, each used in the same way.
    fn reaches(
        &self,
        graph: &mut Graph,
        shape: &GenerationShape,
        reach: &dyn Fn(ValueId) -> Reach,
    ) -> Result<Vec<Reaches>, GraphError> {
        let mut cache = |name: String, heads: usize| {
            let ty = Type::new(graph.float, &[shape.rows(), shape.source_length, 2, heads, self.width() / heads]);
            graph.resident(&name, ty, Component::Activations, Init::Zeros)
        };
        let mut layer = |i: usize| {
            let blocks = cache(format!("cache.{i}.blocks"), self.blocks * self.block_heads)?;
            let cross = cache(format!("cache.{i}.cross"), self.cross_heads)?;
            Ok(Reaches { blocks: reach(blocks), cross: reach(cross) })
        };
        (0..self.layers).map(&mut layer).collect()
    }

    /// All blocks at once: there is one row for each text, and nothing to save.
    fn inference(&self, batch: usize, length: usize) -> Build {
        Build {
            batch,
            length,
            target_length: 0,
            training: false,
            attention: AttentionForm::Fused,
            block_group: self.blocks,
            loss_chunk: usize::MAX,
            feed_forward: FeedForwardForm::Plain,
        }
    }
}
