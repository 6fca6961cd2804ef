//! Published sizes.

use super::{Clip, ClipText, ClipVision};
use crate::families::presets::{Names, is_called};

struct ClipPreset {
    names: Names,
    large: bool,
    patch: usize,
    image: usize,
}

const CLIPS: [ClipPreset; 4] = [
    ClipPreset { names: &["openai/clip-vit-base-patch32"], large: false, patch: 32, image: 224 },
    ClipPreset { names: &["openai/clip-vit-base-patch16"], large: false, patch: 16, image: 224 },
    ClipPreset { names: &["openai/clip-vit-large-patch14"], large: true, patch: 14, image: 224 },
    ClipPreset { names: &["openai/clip-vit-large-patch14-336"], large: true, patch: 14, image: 336 },
];

impl Clip {
    pub(super) fn all_presets() -> Vec<Names> {
        CLIPS.iter().map(|preset| preset.names).collect()
    }

    pub(in crate::families) fn of_preset(name: &str) -> Option<Self> {
        let preset = CLIPS.iter().find(|p| is_called(p.names, name))?;
        let base = Self::defaults();
        let mut clip = if !preset.large {
            base
        } else {
            let text =
                ClipText { hidden_size: 768, intermediate_size: 3072, num_attention_heads: 12, ..base.text_config };
            let vision = ClipVision {
                hidden_size: 1024,
                intermediate_size: 4096,
                num_hidden_layers: 24,
                num_attention_heads: 16,
                ..base.vision_config
            };
            Self { projection_dim: 768, text_config: text, vision_config: vision, ..base }
        };
        clip.vision_config.patch_size = preset.patch;
        clip.vision_config.image_size = preset.image;
        Some(clip)
    }
}
