//! clip: a picture tower and a text tower that meet in one space. Keys are those of Hugging Face's config.json.

use serde::Serialize;

use super::encoder::HiddenAct;
use super::{Family, Input, Origin, check_divides, sum_of_products};
use crate::recipe::section::{Range, Section};
use crate::recipe::train::Task;

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

impl Clip {
    pub fn read(section: &Section<'_>) -> Self {
        Self {
            origin: Origin::read(section),
            projection_dim: section.size("projection_dim", 1..=65_536).unwrap_or(512),
            logit_scale_init_value: section
                .number("logit_scale_init_value", Range::closed(-20.0, 20.0))
                .unwrap_or(2.6592),
            text_config: ClipText::read(&section.section_or_empty("text_config")),
            vision_config: ClipVision::read(&section.section_or_empty("vision_config")),
        }
    }
}

impl ClipText {
    fn read(section: &Section<'_>) -> Self {
        let sizes = Self {
            vocab_size: section.size("vocab_size", 2..=16_777_216).unwrap_or(49_408),
            hidden_size: section.size("hidden_size", 1..=65_536).unwrap_or(512),
            intermediate_size: section.size("intermediate_size", 1..=16_777_216).unwrap_or(2048),
            num_hidden_layers: section.size("num_hidden_layers", 1..=4096).unwrap_or(12),
            num_attention_heads: section.size("num_attention_heads", 1..=1024).unwrap_or(8),
            max_position_embeddings: section.size("max_position_embeddings", 2..=1_048_576).unwrap_or(77),
            hidden_act: section.choice("hidden_act").unwrap_or(HiddenAct::QuickGelu),
            layer_norm_eps: section.number("layer_norm_eps", Range::above(0.0, 1.0)).unwrap_or(1e-5),
            attention_dropout: section.number("attention_dropout", Range::closed(0.0, 0.99)).map_or(0.0, |n| n as f32),
            eos_token_id: section.size("eos_token_id", 0..=16_777_215).unwrap_or(49_407),
        };
        section.finish();
        check_divides(section, "num_attention_heads", sizes.num_attention_heads, sizes.hidden_size, "hidden_size");
        sizes
    }
}

impl ClipVision {
    fn read(section: &Section<'_>) -> Self {
        let sizes = Self {
            hidden_size: section.size("hidden_size", 1..=65_536).unwrap_or(768),
            intermediate_size: section.size("intermediate_size", 1..=16_777_216).unwrap_or(3072),
            num_hidden_layers: section.size("num_hidden_layers", 1..=4096).unwrap_or(12),
            num_attention_heads: section.size("num_attention_heads", 1..=1024).unwrap_or(12),
            num_channels: section.size("num_channels", 1..=1024).unwrap_or(3),
            image_size: section.size("image_size", 1..=65_536).unwrap_or(224),
            patch_size: section.size("patch_size", 1..=65_536).unwrap_or(32),
            hidden_act: section.choice("hidden_act").unwrap_or(HiddenAct::QuickGelu),
            layer_norm_eps: section.number("layer_norm_eps", Range::above(0.0, 1.0)).unwrap_or(1e-5),
            attention_dropout: section.number("attention_dropout", Range::closed(0.0, 0.99)).map_or(0.0, |n| n as f32),
        };
        section.finish();
        check_divides(section, "num_attention_heads", sizes.num_attention_heads, sizes.hidden_size, "hidden_size");
        sizes
    }

    /// Patches along one side; what is left over at the edge is not seen, as in a convolution.
    pub fn side(&self) -> usize {
        self.image_size / self.patch_size.max(1)
    }
}

impl Family for Clip {
    fn check(&self, section: &Section<'_>) {
        let vision = &self.vision_config;
        if vision.patch_size > vision.image_size {
            let cause =
                format!("patches of {} are larger than the picture of {}", vision.patch_size, vision.image_size);
            section.refuse("vision_config", cause, "make patch_size at most image_size");
        }
    }

    fn tasks(&self) -> &'static [Task] {
        &[Task::Contrastive]
    }

    fn input(&self) -> Input {
        Input::Pictures {
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
        let pictures = sum_of_products(&[&[patches, v.intermediate_size.max(v.hidden_size.checked_mul(3)?)]])?;
        let texts = sum_of_products(&[&[t.max_position_embeddings, t.intermediate_size.max(t.hidden_size * 3)]])?;
        let pixels = sum_of_products(&[&[v.num_channels, v.image_size, v.image_size]])?;
        Some(pictures.max(texts).max(pixels))
    }

    fn groups(&self) -> usize {
        self.text_config.num_attention_heads.max(self.vision_config.num_attention_heads)
    }

    fn needs_whole_batch(&self) -> bool {
        false
    }
}
