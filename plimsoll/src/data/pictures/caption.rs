//! Captions as tokens: all of one length, ended by the token whose position the text tower reads out.

use crate::data::{DataError, guarded};
use std::path::{Path, PathBuf};
use tokenizers::Tokenizer;

/// What the model says about its captions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CaptionSizes {
    /// Tokens of a caption, special ones included.
    pub max_length: usize,
    pub vocab: usize,
    /// `eos_token_id` of the text tower. 2 is an old convention for "the largest id".
    pub end: usize,
}

pub struct CaptionTokenizer {
    file: PathBuf,
    tokenizer: Tokenizer,
    sizes: CaptionSizes,
    end: i32,
}

/// The tokens of one caption without padding; the last one is read out.
pub struct Caption {
    pub ids: Vec<i32>,
    pub truncated: bool,
}

impl CaptionTokenizer {
    pub fn open(file: &Path, sizes: CaptionSizes) -> Result<Self, DataError> {
        let refused = |cause: String| DataError::Tokenizer { file: file.into(), cause };
        let bytes = std::fs::read(file).map_err(|source| DataError::Unreadable { file: file.into(), source })?;
        let mut tokenizer =
            guarded(|| Tokenizer::from_bytes(&bytes)).map_err(refused)?.map_err(|error| refused(error.to_string()))?;
        // Captions are cut and padded here, not by the tokenizer.
        tokenizer.with_padding(None);
        tokenizer.with_truncation(None).map_err(|error| refused(error.to_string()))?;
        let highest = tokenizer.get_vocab(true).into_values().max().unwrap_or(0);
        if highest as usize >= sizes.vocab || sizes.vocab > i32::MAX as usize {
            return Err(DataError::IdBeyondVocabulary { file: file.into(), id: highest, vocab: sizes.vocab });
        }
        let end = if sizes.end == 2 { highest as usize } else { sizes.end };
        if end > highest as usize {
            return Err(refused(format!("it has no token {end}, which the model reads captions out at")));
        }
        Ok(CaptionTokenizer { file: file.into(), tokenizer, sizes, end: end as i32 })
    }

    /// What stands behind a caption. The text tower is causal: it never looks there.
    pub fn padding(&self) -> i32 {
        self.end
    }

    /// The tokens up to the first end; a tokenizer that writes none gets one. What is too long loses its tail.
    pub fn encode(&self, text: &str) -> Result<Caption, DataError> {
        let refused = |cause: String| DataError::Tokenizer { file: self.file.clone(), cause };
        let encoding = guarded(|| self.tokenizer.encode_fast(text, true))
            .map_err(refused)?
            .map_err(|error| refused(error.to_string()))?;
        let mut ids: Vec<i32> =
            encoding.get_ids().iter().map(|&id| id as i32).take_while(|&id| id != self.end).collect();
        let truncated = ids.len() >= self.sizes.max_length;
        ids.truncate(self.sizes.max_length - 1);
        ids.push(self.end);
        Ok(Caption { ids, truncated })
    }
}
