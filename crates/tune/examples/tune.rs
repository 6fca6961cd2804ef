//! Drives studies from scripts: for comparing with Optuna and for working on one storage together with it.
//!
//!     tune optimize STORAGE STUDY TRIALS [SLEEP_MS]   run trials of a built-in objective, until so many have ended
//!     tune show STORAGE STUDY                         the study as JSON
//!     tune enqueue STORAGE STUDY X                    put a trial with x = X in line
//!     tune answer                                     suggestions over standard input and output, nothing stored
//!     tune time TRIALS DIMENSIONS                     milliseconds per suggestion after so many trials
//!     tune replay STUDY.json FACTOR                   ASHA on the recorded curves of a study that ran all to their end

use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use plimsoll_tune::pruners::{Asha, Median};
use plimsoll_tune::samplers::{BruteForce, CmaEs, History, Nsga2, Random, Sampler, Sobol, Tpe};
use plimsoll_tune::{
    Attributes, Condition, Direction, Distribution, Error, Json, Outcome, Param, Point, Rng, Space, State, Study,
    Trial, Value, storage,
};

type Answer = Result<(), Box<dyn std::error::Error>>;

/// A worker that says nothing for so long is dead, and its trial is taken over.
const GRACE: f64 = 3.0;

fn main() -> Answer {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["optimize", storage, study, trials] => optimize(storage, study, trials.parse()?, 0),
        ["optimize", storage, study, trials, sleep] => optimize(storage, study, trials.parse()?, sleep.parse()?),
        ["show", storage, study] => show(storage, study),
        ["enqueue", storage, study, x] => enqueue(storage, study, x.parse()?),
        ["answer"] => answer(),
        ["time", trials, dimensions] => time(trials.parse()?, dimensions.parse()?),
        ["replay", file, factor] => replay(file, factor.parse()?),
        _ => Err("see the top of examples/tune.rs".into()),
    }
}

fn space() -> Result<Space, Error> {
    let mut space = Space::new();
    space.add("kind", Distribution::categorical(vec!["sgd".into(), "adamw".into(), Value::Null])?)?;
    space.add("x", Distribution::float(-5.0, 5.0)?)?;
    space.add("lr", Distribution::log_float(1e-6, 1e-1)?)?;
    space.add("length", Distribution::int_steps(128, 512, 32)?)?;
    let only_sgd = Condition { parameter: "kind".into(), any_of: vec!["sgd".into()] };
    space.add_when("momentum", Distribution::float_steps(0.0, 0.9, 0.1)?, vec![only_sgd])?;
    Ok(space)
}

fn loss(params: &BTreeMap<String, Value>) -> f64 {
    let number = |name: &str| params.get(name).and_then(Value::as_f64).unwrap_or(0.0);
    let kind = if params.get("kind").and_then(Value::as_text) == Some("adamw") { 0.0 } else { 1.0 };
    (number("x") - 1.0).powi(2) + (number("lr").ln() + 7.0).powi(2) + kind + number("length") / 512.0
}

fn open(address: &str, name: &str) -> Result<Study, Error> {
    // Of workers that start at once, one creates the study and the others find it.
    for _ in 0..50 {
        match Study::open(storage::open(address)?, name, &[Direction::Minimize], space()?) {
            Err(Error::Input(cause)) if cause.contains("right now") => std::thread::sleep(Duration::from_millis(50)),
            study => return Ok(study?.with_pruner(Median::default()).as_worker()),
        }
    }
    Err(Error::Input(format!("study {name} cannot be opened")))
}

/// Works until `wanted` trials have ended in the whole study; what other workers left behind comes first.
fn optimize(address: &str, name: &str, wanted: usize, sleep: u64) -> Answer {
    let mut study = open(address, name)?.with_at_most(wanted);
    loop {
        let trials = study.trials()?;
        let ended = trials.iter().filter(|trial| trial.state.is_finished()).count();
        let open = trials.iter().filter(|trial| !trial.state.is_finished()).count();
        if ended >= wanted {
            return Ok(());
        }
        let next = match study.take_over_stale(GRACE, |_| false)? {
            Some(orphan) => Some(orphan),
            None => study.claim_waiting()?,
        };
        match next {
            Some(asked) => work(&mut study, &asked, sleep)?,
            None if ended + open < wanted => match study.ask()? {
                Some(asked) => work(&mut study, &asked, sleep)?,
                None if study.trials()?.len() < wanted => return Ok(()),
                // Others have begun the last ones.
                None => std::thread::sleep(Duration::from_millis(100)),
            },
            None => std::thread::sleep(Duration::from_millis(100)),
        }
    }
}

fn work(study: &mut Study, asked: &plimsoll_tune::Asked, sleep: u64) -> Answer {
    match run(study, asked, sleep) {
        // Another worker thought this one dead, and has the trial now.
        Err(Error::TrialTakenOver(_) | Error::TrialEnded(_)) => Ok(()),
        other => Ok(other?),
    }
}

