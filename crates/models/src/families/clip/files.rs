//! How Hugging Face's files call the tensors, and what their config.json says.

use super::Clip;
use crate::families::HuggingFace;
use crate::hf::config_out::{keys_of, lay_over};
use serde_json::{Map, Value, json};

pub(super) const HUGGING_FACE: HuggingFace = HuggingFace {
    architecture: "CLIPModel",
    model_type: "clip",
    prefix: "",
    aliases: &[],
    // Buffers of older files.
    ignored: &["text_model.embeddings.position_ids", "vision_model.embeddings.position_ids"],
    fresh: &[],
};

pub(super) fn config_json(sizes: &Clip, config: &mut Map<String, Value>) {
    // What older files repeat would overrule the tables.
    config.remove("text_config_dict");
    config.remove("vision_config_dict");
    lay_over(config, keys_of(sizes));
    for (table, kind) in [("text_config", "clip_text_model"), ("vision_config", "clip_vision_model")] {
        lay_over(config, json!({ table: { "model_type": kind, "projection_dim": sizes.projection_dim } }));
    }
}
