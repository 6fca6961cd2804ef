//! One line of a recipe.

pub(super) struct Setting {
    /// Dotted.
    pub key: &'static str,
    /// In TOML.
    pub value: String,
    /// Only shown: the user has to provide it.
    pub commented_out: bool,
    /// What there is to say here, beside what the key means.
    pub remark: Option<&'static str>,
}

pub(super) fn set(key: &'static str, value: impl ToString) -> Setting {
    Setting { key, value: value.to_string(), commented_out: false, remark: None }
}

pub(super) fn set_text(key: &'static str, text: &str) -> Setting {
    set(key, quoted(text))
}

pub(super) fn set_texts<'a>(key: &'static str, texts: impl Iterator<Item = &'a str>) -> Setting {
    set(key, format!("[{}]", texts.map(quoted).collect::<Vec<_>>().join(", ")))
}

/// JSON's escapes are TOML's, too, which wants one more character escaped.
pub(super) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string().replace('\u{7f}', "\\u007F")
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_models::recipe::Draft;

    /// Whatever a column or a file is called, the recipe says it and nothing else.
    #[test]
    fn every_name_survives_being_quoted() {
        let odd = (0..0xa0u32).chain([0xe9, 0x2028, 0xfeff, 0xfffd, 0x1f600]).filter_map(char::from_u32);
        for name in odd.map(|c| format!("a{c}\"{c}\\")) {
            let text = format!("name = {}\n", quoted(&name));
            let read = Draft::of_text(&text, "a.toml").strings().unwrap_or_else(|error| panic!("{name:?}: {error}"));
            assert_eq!(read, [("name".to_string(), name)]);
        }
    }
}
