//! Studies of the search, in whichever file they are kept: the journal in a study's own folder, the storage that the
//! folder remembers, and SQLite files beside them. A file that has not changed is not read again; one that cannot be
//! read is listed with the reason, for it is there.

use plimsoll_tune::report::{self, StudyReport};
use plimsoll_tune::trials::StudyFolder;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

/// Studies that are listed.
const MOST_STUDIES: usize = 500;
/// Files that are looked at, and remembered.
const MOST_FILES: usize = 1000;
/// A file beyond this is not for a page.
const LARGEST: u64 = 256 << 20;
/// What a SQLite file begins with.
const SQLITE: &[u8] = b"SQLite format 3\0";

pub(crate) struct Studies {
    root: PathBuf,
    /// Folders besides that a storage may be in.
    within: Vec<PathBuf>,
    read: Mutex<HashMap<PathBuf, Kept>>,
}

/// A study by the name that it has here.
pub(crate) struct Listed {
    pub name: String,
    /// Its folder or file among the studies, which is a name for it, too.
    place: String,
    /// The same with the file's own name, which tells two files of one folder apart.
    file: String,
    /// What was found, or why nothing can be.
    pub found: Result<Arc<StudyReport>, String>,
}

type Found = Result<Vec<Arc<StudyReport>>, String>;

/// What was found in a file, and the state that it was found in.
#[derive(Clone)]
struct Kept {
    stamp: Stamp,
    found: Found,
}

/// Length and time of a file, and of what SQLite has not written into it yet.
type Stamp = [Option<(u64, SystemTime)>; 2];

/// A file with studies.
struct Source {
    kind: &'static str,
    path: PathBuf,
    place: String,
}

impl Studies {
    /// The folder need not be there yet; the others are canonical.
    pub(crate) fn new(root: &Path, within: Vec<PathBuf>) -> Studies {
        Studies { root: root.into(), within, read: Mutex::default() }
    }

    /// Every study, by name.
    pub(crate) fn all(&self) -> Vec<Listed> {
        let mut listed: Vec<Listed> = self.sources().into_iter().flat_map(|source| self.listed(source)).collect();
        tell_apart(&mut listed);
        listed.sort_by(|a, b| a.name.cmp(&b.name));
        listed.truncate(MOST_STUDIES);
        listed
    }

    /// A study by its name, or by that of its folder or file.
    pub(crate) fn find(&self, name: &str) -> Option<Listed> {
        let mut all = self.all();
        let found = all.iter().position(|study| study.name == name);
        found.or_else(|| all.iter().position(|study| study.place == name)).map(|at| all.swap_remove(at))
    }

    fn listed(&self, source: Result<Source, (String, String)>) -> Vec<Listed> {
        let source = match source {
            Ok(source) => source,
            Err((place, problem)) => {
                return vec![Listed { name: place.clone(), file: place.clone(), place, found: Err(problem) }];
            }
        };
        let listed = |name: &str, found: Result<Arc<StudyReport>, String>| Listed {
            name: name.into(),
            place: source.place.clone(),
            file: source.file(),
            found,
        };
        match self.read(&source) {
            Ok(studies) => studies.into_iter().map(|study| listed(&study.study.clone(), Ok(study))).collect(),
            Err(problem) => vec![listed(&source.place, Err(problem))],
        }
    }

