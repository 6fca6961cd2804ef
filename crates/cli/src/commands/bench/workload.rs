//! The reference workloads as recipes.

use crate::failure::Failure;

pub(crate) struct Workload {
    pub name: &'static str,
    kind: Kind,
}

/// Sizes as the reference has them.
enum Kind {
    Series { attention: &'static str },
    Text { vocab: usize, layers: usize, ffn: usize },
    Encoder { hidden: usize, layers: usize, heads: usize },
    T5 { d_model: usize, d_ff: usize, layers: usize, heads: usize },
    Clip { small: bool },
    Preset(&'static str),
}

const FULL: Kind = Kind::Text { vocab: 50257, layers: 24, ffn: 6400 };
const SMALL: Kind = Kind::Text { vocab: 1000, layers: 4, ffn: 640 };

/// The `-batched` names are how PyTorch writes the same model differently; here that is a decision of the plan.
pub(crate) const WORKLOADS: [Workload; 20] = [
    Workload { name: "hybrid", kind: Kind::Series { attention: "auto" } },
    Workload { name: "hybrid-materialized", kind: Kind::Series { attention: "materialized" } },
    Workload { name: "mu-sota", kind: FULL },
    Workload { name: "mu-sota-small", kind: SMALL },
    Workload { name: "mu-sota-batched", kind: FULL },
    Workload { name: "mu-sota-small-batched", kind: SMALL },
    Workload { name: "bert-large", kind: Kind::Encoder { hidden: 1024, layers: 24, heads: 16 } },
    Workload { name: "roberta-large", kind: Kind::Preset("roberta-large") },
    Workload { name: "deberta-v3-large", kind: Kind::Preset("microsoft/deberta-v3-large") },
    Workload { name: "bert-base", kind: Kind::Encoder { hidden: 768, layers: 12, heads: 12 } },
    Workload { name: "roberta-base", kind: Kind::Preset("roberta-base") },
    Workload { name: "xlm-roberta-base", kind: Kind::Preset("xlm-roberta-base") },
    Workload { name: "deberta-v3-base", kind: Kind::Preset("microsoft/deberta-v3-base") },
    Workload { name: "minilm", kind: Kind::Encoder { hidden: 384, layers: 6, heads: 12 } },
    Workload { name: "bert-mini", kind: Kind::Encoder { hidden: 256, layers: 4, heads: 4 } },
    Workload { name: "flan-t5-xl", kind: Kind::T5 { d_model: 2048, d_ff: 5120, layers: 24, heads: 32 } },
    Workload { name: "flan-t5-base", kind: Kind::T5 { d_model: 768, d_ff: 2048, layers: 12, heads: 12 } },
    Workload { name: "flan-t5-small", kind: Kind::T5 { d_model: 512, d_ff: 1024, layers: 8, heads: 6 } },
    Workload { name: "clip-b32", kind: Kind::Clip { small: false } },
    Workload { name: "clip-mini", kind: Kind::Clip { small: true } },
];

/// Rows of a window of the series workloads.
const WINDOW: usize = 60;
/// Tokens of a text unless the command says.
const TOKENS: usize = 128;

impl Workload {
    pub(crate) fn find(name: &str) -> Result<&'static Workload, Failure> {
        let names = WORKLOADS.map(|w| w.name).join(", ");
        let unknown = || Failure::bad_input(format!("no workload is called `{name}`"), format!("one of {names}"));
        WORKLOADS.iter().find(|w| w.name == name).ok_or_else(unknown)
    }

    /// The length asked for, if the workload has it.
    pub(crate) fn length(&self, asked: Option<usize>) -> Result<usize, Failure> {
        let fixed = |length: usize, what: &str, unit: &str| match asked.is_none_or(|asked| asked == length) {
            true => Ok(length),
            false => Err(Failure::bad_input(format!("{} has {what} of {length} {unit}", self.name), "leave --seq out")),
        };
        match self.kind {
            Kind::Series { .. } => fixed(WINDOW, "windows", "rows"),
            Kind::Clip { small: true } => fixed(32, "texts", "tokens"),
            Kind::Clip { small: false } => fixed(77, "texts", "tokens"),
            _ => match asked.unwrap_or(TOKENS) {
                tokens @ 2..=512 => Ok(tokens),
                _ => Err(Failure::bad_input(format!("{} has texts of 2 to 512 tokens", self.name), "change --seq")),
            },
        }
    }

    pub(crate) fn recipe(&self, batch: usize, seq: usize) -> String {
        let attention = if let Kind::Series { attention } = self.kind { attention } else { "auto" };
        // Text is not sampled: only steps are measured.
        let sample = if let Kind::Text { .. } = self.kind { "sample = { length = 0 }" } else { "" };
        format!(
            "[model]\n{}\n[data]\n{}\n[train]\neffective_batch = {batch}\nclip_norm = 1.0\n\
             optimizer = {{ name = \"adamw\", lr = 1e-5, weight_decay = 0.01, decay_all = true }}\n\
             schedule = {{ name = \"constant\" }}\nevaluate = {{ every = \"never\" }}\n{sample}\n\
             [memory]\nattention = \"{attention}\"\n",
            self.model(seq),
            self.data(seq)
        )
    }

    fn model(&self, seq: usize) -> String {
        match self.kind {
            Kind::Series { .. } => format!(
                "family = \"hybrid-cnn-lstm\"\nfeatures = 64\nwindow = {seq}\nchannels = [128, 256]\nhidden = 256\n\
                 heads = 4\nclasses = 3\ndropout = 0.1"
            ),
            Kind::Text { vocab, layers, ffn } => format!(
                "family = \"mu-sota\"\nvocab = {vocab}\nlayers = {layers}\nblocks = 16\nblock_width = 4\n\
                 block_heads = 2\ncross_heads = 8\nffn = {ffn}\nmax_length = 512"
            ),
            Kind::Encoder { hidden, layers, heads } => format!(
                "family = \"bert\"\nhidden_size = {hidden}\nnum_hidden_layers = {layers}\n\
                 num_attention_heads = {heads}\nintermediate_size = {}\nnum_labels = 2",
                4 * hidden
            ),
            Kind::T5 { d_model, d_ff, layers, heads } => format!(
                "family = \"t5\"\nd_model = {d_model}\nd_kv = 64\nd_ff = {d_ff}\nnum_layers = {layers}\n\
                 num_heads = {heads}\nfeed_forward_proj = \"gated-gelu\"\ntie_word_embeddings = true\n\
                 scale_decoder_outputs = false"
            ),
            Kind::Preset(preset) => format!("preset = \"{preset}\"\nnum_labels = 2"),
            Kind::Clip { small: false } => "family = \"clip\"".into(),
            Kind::Clip { small: true } => "family = \"clip\"\nprojection_dim = 128\n\
                text_config = { hidden_size = 128, intermediate_size = 512, num_hidden_layers = 4, \
                num_attention_heads = 4, vocab_size = 2000, max_position_embeddings = 32, eos_token_id = 1 }\n\
                vision_config = { hidden_size = 128, intermediate_size = 512, num_hidden_layers = 4, \
                num_attention_heads = 4, image_size = 64, patch_size = 8 }"
                .into(),
        }
    }

    /// Only lengths matter: no file is opened.
    fn data(&self, seq: usize) -> String {
        match self.kind {
            Kind::Series { .. } => "source = \"synthetic:regimes\"".into(),
            Kind::Text { .. } => format!("source = \"synthetic:grammar\"\nmax_length = {seq}"),
            Kind::T5 { .. } => format!(
                "train = \"bench.jsonl\"\ntokenizer = \"tokenizer.json\"\nmax_length = {seq}\nmax_target_length = {seq}"
            ),
            _ => format!("train = \"bench.jsonl\"\ntokenizer = \"tokenizer.json\"\nmax_length = {seq}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_models::recipe::Recipe;
    use plimsoll_planner::choose::length;

    #[test]
    fn every_workload_is_a_sound_recipe() {
        for workload in &WORKLOADS {
            let seq = workload.length(None).unwrap();
            let recipe = Recipe::parse(&workload.recipe(4, seq), "bench.toml", &[]).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(length(&recipe), seq, "{}", workload.name);
        }
    }

    /// The numbers of parameters that PyTorch counts for the same names.
    #[test]
    fn sizes_are_those_of_the_reference() {
        let expected = [
            ("hybrid", 5_907_587),
            ("mu-sota", 26_721_024),
            ("mu-sota-small", 564_608),
            ("bert-large", 335_143_938),
            ("flan-t5-xl", 2_783_959_040),
            ("clip-b32", 151_277_313),
        ];
        for (name, expected) in expected {
            let workload = Workload::find(name).unwrap();
            let text = workload.recipe(1, workload.length(None).unwrap());
            let recipe = Recipe::parse(&text, "bench.toml", &[]).unwrap();
            assert_eq!(recipe.model.family().parameters(), Some(expected), "{name}");
        }
    }

    #[test]
    fn lengths_that_are_not_measured_are_refused() {
        assert!(Workload::find("hybrid").unwrap().length(Some(128)).is_err());
        assert!(Workload::find("mu-sota").unwrap().length(Some(513)).is_err());
        assert!(Workload::find("clip-mini").unwrap().length(Some(64)).is_err());
        assert_eq!(Workload::find("mu-sota").unwrap().length(Some(512)).unwrap(), 512);
    }
}
