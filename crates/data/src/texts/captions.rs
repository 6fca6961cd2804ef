//! Captions of images: ids of one length, and where each ends.

use super::TextTokenizer;
use crate::DataError;

/// The convention of old configurations: the text ends at its largest id.
const LARGEST_ID: usize = 2;

/// Makes rows of `max_length` ids.
#[derive(Debug)]
pub struct CaptionTokenizer {
    tokenizer: TextTokenizer,
    max_length: usize,
    end: Option<u32>,
    vocab: usize,
}

impl CaptionTokenizer {
    /// `eos` is the model's `eos_token_id`, `vocab` its number of ids.
    pub fn new(mut tokenizer: TextTokenizer, max_length: usize, eos: usize, vocab: usize) -> Result<Self, DataError> {
        tokenizer.limit(max_length, false)?;
        let end = u32::try_from(eos).ok().filter(|_| eos != LARGEST_ID);
        Ok(CaptionTokenizer { tokenizer, max_length, end, vocab })
    }

    pub fn tokenizer(&self) -> &TextTokenizer {
        &self.tokenizer
    }

    /// Replaces `ids` by those of the caption, padded with the id at its end; where that end is, and whether the
    /// caption was cut.
    pub(crate) fn encode(&self, caption: &str, ids: &mut Vec<i32>) -> Result<(usize, bool), DataError> {
        let mut found = Vec::new();
        let encoded = self.tokenizer.encode_into(caption, None, self.vocab, &mut found)?;
        let largest = || (0..found.len()).rev().max_by_key(|&at| found[at]);
        let end = self.end.and_then(|end| found.iter().position(|&id| id == end)).or_else(largest).unwrap_or(0);
        let padding = found.get(end).copied().unwrap_or(0);
        ids.clear();
        ids.extend(found.iter().chain(std::iter::repeat(&padding)).take(self.max_length).map(|&id| id as i32));
        Ok((end, encoded.truncated))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tokenizer::tests::encoder;
    use super::*;

    #[test]
    fn captions_are_padded_and_their_end_is_known() {
        let mut ids = vec![9];
        let captions = CaptionTokenizer::new(encoder(), 6, 3, 8).unwrap();
        assert_eq!(captions.encode("a b", &mut ids).unwrap(), (3, false));
        assert_eq!(ids, [2, 4, 5, 3, 3, 3]);
        assert_eq!(captions.encode("a b a b a b", &mut ids).unwrap(), (5, true));
        assert_eq!(ids, [2, 4, 5, 4, 5, 3]);
        // By the old convention the first of the largest ids is the end.
        let largest = CaptionTokenizer::new(encoder(), 6, 2, 8).unwrap();
        assert_eq!(largest.encode("a d d", &mut ids).unwrap(), (2, false));
        assert_eq!(ids, [2, 4, 7, 7, 3, 7]);
    }
}
