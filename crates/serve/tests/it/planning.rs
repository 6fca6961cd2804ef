//! Questions to the planner over HTTP.

use crate::desk::{Desk, QUICKSTART};
use crate::texts::fills;
use serde_json::json;

#[test]
fn a_plan_is_what_the_command_prints_and_more() {
    let desk = Desk::new();
    let answer = desk.post("/api/v1/plan", &json!({"recipe": QUICKSTART, "device": "cpu", "memory": "2GiB"}));
    assert_eq!(answer.status, 200, "{}", answer.text());
    let plan = answer.json();
    assert_eq!((plan["fits"].as_bool(), plan["effective_batch"].as_u64()), (Some(true), Some(64)));
    let sum: u64 = plan["breakdown"].as_object().unwrap().values().map(|bytes| bytes.as_u64().unwrap()).sum();
    assert_eq!(sum, plan["live_peak_bytes"].as_u64().unwrap());
    assert_eq!(plan["settings"]["train.effective_batch"], 64);
    assert!(plan["run_seconds"].as_f64().unwrap() > 0.0 && plan["settings"].get("dir").is_none());
    // The same recipe as an object.
    let table: toml::Table = toml::from_str(QUICKSTART).unwrap();
    let as_json = desk.post("/api/v1/plan", &json!({"recipe": table, "device": "cpu", "memory": "2GiB"}));
    assert_eq!(as_json.json()["arena_bytes"], plan["arena_bytes"]);
}

/// Less than the quickstart takes as it is, and more than it takes with a smaller batch.
fn tight_budget(desk: &Desk) -> u64 {
    let question = json!({"recipe": QUICKSTART, "device": "cpu", "memory": "2GiB", "quick": true});
    let plan = desk.post("/api/v1/plan", &question).json();
    plan["reserve_bytes"].as_u64().unwrap() + plan["arena_bytes"].as_u64().unwrap() * 6 / 10
}

#[test]
fn what_does_not_fit_says_how_it_would_and_cannot_be_started() {
    let desk = Desk::new();
    let budget = tight_budget(&desk);
    let question = json!({"recipe": QUICKSTART, "device": "cpu", "memory": budget.to_string()});
    let plan = desk.post("/api/v1/plan", &question).json();
    assert_eq!(plan["fits"], false);
    assert!(plan["smallest_budget_bytes"].as_u64().unwrap() > budget);
    assert!(!plan["ladder"].as_array().unwrap().is_empty() && !plan["hints"].as_array().unwrap().is_empty());
    let refused = desk.post("/api/v1/runs", &question);
    assert_eq!((refused.status, refused.json()["field"].as_str()), (409, Some("memory")), "{}", refused.text());
    assert_eq!(desk.get("/api/v1/queue").json(), json!([]));
    let card = desk.post("/api/v1/runs", &json!({"recipe": QUICKSTART, "device": "rtx-4090"}));
    assert_eq!((card.status, card.json()["field"].as_str()), (422, Some("device")));
}

#[test]
fn fields_have_bounds_and_what_is_outside_names_them() {
    let desk = Desk::new();
    let fields = desk.get("/api/v1/fields").json();
    let batch = fields.as_array().unwrap().iter().find(|field| field["name"] == "batch_size").unwrap();
    assert_eq!((&batch["default"], &batch["minimum"], &batch["maximum"]), (&json!(128), &json!(8.0), &json!(512.0)));
    assert!(fields.as_array().unwrap().iter().all(|field| !field["description"].as_str().unwrap().is_empty()));
    for field in fields.as_array().unwrap().iter().filter(|field| field.get("maximum").is_some()) {
        let (name, above) = (field["name"].as_str().unwrap(), field["maximum"].as_f64().unwrap() + 1.0);
        let answer = desk.post("/api/v1/plan", &json!({"recipe": QUICKSTART, "fields": {name: above}}));
        assert_eq!((answer.status, answer.json()["field"].as_str()), (422, Some(name)), "{}", answer.text());
        assert!(
            answer.json()["error"].as_str().unwrap().contains(&format!("to {}", field["maximum"].as_f64().unwrap()))
        );
    }
    let settings = |recipe: &str, fields: serde_json::Value| {
        let answer = desk.post("/api/v1/plan", &json!({"recipe": recipe, "device": "cpu", "fields": fields}));
        answer.json()["settings"].clone()
    };
    let told = settings(QUICKSTART, json!({"batch_size": 32, "sequence_length": 40, "epochs": null}));
    assert_eq!((&told["train.effective_batch"], &told["model.window"]), (&json!(32), &json!(40)));
    let told = settings(QUICKSTART, json!({"batch_size": 32, "gradient_accumulation_steps": 4}));
    assert_eq!(told["train.effective_batch"], 128);
    // The default holds where nothing is said, and nowhere else.
    let silent = QUICKSTART.replace("effective_batch = 64", "");
    assert_eq!(settings(&silent, json!({}))["train.effective_batch"], 128);
    assert_eq!(settings(&silent, json!({"batch_size": 16}))["train.effective_batch"], 16);
    assert_eq!(settings(QUICKSTART, json!({}))["train.effective_batch"], 64);
    assert_eq!(desk.post("/api/v1/plan", &json!({"recipe": silent})).status, 422);
}

