//! Names of parameters and of tensors in files.

use super::HuggingFace;

/// Parameters that are a single number in files, without dimensions.
const SCALARS: [&str; 1] = ["logit_scale"];

pub fn is_scalar(name: &str) -> bool {
    SCALARS.contains(&name)
}

/// The tensors that a parameter packs along its first dimension: `a.{q,k}.w` → `a.q.w`, `a.k.w`.
pub fn expand(parameter: &str) -> Vec<String> {
    match braces(parameter) {
        None => vec![parameter.into()],
        Some((before, (list, after))) => list.split(',').map(|part| format!("{before}{part}{after}")).collect(),
    }
}

/// How many tensors a parameter packs.
pub fn packed_in(parameter: &str) -> usize {
    braces(parameter).map_or(1, |(_, (list, _))| list.split(',').count())
}

/// What stands before, in and behind a name's braces.
fn braces(parameter: &str) -> Option<(&str, (&str, &str))> {
    let (before, rest) = parameter.split_once('{')?;
    Some((before, rest.split_once('}')?))
}

/// Names under which a file may hold the tensor `name`, the most usual first.
pub fn candidates(name: &str, names: &HuggingFace) -> Vec<String> {
    let aliases = names.aliases.iter().filter(|(_, ours)| *ours == name).map(|(other, _)| *other);
    let mut found = Vec::new();
    for full in std::iter::once(name).chain(aliases) {
        let bare = full.strip_prefix(names.prefix).filter(|_| !names.prefix.is_empty());
        for spelled in std::iter::once(full).chain(bare) {
            found.push(spelled.to_string());
            found.extend(old_norm_name(spelled));
        }
    }
    found
}

/// The first BERT called a norm's weight and bias gamma and beta.
fn old_norm_name(name: &str) -> Option<String> {
    let weight = name.strip_suffix("LayerNorm.weight").map(|path| format!("{path}LayerNorm.gamma"));
    weight.or_else(|| name.strip_suffix("LayerNorm.bias").map(|path| format!("{path}LayerNorm.beta")))
}

/// Whether a file's tensor is one that is read over.
pub fn is_ignored(tensor: &str, names: &HuggingFace) -> bool {
    let full = format!("{}{tensor}", names.prefix);
    names.ignored.iter().any(|start| tensor.starts_with(start) || full.starts_with(start))
}

pub fn is_fresh(name: &str, names: &HuggingFace) -> bool {
    names.fresh.iter().any(|start| name.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) const BERT: HuggingFace = HuggingFace {
        architecture: "BertForSequenceClassification",
        model_type: "bert",
        prefix: "bert.",
        aliases: &[("tied.weight", "bert.w.weight")],
        ignored: &["cls.", "bert.embeddings.position_ids"],
        fresh: &["classifier."],
    };

    #[test]
    fn braces_expand_in_order() {
        assert_eq!(expand("a.{q,k,v}.w"), ["a.q.w", "a.k.w", "a.v.w"]);
        assert_eq!(expand("a.w"), ["a.w"]);
        assert_eq!(expand("a.{w"), ["a.{w"]);
        assert!(["a.{q,k,v}.w", "a.w", "a.{w"].iter().all(|name| packed_in(name) == expand(name).len()));
    }

    #[test]
    fn prefixes_aliases_and_old_names_are_tried() {
        assert_eq!(candidates("bert.w.weight", &BERT), ["bert.w.weight", "w.weight", "tied.weight"]);
        assert_eq!(
            candidates("bert.a.LayerNorm.weight", &BERT),
            ["bert.a.LayerNorm.weight", "bert.a.LayerNorm.gamma", "a.LayerNorm.weight", "a.LayerNorm.gamma"]
        );
    }

    #[test]
    fn a_bare_model_ignores_the_same_names() {
        assert!(is_ignored("embeddings.position_ids", &BERT) && is_ignored("bert.embeddings.position_ids", &BERT));
        assert!(is_ignored("cls.predictions.bias", &BERT) && !is_ignored("classifier.bias", &BERT));
    }
}
