//! How Hugging Face's files call the tensors of each kind.

use super::{EncoderKind, HuggingFace};

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
