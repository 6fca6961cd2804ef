//! How Hugging Face's files call the tensors, and what their config.json says.

use super::DistilBert;
use crate::families::HuggingFace;
use crate::hf::config_out::{keys_of, lay_over, write_labels};
use serde_json::{Map, Value};

pub(super) fn hugging_face() -> HuggingFace {
    HuggingFace {
        architecture: "DistilBertForSequenceClassification",
        model_type: "distilbert",
        prefix: "distilbert.",
        aliases: &[],
        // The heads of the masked language model and of question answering.
        ignored: &[
            "vocab_transform.",
            "vocab_layer_norm.",
            "vocab_projector.",
            "qa_outputs.",
            "distilbert.embeddings.position_ids",
        ],
        fresh: &["pre_classifier.", "classifier."],
    }
}

pub(super) fn config_json(sizes: &DistilBert, config: &mut Map<String, Value>, labels: &[String]) {
    lay_over(config, keys_of(sizes));
    config.remove("num_labels");
    write_labels(config, sizes.num_labels, labels);
}
