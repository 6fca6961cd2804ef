//! How Hugging Face's files call the tensors, and what their config.json says.

use super::T5;
use crate::families::HuggingFace;
use crate::hf::config_out::{fill_in, keys_of, lay_over};
use serde_json::{Map, Value, json};

pub(super) fn hugging_face(sizes: &T5) -> HuggingFace {
    const EMBEDDINGS: [(&str, &str); 3] = [
        ("encoder.embed_tokens.weight", "shared.weight"),
        ("decoder.embed_tokens.weight", "shared.weight"),
        ("lm_head.weight", "shared.weight"),
    ];
    HuggingFace {
        architecture: "T5ForConditionalGeneration",
        model_type: "t5",
        prefix: "",
        aliases: if sizes.tie_word_embeddings { &EMBEDDINGS } else { &EMBEDDINGS[..2] },
        // Old checkpoints carry a table here that is never read.
        ignored: &["decoder.block.0.layer.1.EncDecAttention.relative_attention_bias."],
        fresh: &[],
    }
}

pub(super) fn config_json(sizes: &T5, config: &mut Map<String, Value>) {
    lay_over(config, keys_of(sizes));
    let (gated, act) = sizes.feed_forward_proj.parts();
    lay_over(config, json!({ "is_gated_act": gated, "dense_act_fn": act, "is_encoder_decoder": true }));
    fill_in(config, json!({ "use_cache": true }));
}
