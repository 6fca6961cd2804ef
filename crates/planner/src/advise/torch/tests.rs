//! The estimate against peaks measured on an H200 with PyTorch 2.11 and transformers 5.17, accumulation 1, fused AdamW.

use super::*;
use std::path::Path;

/// (recipe, batch, length, precision, checkpointing, attention, measured peak of allocated bytes)
type Measurement = (&'static str, usize, usize, Precision, bool, Attention, u64);

use Attention::{Eager, Sdpa};
use Precision::{Bf16, Bf16Mixed, Tf32};

const MEASURED: [Measurement; 27] = [
    ("hybrid", 128, 60, Tf32, false, Sdpa, 746_481_254),
    ("hybrid", 128, 60, Bf16Mixed, false, Sdpa, 544_210_944),
    ("hybrid", 256, 60, Tf32, false, Sdpa, 1_340_499_558),
    ("hybrid", 256, 60, Bf16Mixed, false, Sdpa, 888_563_302),
    ("hybrid", 512, 60, Tf32, false, Sdpa, 2_523_712_716),
    ("hybrid", 512, 60, Bf16Mixed, false, Sdpa, 1_617_218_764),
    ("mu-sota", 4, 256, Tf32, false, Eager, 3_402_314_547),
    ("mu-sota", 4, 256, Bf16Mixed, false, Eager, 3_261_910_220),
    ("mu-sota", 32, 256, Tf32, false, Eager, 24_158_142_464),
    ("mu-sota", 32, 256, Bf16Mixed, false, Eager, 22_919_774_208),
    ("mu-sota", 32, 512, Tf32, false, Eager, 64_036_746_035),
    ("mu-sota", 32, 512, Bf16Mixed, false, Eager, 69_568_823_296),
    ("mu-sota", 4, 256, Tf32, false, Sdpa, 3_198_360_064),
    ("mu-sota", 32, 512, Tf32, false, Sdpa, 57_795_906_560),
    ("encoder", 16, 384, Tf32, false, Sdpa, 14_298_696_908),
    ("encoder", 16, 384, Bf16Mixed, false, Sdpa, 11_207_494_860),
    ("encoder", 16, 384, Bf16Mixed, true, Sdpa, 5_700_478_566),
    ("encoder", 48, 480, Bf16Mixed, false, Sdpa, 29_161_842_278),
    ("encoder", 48, 480, Tf32, false, Sdpa, 42_242_198_732),
    ("clip", 16, 77, Tf32, false, Sdpa, 3_158_520_627),
    ("clip", 16, 77, Bf16Mixed, false, Sdpa, 2_966_316_646),
    ("clip", 128, 77, Bf16Mixed, false, Sdpa, 8_217_794_969),
    ("clip", 128, 77, Tf32, false, Sdpa, 11_901_861_888),
    ("clip", 128, 77, Bf16Mixed, true, Sdpa, 2_971_349_811),
    ("flan-t5-xl", 8, 256, Bf16, false, Eager, 41_518_891_008),
    ("flan-t5-xl", 8, 256, Bf16, true, Eager, 22_784_403_046),
    ("flan-t5-xl", 8, 512, Bf16, false, Eager, 80_766_461_542),
];

fn recipe(name: &str) -> Recipe {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../recipes/{name}.toml"));
    // The reference ties T5's output head.
    let sets = if name == "flan-t5-xl" { vec!["model.tie_word_embeddings=true".to_string()] } else { vec![] };
    Recipe::load(&path, &sets).unwrap()
}

fn estimate(row: &Measurement) -> Need {
    let &(name, batch, length, precision, checkpointing, attention, _) = row;
    let shape = TorchSetup {
        batch,
        length,
        target_length: length,
        precision,
        attention,
        checkpointing,
        accumulates: false,
        optimizer: Optimizer::AdamW,
        foreach: false,
    };
    Torch::new(&recipe(name)).need(&shape).unwrap()
}

fn error(row: &Measurement) -> f64 {
    let (need, measured) = (estimate(row), row.6);
    // Without the margin, which is there so that it errs on the safe side.
    let error = need.tensor_bytes() as f64 / measured as f64 - 1.0;
    println!("{:>6.1} %  {row:?}  {need:?}", 100.0 * error);
    error
}

#[test]
fn estimates_stay_close_to_measured_peaks() {
    let errors: Vec<f64> = MEASURED.iter().map(error).collect();
    for (row, error) in MEASURED.iter().zip(errors) {
        assert!(error.abs() < 0.06, "{row:?}: {:.1} %", 100.0 * error);
    }
}

/// PyTorch's default AdamW takes roots of all moments at once; the fused one does not.
#[test]
fn the_optimizers_own_step_can_be_the_peak() {
    let row = ("encoder", 1, 64, Tf32, false, Sdpa, 0);
    let fused = estimate(&row);
    let torch = Torch::new(&recipe("encoder"));
    let default = torch.need(&TorchSetup { foreach: true, ..shape_of(&row) }).unwrap();
    assert_eq!(fused.gradients_bytes, fused.weights_bytes, "at so small a batch the step is the peak");
    assert_eq!(default.tensor_bytes() - fused.tensor_bytes(), fused.weights_bytes);
}

#[test]
fn what_the_card_must_have_is_never_below_what_was_used() {
    for row in &MEASURED {
        assert!(estimate(row).card_bytes() >= row.6, "{row:?}");
    }
}

/// DeBERTa's scores: 34,488 MiB at 64 × 512 in pure bf16, with accumulation.
#[test]
fn relative_positions_keep_their_scores() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recipes/encoder.toml");
    let recipe = Recipe::load(&path, &["model.preset=deberta-v3-base".into(), "data.max_length=512".into()]).unwrap();
    let shape = TorchSetup {
        batch: 64,
        length: 512,
        target_length: 0,
        precision: Bf16,
        attention: Sdpa,
        checkpointing: false,
        accumulates: true,
        optimizer: Optimizer::AdamW,
        foreach: false,
    };
    let need = Torch::new(&recipe).need(&shape).unwrap();
    let error = need.tensor_bytes() as f64 / (34_488u64 << 20) as f64 - 1.0;
    assert!(error.abs() < 0.05, "{:.1} %: {need:?}", 100.0 * error);
}

