//! How tensors are called.

/// How a family's tensors are called in Hugging Face's files. A parameter's name is the tensor's own; one that packs
/// several along its first dimension names them in braces: `attention.self.{query,key,value}.weight`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HuggingFace {
    /// `architectures` in config.json.
    pub architecture: &'static str,
    /// `model_type` in config.json.
    pub model_type: &'static str,
    /// What a checkpoint of the bare model leaves out in front of its names: `bert.`
    pub prefix: &'static str,
    /// Other names of the same tensor: (`lm_head.weight`, `shared.weight`).
    pub aliases: &'static [(&'static str, &'static str)],
    /// Beginnings of names (with the prefix) that are read over: buffers, heads of other tasks.
    pub ignored: &'static [&'static str],
    /// Beginnings of names that a checkpoint may lack: a fresh head starts at random.
    pub fresh: &'static [&'static str],
}
