//! clip: pictures and texts in one space. Two towers give an embedding each; the loss compares every picture of the
//! batch with every text, so it is cut from the towers: `train::contrastive` puts micro-batches between them.

mod text;
mod tower;
mod vision;

use super::{Build, Family, HuggingFace, Outputs};
use crate::recipe;
use plimsoll_core::graph::{Graph, GraphError, Init, ValueId};
use plimsoll_core::ops::*;
use plimsoll_core::types::Type;

#[derive(Clone, Debug, PartialEq)]
pub struct Clip {
    pub sizes: recipe::Clip,
}

impl Clip {
    /// Embeddings of length 1 of pictures and texts, (B, P) each. Declares the inputs `pixels`, `ids` and `eos`.
    pub fn embed(&self, graph: &mut Graph, build: &Build) -> Result<(ValueId, ValueId), GraphError> {
        Ok((self.embed_pictures(graph, build)?, self.embed_texts(graph, build)?))
    }

    /// `pixels` (B, C, I, I) → (B, P).
    pub fn embed_pictures(&self, graph: &mut Graph, build: &Build) -> Result<ValueId, GraphError> {
        let seen = graph.scope("vision_model", |g| vision::pooled(&self.sizes.vision_config, g, build))?;
        self.project(graph, "visual_projection", seen)
    }

    /// `ids` (B, T), read out at the rows `eos` (B) of the B · T tokens → (B, P).
    pub fn embed_texts(&self, graph: &mut Graph, build: &Build) -> Result<ValueId, GraphError> {
        let read = graph.scope("text_model", |g| text::pooled(&self.sizes.text_config, g, build))?;
        self.project(graph, "text_projection", read)
    }

    /// Into the common space, at length 1: (B, D) → (B, P).
    fn project(&self, graph: &mut Graph, name: &str, x: ValueId) -> Result<ValueId, GraphError> {
        let (width, to) = (graph.shape(x)[1], self.sizes.projection_dim);
        let init = Init::Normal((width as f64).powf(-0.5));
        let weight = graph.parameter(&format!("{name}.weight"), &[to, width], init, true)?;
        let x = graph.apply(name, MatMul::TRANSPOSED, &[x, weight])?;
        Ok(graph.apply_all(&format!("{name}.normalize"), NormalizeRows, &[x])?[0])
    }

    /// The loss over embeddings (N, P): each picture among all texts and each text among all pictures. Rows of weight
    /// 0 are not there. The logits are those of pictures, (N, N).
    pub fn contrast(
        &self,
        graph: &mut Graph,
        image: ValueId,
        text: ValueId,
        weight: ValueId,
    ) -> Result<Outputs, GraphError> {
        let init = Init::Constant(self.sizes.logit_scale_init_value);
        let scale = graph.parameter("logit_scale", &[1], init, false)?;
        let scale = graph.apply("logit_scale.exp", Exp, &[scale])?;
        // Scaling the texts instead of the logits: one (N, N) value, not two.
        let text = graph.apply("text.scaled", Binary::MUL, &[text, scale])?;
        let logits = graph.apply("logits", MatMul::TRANSPOSED, &[image, text])?;
        let found = graph.apply_all("loss", Contrastive, &[logits, weight])?;
        Ok(Outputs { loss: found[0], correct: Some(found[1]), logits: Some(logits) })
    }
}

impl Family for Clip {
    fn forward(&self, graph: &mut Graph, build: &Build) -> Result<Outputs, GraphError> {
        let (image, text) = self.embed(graph, build)?;
        let weight = graph.data("weight", Type::new(graph.float.wide(), &[build.batch]))?;
        self.contrast(graph, image, text, weight)
    }

    fn hugging_face(&self) -> Option<HuggingFace> {
        Some(HuggingFace {
            architecture: "CLIPModel",
            model_type: "clip",
            prefix: "",
            aliases: &[],
            // Buffers of older files.
            ignored: &["text_model.embeddings.position_ids", "vision_model.embeddings.position_ids"],
            fresh: &[],
        })
    }

    fn contrastive(&self) -> Option<&Clip> {
        Some(self)
    }

    fn layers(&self) -> usize {
        self.sizes.vision_config.num_hidden_layers + self.sizes.text_config.num_hidden_layers
    }

    fn rows_per_sample(&self, _length: usize) -> usize {
        1
    }
}
