//! Questions on a terminal, for whoever gave no flags.

use super::Arguments;
use crate::commands::presets::family;
use crate::failure::Failure;
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::PathBuf;

/// The arguments with the answers; refused where nobody can answer.
pub(super) fn questions(arguments: &Arguments) -> Result<Arguments, Failure> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        let hint = "give --data FILE, --checkpoint DIR or --family NAME; on a terminal `plimsoll init` asks";
        return Err(Failure::bad_input("nothing is said about the recipe to write", hint));
    }
    ask(arguments, &mut io::stdin().lock(), &mut io::stderr().lock())
}

fn ask(arguments: &Arguments, input: &mut impl BufRead, output: &mut impl Write) -> Result<Arguments, Failure> {
    let mut question = |text: &str| answer(text, input, output);
    let data = question("Data to learn from, a file or a folder of images (empty: data made by code): ")?;
    let checkpoint = question("Hugging Face folder to start from (empty: none): ")?;
    let named = question("Architecture, such as bert or t5 (empty: what suits): ")?;
    let out = question(&format!("Recipe to write (empty: {}): ", arguments.out.display()))?;
    let family = named.map(|name| family(&name)).transpose();
    Ok(Arguments {
        data: data.map(PathBuf::from),
        format: arguments.format,
        checkpoint: checkpoint.map(PathBuf::from),
        family: family.map_err(|cause| Failure::bad_input("this architecture is not known", cause))?,
        out: out.map_or_else(|| arguments.out.clone(), PathBuf::from),
        json: arguments.json,
    })
}

/// One line, `None` where it is empty.
fn answer(question: &str, input: &mut impl BufRead, output: &mut impl Write) -> Result<Option<String>, Failure> {
    let mut line = String::new();
    let read = write!(output, "{question}").and_then(|()| output.flush()).and_then(|()| input.read_line(&mut line));
    match read {
        Ok(0) => Err(Failure::bad_input("no answer came", "answer with Enter for what is proposed")),
        Ok(_) => Ok(Some(line.trim().to_string()).filter(|line| !line.is_empty())),
        Err(cause) => Err(Failure::failed(format!("the terminal cannot be read: {cause}"), "give flags instead")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nothing() -> Arguments {
        Arguments { data: None, format: None, checkpoint: None, family: None, out: "recipe.toml".into(), json: false }
    }

    #[test]
    fn answers_become_arguments_and_empty_ones_leave_what_was_proposed() {
        let answers = "data/a.csv\n\nt5\n\n";
        let asked = ask(&nothing(), &mut answers.as_bytes(), &mut Vec::new()).ok().unwrap();
        assert_eq!(asked.data, Some("data/a.csv".into()));
        assert_eq!((asked.checkpoint, asked.family.unwrap().to_string()), (None, "t5".into()));
        assert_eq!(asked.out, PathBuf::from("recipe.toml"));
    }

    #[test]
    fn an_unknown_architecture_and_an_end_of_input_are_refused() {
        for answers in ["\n\nbart\n\n", "a.csv\n"] {
            assert!(ask(&nothing(), &mut answers.as_bytes(), &mut Vec::new()).is_err());
        }
    }
}