#[test]
fn what_is_null_is_refused_in_words() {
    let desk = Desk::new();
    for (body, field, words) in [
        (json!({"recipe": null}), "recipe", "a recipe is TOML text"),
        (json!({"recipe": 7}), "recipe", "a recipe is TOML text"),
        (json!({"recipe": {"model": null}}), "recipe", "`model` is null"),
        (json!({"recipe": {"train": {"epochs": null}}}), "recipe", "`train.epochs` is null"),
        (json!({"recipe": QUICKSTART, "fields": {"epochs": []}}), "epochs", "an integer from 1 to 10000, not []"),
    ] {
        let answer = desk.post("/api/v1/plan", &body);
        assert_eq!((answer.status, answer.json()["field"].as_str()), (422, Some(field)), "{}", answer.text());
        assert!(answer.text().contains(words) && !answer.text().contains("untagged"), "{}", answer.text());
    }
}

#[test]
fn what_is_planned_without_its_data_is_not_trained_without_it() {
    let desk = Desk::new();
    let series = include_str!("../../../../recipes/hybrid-small.toml");
    let own = series.replace("source = \"synthetic:regimes\"", "train = \"rows.csv\"\nlabel = \"y\"");
    let own: String = own.lines().filter(|line| !line.starts_with("samples")).map(|line| format!("{line}\n")).collect();
    let question = |recipe: &str, set: &[&str]| json!({"recipe": recipe, "device": "cpu", "quick": true, "set": set});
    let asked = |question: &serde_json::Value, field: &str, words: &str| {
        let plan = desk.post("/api/v1/plan", question).json();
        assert_eq!((plan["fits"].as_bool(), plan["unready"]["field"].as_str()), (Some(true), Some(field)), "{plan}");
        let refused = desk.post("/api/v1/runs", question);
        assert_eq!((refused.status, refused.json()["field"].as_str()), (422, Some(field)), "{}", refused.text());
        assert!(refused.text().contains(words), "{}", refused.text());
        // Where the server keeps its files is nobody's business.
        let home = desk.folder.path().display().to_string();
        assert!(!refused.text().contains(&home) && !plan.to_string().contains(&home), "{}", refused.text());
    };
    asked(&question(&own, &[]), "data.train", "rows.csv: there is no such file");
    std::fs::write(desk.data().join("rows.csv"), "a,b\n1,2\n").unwrap();
    asked(&question(&own, &[]), "data.train", "rows.csv: no column `y`");
    asked(&question(&own, &["data.validation=held.csv"]), "data.validation", "held.csv: there is no such file");
    assert_eq!(desk.get("/api/v1/queue").json(), json!([]));
    let pretrained = "[model]\ncheckpoint = \"nowhere\"\n[data]\nsource = \"synthetic:sentiment\"\nsamples = 64\n\
                      [train]\ntask = \"classify\"\neffective_batch = 8\n";
    let gone = desk.post("/api/v1/plan", &question(pretrained, &[]));
    let home = desk.folder.path().display().to_string();
    assert!(gone.status == 422 && gone.text().contains("nowhere") && !gone.text().contains(&home), "{}", gone.text());
    let ready = desk.post("/api/v1/plan", &question(QUICKSTART, &[])).json();
    assert!(ready["fits"] == true && ready.get("unready").is_none(), "{ready}");
}

