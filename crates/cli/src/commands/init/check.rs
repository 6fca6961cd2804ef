//! What is written must be what `plimsoll plan` accepts and, as far as can be seen, what `plimsoll train` does.

use super::Arguments;
use crate::failure::{Code, Failure};
use plimsoll_data::DataError;
use plimsoll_models::recipe::{Draft, RecipeError};
use plimsoll_train::RunError;
use plimsoll_train::tasks::{Look, look_at_data};

/// Reads the recipe as every command does, and its data where that is cheap.
pub(super) fn accepted(arguments: &Arguments, text: &str) -> Result<(), Failure> {
    let draft = Draft::of_text(text, &arguments.out.display().to_string());
    let recipe = draft.with(&[]).map_err(|error| unwritten(arguments, error))?;
    match look_at_data(&recipe) {
        Look::Broken(error) if !lacks_tokenizer(&error) => Err(error.into()),
        _ => Ok(()),
    }
}

/// The user is told to name one, and a plan needs none.
fn lacks_tokenizer(error: &RunError) -> bool {
    match error {
        RunError::Data(DataError::NoTokenizer { .. }) => true,
        RunError::Data(DataError::Unreadable { file, source }) => {
            file.ends_with("tokenizer.json") && source.kind() == std::io::ErrorKind::NotFound
        }
        _ => false,
    }
}

/// A line of a recipe that nobody will ever see says nothing: what is wrong is the data it is for.
fn unwritten(arguments: &Arguments, error: RecipeError) -> Failure {
    let RecipeError::Invalid(problems) = &error else { return error.into() };
    let about = arguments.data.as_ref().or(arguments.checkpoint.as_ref());
    let about = about.map_or(String::new(), |path| format!("{}: ", path.display()));
    let causes: Vec<String> = problems.findings().map(|found| format!("{}: {}", found.key, found.cause)).collect();
    let hints = problems.findings().filter_map(|found| Some(found.hint.or(found.allowed)?.to_string())).collect();
    let message = format!("{about}no recipe can be written for it: {}", causes.join("; "));
    Failure { code: Code::BadInput, message, hints }
}
