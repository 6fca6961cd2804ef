use super::*;
use crate::space::Value;
use std::collections::BTreeMap;

fn journal() -> (tempfile::TempDir, Journal) {
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::open(folder.path().join("study.log")).unwrap();
    (folder, journal)
}

fn params() -> BTreeMap<String, crate::trial::Param> {
    let choices = vec![Value::Null, "bert-base".into(), 2i64.into(), f64::NAN.into()];
    let domains = [
        ("lr", Distribution::log_float(1e-6, 1e-2).unwrap(), 1e-4),
        ("model", Distribution::categorical(choices).unwrap(), 3.0),
        ("length", Distribution::int_steps(128, 512, 32).unwrap(), 160.0),
    ];
    let param = |(name, distribution, internal): (&str, Distribution, f64)| {
        (name.to_string(), crate::trial::Param { internal, distribution: Arc::new(distribution) })
    };
    domains.into_iter().map(param).collect()
}

#[test]
fn what_one_handle_writes_another_reads() {
    let (folder, mut first) = journal();
    let study = first.create_study("s", &[Direction::Minimize, Direction::Maximize]).unwrap();
    let id = first.create_trial(study, &NewTrial::running(params())).unwrap();
    let report = Change::Report { step: 3, value: f64::NEG_INFINITY };
    let attr = Change::UserAttr { key: "peak \"memory\" µ".into(), value: Json::floats(&[f64::INFINITY, 0.1]) };
    first.change(id, &[report, attr]).unwrap();
    first.finish(id, State::Complete, Some(&[f64::INFINITY, -0.0]), None).unwrap();
    let mut second = Journal::open(folder.path().join("study.log")).unwrap();
    assert_eq!(second.studies().unwrap(), first.studies().unwrap());
    assert_eq!(format!("{:?}", second.trials(study).unwrap()), format!("{:?}", first.trials(study).unwrap()));
    let trial = &second.trials(study).unwrap()[0];
    assert_eq!(trial.values, Some(vec![f64::INFINITY, -0.0]));
    assert_eq!(trial.params["length"].value(), Value::Int(160));
}

#[test]
fn a_torn_last_line_is_not_read_and_is_cut_off_by_the_next_writer() {
    let (folder, mut journal) = journal();
    let study = journal.create_study("s", &[Direction::Minimize]).unwrap();
    let path = folder.path().join("study.log");
    let whole = std::fs::read(&path).unwrap();
    for cut in 1..whole.len() {
        std::fs::write(&path, [&whole[..], &whole[..cut]].concat()).unwrap();
        let mut reader = Journal::open(&path).unwrap();
        assert_eq!(reader.studies().unwrap().len(), 1);
        reader.set_study_attr(study, "k", &Json::Int(cut as i64), false).unwrap();
        assert_eq!(reader.cut_bytes(), Some(cut as u64));
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.lines().all(|line| Json::parse(line).is_ok()));
    }
}

#[test]
fn a_damaged_line_is_named() {
    let (folder, mut journal) = journal();
    journal.create_study("s", &[Direction::Minimize]).unwrap();
    let path = folder.path().join("study.log");
    let mut text = std::fs::read_to_string(&path).unwrap();
    text.push_str("{\"op_code\":4,\"stu\n");
    std::fs::write(&path, text).unwrap();
    let error = Journal::open(&path).err().unwrap().to_string();
    assert!(error.contains("line 2"), "{error}");
}

#[test]
fn a_trial_that_ended_cannot_be_changed_or_ended_again() {
    let (_folder, mut journal) = journal();
    let study = journal.create_study("s", &[Direction::Minimize]).unwrap();
    let id = journal.create_trial(study, &NewTrial::running(params())).unwrap();
    journal.finish(id, State::Failed, None, None).unwrap();
    let report = [Change::Report { step: 0, value: 1.0 }];
    assert!(matches!(journal.change(id, &report), Err(Error::TrialEnded(0))));
    assert!(matches!(journal.finish(id, State::Complete, Some(&[1.0]), None), Err(Error::TrialEnded(0))));
}

#[test]
fn a_parameter_cannot_change_its_kind_within_a_study() {
    let (_folder, mut journal) = journal();
    let study = journal.create_study("s", &[Direction::Minimize]).unwrap();
    journal.create_trial(study, &NewTrial::running(params())).unwrap();
    let mut other = params();
    other.get_mut("lr").unwrap().distribution = Arc::new(Distribution::float(0.0, 1.0).unwrap());
    assert!(matches!(journal.create_trial(study, &NewTrial::running(other)), Err(Error::Input(_))));
    assert_eq!(journal.trials(study).unwrap().len(), 1);
}

#[test]
fn of_many_claimers_one_gets_a_waiting_trial() {
    let (folder, mut journal) = journal();
    let study = journal.create_study("s", &[Direction::Minimize]).unwrap();
    let ids: Vec<TrialId> = (0..20).map(|_| journal.create_trial(study, &NewTrial::waiting()).unwrap()).collect();
    let path = folder.path().join("study.log");
    let claimers: Vec<_> = (0..4)
        .map(|worker| {
            let (path, ids) = (path.clone(), ids.clone());
            std::thread::spawn(move || {
                let mut journal = Journal::open(path).unwrap();
                ids.iter().filter(|id| journal.claim(**id, &format!("w{worker}")).unwrap()).count()
            })
        })
        .collect();
    let claimed: usize = claimers.into_iter().map(|claimer| claimer.join().unwrap()).sum();
    assert_eq!(claimed, 20);
}

#[test]
fn a_lock_left_by_a_dead_writer_of_ours_costs_no_wait() {
    let (folder, mut journal) = journal();
    let path = folder.path().canonicalize().unwrap().join("study.log");
    let left = Lock::acquire(&path).unwrap().die();
    assert!(std::fs::symlink_metadata(&left).is_ok());
    let began = std::time::Instant::now();
    journal.create_study("s", &[Direction::Minimize]).unwrap();
    assert!(began.elapsed().as_secs() < 10);
}

#[test]
fn a_trial_of_a_silent_worker_is_taken_over_once_and_lost_to_its_old_owner() {
    let (_folder, mut journal) = journal();
    let study = journal.create_study("s", &[Direction::Minimize]).unwrap();
    let id = journal.create_trial(study, &NewTrial::waiting()).unwrap();
    assert!(journal.claim(id, "old").unwrap());
    std::thread::sleep(std::time::Duration::from_millis(30));
    assert_eq!(journal.stale(study, 0.01).unwrap(), [id]);
    assert!(journal.take_over(id, "new", 0.01).unwrap());
    assert!(!journal.take_over(id, "third", 5.0).unwrap());
    let lost = journal.finish(id, State::Complete, Some(&[1.0]), Some("old"));
    assert!(matches!(lost, Err(Error::TrialTakenOver(0))));
    journal.finish(id, State::Complete, Some(&[1.0]), Some("new")).unwrap();
}