#[test]
fn a_file_that_arrives_is_looked_at_though_the_same_was_asked_before() {
    let desk = Desk::new();
    let encoder = include_str!("../../../../recipes/encoder.toml");
    let question = json!({"recipe": encoder, "device": "rtx-4090", "quick": true});
    std::fs::create_dir(desk.data().join("data")).unwrap();
    let unready = || {
        let plan = desk.post("/api/v1/plan", &question).json();
        plan["unready"]["error"].as_str().unwrap_or_else(|| panic!("{plan}")).to_string()
    };
    std::fs::write(desk.data().join("data/train.jsonl"), "{\"text\":\"a\",\"label\":\"b\"}\n").unwrap();
    assert!(unready().contains("tokenizer.json: there is no such file"), "{}", unready());
    std::fs::write(desk.data().join("data/tokenizer.json"), "{}").unwrap();
    let damaged = unready();
    assert!(damaged.contains("tokenizer.json") && !damaged.contains("no such file"), "{damaged}");
    assert!(!damaged.to_lowercase().contains("not found"), "{damaged}");
}

#[test]
fn a_name_with_its_number_is_still_the_name_of_a_folder() {
    let desk = Desk::new();
    let ask = |name: &str| desk.post("/api/v1/runs", &json!({"recipe": QUICKSTART, "device": "cpu", "name": name}));
    for name in ["x".repeat(101), "x".repeat(120), "ы".repeat(60)] {
        let refused = ask(&name);
        assert_eq!((refused.status, refused.json()["field"].as_str()), (422, Some("name")), "{}", refused.text());
        assert!(refused.json()["error"].as_str().unwrap().contains("100"), "{}", refused.text());
    }
    let taken = ask(&"ы".repeat(50));
    assert_eq!(taken.status, 201, "{}", taken.text());
    assert_eq!(desk.get("/api/v1/runs").status, 200);
}

#[test]
fn a_wrong_recipe_is_a_problem_with_field_line_and_hint() {
    let desk = Desk::new();
    let wrong = QUICKSTART.replace("effective_batch = 64", "efective_batch = 64");
    let answer = desk.post("/api/v1/plan", &json!({"recipe": wrong}));
    assert_eq!((answer.status, answer.headers["content-type"].as_str()), (422, "application/problem+json"));
    let problem = answer.json();
    assert!(
        problem["findings"].as_array().unwrap().iter().any(|finding| finding["line"].as_u64().is_some()),
        "{problem}"
    );
    assert!(answer.text().contains("effective_batch"), "{problem}");
    for (body, field) in [
        (json!({"recipe": QUICKSTART, "memory": "12Gig"}), "memory"),
        (json!({"recipe": QUICKSTART, "device": "h2000"}), "device"),
        (json!({"recipe": QUICKSTART, "set": ["train.epochs=0"]}), "train.epochs"),
        (json!({"recipe": {"model": null}}), "recipe"),
    ] {
        let answer = desk.post("/api/v1/plan", &body);
        assert_eq!((answer.status, answer.json()["field"].as_str()), (422, Some(field)), "{}", answer.text());
    }
    assert_eq!(desk.post("/api/v1/plan", &json!({})).status, 422);
    assert_eq!(desk.post("/api/v1/plan", &json!({"recipe": "", "colour": 1})).status, 422);
}

#[test]
fn cards_the_map_and_the_largest_batch_are_answered() {
    let desk = Desk::new();
    let budget = tight_budget(&desk).to_string();
    let question = json!({"recipe": QUICKSTART, "device": "cpu", "memory": budget});
    let cards = desk.post("/api/v1/cards", &question).json();
    assert!(cards.as_array().unwrap().iter().all(|row| row["fits"] == true), "{cards}");
    // The budget holds on each of them, and is less than what a card's own runtime takes.
    let rows = desk.post("/api/v1/cards/largest", &question).json();
    let nothing = |row: &serde_json::Value| row["full_speed"].is_null() && row["most"].is_null();
    assert_eq!(rows.as_array().unwrap().len(), cards.as_array().unwrap().len());
    assert!(rows.as_array().unwrap().iter().all(|row| nothing(row) && row["budget_bytes"].is_u64()), "{rows}");
    let map =
        desk.post("/api/v1/plan/timeline", &json!({"recipe": QUICKSTART, "device": "cpu", "memory": "2GiB"})).json();
    let phase = &map["phases"][0];
    let arena = map["arena_bytes"].as_u64().unwrap();
    for buffer in phase["buffers"].as_array().unwrap() {
        assert!(buffer["offset"].as_u64().unwrap() + buffer["bytes"].as_u64().unwrap() <= arena);
        assert!(
            buffer["first"].as_u64() <= buffer["last"].as_u64() && buffer["last"].as_u64() < phase["ticks"].as_u64()
        );
    }
    let found = desk.post("/api/v1/plan/largest", &question).json();
    let [largest, at_once] = ["largest_batch", "at_once"].map(|name| found[name].as_u64().unwrap());
    let fits = |batch: u64| {
        let set = format!("train.effective_batch={batch}");
        let body = json!({"recipe": QUICKSTART, "device": "cpu", "memory": budget, "set": [set], "quick": true});
        desk.post("/api/v1/plan", &body).json()["fits"].as_bool().unwrap()
    };
    assert!(fits(largest) && (largest == 512 || !fits(largest + 1)), "{largest}");
    // The quickstart's statistics are those of the whole batch: what cannot be accumulated is computed at once.
    assert_eq!(at_once, largest);
    let mut cut = question.clone();
    cut["set"] = json!(["model.batch_norm=micro"]);
    let cut = desk.post("/api/v1/plan/largest", &cut).json();
    assert!(cut["at_once"].as_u64() == Some(at_once) && cut["largest_batch"].as_u64() > Some(largest), "{cut}");
}

