//! config.json of an export: the keys of the model over those of the checkpoint it came from.

use super::Export;
use plimsoll_core::types::DType;
use plimsoll_models::hf::config_out::lay_over;
use plimsoll_models::hf::convert::names_of;
use plimsoll_models::hf::{Config, HfError};
use serde_json::{Map, json};

pub fn config_json(export: &Export<'_>, dtype: Option<DType>) -> Result<String, HfError> {
    let mut config = match export.source.map(Config::open) {
        None | Some(Err(HfError::NoConfig { .. })) => Map::new(),
        Some(read) => read?.keys().clone(),
    };
    export.model.family().config_json(&mut config, export.labels);
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