    /// Each file once, by path; or the folder of a study, and why its file is not looked at.
    fn sources(&self) -> Vec<Result<Source, (String, String)>> {
        let Ok(root) = self.root.canonicalize() else { return Vec::new() };
        let mut names: Vec<String> = names_in(&root).collect();
        names.sort();
        let mut files = BTreeMap::new();
        let mut refused = Vec::new();
        for name in names.into_iter().take(MOST_FILES) {
            let path = root.join(&name);
            let inside = if path.is_dir() { files_of(&path) } else { databases(std::iter::once(path.clone())) };
            let inside = inside.into_iter().filter_map(|(kind, file)| Some((kind, file.canonicalize().ok()?)));
            // Links that lead out of the folder are no studies.
            files.extend(
                inside.filter(|(_, file)| file.starts_with(&root)).map(|(kind, file)| (file, (kind, name.clone()))),
            );
            match self.remembered(&root, &path) {
                Some(Ok((kind, file))) => _ = files.entry(file).or_insert((kind, name)),
                Some(Err(problem)) => refused.push(Err((name, problem))),
                None => {}
            }
        }
        let source = |(path, (kind, place))| Ok(Source { kind, path, place });
        files.into_iter().map(source).chain(refused).collect()
    }

    /// The file that a study's folder says it is kept in, if it may be read here.
    fn remembered(&self, root: &Path, folder: &Path) -> Option<Result<(&'static str, PathBuf), String>> {
        let address = StudyFolder::at(folder.into()).remembered()?;
        let (kind, path) = address.trim().split_once(':')?;
        let kind = ["journal", "sqlite"].into_iter().find(|known| *known == kind)?;
        let file = Path::new(path).canonicalize().ok();
        let Some(file) = file else { return Some(Err("the file that it was kept in is gone".into())) };
        let is_inside =
            [root].into_iter().chain(self.within.iter().map(PathBuf::as_path)).any(|at| file.starts_with(at));
        let outside = "it is kept in a file outside of the folders that this server may read (--studies, --data)";
        Some(if is_inside { Ok((kind, file)) } else { Err(outside.into()) })
    }

    fn read(&self, source: &Source) -> Found {
        let stamp = stamp(&source.path);
        let known = self.lock().get(&source.path).filter(|kept| kept.stamp == stamp).cloned();
        if let Some(kept) = known {
            return kept.found;
        }
        let found = source.read(stamp[0].map_or(0, |(length, _)| length));
        let mut kept = self.lock();
        if kept.len() >= 2 * MOST_FILES {
            kept.clear();
        }
        kept.insert(source.path.clone(), Kept { stamp, found: found.clone() });
        found
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<PathBuf, Kept>> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Source {
    /// `folder/file`; a file that lies among the studies by itself is its own place.
    fn file(&self) -> String {
        let name = self.path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if name == self.place { name } else { format!("{}/{name}", self.place) }
    }

    fn read(&self, length: u64) -> Found {
        if length > LARGEST {
            return Err("its file is too large for a page; `plimsoll study` shows it".into());
        }
        let address = format!("{}:{}", self.kind, self.path.display());
        let mut studies = report::all(&address).map_err(|error| {
            // Where the server keeps its files is nobody's business.
            let name = self.path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
            error.to_string().replace(&*self.path.display().to_string(), &name)
        })?;
        studies.iter_mut().for_each(|study| study.storage = self.kind.into());
        Ok(studies.into_iter().map(Arc::new).collect())
    }
}

fn names_in(folder: &Path) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| !name.starts_with('.')).take(MOST_FILES)
}

/// The journal of a study's folder, and databases that lie in it.
fn files_of(folder: &Path) -> Vec<(&'static str, PathBuf)> {
    let journal = StudyFolder::at(folder.into()).journal();
    let journal = Some(("journal", journal)).filter(|(_, path)| path.is_file());
    journal.into_iter().chain(databases(names_in(folder).map(|name| folder.join(name)))).collect()
}

/// Those that are SQLite's, and have studies in them.
fn databases(files: impl Iterator<Item = PathBuf>) -> Vec<(&'static str, PathBuf)> {
    let is_named_so =
        |path: &PathBuf| path.extension().is_some_and(|end| end == "db" || end == "sqlite" || end == "sqlite3");
    files.filter(is_named_so).filter(|path| is_sqlite(path)).map(|path| ("sqlite", path)).collect()
}