#[test]
fn every_route_is_in_the_document_and_every_reference_leads_somewhere() {
    let desk = Desk::new();
    let document = desk.get("/api/v1/openapi.json").json();
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1"));
    for path in [
        "/runs",
        "/runs/{id}",
        "/runs/{id}/events",
        "/plan",
        "/cards/largest",
        "/fields",
        "/devices",
        "/queue",
        "/studies",
        "/advise",
        "/schema",
    ] {
        assert!(document["paths"].get(path).is_some(), "{path}");
    }
    let plan = &document["paths"]["/plan"]["post"];
    let answer = &plan["responses"]["200"]["content"]["application/json"]["schema"]["properties"];
    assert_eq!(answer["unready"]["properties"]["field"]["type"], "string", "{answer}");
    let fields = &document["components"]["schemas"]["Question"]["properties"]["fields"];
    assert_eq!(fields["additionalProperties"], false);
    for field in desk.get("/api/v1/fields").json().as_array().unwrap() {
        let described = &fields["properties"][field["name"].as_str().unwrap()];
        assert_eq!(described["description"], field["description"]);
        for bound in ["minimum", "maximum"] {
            assert_eq!(described[bound].as_f64(), field[bound].as_f64(), "{bound} of {field}");
        }
        assert_eq!(described["type"], json!([field["type"], "null"]));
    }
    let usual = ["batch_size", "sequence_length", "attention_heads", "epochs", "learning_rate", "use_mixed_precision"];
    let usual = usual.map(|name| fields["properties"][name]["default"].clone());
    assert_eq!(usual, [json!(128), json!(60), json!(4), json!(1), json!(0.001), json!(true)]);
    let text = document.to_string();
    for reference in text.split("\"$ref\":\"#").skip(1) {
        let pointer = &reference[..reference.find('"').unwrap()];
        assert!(document.pointer(pointer).is_some(), "{pointer}");
    }
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            assert!(operation["responses"].get("4XX").is_some() && operation["summary"].is_string(), "{method} {path}");
        }
    }
}

/// The answer of a server that was asked nothing before.
fn fresh(question: &serde_json::Value) -> serde_json::Value {
    Desk::new().post("/api/v1/plan", question).json()
}

#[test]
fn one_plan_serves_every_learning_rate_and_number_of_epochs() {
    let desk = Desk::new();
    let question =
        |set: &[&str]| json!({"recipe": QUICKSTART, "device": "cpu", "memory": "2GiB", "quick": true, "set": set});
    let first = desk.post("/api/v1/plan", &question(&[])).json();
    for set in [&["train.epochs=7"][..], &["train.optimizer.lr=3e-5", "train.epochs=1"], &["train.steps=11"]] {
        let (said, alone) = (desk.post("/api/v1/plan", &question(set)).json(), fresh(&question(set)));
        assert_eq!(said, alone, "{set:?}");
        assert_ne!(said["run_seconds"], first["run_seconds"], "{set:?}");
    }
}

