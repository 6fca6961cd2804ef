//! Values between semicolons, as spreadsheets write CSV where the comma is for decimals. Files of this kind are called
//! `.csv` too, and known by their line of names. Decimal commas are not read as numbers: `1,234` may mean two things.

use super::csv::Separated;

pub(super) const FORMAT: Separated = Separated(b';');

#[cfg(test)]
mod tests {
    use crate::formats::table::{Selection, tests::read};
    use crate::{DataError, formats, formats::table::tests::file};
    use plimsoll_base::formats::Format;

    #[test]
    fn semicolons_are_seen_in_the_line_of_names_or_said() {
        let content = "\u{feff}\n\"price; old\";label\n1.5;\"up; soon\"\n2.5;down\n";
        let table = read("a.csv", content, Some(&["price; old"]), &["label"]).unwrap();
        assert_eq!(table.numbers("price; old").unwrap(), [1.5, 2.5]);
        // A comma among the names hides it, unless it is said.
        let content = "a,b;c\n1;2\n";
        assert!(matches!(read("a.csv", content, Some(&["c"]), &[]), Err(DataError::MissingColumn { .. })));
        let (_folder, path) = file("a.csv", content);
        let selection = Selection { numbers: Some(vec!["c".into()]), ..Selection::default() };
        let table = formats::table(&path, Some(Format::Semicolon), &selection).unwrap();
        assert_eq!(table.numbers("c").unwrap(), [2.0]);
    }

    #[test]
    fn decimal_commas_are_refused_by_place() {
        let error = read("a.csv", "a;b\n1;2\n1,5;2\n", None, &[]).unwrap_err();
        assert!(error.to_string().contains("line 3, column `a`: `1,5` is no number"), "{error}");
        // A column of nothing else is no column of words, which is left out.
        let error = read("a.csv", "day;price;n\nmon;1,5;1\ntue;2,5;2\n", None, &[]).unwrap_err();
        assert!(error.to_string().contains("2 places") && error.to_string().contains("column `price`"), "{error}");
        assert!(
            error.hint().contains("write 1.5 for 1,5") && error.hint().contains("data.columns"),
            "{}",
            error.hint()
        );
        assert!(read("a.csv", "day;price;n\nmon;1,5;1\n", Some(&["n"]), &[]).is_ok(), "nobody asks for it");
    }
}
