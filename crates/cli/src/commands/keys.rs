//! `plimsoll keys`: every key of a recipe, what it may be, its default and what it means.

use crate::failure::Failure;
use crate::flags::table;
use crate::printer::{self, Paint};
use clap::Args;
use plimsoll_base::names::nearest;
use plimsoll_models::recipe::reference::{self, Key};

#[derive(Args)]
pub(crate) struct Arguments {
    /// Only keys that start with this, whole (train.optimizer) or in part (lr)
    prefix: Option<String>,
    /// One JSON value on stdout
    #[arg(long)]
    json: bool,
    /// The page docs/recipe.md
    #[arg(long, hide = true, conflicts_with_all = ["json", "schema", "prefix"])]
    markdown: bool,
    /// The file recipe.schema.json
    #[arg(long, hide = true, conflicts_with_all = ["json", "prefix"])]
    schema: bool,
    /// What a setting is called here that other tools call NAME: --from per_device_train_batch_size
    #[arg(long, value_name = "NAME", conflicts_with_all = ["json", "schema", "markdown", "prefix"])]
    from: Option<String>,
    /// The page docs/flags.md
    #[arg(long, hide = true, conflicts_with_all = ["json", "schema", "markdown", "prefix", "from"])]
    flags: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    if let Some(name) = &arguments.from {
        let rows = table::find(name)?;
        printer::out(&rows.into_iter().map(table::text).collect::<String>())?;
        return Ok(());
    }
    if arguments.flags {
        printer::out(&table::markdown())?;
        return Ok(());
    }
    let keys = reference::keys()?;
    if arguments.markdown {
        printer::out(&reference::markdown(&keys))?;
        return Ok(());
    }
    if arguments.schema {
        printer::pretty_json(&reference::schema(&keys))?;
        return Ok(());
    }
    let shown = match &arguments.prefix {
        Some(prefix) => chosen(&keys, prefix)?,
        None => keys.iter().collect(),
    };
    if arguments.json {
        printer::json(&shown)?;
        return Ok(());
    }
    printer::out(&text(&shown, Paint::stdout()))?;
    Ok(())
}

/// The keys whose path starts with `prefix` or, if there are none, those with a part that does.
fn chosen<'a>(keys: &'a [Key], prefix: &str) -> Result<Vec<&'a Key>, Failure> {
    let prefix = prefix.trim_matches(['[', ']']);
    let whole: Vec<&Key> = keys.iter().filter(|key| key.key.starts_with(prefix)).collect();
    if !whole.is_empty() {
        return Ok(whole);
    }
    let in_part = |key: &&Key| key.key.split('.').any(|part| part.starts_with(prefix));
    let parts: Vec<&Key> = keys.iter().filter(in_part).collect();
    if parts.is_empty() { Err(unknown(keys, prefix)) } else { Ok(parts) }
}

fn unknown(keys: &[Key], prefix: &str) -> Failure {
    let names = keys.iter().flat_map(|key| key.key.split('.').chain([key.key.as_str()]));
    let hint = match nearest(prefix, names) {
        Some(near) => format!("did you mean `{near}`?"),
        None => "`plimsoll keys` lists all of them".into(),
    };
    Failure::bad_input(format!("no key of a recipe starts with `{prefix}`"), hint)
}

/// Two or three lines per key: what it may be and its default, what it means, what it applies to.
fn text(keys: &[&Key], paint: Paint) -> String {
    keys.iter().map(|key| entry(key, paint)).collect()
}

fn entry(key: &Key, paint: Paint) -> String {
    let kinds: Vec<String> = key.kinds().iter().map(ToString::to_string).collect();
    let default = if key.required { "required".into() } else { format!("default: {}", key.default_words()) };
    let scope = match key.scope() {
        scope if scope.is_empty() => String::new(),
        scope => format!("    only of {scope}\n"),
    };
    format!("{}\n    {}\n    {default}\n    {}\n{scope}", paint.bold(&key.key), kinds.join("; or "), key.about)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_whole_and_in_part_and_strangers_get_a_hint() {
        let keys = reference::keys().unwrap();
        let found = |prefix: &str| chosen(&keys, prefix).map(|keys| keys.len());
        assert!(found("memory").unwrap() >= 10);
        assert_eq!(found("[memory]"), found("memory"));
        assert_eq!(chosen(&keys, "lr").unwrap()[0].key, "train.optimizer.lr");
        let failure = chosen(&keys, "memry").map(|_| ()).unwrap_err();
        assert!(failure.hints[0].contains("memory"), "{:?}", failure.hints);
    }
}
