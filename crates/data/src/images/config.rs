//! `preprocessor_config.json`: how the images of a checkpoint were prepared.

use crate::DataError;
use plimsoll_images::{Filter, Preparation, Scaling};
use serde_json::Value;
use std::path::Path;

const NAME: &str = "preprocessor_config.json";

/// As the checkpoint in `folder` says, or as CLIP does where it says nothing; for a model whose images have `side`.
pub fn preparation_of(folder: &Path, side: usize) -> Result<Preparation, DataError> {
    let file = folder.join(NAME);
    let text = match std::fs::read(&file) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Preparation::clip(side)),
        Err(source) => return Err(DataError::Unreadable { file, source }),
        Ok(text) => text,
    };
    let config = serde_json::from_slice(&text).map_err(|error| error.to_string());
    config
        .and_then(|config: Value| read(&config, side))
        .map_err(|cause| DataError::ImageConfig { file: file.clone(), cause })
}

fn read(config: &Value, side: usize) -> Result<Preparation, String> {
    let usual = Preparation::clip(side);
    let flag = |key: &str| config.get(key).and_then(Value::as_bool).unwrap_or(true);
    let crop = if flag("do_center_crop") { sides(config, "crop_size")? } else { None };
    if let Some(crop) = crop.filter(|&crop| crop != Sides::Both(side, side) && crop != Sides::Shortest(side)) {
        return Err(format!("`crop_size` {crop:?} is not the model's image of {side} × {side}"));
    }
    let scaling = match sides(config, "size")? {
        _ if !flag("do_resize") => return Err("`do_resize` = false: images must have the model's size".into()),
        None => usual.scaling,
        Some(Sides::Both(height, width)) if (height, width) == (side, side) => Scaling::Squeeze,
        Some(Sides::Shortest(shortest)) if shortest >= side => Scaling::Shortest(shortest),
        Some(size) => return Err(format!("`size` {size:?} does not cover the model's image of {side} × {side}")),
    };
    let (mean, std) = match flag("do_normalize") {
        true => (triple(config, "image_mean", usual.mean)?, triple(config, "image_std", usual.std)?),
        false => ([0.0; 3], [1.0; 3]),
    };
    if std.iter().any(|&std| std <= 0.0) {
        return Err("`image_std` must be above 0".into());
    }
    let rescale = match config.get("rescale_factor") {
        _ if !flag("do_rescale") => 1.0,
        None => usual.rescale,
        Some(factor) => factor.as_f64().filter(|f| f.is_finite()).ok_or("`rescale_factor` is not a number")?,
    };
    Ok(Preparation { side, scaling, filter: filter(config)?, rescale, mean, std })
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Sides {
    Shortest(usize),
    /// Height and width.
    Both(usize, usize),
}

/// A number, `{"shortest_edge": …}` or `{"height": …, "width": …}`.
fn sides(config: &Value, key: &str) -> Result<Option<Sides>, String> {
    let Some(value) = config.get(key).filter(|value| !value.is_null()) else { return Ok(None) };
    let side = |value: Option<&Value>| value.and_then(Value::as_u64).filter(|n| (1..=65_536).contains(n));
    let both = || Some(Sides::Both(side(value.get("height"))? as usize, side(value.get("width"))? as usize));
    let shortest = || side(Some(value)).or_else(|| side(value.get("shortest_edge")));
    let sides = shortest().map(|side| Sides::Shortest(side as usize)).or_else(both);
    sides.map(Some).ok_or_else(|| format!("`{key}` is neither a side nor a height and a width"))
}

fn triple(config: &Value, key: &str, usual: [f64; 3]) -> Result<[f64; 3], String> {
    let Some(value) = config.get(key) else { return Ok(usual) };
    let numbers: Option<Vec<f64>> = value.as_array().and_then(|list| list.iter().map(Value::as_f64).collect());
    let triple = numbers.and_then(|numbers| <[f64; 3]>::try_from(numbers).ok());
    triple.filter(|t| t.iter().all(|n| n.is_finite())).ok_or_else(|| format!("`{key}` is not a list of 3 numbers"))
}

/// PIL's numbers of its filters.
fn filter(config: &Value) -> Result<Filter, String> {
    match config.get("resample").map(Value::as_u64) {
        None | Some(Some(3)) => Ok(Filter::Bicubic),
        Some(Some(2)) => Ok(Filter::Bilinear),
        Some(Some(1)) => Ok(Filter::Lanczos),
        _ => Err("`resample` is none of 1 (Lanczos), 2 (bilinear) and 3 (bicubic)".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::table::tests::file;

    fn of(content: &str) -> Result<Preparation, DataError> {
        let (folder, _) = file(NAME, content);
        preparation_of(folder.path(), 224)
    }

    #[test]
    fn a_checkpoint_says_how_its_images_are_prepared() {
        let clip = r#"{"crop_size": {"height": 224, "width": 224}, "do_center_crop": true, "do_normalize": true,
            "do_resize": true, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.25, 0.5, 1],
            "resample": 2, "rescale_factor": 0.00392156862745098, "size": {"shortest_edge": 256}}"#;
        let preparation = of(clip).unwrap();
        assert_eq!((preparation.scaling, preparation.filter), (Scaling::Shortest(256), Filter::Bilinear));
        assert_eq!((preparation.mean, preparation.std), ([0.5; 3], [0.25, 0.5, 1.0]));
        assert_eq!(of(r#"{"size": 224, "crop_size": 224}"#).unwrap(), Preparation::clip(224));
        assert_eq!(of(r#"{"size": {"height": 224, "width": 224}}"#).unwrap().scaling, Scaling::Squeeze);
        let nowhere = preparation_of(Path::new("/nowhere"), 224).unwrap();
        assert_eq!(nowhere, Preparation::clip(224));
    }

    #[test]
    fn what_does_not_fit_the_model_is_refused() {
        for (content, word) in [
            ("{", "EOF"),
            (r#"{"size": {"shortest_edge": 200}}"#, "size"),
            (r#"{"crop_size": 225}"#, "crop_size"),
            (r#"{"size": "large"}"#, "size"),
            (r#"{"image_std": [1, 0, 1]}"#, "image_std"),
            (r#"{"image_mean": [1, 2]}"#, "image_mean"),
            (r#"{"resample": 0}"#, "resample"),
            (r#"{"do_resize": false}"#, "do_resize"),
        ] {
            let error = of(content).unwrap_err().to_string();
            assert!(error.contains(word) && error.contains(NAME), "{error}");
        }
    }
}