#[test]
fn what_is_foreseen_is_no_other_answer_and_a_bad_hint_does_no_harm() {
    let desk = Desk::new();
    let hints =
        ["train.effective_batch=48", "train.effective_batch=none", "data.train=/etc/passwd", "=", "model.layers=0"];
    let plain = json!({"recipe": QUICKSTART, "device": "cpu", "memory": "2GiB", "quick": true});
    let mut hinting = plain.clone();
    hinting["ahead"] = json!(hints);
    assert_eq!(desk.post("/api/v1/plan", &hinting).json(), fresh(&plain));
    std::thread::sleep(std::time::Duration::from_millis(300));
    // As the page says it: the text was edited.
    let edited = QUICKSTART.replace("effective_batch = 64", "effective_batch = 48");
    let question = json!({"recipe": edited, "device": "cpu", "memory": "2GiB", "quick": true});
    let said = desk.post("/api/v1/plan", &question).json();
    assert_eq!((&said, said["effective_batch"].as_u64()), (&fresh(&question), Some(48)));
    hinting["ahead"] = json!(vec!["train.epochs=1"; 17]);
    let refused = desk.post("/api/v1/plan", &hinting);
    assert_eq!((refused.status, refused.json()["field"].as_str()), (422, Some("ahead")));
}

/// A program in the place of plimsoll's own command.
fn desk_with(script: &str) -> Desk {
    use std::os::unix::fs::PermissionsExt;
    Desk::with(|options| {
        let program = options.data.join("program");
        std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        options.program = program;
    })
}

#[test]
fn what_tools_say_names_files_as_their_sender_would() {
    // predict RUN FILE: some rows have no answer.
    let said = "printf '{\"row\":1,\"error\":\"%s: row 1\"}\\n' \"$3\"; echo \"error: $2 and $3: 1 of 1 rows have none\" >&2; exit 1";
    let desk = desk_with(said);
    desk.run("a", "");
    let answer = desk.post("/api/v1/runs/a/predict", &json!({"rows": "x,y\n1,2\n"}));
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.json()["predictions"][0]["error"], "rows.csv: row 1");
    assert_eq!(answer.json()["note"], "a and rows.csv: 1 of 1 rows have none");
    std::fs::write(desk.data().join("own.jsonl"), "{}").unwrap();
    let answer = desk.post("/api/v1/runs/a/predict", &json!({"file": "own.jsonl"})).json();
    assert_eq!(answer["predictions"][0]["error"], "own.jsonl: row 1");
    // advise --json --explain RECIPE …
    let desk = desk_with("echo \"error: $4: wrong, see --set\" >&2; echo '  hint: try --memory 1GiB' >&2; exit 2");
    let question = json!({"recipe": QUICKSTART, "name": "my run", "device": "t4"});
    let problem = desk.post("/api/v1/advise", &json!({"question": question})).json();
    assert_eq!(
        (problem["error"].as_str(), problem.get("hint")),
        (Some("my run.toml: wrong, see --set"), None),
        "{problem}"
    );
    let desk = desk_with("echo 'error: -: no out-of-memory error in it' >&2; exit 2");
    let problem = desk.post("/api/v1/advise", &json!({"text": "fine"})).json();
    assert_eq!(
        (problem["error"].as_str(), problem["field"].as_str()),
        (Some("text: no out-of-memory error in it"), Some("text"))
    );
    assert_eq!(desk.post("/api/v1/advise", &json!({})).json()["field"], "text");
}