fn run(study: &mut Study, asked: &plimsoll_tune::Asked, sleep: u64) -> Result<(), Error> {
    let (id, loss) = (asked.id, loss(&asked.params));
    study.heartbeat(id)?;
    study.set_user_attr(id, "peak_memory_gb", Json::Float(loss))?;
    for step in asked.reached.map_or(0, |step| step + 1)..4 {
        std::thread::sleep(Duration::from_millis(sleep));
        let value = if asked.number % 7 == 3 && step == 0 { f64::NAN } else { loss + 4.0 - step as f64 };
        study.report(id, step, value)?;
        if study.should_prune(id)? {
            return study.tell(id, &Outcome::Pruned);
        }
    }
    if asked.number % 11 == 5 {
        study.set_constraint(id, "memory", 0.5)?;
    }
    let value = if asked.number % 13 == 6 { f64::INFINITY } else { loss };
    study.tell(id, &Outcome::Complete(vec![value]))
}

fn show(address: &str, name: &str) -> Answer {
    let mut study = Study::load(storage::open(address)?, name, space()?)?;
    let trials = study.trials()?;
    let described: Vec<Json> = trials.iter().map(|trial| describe(trial)).collect();
    println!("{}", Json::Array(described));
    Ok(())
}

fn describe(trial: &Trial) -> Json {
    let params = trial.params.iter().map(|(name, param)| (name, param.value().to_json()));
    let reports = trial.intermediate.iter().map(|(step, value)| (step.to_string(), Json::Float(*value)));
    let attrs = |attrs: &Attributes| Json::Object(attrs.clone().into_iter().collect());
    Json::object([
        ("number", Json::Int(trial.number as i64)),
        ("state", Json::Int(trial.state as i64)),
        ("values", trial.values.as_deref().map_or(Json::Null, Json::floats)),
        ("params", Json::object(params)),
        ("intermediate", Json::object(reports)),
        ("user_attrs", attrs(&trial.user_attrs)),
        ("started", trial.started.map_or(Json::Null, |at| Json::Text(at.to_iso()))),
        ("completed", trial.completed.map_or(Json::Null, |at| Json::Text(at.to_iso()))),
    ])
}

fn enqueue(address: &str, name: &str, x: f64) -> Answer {
    let mut study = open(address, name)?;
    Ok(study.enqueue(&BTreeMap::from([("x".to_string(), Value::Float(x))]), Attributes::new())?)
}

/// First line: `{"sampler":…,"seed":…,"directions":[1],"space":{NAME:"DISTRIBUTION",…}}`. Then one line of values in
/// for every line of internal numbers out.
fn answer() -> Answer {
    let mut lines = std::io::stdin().lock().lines();
    let task = Json::parse(&lines.next().ok_or("no task")??)?;
    let mut space = Space::new();
    for (name, text) in task.get("space").and_then(Json::as_object).ok_or("no space")? {
        space.add(name, Distribution::from_json(&Json::parse(text.as_str().ok_or("no distribution")?)?)?)?;
    }
    let seed = task.get("seed").and_then(Json::as_i64).unwrap_or(0) as u64;
    let codes = task.get("directions").and_then(Json::as_array).ok_or("no directions")?;
    let directions: Vec<Direction> =
        codes.iter().filter_map(|code| code.as_i64().and_then(Direction::from_code)).collect();
    let mut sampler = sampler(task.get("sampler").and_then(Json::as_str).unwrap_or("tpe"), seed);
    let mut trials: Vec<Arc<Trial>> = Vec::new();
    loop {
        let mut rng = Rng::stream(&[seed, trials.len() as u64]);
        let history = History { directions: &directions, trials: &trials };
        let suggestion = sampler.suggest(&history, &space, &Point::new(), &mut rng);
        let point = Json::object(suggestion.point.iter().map(|(name, internal)| (name, Json::Float(*internal))));
        println!("{point}");
        std::io::stdout().flush()?;
        let Some(line) = lines.next() else { return Ok(()) };
        let values = Json::parse(&line?)?;
        let mut trial = trial_at(&space, suggestion.point, trials.len());
        trial.values = values.as_array().map(|values| values.iter().filter_map(Json::as_f64).collect());
        trial.system_attrs.extend(suggestion.system_attrs);
        trials.push(Arc::new(trial));
    }
}

fn sampler(name: &str, seed: u64) -> Box<dyn Sampler> {
    match name {
        "random" => Box::new(Random),
        "sobol" => Box::new(Sobol::new(seed)),
        "cma-es" => Box::new(CmaEs::default()),
        "nsga2" => Box::new(Nsga2::default()),
        "brute-force" => Box::new(BruteForce),
        _ => Box::new(Tpe::default()),
    }
}

fn trial_at(space: &Space, point: Point, number: usize) -> Trial {
    let mut trial = Trial::new(number as i64, number as u64, State::Complete);
    for (name, internal) in point {
        if let Some(known) = space.get(&name) {
            trial.params.insert(name, Param { internal, distribution: known.distribution.clone() });
        }
    }
    trial
}

