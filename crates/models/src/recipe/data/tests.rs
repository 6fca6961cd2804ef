use super::*;
use crate::recipe::Recipe;
use plimsoll_base::batching::{Buckets, Compose};

const BERT: &str = "[model]\nfamily = \"bert\"\nhidden_size = 16\nnum_hidden_layers = 1\nnum_attention_heads = 2\n\
                    intermediate_size = 32\nmax_position_embeddings = 64\n";
const T5: &str = "[model]\nfamily = \"t5\"\nd_model = 16\nd_kv = 8\nd_ff = 32\nnum_layers = 1\nnum_heads = 2\n";
const CLIP: &str = "[model]\nfamily = \"clip\"\n";

fn parse(model: &str, data: &str) -> Result<Recipe, String> {
    let text = format!("{model}[data]\n{data}\n[train]\neffective_batch = 8\n");
    Recipe::parse(&text, "case.toml", &[]).map_err(|error| error.to_string())
}

#[test]
fn every_kind_survives_its_own_file() {
    let cases = [
        (BERT, "train = \"a.jsonl\""),
        (BERT, "train = \"a.csv\"\ntext = \"body\"\ntext_pair = \"title\"\nlabel = [\"x\", \"y\"]\nbuckets = 8"),
        (
            BERT,
            "train = \"a.parquet\"\nlabels = [\"no\", \"yes\"]\non_bad_row = \"skip\"\nbuckets = \"off\"\nmax_length = 32",
        ),
        (BERT, "source = \"synthetic:sentiment\"\nsamples = 100\ncompose = \"random\"\ntokenizer = \"t.json\""),
        (
            T5,
            "train = \"a.jsonl\"\nprefix = \"summarize: \"\ntext = \"article\"\ntarget = \"summary\"\nvalidation = \"b.jsonl\"",
        ),
        (T5, "source = \"synthetic:recipes\"\nmax_length = 40\nmax_target_length = 60"),
        (CLIP, "train = \"images\"\ntemplate = \"a drawing of {}\""),
        (CLIP, "train = \"a.jsonl\"\nimage = \"path\"\ncaption = \"text\"\nmax_length = 20"),
        (CLIP, "source = \"synthetic:shapes\""),
    ];
    for (model, data) in cases {
        let recipe = parse(model, data).unwrap_or_else(|error| panic!("{data}\n{error}"));
        let stored = recipe.to_toml().unwrap();
        let again = Recipe::parse(&stored, "case.toml", &[]).unwrap_or_else(|error| panic!("{stored}\n{error}"));
        assert_eq!(again.data, recipe.data, "{stored}");
    }
}

#[test]
fn defaults_are_those_of_the_kind() {
    let DataKind::Labelled(labelled) = parse(BERT, "train = \"a.jsonl\"").unwrap().data.kind else {
        panic!("labelled")
    };
    assert_eq!((labelled.max_length, labelled.batching.compose), (64, Compose::Length));
    let columns = labelled.columns.unwrap();
    assert_eq!((columns.text.as_str(), columns.label.names()), ("text", &["label".to_string()][..]));
    let DataKind::Pairs(pairs) = parse(T5, "train = \"a.jsonl\"").unwrap().data.kind else { panic!("pairs") };
    assert_eq!((pairs.max_length, pairs.max_target_length, pairs.batching.buckets), (512, 128, Buckets::Auto));
    let recipe = parse(CLIP, "train = \"folder\"").unwrap();
    assert_eq!(recipe.data.batching(), Batching::EQUAL);
    assert!(matches!(recipe.data.source, Source::File { format: None, .. }), "nothing is said: it is a folder");
    let DataKind::Captions(captions) = recipe.data.kind else { panic!("captions") };
    assert_eq!(captions.max_length, 77);
}

#[test]
fn keys_of_other_kinds_and_odd_values_are_refused() {
    for (model, data, expected) in [
        (BERT, "train = \"a.jsonl\"\nprefix = \"x\"", "data.prefix: does not apply to labelled texts"),
        (BERT, "train = \"a.jsonl\"\nstride = 2", "data.stride: does not apply to labelled texts"),
        (BERT, "source = \"synthetic:sentiment\"\nlabel = \"y\"", "data.label: does not apply to data made by code"),
        (BERT, "source = \"synthetic:grammar\"", "does not go with task `classify`"),
        (BERT, "train = \"a.txt\"", "cannot read text"),
        (BERT, "train = \"a.jsonl\"\nmax_length = 65", "more than the 64 positions"),
        (BERT, "train = \"a.jsonl\"\nbuckets = \"of\"", "did you mean \"off\"?"),
        (BERT, "train = \"a.jsonl\"\nbuckets = 0", "out of range"),
        (BERT, "train = \"a.jsonl\"\nlabels = [\"a\", \"a\"]", "label `a` is listed twice"),
        (T5, "train = \"a.jsonl\"\nlabel = \"y\"", "data.label: does not apply to pairs of texts"),
        (CLIP, "train = \"x\"\ntemplate = \"an image\"", "has no place for the name"),
        (CLIP, "train = \"x\"\nbuckets = 4", "data.buckets: does not apply to images with captions"),
    ] {
        let error = parse(model, data).unwrap_err();
        assert!(error.contains(expected), "{data}\n{error}");
    }
}
