//! Two towers give an embedding each; the loss compares every image of the batch with every text.

use super::{Clip, text, vision};
use crate::families::{Build, Contrast, Images, Outputs};
use plimsoll_core::graph::{Graph, GraphError, Init, Named, ValueId};
use plimsoll_core::ops::*;

impl Contrast for Clip {
    /// `pixels` (B, C, I, I) → (B, P).
    fn embed_images(&self, graph: &mut Graph, build: &Build) -> Result<ValueId, GraphError> {
        let seen = graph.scope("vision_model", |g| vision::pooled(&self.vision_config, g, build))?;
        self.project(graph, "visual_projection", seen)
    }

    /// `ids` (B, T), read out at the rows `eos` (B) of the B · T tokens → (B, P).
    fn embed_texts(&self, graph: &mut Graph, build: &Build) -> Result<ValueId, GraphError> {
        let read = graph.scope("text_model", |g| text::pooled(&self.text_config, g, build))?;
        self.project(graph, "text_projection", read)
    }

    fn width(&self) -> usize {
        self.projection_dim
    }

    /// The loss over embeddings (N, P): each image among all texts and each text among all images. Rows of weight
    /// 0 are not there. The logits are those of images, (N, N).
    fn contrast(
        &self,
        graph: &mut Graph,
        image: ValueId,
        text: ValueId,
        weight: ValueId,
    ) -> Result<Outputs, GraphError> {
        let init = Init::Constant(self.logit_scale_init_value);
        let scale = graph.parameter("logit_scale", &[1], init, false)?;
        let scale = graph.apply("logit_scale.exp", Exp, &[scale])?;
        // Scaling the texts instead of the logits: one (N, N) value, not two.
        let text = graph.apply("text.scaled", Binary::MUL, &[text, scale])?;
        let logits = graph.apply("logits", MatMul::TRANSPOSED, &[image, text])?;
        let found = graph.apply_all("loss", Contrastive, &[logits, weight])?;
        Ok(Outputs { loss: found[0], correct: Some(found[1]), logits: Some(logits) })
    }

    fn images(&self) -> Images {
        let (text, vision) = (&self.text_config, &self.vision_config);
        Images {
            channels: vision.num_channels,
            side: vision.image_size,
            vocab: text.vocab_size,
            end: text.eos_token_id,
        }
    }
}

impl Clip {
    /// Into the common space, at length 1: (B, D) → (B, P).
    fn project(&self, graph: &mut Graph, name: &str, x: ValueId) -> Result<ValueId, GraphError> {
        let (width, to) = (graph.shape(x)[1], self.projection_dim);
        let init = Init::Normal((width as f64).powf(-0.5));
        let weight = graph.parameter(Named(name, ".weight"), &[to, width], init, true)?;
        let x = graph.apply(name, MatMul::TRANSPOSED, &[x, weight])?;
        Ok(graph.apply_all(&format!("{name}.normalize"), NormalizeRows, &[x])?[0])
    }
}