#[test]
fn weights_gradients_and_state_are_exact() {
    let row = &MEASURED[14];
    let need = estimate(row);
    assert_eq!(need.parameters, 335_143_938);
    assert_eq!((need.weights_bytes, need.optimizer_bytes), (4 * 335_143_938, 8 * 335_143_938));
    assert_eq!(need.gradients_bytes, 0, "set to none, they come as activations go");
    let accumulating = TorchSetup { accumulates: true, ..shape_of(row) };
    let more = Torch::new(&recipe("encoder")).need(&accumulating).unwrap();
    assert_eq!(more.tensor_bytes() - need.tensor_bytes(), need.weights_bytes);
}

fn shape_of(row: &Measurement) -> TorchSetup {
    TorchSetup {
        batch: row.1,
        length: row.2,
        target_length: row.2,
        precision: row.3,
        attention: row.5,
        checkpointing: row.4,
        accumulates: false,
        optimizer: Optimizer::AdamW,
        foreach: false,
    }
}

/// Sizes that cannot be meant are refused, with the value that shows it; nothing overflows on the way.
#[test]
fn absurd_sizes_are_refused() {
    let recipe = recipe("encoder");
    for batch in [1 << 24, 1 << 32, 1 << 40] {
        let absurd = TorchSetup { batch, length: 512, ..shape_of(&MEASURED[14]) };
        assert!(Torch::new(&recipe).need(&absurd).is_err(), "{batch}");
    }
    assert_eq!(scores_bytes(usize::MAX, usize::MAX, 4), MOST_BYTES);
}