#[test]
fn trainings_are_told_where_variables_stand() {
    let desk = desk_with("echo \"$PLIMSOLL_ENV_FILE\" > told");
    let folder = desk.close();
    let desk = Desk::in_folder(folder, |options| {
        options.program = options.data.join("program");
        options.variables = vec![("PLIMSOLL_ENV_FILE".into(), "/etc/plimsoll/.env".into())];
    });
    let desk = desk.unwrap();
    assert_eq!(desk.post("/api/v1/runs", &json!({"recipe": QUICKSTART, "device": "cpu"})).status, 201);
    let told = desk.data().join("told");
    let start = std::time::Instant::now();
    while !std::fs::read_to_string(&told).is_ok_and(|text| text.ends_with('\n')) {
        assert!(start.elapsed().as_secs() < 60, "it was not started");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert_eq!(std::fs::read_to_string(told).unwrap(), "/etc/plimsoll/.env\n");
}

#[test]
fn files_are_listed_and_a_recipe_is_proposed_for_them() {
    // init --json --out=PATH --data=PATH
    let desk = desk_with(
        "out=${3#--out=}; printf '# for %s\\n[data]\\ntrain = \"%s\"\\n' \"$4\" \"${4#--data=}\" > \"$out\"; \
         echo '{\"recipe\":\"x\",\"family\":\"bert\",\"task\":\"classify\"}'",
    );
    std::fs::create_dir(desk.data().join("texts")).unwrap();
    std::fs::write(desk.data().join("texts/train.csv"), "text,label\na,b\n").unwrap();
    let files = desk.get("/api/v1/files").json();
    assert_eq!(files, json!({"files": [{"path": "texts/train.csv", "kind": "data", "bytes": 15}], "cut": false}));
    let proposal = desk.post("/api/v1/plan/proposal", &json!({"data": "texts/train.csv"})).json();
    assert_eq!((&proposal["family"], &proposal["task"]), (&json!("bert"), &json!("classify")), "{proposal}");
    assert!(proposal["recipe"].as_str().unwrap().contains("train = \"texts/train.csv\""), "{proposal}");
    for (body, field) in [
        (json!({}), "data"),
        (json!({"data": "/etc/passwd"}), "data"),
        (json!({"data": "texts/train.csv", "checkpoint": "../.."}), "checkpoint"),
        (json!({"data": "texts/tr\0ain.csv"}), "data"),
        (json!({"data": "texts/train.csv", "family": "bert --out=/x"}), "family"),
        // More than the system takes as an argument.
        (json!({"data": "x".repeat(200_000)}), "data"),
        (json!({"data": "texts/train.csv", "checkpoint": "x/".repeat(100_000)}), "checkpoint"),
        (json!({"data": "texts/train.csv", "family": "x".repeat(200_000)}), "family"),
    ] {
        let refused = desk.post("/api/v1/plan/proposal", &body);
        assert_eq!((refused.status, refused.json()["field"].as_str()), (422, Some(field)), "{}", refused.text());
    }
}

/// Every reason, way out, what to adjust and hint in an answer of the planner.
fn sentences(plan: &serde_json::Value) -> Vec<String> {
    let texts = |list: &str, name: &str| -> Vec<String> {
        let rows = plan[list].as_array().into_iter().flatten().filter(|row| row["kind"] != "together");
        rows.filter_map(|row| row[name].as_str()).filter(|text| !text.is_empty()).map(Into::into).collect()
    };
    let hints = plan["hints"].as_array().into_iter().flatten().filter_map(|hint| hint.as_str());
    let unready = ["error", "hint"].iter().filter_map(|part| plan["unready"][*part].as_str());
    let told = [texts("decisions", "reason"), texts("ladder", "change"), texts("ladder", "adjust")].concat();
    told.into_iter().chain(hints.chain(unready).map(Into::into)).collect()
}

#[test]
fn what_the_planner_says_is_known_to_the_page() {
    let desk = Desk::new();
    let patterns: std::collections::BTreeMap<String, String> =
        serde_json::from_str(include_str!("../../page/said.json")).unwrap();
    let recipes = desk.get("/api/v1/recipes").json();
    let text =
        |name: &str| recipes.as_array().unwrap().iter().find(|recipe| recipe["name"] == name).unwrap()["text"].clone();
    let mut heard = std::collections::BTreeSet::new();
    for (name, device, set) in [
        ("hybrid-small", "t4", &["model.batch_norm=micro", "memory.micro_batch=4"][..]),
        ("hybrid-small", "cpu", &[]),
        ("mu-sota-small", "cpu", &["memory.cuda_graphs=off", "train.evaluate.batch=64"]),
        ("encoder-small", "rtx-4090", &["train.optimizer.name=sgd"]),
    ] {
        let ask = |memory: &str| {
            let question = json!({"recipe": text(name), "device": device, "memory": memory, "set": set});
            desk.post("/api/v1/plan", &question).json()
        };
        let plan = ask("2GiB");
        let all = plan["reserve_bytes"].as_u64().unwrap() + plan["arena_bytes"].as_u64().unwrap();
        heard.extend([plan, ask(&(all / 2).to_string()), ask(&(all / 5).to_string())].iter().flat_map(sentences));
    }
    for set in ["train.epochs=0", "train.epoch=1", "train.optimizer.name=adm", "train.epochs=abc", "data.max_length=8"]
    {
        let problem = desk.post("/api/v1/plan", &json!({"recipe": QUICKSTART, "set": [set]})).json();
        let finding = &problem["findings"][0];
        heard.extend(["error", "hint"].iter().filter_map(|part| finding[*part].as_str()).map(String::from));
    }
    let is_name = |text: &str| !text.contains(' ');
    let strange: Vec<&String> =
        heard.iter().filter(|text| !is_name(text) && !patterns.values().any(|pattern| fills(pattern, text))).collect();
    assert!(strange.is_empty() && heard.len() > 20, "{} heard, strange: {strange:#?}", heard.len());
}
