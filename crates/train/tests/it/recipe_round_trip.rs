//! Any recipe, stored, reads back as an equal one.

use std::path::PathBuf;

use plimsoll_base::batching::Gaps;
use plimsoll_base::formats::Holds;
use plimsoll_base::metric::Metric;
use plimsoll_base::names::Named;
use plimsoll_models::families::{
    AttentionForm, Clip, ClipText, ClipVision, DistilBert, Encoder, EncoderKind, FeedForward, HiddenAct, HybridCnnLstm,
    MuSota, T5,
};
use plimsoll_models::recipe::{
    BatchNormMode, Budget, Checkpoint, Choice, ClassWeights, CudaGraphs, Data, DataKind, DerivedLabel, Evaluate,
    EventFiles, Every, Format, Label, Memory, Model, News, NewsEvery, Notify, OffloadLevel, Optimizer, OptimizerState,
    Origin, Precision, ProblemType, Recipe, RecomputeLevel, Rule, Sample, Schedule, ScheduleShape, Series, Source,
    Synthetic, Task, Text, Track, Train, Validation, Warmup,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

fn named<T: Named + std::fmt::Debug>() -> impl Strategy<Value = T> {
    select(T::ALL.to_vec())
}

fn choice<T: std::fmt::Debug + Clone>(of: impl Strategy<Value = T>) -> impl Strategy<Value = Choice<T>> {
    option::of(of).prop_map(|value| value.map_or(Choice::Auto, Choice::Pinned))
}

/// Names and paths with everything that a file format could trip over.
fn text() -> impl Strategy<Value = String> {
    "[a-z\"'\\\\ =#\\.\n\t🦀é]{1,12}"
}

/// What may be part of a folder's name.
fn name() -> impl Strategy<Value = String> {
    "[a-z\"'\\\\ =#\\.🦀é]{1,12}"
}

fn every() -> impl Strategy<Value = Every> {
    prop_oneof![Just(Every::Epoch), (1usize..1_000_000).prop_map(Every::Steps), Just(Every::Never)]
}

prop_compose! {
    fn hybrid()(
        features in 1usize..64, window in 2usize..200, channels in vec(1usize..300, 1..5), head_width in 1usize..33,
        heads in 1usize..9, classes in 2usize..10, dropout in 0f32..0.99, batch_norm in named::<BatchNormMode>(),
    ) -> HybridCnnLstm {
        // 2 × hidden = 2 × head_width × heads
        HybridCnnLstm { features, window, channels, hidden: head_width * heads, heads, classes, dropout, batch_norm }
    }
}

prop_compose! {
    fn mu_sota()(
        vocab in 257usize..60_000, layers in 1usize..30, blocks in 1usize..20, block_heads in 1usize..5,
        head_width in 1usize..5, ffn in 1usize..7000, max_length in 2usize..1024,
    ) -> MuSota {
        let block_width = block_heads * head_width;
        MuSota { vocab, layers, blocks, block_width, block_heads, cross_heads: blocks, ffn, max_length }
    }
}

fn validation() -> impl Strategy<Value = Validation> {
    // Not 0: a recipe that evaluates must have something to evaluate on.
    prop_oneof![(0.001..0.9).prop_map(Validation::Fraction), text().prop_map(|t| Validation::File(t.into()))]
}

fn label(classes: usize) -> BoxedStrategy<Label> {
    let column = text().prop_map(|name| Label::Column(format!("label {name}")));
    let derived = (text(), 1usize..100, 0.0..10.0)
        .prop_map(|(column, horizon, threshold)| Label::Derived(DerivedLabel { column, horizon, threshold }));
    if classes == 3 { prop_oneof![column, derived].boxed() } else { column.boxed() }
}

fn series_data(model: &HybridCnnLstm) -> BoxedStrategy<(Source, DataKind)> {
    let columns: Vec<String> = (0..model.features).map(|i| format!("x {i}")).collect();
    let format = select(Format::holding(&[Holds::Rows]).collect::<Vec<_>>());
    let file = (text(), format, label(model.classes), any::<bool>(), option::of(text()), 1usize..100, named::<Gaps>());
    let file = file.prop_map(move |(train, format, label, listed, time, stride, gaps)| {
        let columns = listed.then(|| columns.clone());
        let series = Series { columns, time, label: Some(label), stride, gaps };
        (Source::File { train: train.into(), format: Some(format) }, DataKind::Series(series))
    });
    let made = (1usize..100_000, 0..=i64::MAX as u64, 1usize..100).prop_map(|(samples, seed, stride)| {
        let series = Series { columns: None, time: None, label: None, stride, gaps: Gaps::Error };
        (Source::Synthetic { name: Synthetic::Regimes, samples, seed }, DataKind::Series(series))
    });
    prop_oneof![file, made].boxed()
}

fn text_data(model: &MuSota) -> BoxedStrategy<(Source, DataKind)> {
    let file = (text(), select(Format::holding(&[Holds::Rows, Holds::Document]).collect::<Vec<_>>()))
        .prop_map(|(train, format)| Source::File { train: train.into(), format: Some(format) });
    let made = (1usize..100_000, 0u64..100).prop_map(|(samples, seed)| Source::Synthetic {
        name: Synthetic::Grammar,
        samples,
        seed,
    });
    let parts = (prop_oneof![file, made], 2..=model.max_length, text(), option::of(text()));
    let data = parts.prop_map(|(source, max_length, text_field, tokenizer)| {
        // What is made by code has a vocabulary of its own.
        let tokenizer = tokenizer.filter(|_| matches!(source, Source::File { .. })).map(PathBuf::from);
        (source, DataKind::Text(Text { max_length, text_field, tokenizer }))
    });
    data.boxed()
}

fn optimizer() -> impl Strategy<Value = Optimizer> {
    let rule = prop_oneof![
        (0.0..0.999, 0.0..0.999, 1e-30..1.0).prop_map(|(a, b, eps)| Rule::AdamW { betas: [a, b], eps }),
        (0.0..0.999).prop_map(|momentum| Rule::Sgd { momentum }),
        Just(Rule::Adafactor),
    ];
    (rule, 1e-12..1000.0, 0.0..1000.0, any::<bool>()).prop_map(|(rule, lr, weight_decay, decay_all)| Optimizer {
        rule,
        lr,
        weight_decay,
        decay_all,
    })
}

fn schedule() -> impl Strategy<Value = Schedule> {
    let warmup = prop_oneof![(0.0..=1.0).prop_map(Warmup::Fraction), (0usize..100_000).prop_map(Warmup::Steps)];
    (named::<ScheduleShape>(), warmup, 0.0..=1.0).prop_map(|(name, warmup, floor)| Schedule {
        name,
        warmup,
        min_lr_fraction: if name == ScheduleShape::Constant { 0.0 } else { floor },
    })
}

fn evaluate() -> impl Strategy<Value = Evaluate> {
    let parts = (every(), option::of(1usize..50), choice(1usize..512), option::of(named::<Metric>()));
    parts.prop_map(|(every, patience, batch, metric)| Evaluate {
        every,
        patience: patience.filter(|_| every != Every::Never),
        metric: metric.filter(|_| every != Every::Never),
        batch,
    })
}

/// As many as any model here has classes; `fit` takes those that it needs.
fn class_weights() -> impl Strategy<Value = ClassWeights> {
    let list = vec(1e-3..1e6, 10).prop_map(ClassWeights::List);
    prop_oneof![Just(ClassWeights::Balanced), list]
}

prop_compose! {
    fn train()(
        effective_batch in 1usize..512, epochs in 1usize..100, steps in option::of(1usize..1_000_000),
        seed in 0..=i64::MAX as u64, clip_norm in option::of(1e-5f32..1e6), optimizer in optimizer(),
        schedule in schedule(), evaluate in evaluate(), every in every(), keep in 1usize..10,
        sample in (0.0..=1.0, 0.0..100.0, text()), class_weights in option::of(class_weights()),
    ) -> Train {
        let (part, temperature, prompt) = sample;
        // A length as a part of the model's, which `finish` knows.
        let sample = Some(Sample { length: (part * 1000.0) as usize, temperature, prompt, beams: 1 });
        let checkpoint = Checkpoint { every, keep };
        Train {
            task: Task::Series, effective_batch, epochs, steps, seed, clip_norm, class_weights, optimizer, schedule, evaluate,
            checkpoint, sample,
        }
    }
}

prop_compose! {
    fn memory()(
        budget in prop_oneof![
            Just(Budget::Auto), (1u64..1 << 47).prop_map(Budget::Bytes), (1e-9..=100.0).prop_map(Budget::Percent),
        ],
        micro_batch in choice(1usize..600), precision in choice(named::<Precision>()),
        recompute in choice(named::<RecomputeLevel>()), attention in choice(named::<AttentionForm>()),
        block_group in choice(1usize..20), loss_chunk in choice(1usize..100_000),
        optimizer_state in choice(named::<OptimizerState>()), offload in choice(named::<OffloadLevel>()), sharing in any::<bool>(),
        cuda_graphs in choice(named::<CudaGraphs>()),
    ) -> Memory {
        Memory {
            budget, micro_batch, precision, recompute, attention, block_group, loss_chunk, optimizer_state, offload, sharing,
            cuda_graphs,
        }
    }
}

prop_compose! {
    fn track()(
        mlflow in option::of(prop_oneof![Just("off".to_string()), "https?://[a-z]{1,9}(:[0-9]{1,4})?(/[a-z]{0,5})?"]),
        experiment in option::of("[a-zA-Zü \"]{1,9}"), parent in option::of("[a-f0-9]{1,32}"),
        tensorboard in prop_oneof![
            Just(EventFiles::Off), Just(EventFiles::InRun), "[a-z/ü]{1,9}".prop_map(|p| EventFiles::Folder(p.into())),
        ],
        every in choice(1usize..1_000_000),
    ) -> Track {
        Track { mlflow, experiment, parent, tensorboard, every }
    }
}

prop_compose! {
    fn notify()(
        urls in option::of(vec("env:[A-Z_]{1,9}", 0..4)),
        every in prop_oneof![
            Just(NewsEvery::Never), (1usize..1000).prop_map(NewsEvery::Epochs), (1u64..1_000_000).prop_map(NewsEvery::Seconds),
        ],
        on in vec(named::<News>(), 0..6),
    ) -> Notify {
        Notify { urls, every, on }
    }
}

fn at_most(choice: Choice<usize>, most: usize) -> Choice<usize> {
    choice.pinned().map_or(Choice::Auto, |n| Choice::Pinned(n.min(most)))
}

/// Bends train and memory to what the model allows.
fn fit(model: &Model, train: &mut Train, memory: &mut Memory) {
    memory.micro_batch = at_most(memory.micro_batch, train.effective_batch);
    memory.block_group = at_most(memory.block_group, model.family().groups());
    if model.family().batch_norm() == Some(BatchNormMode::Effective) && memory.micro_batch != Choice::Auto {
        memory.micro_batch = Choice::Pinned(train.effective_batch);
    }
    train.task = model.family().tasks()[0];
    match model {
        Model::HybridCnnLstm(m) => {
            train.sample = None;
            memory.loss_chunk = Choice::Auto;
            let known = [Metric::Loss, Metric::Accuracy, Metric::F1];
            train.evaluate.metric = train.evaluate.metric.filter(|metric| known.contains(metric));
            if let Some(ClassWeights::List(weights)) = &mut train.class_weights {
                weights.truncate(m.classes);
            }
        }
        Model::MuSota(_) => {
            train.class_weights = None;
            let known = [Metric::Loss, Metric::Perplexity, Metric::Accuracy];
            train.evaluate.metric = train.evaluate.metric.filter(|metric| known.contains(metric));
        }
        other => unreachable!("{} has its own property below", other.name()),
    }
    if let Model::MuSota(m) = model {
        train.sample.iter_mut().for_each(|s| s.length = s.length.min(m.max_length))
    }
}

fn recipe() -> impl Strategy<Value = Recipe> {
    let hybrid = hybrid().prop_flat_map(|m| (series_data(&m), Just(Model::HybridCnnLstm(m))));
    let mu_sota = mu_sota().prop_flat_map(|m| (text_data(&m), Just(Model::MuSota(m))));
    let loader = (validation(), 0usize..8, 1usize..8);
    let told = (track(), notify());
    let parts = (prop_oneof![hybrid, mu_sota], loader, train(), memory(), name(), text(), told);
    parts.prop_map(
        |(((source, kind), model), (validation, workers, prefetch), mut train, mut memory, name, dir, told)| {
            let (track, notify) = told;
            fit(&model, &mut train, &mut memory);
            let data = Data { source, validation, kind, workers, prefetch };
            Recipe { name, dir: dir.into(), model, data, train, memory, track, notify }
        },
    )
}

/// Sizes come from a folder that is not there, or from nowhere.
fn origin() -> impl Strategy<Value = Origin> {
    option::of(text()).prop_map(|path| Origin { preset: None, checkpoint: path.map(|p| format!("gone/{p}").into()) })
}

prop_compose! {
    fn encoder()(
        kind in named::<EncoderKind>(), origin in origin(), num_attention_heads in 1usize..9, head_width in 1usize..65,
        sizes in (300usize..60_000, 1usize..30, 1usize..5000, 10usize..600, 0usize..4), hidden_act in named::<HiddenAct>(),
        layer_norm_eps in 1e-12..1e-3, dropouts in (0f32..0.9, 0f32..0.9, option::of(0f32..0.9)), pad_token_id in 0usize..3,
        initializer_range in 0.001..0.1, num_labels in 2usize..20, problem_type in named::<ProblemType>(),
        buckets in (0usize..512, option::of(4usize..2000)),
    ) -> Model {
        let (vocab_size, num_hidden_layers, intermediate_size, max_position_embeddings, type_vocab_size) = sizes;
        let (hidden_dropout_prob, attention_probs_dropout_prob, classifier_dropout) = dropouts;
        let relative = kind == EncoderKind::DebertaV3;
        // As many as go with the largest distance.
        let distance = buckets.1.unwrap_or(max_position_embeddings);
        let position_buckets = 2 + buckets.0 % (2 * distance - 5);
        let sizes = Encoder {
            kind, origin, vocab_size, hidden_size: num_attention_heads * head_width, num_hidden_layers,
            num_attention_heads, intermediate_size, max_position_embeddings, type_vocab_size, hidden_act,
            layer_norm_eps, hidden_dropout_prob, attention_probs_dropout_prob, classifier_dropout, pooler_dropout: None, pad_token_id,
            initializer_range, num_labels, problem_type, position_buckets: relative.then_some(position_buckets),
            max_relative_positions: buckets.1.filter(|_| relative),
        };
        match kind {
            EncoderKind::Bert => Model::Bert(sizes),
            EncoderKind::Roberta => Model::Roberta(sizes),
            EncoderKind::XlmRoberta => Model::XlmRoberta(sizes),
            EncoderKind::DebertaV3 => Model::DebertaV3(sizes),
        }
    }
}

prop_compose! {
    fn distilbert()(
        origin in origin(), n_heads in 1usize..9, head_width in 1usize..65,
        sizes in (300usize..60_000, 1usize..30, 1usize..5000, 10usize..600), activation in named::<HiddenAct>(),
        dropouts in (0f32..0.9, 0f32..0.9, 0f32..0.9), pad_token_id in 0usize..3, initializer_range in 0.001..0.1,
        num_labels in 2usize..20, problem_type in named::<ProblemType>(), sines in any::<bool>(),
    ) -> Model {
        let (vocab_size, n_layers, hidden_dim, max_position_embeddings) = sizes;
        let (dropout, attention_dropout, seq_classif_dropout) = dropouts;
        // Only a checkpoint has such positions.
        let sinusoidal_pos_embds = sines && origin.checkpoint.is_some();
        Model::DistilBert(DistilBert {
            origin, vocab_size, max_position_embeddings, sinusoidal_pos_embds, n_layers, n_heads,
            dim: n_heads * head_width, hidden_dim, dropout, attention_dropout, activation, initializer_range,
            seq_classif_dropout, pad_token_id, num_labels, problem_type,
        })
    }
}

prop_compose! {
    fn t5()(
        origin in origin(), widths in (1usize..600, 1usize..80, 1usize..3000), layers in (1usize..9, 1usize..9),
        num_heads in 1usize..20, buckets in (4usize..70, 36usize..300), dropout_rate in 0f32..0.9,
        layer_norm_epsilon in 1e-9..1e-3, initializer_factor in 0.1..2.0, feed_forward_proj in named::<FeedForward>(),
        flags in any::<(bool, bool)>(), tokens in (0usize..300, 0usize..300, 0usize..300),
    ) -> Model {
        Model::T5(T5 {
            origin, vocab_size: 300, d_model: widths.0, d_kv: widths.1, d_ff: widths.2, num_layers: layers.0,
            num_decoder_layers: layers.1, num_heads, relative_attention_num_buckets: buckets.0,
            relative_attention_max_distance: buckets.1, dropout_rate, layer_norm_epsilon, initializer_factor,
            feed_forward_proj, tie_word_embeddings: flags.0, scale_decoder_outputs: flags.1, pad_token_id: tokens.0,
            eos_token_id: tokens.1, decoder_start_token_id: tokens.2,
        })
    }
}

prop_compose! {
    fn clip()(
        origin in origin(), projection_dim in 1usize..900, logit_scale_init_value in -5.0..5.0,
        heads in (1usize..9, 1usize..9), layers in (1usize..9, 1usize..9), ffn in (1usize..900, 1usize..900),
        acts in (named::<HiddenAct>(), named::<HiddenAct>()), dropouts in (0f32..0.9, 0f32..0.9),
        eps in (1e-9..1e-3, 1e-9..1e-3), patch_size in 1usize..20, image_size in 20usize..100,
    ) -> Model {
        let text_config = ClipText {
            vocab_size: 300, hidden_size: heads.0 * 8, intermediate_size: ffn.0, num_hidden_layers: layers.0,
            num_attention_heads: heads.0, max_position_embeddings: 16, hidden_act: acts.0, layer_norm_eps: eps.0,
            attention_dropout: dropouts.0, eos_token_id: 299,
        };
        let vision_config = ClipVision {
            hidden_size: heads.1 * 8, intermediate_size: ffn.1, num_hidden_layers: layers.1,
            num_attention_heads: heads.1, num_channels: 3, image_size, patch_size, hidden_act: acts.1,
            layer_norm_eps: eps.1, attention_dropout: dropouts.1,
        };
        Model::Clip(Clip { origin, projection_dim, logit_scale_init_value, text_config, vision_config })
    }
}

/// A stored `[model]` with the least of the other tables.
fn with_model(model: &Model) -> String {
    let table = toml::to_string(&std::collections::BTreeMap::from([("model", model)])).unwrap();
    format!("{table}\n[data]\ntrain = \"a.jsonl\"\nmax_length = 4\n[train]\neffective_batch = 1\n")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn stored_sizes_need_no_checkpoint(model in prop_oneof![encoder(), distilbert(), t5(), clip()]) {
        let stored = with_model(&model);
        match Recipe::parse(&stored, "recipe.toml", &[]) {
            Ok(recipe) => prop_assert_eq!(recipe.model, model),
            Err(error) => prop_assert!(false, "{}\n{}", error, stored),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn a_stored_recipe_reads_back_equal(recipe in recipe()) {
        let stored = recipe.to_toml().unwrap();
        match Recipe::parse(&stored, "recipe.toml", &[]) {
            Ok(again) => {
                prop_assert_eq!(again.hash().unwrap(), recipe.hash().unwrap());
                prop_assert_eq!(again, recipe);
            }
            Err(error) => prop_assert!(false, "{}\n{}", error, stored),
        }
    }
}
