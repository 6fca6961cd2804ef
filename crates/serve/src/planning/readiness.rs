//! Whether a recipe can be trained here: a plan needs lengths and sizes, a training the files themselves.

use super::{Allowed, Checked};
use crate::problem::Finding;
use serde_json::Value;

/// Keys with files that a training reads.
const FILES: [&str; 3] = ["data.train", "data.validation", "data.tokenizer"];

/// The first file of the recipe that is not there.
pub(crate) fn missing_file(question: &Checked) -> Option<Finding> {
    let named = FILES.iter().filter_map(|key| Some((*key, question.settings.get(*key)?.as_str()?)));
    let mut missing = named.filter(|(_, path)| !question.recipe.resolve_path(path.as_ref()).exists());
    missing.next().map(|(key, path)| Finding {
        field: key.into(),
        error: format!("{path}: there is no such file in the data folder"),
        line: None,
        allowed: None,
        hint: Some("put it there, or name one that is: GET /files lists them".into()),
    })
}

/// What a look at the data found wrong with it. The key is that of the file which the sentence begins with.
pub(crate) fn unusable_data(question: &Checked, problem: &str, allowed: &Allowed) -> Finding {
    let names = |key: &&&str| {
        let path = question.settings.get(**key).and_then(Value::as_str);
        path.is_some_and(|path| problem.starts_with(&question.recipe.resolve_path(path.as_ref()).display().to_string()))
    };
    Finding {
        field: FILES.iter().find(names).unwrap_or(&FILES[0]).to_string(),
        error: allowed.without_folders(problem),
        line: None,
        allowed: None,
        hint: Some("correct the file, or what the recipe says of it under [data]".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planning::Question;
    use serde_json::json;

    const RECIPE: &str = include_str!("../../../../recipes/encoder.toml");

    #[test]
    fn the_file_that_is_missing_is_named_by_its_key() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let allowed = Allowed::new(root.clone(), root.clone());
        let missing = |set: &[&str]| {
            let question = json!({"recipe": RECIPE, "set": set});
            let checked = serde_json::from_value::<Question>(question).unwrap().check(&allowed).unwrap();
            missing_file(&checked).map(|finding| finding.field)
        };
        assert_eq!(missing(&[]).as_deref(), Some("data.train"));
        std::fs::create_dir(root.join("data")).unwrap();
        std::fs::write(root.join("data/train.jsonl"), "{}").unwrap();
        assert_eq!(missing(&[]).as_deref(), Some("data.tokenizer"));
        std::fs::write(root.join("data/tokenizer.json"), "{}").unwrap();
        assert_eq!(missing(&[]), None);
        assert_eq!(missing(&["data.validation=held.jsonl"]).as_deref(), Some("data.validation"));
    }
}