/// The curves of `study --json`, each with what its trial cost in seconds; trials come in their order, one at a time, and
/// what has earned to go on goes first.
fn replay(file: &str, factor: i64) -> Answer {
    let recorded = Json::parse(&std::fs::read_to_string(file)?)?;
    let maximized =
        recorded.get("directions").and_then(Json::as_array).and_then(|all| all.first()?.as_str()) == Some("maximize");
    let direction = if maximized { Direction::Maximize } else { Direction::Minimize };
    let trials = recorded.get("trials").and_then(Json::as_array).ok_or("no trials")?;
    let curves: Vec<(Vec<f64>, f64)> = trials.iter().filter_map(curve).collect();
    let folder = std::env::temp_dir().join(format!("plimsoll-replay-{}", std::process::id()));
    let mut space = Space::new();
    space.add("trial", Distribution::int(0, curves.len() as i64 - 1)?)?;
    let journal = storage::open(&format!("journal:{}", folder.display()))?;
    let asha = Asha { min_resource: 1, reduction_factor: factor, skip: 0 };
    let mut study = Study::create(journal, "replay", &[direction], space)?.with_pruner(asha);
    let (mut next, mut seconds, mut found) = (0, 0.0, f64::INFINITY);
    loop {
        let asked = match study.promote()? {
            Some(asked) => asked,
            None if next < curves.len() => {
                next += 1;
                let point = Point::from([("trial".to_string(), next as f64 - 1.0)]);
                study.begin(&point.into(), Attributes::new())?
            }
            None => break,
        };
        let (values, cost) = &curves[asked.number as usize];
        let mut paused = false;
        for step in asked.reached.map_or(0, |step| step as usize)..values.len() {
            seconds += cost / values.len() as f64;
            study.report(asked.id, step as i64 + 1, values[step])?;
            found = found.min(direction.loss(values[step]));
            if step + 1 < values.len() && study.should_prune(asked.id)? {
                study.pause(asked.id)?;
                paused = true;
                break;
            }
        }
        if !paused {
            study.tell(asked.id, &Outcome::Complete(vec![values[values.len() - 1]]))?;
        }
    }
    let all: f64 = curves.iter().map(|(_, cost)| cost).sum();
    let best =
        curves.iter().flat_map(|(values, _)| values).map(|value| direction.loss(*value)).fold(f64::INFINITY, f64::min);
    std::fs::remove_file(&folder)?;
    let answer = Json::object([
        ("trials", Json::Int(curves.len() as i64)),
        ("factor", Json::Int(factor)),
        ("best_of_all", direction.loss(best).into()),
        ("best_of_asha", direction.loss(found).into()),
        ("worse_by", ((found - best) / best.abs()).into()),
        ("seconds_of_all", all.into()),
        ("seconds_of_asha", seconds.into()),
        ("share", (seconds / all).into()),
    ]);
    println!("{answer}");
    Ok(())
}

/// Reports in order and the seconds of the training; none where a trial did not run to its end.
fn curve(trial: &Json) -> Option<(Vec<f64>, f64)> {
    let reports = trial.get("intermediate")?.as_object()?;
    let mut values: Vec<(i64, f64)> =
        reports.iter().filter_map(|(step, value)| Some((step.parse().ok()?, value.as_f64()?))).collect();
    values.sort_by_key(|(step, _)| *step);
    let seconds = trial.get("user_attrs")?.get("seconds")?.as_f64()?;
    let complete = trial.get("state")?.as_str()? == "complete" && !values.is_empty();
    let copied = trial.get("user_attrs")?.get("same_as").is_some();
    (complete && !copied).then(|| (values.into_iter().map(|(_, value)| value).collect(), seconds))
}

fn time(count: usize, dimensions: usize) -> Answer {
    let mut space = Space::new();
    for dimension in 0..dimensions {
        space.add(&format!("x{dimension}"), Distribution::float(-5.0, 5.0)?)?;
    }
    let mut rng = Rng::new(1);
    let trials: Vec<Arc<Trial>> = (0..count)
        .map(|number| {
            let point = space.walk(|_| rng.uniform_in(-5.0, 5.0));
            let mut trial = trial_at(&space, point, number);
            trial.values = Some(vec![trial.params.values().map(|param| param.internal.powi(2)).sum()]);
            Arc::new(trial)
        })
        .collect();
    let history = History { directions: &[Direction::Minimize], trials: &trials };
    let mut times: Vec<f64> = (0..101)
        .map(|_| {
            let began = Instant::now();
            std::hint::black_box(Tpe::default().suggest(&history, &space, &Point::new(), &mut rng));
            began.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    times.sort_by(f64::total_cmp);
    println!("{}", Json::object([("median_ms", times[50].into()), ("best_ms", times[0].into())]));
    Ok(())
}
