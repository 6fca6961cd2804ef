use super::*;
use clap::Parser;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    flags: UsualFlags,
}

fn settings(line: &str) -> Result<Vec<String>, Failure> {
    let words = ["plimsoll"].into_iter().chain(line.split_whitespace()).map(std::ffi::OsString::from);
    Line::try_parse_from(with_dashes(words)).unwrap_or_else(|e| panic!("{e}")).flags.settings(false)
}

#[test]
fn the_command_of_a_container_becomes_settings() {
    let said = settings(
        "--epochs 5 --batch-size 8 --gradient-accumulation-steps 16 --pretrained-model google/flan-t5-xl \
         --disable-compilation --disable-cudagraphs --dataloader-num-workers 0",
    );
    assert_eq!(
        said.unwrap(),
        [
            "train.epochs=5",
            "train.effective_batch=128",
            "data.workers=0",
            "memory.cuda_graphs=\"off\"",
            "model.preset=\"flan-t5-xl\""
        ]
    );
}

#[test]
fn underscores_and_other_names_of_a_flag_are_the_same_flag() {
    let wanted = settings("--lr 2e-5 --batch-size 16 --gradient-accumulation-steps 8").unwrap();
    for line in [
        "--learning_rate 2e-5 --batch_size 16 --gradient_accumulation 8",
        "--learning-rate=2e-5 --per_device_train_batch_size=16 --accumulate_grad_batches=8",
    ] {
        assert_eq!(settings(line).unwrap(), wanted, "{line}");
    }
    assert_eq!(wanted, ["train.optimizer.lr=0.00002", "train.effective_batch=128"]);
}

#[test]
fn accumulation_without_a_batch_is_refused_with_a_way_out() {
    let failure = settings("--gradient-accumulation-steps 4").unwrap_err();
    assert!(failure.hints[0].contains("--effective-batch"), "{failure:?}");
    assert_eq!(settings("--batch-size 8").unwrap(), ["train.effective_batch=8"]);
    // Too many for any recipe, which then says so; never a wrapped number.
    let huge = settings("--batch-size 18446744073709551615 --gradient-accumulation-steps 2").unwrap();
    assert_eq!(huge, ["train.effective_batch=18446744073709551615"]);
}

#[test]
fn a_ratio_stays_a_ratio_and_steps_stay_steps() {
    assert_eq!(settings("--warmup-ratio 1").unwrap(), ["train.schedule.warmup=1.0"]);
    assert_eq!(settings("--warmup-ratio 0.06").unwrap(), ["train.schedule.warmup=0.06"]);
    assert_eq!(settings("--warmup-steps 1").unwrap(), ["train.schedule.warmup=1"]);
}

#[test]
fn texts_cannot_become_other_settings() {
    let said = settings("--precision [1] --optimizer x\"y").unwrap();
    assert_eq!(said, ["train.optimizer.name=\"x\\\"y\"", "memory.precision=\"[1]\""]);
}

#[test]
fn values_and_what_follows_two_dashes_keep_their_underscores() {
    let words = ["--a_b=c_d", "x_y", "--set", "k_e=v", "--", "--batch_size"].map(std::ffi::OsString::from);
    assert_eq!(with_dashes(words.into_iter()), ["--a-b=c_d", "x_y", "--set", "k_e=v", "--", "--batch_size"]);
}

#[test]
fn every_key_of_the_table_is_a_key_of_the_recipe_and_every_flag_is_taken() {
    use clap::CommandFactory;
    let keys: Vec<String> =
        plimsoll_models::recipe::reference::keys().unwrap().into_iter().map(|key| key.key).collect();
    let command = Line::command();
    let takes = |name: &str| {
        let flags = command
            .get_arguments()
            .flat_map(|argument| argument.get_long().into_iter().chain(argument.get_all_aliases().unwrap_or_default()));
        flags.into_iter().any(|flag| flag == name.replace('_', "-"))
    };
    for row in table::ROWS {
        assert!(row.key.is_empty() || keys.iter().any(|key| key == row.key), "{} is no key", row.key);
        for name in row.flags {
            assert!(takes(name), "--{name} is in the table and is not taken");
        }
    }
    for argument in command.get_arguments().filter_map(|argument| argument.get_long()).filter(|name| *name != "help") {
        let listed = table::ROWS.iter().any(|row| row.flags.iter().any(|flag| flag.replace('_', "-") == *argument));
        assert!(listed, "--{argument} is taken and is not in the table");
    }
}

#[test]
fn the_page_of_flags_is_what_the_table_says() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/flags.md");
    let page = std::fs::read_to_string(path).unwrap_or_default();
    assert_eq!(page, table::markdown(), "write it with `plimsoll keys --flags > docs/flags.md`");
}
