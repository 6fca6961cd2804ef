//! The card that a program is to run on.

/// What the stand-in has to know about a card.
#[derive(Clone, Debug, PartialEq)]
pub struct Card {
    pub name: String,
    /// Memory as the driver reports it.
    pub total_bytes: u64,
    /// What driver and context hold before PyTorch's first allocation.
    pub context_bytes: u64,
    /// (major, minor)
    pub compute_capability: (u32, u32),
    pub multiprocessors: usize,
    pub cache_bytes: u64,
}