fn is_sqlite(path: &Path) -> bool {
    let mut start = [0u8; SQLITE.len()];
    let is_file = fs::metadata(path).is_ok_and(|there| there.is_file());
    is_file && fs::File::open(path).is_ok_and(|mut file| file.read_exact(&mut start).is_ok()) && start == SQLITE
}

fn stamp(path: &Path) -> Stamp {
    let of = |path: &Path| {
        let there = fs::metadata(path).ok()?;
        Some((there.len(), there.modified().ok()?))
    };
    let mut ahead = path.as_os_str().to_owned();
    ahead.push("-wal");
    [of(path), of(Path::new(&ahead))]
}

/// Studies of one name in several folders are called after those, too; in several files of one folder, after the files.
fn tell_apart(listed: &mut [Listed]) {
    let own: Vec<String> = listed.iter().map(|study| study.name.clone()).collect();
    for more in [|study: &Listed| study.place.clone(), |study: &Listed| study.file.clone()] {
        let mut counts: HashMap<String, usize> = HashMap::new();
        listed.iter().for_each(|study| *counts.entry(study.name.clone()).or_default() += 1);
        for (study, own) in listed.iter_mut().zip(&own).filter(|(study, _)| counts[&study.name] > 1) {
            study.name = format!("{own} ({})", more(study));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_tune::Direction;
    use plimsoll_tune::storage::{self, NewTrial};

    fn make(address: &str, names: &[&str]) {
        let mut storage = storage::open(address).unwrap();
        for name in names {
            let study = storage.create_study(name, &[Direction::Minimize]).unwrap();
            let trial = storage.create_trial(study, &NewTrial::running(BTreeMap::new())).unwrap();
            storage.finish(trial, plimsoll_tune::State::Complete, Some(&[0.5]), None).unwrap();
        }
    }

    fn names(studies: &Studies) -> Vec<String> {
        studies.all().into_iter().map(|study| study.name).collect()
    }

    #[test]
    fn studies_are_found_in_every_kind_of_file_under_their_own_names() {
        let dir = tempfile::tempdir().unwrap();
        let (root, data) = (dir.path().join("studies"), dir.path().join("data"));
        fs::create_dir_all(&data).unwrap();
        let studies = Studies::new(&root, vec![data.canonicalize().unwrap()]);
        assert!(studies.all().is_empty());
        let odd = ["plain", "a/b", "back\\slash", &"long ".repeat(60), ".dotted", "опыт"];
        for name in odd {
            let folder = StudyFolder::of(&root, name);
            folder.create().unwrap();
            make(&format!("journal:{}", folder.journal().display()), &[name]);
        }
        make(&format!("sqlite:{}", root.join("shared.db").display()), &["one", "two", "plain"]);
        make(&format!("sqlite:{}", data.join("elsewhere.db").display()), &["kept elsewhere"]);
        let folder = StudyFolder::of(&root, "kept elsewhere");
        folder.create().unwrap();
        fs::write(folder.path().join("storage"), format!("sqlite:{}", data.join("elsewhere.db").display())).unwrap();
        fs::write(root.join("notes.db"), "not a database").unwrap();
        let found = names(&studies);
        for name in odd[1..].iter().chain(&["one", "two", "kept elsewhere", "plain (plain)", "plain (shared.db)"]) {
            assert!(found.iter().any(|found| found == name), "{name}: {found:?}");
            let study = studies.find(name).unwrap().found.unwrap();
            assert_eq!(study.counts["complete"], 1, "{name}");
            assert!(["journal", "sqlite"].contains(&study.storage.as_str()), "{}", study.storage);
        }
        assert_eq!(found.len(), 10, "{found:?}");
        let by_folder = StudyFolder::of(&root, "a/b").path().file_name().unwrap().to_str().unwrap().to_string();
        assert_eq!(studies.find(&by_folder).unwrap().name, "a/b");
    }

    #[test]
    fn files_of_one_folder_with_studies_of_one_name_can_all_be_opened() {
        let dir = tempfile::tempdir().unwrap();
        let folder = StudyFolder::of(dir.path(), "x");
        folder.create().unwrap();
        make(&format!("journal:{}", folder.journal().display()), &["s"]);
        for file in ["a.db", "b.sqlite"] {
            make(&format!("sqlite:{}", folder.path().join(file).display()), &["s"]);
        }
        let studies = Studies::new(dir.path(), Vec::new());
        let found = names(&studies);
        assert_eq!(found, ["s (x/a.db)", "s (x/b.sqlite)", "s (x/journal.log)"]);
        let kinds = found.iter().map(|name| studies.find(name).unwrap().found.unwrap().storage.clone());
        assert_eq!(kinds.collect::<Vec<_>>(), ["sqlite", "sqlite", "journal"]);
    }

    #[test]
    fn what_cannot_be_read_is_listed_with_the_reason_and_hides_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("studies");
        let outside = dir.path().join("outside.db");
        let studies = Studies::new(&root, Vec::new());
        let folder = |name: &str| {
            let folder = StudyFolder::of(&root, name);
            folder.create().unwrap();
            folder
        };
        make(&format!("journal:{}", folder("good").journal().display()), &["good"]);
        fs::write(folder("damaged").journal(), "{\"op_code\":0}\nnot json\n").unwrap();
        make(&format!("sqlite:{}", outside.display()), &["outside"]);
        fs::write(folder("outside").path().join("storage"), format!("sqlite:{}", outside.display())).unwrap();
        fs::write(folder("gone").path().join("storage"), "sqlite:/nowhere/at/all.db").unwrap();
        fs::write(root.join("torn.db"), [SQLITE, &[7; 90]].concat()).unwrap();
        folder("empty");
        assert_eq!(names(&studies), ["damaged", "gone", "good", "outside", "torn.db"]);
        let problem = |name: &str| studies.find(name).unwrap().found.unwrap_err();
        assert!(problem("damaged").contains("journal.log, line 1"), "{}", problem("damaged"));
        assert!(problem("outside").contains("outside of the folders") && problem("gone").contains("gone"));
        for name in ["damaged", "outside", "torn.db"] {
            assert!(!problem(name).contains(dir.path().to_str().unwrap()), "{}", problem(name));
        }
        assert!(studies.find("good").unwrap().found.is_ok());
        fs::remove_file(folder("damaged").journal()).unwrap();
        make(&format!("journal:{}", folder("damaged").journal().display()), &["damaged"]);
        assert!(studies.find("damaged").unwrap().found.is_ok(), "it was mended");
    }

    #[test]
    fn no_damage_of_a_journal_stops_the_list() {
        let dir = tempfile::tempdir().unwrap();
        let folder = StudyFolder::of(dir.path(), "a");
        folder.create().unwrap();
        make(&format!("journal:{}", folder.journal().display()), &["a"]);
        let whole = fs::read_to_string(folder.journal()).unwrap();
        assert!(whole.contains("0.5"), "{whole}");
        let values = ["0.5,0.5", "", "null", "1e999", "-1e999", "\"x\"", "[0.5]", "{}"];
        let mut damaged: Vec<Vec<u8>> = values.iter().map(|value| whole.replace("0.5", value).into_bytes()).collect();
        for at in 0..whole.len() {
            let mut bytes = whole.clone().into_bytes();
            bytes[at] = [b'9', b'"', b'-', b'\n', 0xff][at % 5];
            damaged.push(bytes);
        }
        for bytes in damaged {
            fs::write(folder.journal(), &bytes).unwrap();
            // Another each time: one remembers files of the same length and time.
            let studies = Studies::new(dir.path(), Vec::new()).all();
            assert!(studies.len() <= 2, "{}", String::from_utf8_lossy(&bytes));
        }
    }
}
