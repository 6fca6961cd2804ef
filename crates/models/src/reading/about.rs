//! Sentences about keys, beside the code that reads them.

/// What one key means, in a sentence.
#[derive(Clone, Copy, Debug)]
pub struct About {
    pub(crate) key: &'static str,
    pub(crate) says: &'static str,
    /// What holds where the key is not written, if the code gives it no value.
    pub(crate) unset: Option<&'static str>,
    /// The value that the code gives follows from other keys, and says less than these words.
    pub(crate) derived: bool,
}

/// `key` is the dotted path.
pub(crate) const fn about(key: &'static str, says: &'static str) -> About {
    About { key, says, unset: None, derived: false }
}

impl About {
    pub(crate) const fn unset(self, words: &'static str) -> About {
        About { unset: Some(words), ..self }
    }

    pub(crate) const fn derived(self, words: &'static str) -> About {
        About { derived: true, ..self.unset(words) }
    }
}
