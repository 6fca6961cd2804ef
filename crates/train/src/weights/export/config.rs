//! config.json of an export: the keys of the model over those of the checkpoint it came from.

use super::Export;
use plimsoll_core::types::DType;
use plimsoll_models::hf::convert::names_of;
use plimsoll_models::hf::{Config, HfError};
use plimsoll_models::recipe::{Clip, Encoder, EncoderKind, FeedForward, Model, T5};
use serde::Serialize;
use serde_json::{Map, Value, json};

pub fn config_json(export: &Export<'_>, dtype: Option<DType>) -> Result<String, HfError> {
    let mut config = match export.source.map(Config::open) {
        None | Some(Err(HfError::NoConfig { .. })) => Map::new(),
        Some(read) => read?.keys().clone(),
    };
    match export.model {
        Model::HybridCnnLstm(_) | Model::MuSota(_) => lay_over(&mut config, keys_of(export.model)),
        Model::Bert(m) | Model::Roberta(m) | Model::XlmRoberta(m) | Model::DebertaV3(m) => {
            encoder(&mut config, m, export.labels);
        }
        Model::T5(m) => t5(&mut config, m),
        Model::Clip(m) => clip(&mut config, m),
    }
    let dtype = names_of(dtype.unwrap_or(DType::F32)).1;
    // Two spellings of one key would be one too many.
    config.remove("dtype");
    config.remove("_name_or_path");
    lay_over(
        &mut config,
        json!({
            "architectures": [export.names.architecture],
            "model_type": export.names.model_type,
            "torch_dtype": dtype,
        }),
    );
    let text = serde_json::to_string_pretty(&config);
    text.map(|text| text + "\n").map_err(|e| HfError::Json { path: "config.json".into(), cause: e.to_string() })
}

/// The sizes as written in recipes; f32 in its shortest form.
fn keys_of(sizes: &impl Serialize) -> Value {
    let text = serde_json::to_string(sizes).unwrap_or_default();
    let mut keys: Value = serde_json::from_str(&text).unwrap_or_default();
    if let Some(map) = keys.as_object_mut() {
        for ours in ["preset", "checkpoint", "family"] {
            map.remove(ours);
        }
    }
    keys
}

/// Tables are merged, everything else is replaced.
fn lay_over(config: &mut Map<String, Value>, keys: Value) {
    let Value::Object(keys) = keys else { return };
    for (key, value) in keys {
        match (config.get_mut(&key), value) {
            (Some(Value::Object(known)), value @ Value::Object(_)) => lay_over(known, value),
            (_, value) => drop(config.insert(key, value)),
        }
    }
}

/// Keys that are written only where the source does not have them.
fn fill_in(config: &mut Map<String, Value>, keys: Value) {
    let Value::Object(keys) = keys else { return };
    for (key, value) in keys {
        config.entry(key).or_insert(value);
    }
}

fn encoder(config: &mut Map<String, Value>, sizes: &Encoder, labels: &[String]) {
    lay_over(config, keys_of(sizes));
    config.remove("num_labels");
    lay_over(config, json!({ "classifier_dropout": sizes.classifier_dropout.map(shortest) }));
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
            fill_in(config, json!({ "pooler_dropout": 0.0 }));
        }
    }
}

fn shortest(x: f32) -> f64 {
    x.to_string().parse().unwrap_or(f64::from(x))
}

/// Names of labels: given ones, else those of the source if they are as many, else numbers.
fn write_labels(config: &mut Map<String, Value>, count: usize, labels: &[String]) {
    let known = config.get("id2label").and_then(Value::as_object).is_some_and(|map| map.len() == count);
    if known && labels.is_empty() {
        return;
    }
    let name = |i: usize| labels.get(i).cloned().unwrap_or_else(|| format!("LABEL_{i}"));
    let names: Map<String, Value> = (0..count).map(|i| (i.to_string(), name(i).into())).collect();
    let numbers: Map<String, Value> = (0..count).map(|i| (name(i), i.into())).collect();
    config.insert("id2label".into(), names.into());
    config.insert("label2id".into(), numbers.into());
}

fn t5(config: &mut Map<String, Value>, sizes: &T5) {
    lay_over(config, keys_of(sizes));
    let (gated, act) = match sizes.feed_forward_proj {
        FeedForward::Relu => (false, "relu"),
        FeedForward::GatedGelu => (true, "gelu_new"),
        FeedForward::GatedSilu => (true, "silu"),
    };
    lay_over(config, json!({ "is_gated_act": gated, "dense_act_fn": act, "is_encoder_decoder": true }));
    fill_in(config, json!({ "use_cache": true }));
}

fn clip(config: &mut Map<String, Value>, sizes: &Clip) {
    // What older files repeat would overrule the tables.
    config.remove("text_config_dict");
    config.remove("vision_config_dict");
    lay_over(config, keys_of(sizes));
    for (table, kind) in [("text_config", "clip_text_model"), ("vision_config", "clip_vision_model")] {
        lay_over(config, json!({ table: { "model_type": kind, "projection_dim": sizes.projection_dim } }));
    }
}
