//! How Hugging Face's files call the tensors of each kind, and what their config.json says.

use super::{Encoder, EncoderKind};
use crate::families::HuggingFace;
use crate::hf::config_out::{fill_in, keys_of, lay_over, shortest, write_labels};
use serde_json::{Map, Value, json};

/// The module that holds the bare model.
pub(super) fn root(kind: EncoderKind) -> &'static str {
    match kind {
        EncoderKind::Bert => "bert",
        EncoderKind::Roberta | EncoderKind::XlmRoberta => "roberta",
        EncoderKind::DebertaV3 => "deberta",
    }
}

/// Query, key and value of an attention, packed in this order.
pub(super) fn projections(kind: EncoderKind) -> &'static str {
    match kind {
        EncoderKind::DebertaV3 => "{query_proj,key_proj,value_proj}",
        _ => "{query,key,value}",
    }
}

pub(super) fn hugging_face(kind: EncoderKind) -> HuggingFace {
    let roberta = |architecture, model_type| HuggingFace {
        architecture,
        model_type,
        prefix: "roberta.",
        aliases: &[],
        // The classifier reads the first token itself, past the pooler.
        ignored: &[
            "lm_head.",
            "roberta.pooler.",
            "roberta.embeddings.position_ids",
            "roberta.embeddings.token_type_ids",
        ],
        fresh: &["classifier."],
    };
    match kind {
        EncoderKind::Bert => HuggingFace {
            architecture: "BertForSequenceClassification",
            model_type: "bert",
            prefix: "bert.",
            aliases: &[],
            ignored: &["cls.", "bert.embeddings.position_ids", "bert.embeddings.token_type_ids"],
            fresh: &["classifier.", "bert.pooler."],
        },
        EncoderKind::Roberta => roberta("RobertaForSequenceClassification", "roberta"),
        EncoderKind::XlmRoberta => roberta("XLMRobertaForSequenceClassification", "xlm-roberta"),
        EncoderKind::DebertaV3 => HuggingFace {
            architecture: "DebertaV2ForSequenceClassification",
            model_type: "deberta-v2",
            prefix: "deberta.",
            aliases: &[],
            ignored: &[
                "cls.",
                "lm_predictions.",
                "mask_predictions.",
                "deberta.embeddings.position_ids",
                "deberta.embeddings.position_embeddings.",
            ],
            fresh: &["classifier.", "pooler."],
        },
    }
}

pub(super) fn config_json(sizes: &Encoder, config: &mut Map<String, Value>, labels: &[String]) {
    lay_over(config, keys_of(sizes));
    config.remove("num_labels");
    let classifier_dropout = sizes.classifier_dropout.map(shortest);
    match sizes.kind {
        EncoderKind::DebertaV3 => {
            config.remove("classifier_dropout");
            lay_over(config, json!({ "cls_dropout": classifier_dropout }));
        }
        _ => lay_over(config, json!({ "classifier_dropout": classifier_dropout })),
    }
    write_labels(config, sizes.num_labels, labels);
    match sizes.kind {
        EncoderKind::Bert => {}
        EncoderKind::Roberta | EncoderKind::XlmRoberta => {
            fill_in(config, json!({ "bos_token_id": 0, "eos_token_id": 2 }))
        }
        EncoderKind::DebertaV3 => {
            let furthest = sizes.max_relative_positions.map_or(json!(-1), |n| json!(n));
            let fixed = json!({
                "relative_attention": true,
                "share_att_key": true,
                "norm_rel_ebd": "layer_norm",
                "position_biased_input": false,
                "pos_att_type": ["p2c", "c2p"],
                "pooler_hidden_act": "gelu",
                "pooler_hidden_size": sizes.hidden_size,
                "max_relative_positions": furthest,
            });
            lay_over(config, fixed);
            lay_over(config, json!({ "pooler_dropout": shortest(sizes.pooler_dropout.unwrap_or(0.0)) }));
        }
    }
}
