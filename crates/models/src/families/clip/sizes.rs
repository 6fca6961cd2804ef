//! clip: an image tower and a text tower that meet in one space. Keys are those of Hugging Face's config.json.

use serde::Serialize;

use crate::families::Task;
use crate::families::counting::{check_divides, sum_of_products};
use crate::families::origin::HubSizes;
use crate::families::{FamilyName, HiddenAct, Input, Origin, Sizes};
use crate::hf::{Checkpoint, HfError};
use crate::reading::about::{About, about};
use crate::reading::config::ConfigKeys;
use crate::reading::keys::Keys;
use crate::reading::section::{Range, Section};

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Clip {
    #[serde(flatten)]
    pub origin: Origin,
    pub projection_dim: usize,
    /// The logarithm of the inverse temperature at the start.
    pub logit_scale_init_value: f64,
    pub text_config: ClipText,
    pub vision_config: ClipVision,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClipText {
    pub vocab_size: usize,
    pub hidden_size: usize,
    pub intermediate_size: usize,
    pub num_hidden_layers: usize,
    pub num_attention_heads: usize,
    pub max_position_embeddings: usize,
    pub hidden_act: HiddenAct,
    pub layer_norm_eps: f64,
    pub attention_dropout: f32,
    /// The token whose position is read out. 2 is an old convention for "the largest id".
    pub eos_token_id: usize,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClipVision {
    pub hidden_size: usize,
    pub intermediate_size: usize,
    pub num_hidden_layers: usize,
    pub num_attention_heads: usize,
    pub num_channels: usize,
    pub image_size: usize,
    pub patch_size: usize,
    pub hidden_act: HiddenAct,
    pub layer_norm_eps: f64,
    pub attention_dropout: f32,
}

/// What each key means.
const ABOUT: &[About] = &[
    about("model.projection_dim", "Width of the space in which images and texts meet."),
    about("model.logit_scale_init_value", "The logarithm of the inverse temperature at the start."),
    about("model.text_config.vocab_size", "Tokens of the vocabulary."),
    about("model.text_config.hidden_size", "Width of the hidden state."),
    about("model.text_config.intermediate_size", "Width of the feed-forward part."),
    about("model.text_config.num_hidden_layers", "Layers."),
    about("model.text_config.num_attention_heads", "Attention heads; they divide `hidden_size`."),
    about("model.text_config.hidden_act", "Activation of the feed-forward part."),
    about("model.text_config.layer_norm_eps", "Added to the variance in layer norms."),
    about("model.text_config.attention_dropout", "Dropout of attention probabilities."),
    about("model.text_config.max_position_embeddings", "Positions the text tower knows."),
    about(
        "model.text_config.eos_token_id",
        "The token whose position is read out; 2 stands for the largest id, as in old files.",
    ),
    about("model.vision_config.hidden_size", "Width of the hidden state."),
    about("model.vision_config.intermediate_size", "Width of the feed-forward part."),
    about("model.vision_config.num_hidden_layers", "Layers."),
    about("model.vision_config.num_attention_heads", "Attention heads; they divide `hidden_size`."),
    about("model.vision_config.hidden_act", "Activation of the feed-forward part."),
    about("model.vision_config.layer_norm_eps", "Added to the variance in layer norms."),
    about("model.vision_config.attention_dropout", "Dropout of attention probabilities."),
    about("model.vision_config.num_channels", "Colour channels of an image."),
    about("model.vision_config.image_size", "Side of an image in pixels."),
    about("model.vision_config.patch_size", "Side of a patch in pixels."),
];

impl Clip {
    /// Sizes of clip-vit-base-patch32, which are also what transformers takes for keys that a config.json leaves out.
    pub(super) fn defaults() -> Self {
        Self {
            origin: Origin::default(),
            projection_dim: 512,
            logit_scale_init_value: 2.6592,
            text_config: ClipText {
                vocab_size: 49_408,
                hidden_size: 512,
                intermediate_size: 2048,
                num_hidden_layers: 12,
                num_attention_heads: 8,
                max_position_embeddings: 77,
                hidden_act: HiddenAct::QuickGelu,
                layer_norm_eps: 1e-5,
                attention_dropout: 0.0,
                eos_token_id: 49_407,
            },
            vision_config: ClipVision {
                hidden_size: 768,
                intermediate_size: 3072,
                num_hidden_layers: 12,
                num_attention_heads: 12,
                num_channels: 3,
                image_size: 224,
                patch_size: 32,
                hidden_act: HiddenAct::QuickGelu,
                layer_norm_eps: 1e-5,
                attention_dropout: 0.0,
            },
        }
    }
}

impl HubSizes for Clip {
    const FREE: &'static [&'static str] = &["attention_dropout", "logit_scale_init_value", "eos_token_id"];

    fn family(&self) -> FamilyName {
        FamilyName::Clip
    }

    fn origin_mut(&mut self) -> &mut Origin {
        &mut self.origin
    }

    fn preset(&self, name: &str) -> Option<Self> {
        Self::of_preset(name)
    }

    fn config(&self, keys: &ConfigKeys<'_>, _: Option<&Checkpoint>) -> Result<Self, HfError> {
        Ok(Self::defaults().overlay(keys))
    }

    fn overlay(self, keys: &impl Keys) -> Self {
        Self {
            projection_dim: keys.size("projection_dim", 1..=65_536).unwrap_or(self.projection_dim),
            logit_scale_init_value: keys
                .number("logit_scale_init_value", Range::closed(-20.0, 20.0))
                .unwrap_or(self.logit_scale_init_value),
            text_config: keys.nested("text_config", |keys| self.text_config.overlay(keys)),
            vision_config: keys.nested("vision_config", |keys| self.vision_config.overlay(keys)),
            origin: self.origin,
        }
    }
}

impl ClipText {
    fn overlay(self, keys: &impl Keys) -> Self {
        Self {
            vocab_size: keys.size("vocab_size", 2..=16_777_216).unwrap_or(self.vocab_size),
            hidden_size: keys.size("hidden_size", 1..=65_536).unwrap_or(self.hidden_size),
            intermediate_size: keys.size("intermediate_size", 1..=16_777_216).unwrap_or(self.intermediate_size),
            num_hidden_layers: keys.size("num_hidden_layers", 1..=4096).unwrap_or(self.num_hidden_layers),
            num_attention_heads: keys.size("num_attention_heads", 1..=1024).unwrap_or(self.num_attention_heads),
            max_position_embeddings: keys
                .size("max_position_embeddings", 2..=1_048_576)
                .unwrap_or(self.max_position_embeddings),
            hidden_act: keys.choice("hidden_act").unwrap_or(self.hidden_act),
            layer_norm_eps: keys.number("layer_norm_eps", Range::above(0.0, 1.0)).unwrap_or(self.layer_norm_eps),
            attention_dropout: keys.dropout("attention_dropout").unwrap_or(self.attention_dropout),
            eos_token_id: keys.size("eos_token_id", 0..=16_777_215).unwrap_or(self.eos_token_id),
        }
    }
}

impl ClipVision {
    fn overlay(self, keys: &impl Keys) -> Self {
        Self {
            hidden_size: keys.size("hidden_size", 1..=65_536).unwrap_or(self.hidden_size),
            intermediate_size: keys.size("intermediate_size", 1..=16_777_216).unwrap_or(self.intermediate_size),
            num_hidden_layers: keys.size("num_hidden_layers", 1..=4096).unwrap_or(self.num_hidden_layers),
            num_attention_heads: keys.size("num_attention_heads", 1..=1024).unwrap_or(self.num_attention_heads),
            num_channels: keys.size("num_channels", 1..=1024).unwrap_or(self.num_channels),
            image_size: keys.size("image_size", 1..=65_536).unwrap_or(self.image_size),
            patch_size: keys.size("patch_size", 1..=65_536).unwrap_or(self.patch_size),
            hidden_act: keys.choice("hidden_act").unwrap_or(self.hidden_act),
            layer_norm_eps: keys.number("layer_norm_eps", Range::above(0.0, 1.0)).unwrap_or(self.layer_norm_eps),
            attention_dropout: keys.dropout("attention_dropout").unwrap_or(self.attention_dropout),
        }
    }

    /// Patches along one side; what is left over at the edge is not seen, as in a convolution.
    pub(crate) fn side(&self) -> usize {
        self.image_size / self.patch_size.max(1)
    }
}

impl Sizes for Clip {
    fn check(&self, section: &Section<'_>) {
        let (text, vision) = (&self.text_config, &self.vision_config);
        for (key, heads, width) in [
            ("text_config", text.num_attention_heads, text.hidden_size),
            ("vision_config", vision.num_attention_heads, vision.hidden_size),
        ] {
            check_divides(&section.section_or_empty(key), "num_attention_heads", heads, width, "hidden_size");
        }
        if vision.patch_size > vision.image_size {
            let cause = format!("patches of {} are larger than the image of {}", vision.patch_size, vision.image_size);
            section.refuse("vision_config", cause, "make patch_size at most image_size");
        }
    }

    fn about(&self) -> &'static [About] {
        ABOUT
    }

    fn tasks(&self) -> &'static [Task] {
        &[Task::Contrastive]
    }

    fn input(&self) -> Input {
        Input::Images {
            channels: self.vision_config.num_channels,
            side: self.vision_config.image_size,
            max_length: self.text_config.max_position_embeddings,
            vocab: self.text_config.vocab_size,
        }
    }

    fn parameters(&self) -> Option<u64> {
        let (t, v, p) = (&self.text_config, &self.vision_config, self.projection_dim);
        let tower = |d: usize, f: usize, layers: usize| -> Option<u64> {
            sum_of_products(&[&[4, d, d], &[2, d, f], &[f], &[9, d]])?.checked_mul(layers as u64)
        };
        let positions = v.side().checked_mul(v.side())?.checked_add(1)?;
        let ends = sum_of_products(&[
            &[t.vocab_size, t.hidden_size],
            &[t.max_position_embeddings, t.hidden_size],
            &[2, t.hidden_size],
            &[v.num_channels, v.patch_size, v.patch_size, v.hidden_size],
            &[positions, v.hidden_size],
            &[5, v.hidden_size],
            &[t.hidden_size, p],
            &[v.hidden_size, p],
            &[1],
        ])?;
        tower(t.hidden_size, t.intermediate_size, t.num_hidden_layers)?
            .checked_add(tower(v.hidden_size, v.intermediate_size, v.num_hidden_layers)?)?
            .checked_add(ends)
    }

    fn largest_value(&self) -> Option<u64> {
        let (t, v) = (&self.text_config, &self.vision_config);
        let patches = v.side().checked_mul(v.side())?.checked_add(1)?;
        let images = sum_of_products(&[&[patches, v.intermediate_size.max(v.hidden_size.checked_mul(3)?)]])?;
        let texts = sum_of_products(&[&[t.max_position_embeddings, t.intermediate_size.max(t.hidden_size * 3)]])?;
        let pixels = sum_of_products(&[&[v.num_channels, v.image_size, v.image_size]])?;
        Some(images.max(texts).max(pixels))
    }

    fn groups(&self) -> usize {
        self.text_config.num_attention_heads.max(self.vision_config.num_attention_heads)
    }
}
