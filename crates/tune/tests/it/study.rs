//! What a driver relies on, on every storage that needs no server: a study is asked, told, stopped and continued.

use std::collections::BTreeMap;
use std::path::Path;

use plimsoll_tune::pruners::Asha;
use plimsoll_tune::samplers::Random;
use plimsoll_tune::storage;
use plimsoll_tune::{Attributes, Condition, Direction, Distribution, Error, Outcome, Space, State, Study, Value};

fn space() -> Space {
    let mut space = Space::new();
    space.add("kind", Distribution::categorical(vec!["a".into(), "b".into()]).unwrap()).unwrap();
    space.add("x", Distribution::float(-5.0, 5.0).unwrap()).unwrap();
    let only_a = Condition { parameter: "kind".into(), any_of: vec!["a".into()] };
    space.add_when("n", Distribution::int(1, 8).unwrap(), vec![only_a]).unwrap();
    space
}

fn addresses(folder: &Path) -> Vec<String> {
    let path = folder.display();
    vec![format!("journal:{path}/study.log"), format!("sqlite:{path}/study.db")]
}

fn open(address: &str) -> Study {
    Study::open(storage::open(address).unwrap(), "s", &[Direction::Minimize], space()).unwrap().with_seed(4)
}

fn value_of(params: &BTreeMap<String, Value>) -> f64 {
    params["x"].as_f64().unwrap().powi(2)
}

/// Runs a trial to its end.
fn step(study: &mut Study) {
    let asked = study.ask().unwrap().unwrap();
    study.tell(asked.id, &Outcome::Complete(vec![value_of(&asked.params)])).unwrap();
}

#[test]
fn a_study_that_is_stopped_and_continued_tries_what_it_would_have_tried() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for (whole, parts) in addresses(one.path()).iter().zip(addresses(other.path())) {
        let mut study = open(whole);
        (0..25).for_each(|_| step(&mut study));
        for _ in 0..25 {
            step(&mut open(&parts));
        }
        let values = |study: &mut Study| study.trials().unwrap().iter().map(|t| t.point()).collect::<Vec<_>>();
        assert_eq!(values(&mut study), values(&mut open(&parts)));
    }
}

#[test]
fn an_enqueued_trial_comes_first_with_the_values_it_names() {
    let folder = tempfile::tempdir().unwrap();
    for address in addresses(folder.path()) {
        let mut study = open(&address);
        let wish = BTreeMap::from([("kind".to_string(), Value::from("a")), ("x".to_string(), Value::Float(0.5))]);
        study.enqueue(&wish, Attributes::new()).unwrap();
        let asked = study.ask().unwrap().unwrap();
        assert_eq!((&asked.params["kind"], &asked.params["x"]), (&Value::from("a"), &Value::Float(0.5)));
        assert!(asked.params.contains_key("n"));
        let outside = BTreeMap::from([("x".to_string(), Value::Float(7.0))]);
        assert!(study.enqueue(&outside, Attributes::new()).is_err());
        let unknown = BTreeMap::from([("y".to_string(), Value::Float(0.0))]);
        assert!(study.enqueue(&unknown, Attributes::new()).is_err());
    }
}

#[test]
fn a_study_made_for_another_space_is_refused_with_what_differs() {
    let folder = tempfile::tempdir().unwrap();
    for address in addresses(folder.path()) {
        open(&address);
        let mut other = Space::new();
        other.add("x", Distribution::float(-5.0, 6.0).unwrap()).unwrap();
        let error = Study::load(storage::open(&address).unwrap(), "s", other).err().unwrap().to_string();
        assert!(error.contains("- x: -5 … 5") && error.contains("+ x: -5 … 6"), "{error}");
        let missing = Study::load(storage::open(&address).unwrap(), "t", space());
        assert!(matches!(missing, Err(Error::NoSuchStudy { .. })));
        let again = Study::create(storage::open(&address).unwrap(), "s", &[Direction::Minimize], space());
        assert!(matches!(again, Err(Error::StudyExists(_))));
    }
}

#[test]
fn what_is_not_a_result_is_refused_and_infinities_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    for address in addresses(folder.path()) {
        let mut study = open(&address);
        let asked = study.ask().unwrap().unwrap();
        assert!(study.tell(asked.id, &Outcome::Complete(vec![f64::NAN])).is_err());
        assert!(study.tell(asked.id, &Outcome::Complete(vec![1.0, 2.0])).is_err());
        for (step, value) in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.1].into_iter().enumerate() {
            study.report(asked.id, step as i64, value).unwrap();
        }
        study.tell(asked.id, &Outcome::Complete(vec![f64::INFINITY])).unwrap();
        assert!(matches!(study.tell(asked.id, &Outcome::Failed), Err(Error::TrialEnded(0))));
        let trial = open(&address).trials().unwrap()[0].clone();
        assert_eq!(trial.values, Some(vec![f64::INFINITY]));
        assert!(trial.intermediate[&0].is_nan() && trial.intermediate[&2] == f64::NEG_INFINITY);
    }
}

#[test]
fn paused_trials_go_on_when_promoted_and_end_with_the_study() {
    let folder = tempfile::tempdir().unwrap();
    for address in addresses(folder.path()) {
        let asha = Asha { min_resource: 1, reduction_factor: 3, skip: 0 };
        let mut study = open(&address).with_sampler(Random).with_pruner(asha);
        for loss in [3.0, 1.0, 2.0] {
            assert!(study.promote().unwrap().is_none());
            let asked = study.ask().unwrap().unwrap();
            study.report(asked.id, 1, loss).unwrap();
            let stops = study.should_prune(asked.id).unwrap();
            assert!(stops, "with three at a rung only one goes on, and the best has paused before");
            study.pause(asked.id).unwrap();
        }
        let promoted = study.promote().unwrap().unwrap();
        assert_eq!((promoted.number, promoted.reached), (1, Some(1)));
        study.report(promoted.id, 3, 0.5).unwrap();
        study.tell(promoted.id, &Outcome::Complete(vec![0.5])).unwrap();
        assert_eq!(study.finish_paused().unwrap(), 2);
        let states: Vec<State> = study.trials().unwrap().iter().map(|trial| trial.state).collect();
        assert_eq!(states, [State::Pruned, State::Complete, State::Pruned]);
        assert_eq!(study.best().unwrap()[0].number, 1);
    }
}

#[test]
fn tables_of_another_schema_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("old.db");
    let address = format!("sqlite:{}", path.display());
    open(&address);
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection.execute("UPDATE alembic_version SET version_num = 'v2.6.0.a'", []).unwrap();
    let error = storage::open(&address).err().unwrap();
    assert!(matches!(error, Error::Schema { .. }), "{error}");
    assert!(storage::open("mysql://host").is_err());
}

/// Workers that look at once both see room for one more; only one of them makes it.
#[test]
fn no_worker_makes_more_trials_than_are_wanted() {
    let folder = tempfile::tempdir().unwrap();
    for address in addresses(folder.path()) {
        let [mut first, mut second] = [(), ()].map(|()| open(&address).with_sampler(Random).with_at_most(3));
        assert!(first.ask().unwrap().is_some() && second.ask().unwrap().is_some());
        // Both have seen two of three.
        let (mine, theirs) = (first.suggest().unwrap(), second.suggest().unwrap());
        assert!(first.begin(&mine, Attributes::new()).is_ok());
        assert!(matches!(second.begin(&theirs, Attributes::new()), Err(Error::StudyFull)));
        assert!(second.ask().unwrap().is_none());
        assert_eq!(first.trials().unwrap().len(), 3);
    }
}
