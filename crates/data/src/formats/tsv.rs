//! Values between tabs, quoted where they have to be, as spreadsheets write them; also where the file is called `.csv`.

use super::csv::Separated;

pub(super) const FORMAT: Separated = Separated(b'\t');

#[cfg(test)]
mod tests {
    use crate::formats::table::tests::read;

    #[test]
    fn tabs_separate_whatever_the_file_is_called() {
        let content = "price\t\"name, or not\"\tlabel\r\n1.5\t\"a\tb\"\tup\r\n2.5\tc\tdown\r\n";
        for name in ["a.tsv", "a.TAB", "a.csv"] {
            let table = read(name, content, Some(&["price"]), &["label"]).unwrap();
            assert_eq!(table.numbers("price").unwrap(), [1.5, 2.5], "{name}");
        }
    }

    #[test]
    fn a_tab_among_commas_separates_nothing() {
        let table = read("a.csv", "a\tb,\"c\td\"\n1,2\n", Some(&["a\tb"]), &[]).unwrap();
        assert_eq!(table.numbers("a\tb").unwrap(), [1.0]);
        let error = read("a.tsv", "a\tb\n1\t2\n3\n", None, &[]).unwrap_err();
        assert!(error.to_string().ends_with("a.tsv: line 3: 1 cells where the header has 2"), "{error}");
    }
}
