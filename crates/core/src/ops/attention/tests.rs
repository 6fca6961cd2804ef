use super::grad::AttentionGrad;
use super::*;
use crate::graph::Graph;
use crate::kernels::cuda::{DeviceTensor, Grid, Recorded, Recorder};

fn types(shapes: &[&[usize]]) -> Vec<Type> {
    shapes.iter().map(|shape| Type::new(DType::F32, shape)).collect()
}

#[test]
fn wrong_inputs_are_named() {
    let plain = Attention::plain(1.0);
    let qkv: &[usize] = &[2, 5, 3, 4, 8];
    let cause = |op: &Attention, shapes: &[&[usize]]| op.outputs(&types(shapes)).unwrap_err().to_string();
    assert!(cause(&plain, &[&[2, 5, 2, 4, 8]]).contains("packed qkv"));
    assert!(cause(&plain, &[qkv, qkv]).contains("2 inputs instead of 1"));
    let cross = Attention { packing: Packing::QKv, ..plain.clone() };
    assert!(cause(&cross, &[&[2, 5, 4, 8], &[2, 7, 2, 4, 9]]).contains("kv"));
    let masked = Attention { key_mask: true, ..plain.clone() };
    assert!(cause(&masked, &[qkv, &[2, 5]]).contains("key mask i32[2,5]"));
    let relative = Bias::Relative { bidirectional: true, max_distance: 128 };
    let relative = Attention { bias: relative, ..plain.clone() };
    assert!(cause(&relative, &[qkv, &[32, 5]]).contains("table 0"));
    assert!(cause(&relative, &[qkv, &[3, 4]]).contains("buckets"));
    let positions = Bias::Disentangled { buckets: 0, max_distance: 6 };
    let positions = Attention { bias: positions, ..plain.clone() };
    assert!(cause(&positions, &[qkv, &[12, 4, 8], &[11, 4, 8]]).contains("table 1"));
    let decoding = Attention { offset: true, ..plain };
    assert!(cause(&decoding, &[qkv, &[1]]).contains("position i64[1]"));
}

#[test]
fn statistics_of_half_precision_are_f32() {
    let inputs = [Type::new(DType::Bf16, &[2, 5, 3, 4, 8])];
    let outputs = Attention::plain(1.0).outputs(&inputs).unwrap();
    assert_eq!([outputs[0].dtype, outputs[1].dtype], [DType::Bf16, DType::F32]);
    let threads = Target::cpu(1);
    let f32s = types(&[&[2, 5, 3, 4, 8]]);
    let op = AttentionGrad(Attention::plain(1.0));
    assert_eq!(op.workspace(&inputs, &threads), op.workspace(&f32s, &threads));
}

#[test]
fn an_offset_is_not_differentiated() {
    let mut graph = Graph::new("decode", DType::F32);
    let qkv = graph.parameter("qkv", &[1, 1, 3, 1, 4], crate::graph::Init::Zeros, false).unwrap();
    let position = graph.data("position", Type::new(DType::I64, &[1])).unwrap();
    let op = Attention { offset: true, ..Attention::plain(1.0) };
    let out = graph.apply_all("attention", op, &[qkv, position]).unwrap()[0];
    let loss = graph.apply("loss", Reshape { shape: vec![4] }, &[out]).unwrap();
    let loss = graph.apply("sum", Sum { axis: 0 }, &[loss]).unwrap();
    let seed = graph.scalar("seed").unwrap();
    let cause = crate::autodiff::gradients(&mut graph, loss, seed, &[qkv]).unwrap_err().to_string();
    assert!(cause.contains("no gradient"), "{cause}");
}

/// The kernels that an op would launch on these types, every tensor `shift` bytes past an aligned address.
fn launches(op: &dyn Op, inputs: &[Type], tf32: bool, shift: u64) -> Vec<(&'static str, &'static str, Grid)> {
    launches_on(0, op, inputs, tf32, shift)
}

/// Those on cards of this architecture.
fn launches_on(
    arch: u32,
    op: &dyn Op,
    inputs: &[Type],
    tf32: bool,
    shift: u64,
) -> Vec<(&'static str, &'static str, Grid)> {
    let place = |(n, ty): (usize, &Type)| DeviceTensor { address: ((n as u64 + 1) << 40) + shift, ty: ty.clone() };
    let outputs = op.outputs(inputs).unwrap();
    let tensors: Vec<DeviceTensor> = inputs.iter().chain(&outputs).enumerate().map(place).collect();
    let (inputs, outputs) = tensors.split_at(inputs.len());
    let (mut queue, workspace_bytes) = (Recorder { arch, ..Recorder::default() }, usize::MAX);
    op.cuda(&mut Launch { inputs, outputs, workspace: 0, workspace_bytes, tf32, queue: &mut queue }).unwrap();
    let kernel = |launch: Recorded| match launch {
        Recorded::Kernel { kernel, grid, .. } => Some((kernel.source.text, kernel.entry, grid)),
        _ => None,
    };
    queue.launches.into_iter().filter_map(kernel).collect()
}

#[test]
fn tensor_cores_compute_what_they_can() {
    let runs = |dtype: DType, width: usize, tf32: bool, shift: u64, products: &str| {
        let ty = Type::new(dtype, &[2, 100, 3, 4, width]);
        let kernels = launches(&Attention::plain(1.0), &[ty], tf32, shift);
        assert_eq!(kernels.len(), 1);
        kernels[0].0.contains(products)
    };
    assert!(runs(DType::Bf16, 64, false, 0, "m16n8k16.row.col.f32.bf16"));
    assert!(runs(DType::F32, 64, true, 0, "m16n8k8.row.col.f32.tf32"));
    // Odd widths, addresses between vectors, and f32 that is to stay f32.
    for (dtype, width, shift) in [(DType::Bf16, 36, 0), (DType::F16, 64, 2), (DType::F32, 64, 0)] {
        assert!(!runs(dtype, width, false, shift, "mma.sync"), "{} {width} {shift}", dtype.name());
    }
}

/// Rows that a block has beyond the sequence's end are work for nothing.
#[test]
fn blocks_share_a_sequence_evenly() {
    let forward = |length: usize| {
        let ty = Type::new(DType::Bf16, &[2, length, 3, 4, 64]);
        launches(&Attention::plain(1.0), &[ty], false, 0)[0].2
    };
    for (length, blocks, warps) in [(1, 1, 1), (50, 1, 4), (77, 1, 5), (130, 2, 5), (384, 4, 6)] {
        let grid = forward(length);
        assert_eq!((grid.blocks[0], grid.threads[0]), (8 * blocks, 32 * warps), "{length} queries");
        assert!(blocks * warps * 16 >= length as u32);
    }
}

/// Threads share the rows of narrow heads where there are too few for a card, and only there.
#[test]
fn few_rows_of_narrow_heads_are_shared() {
    let blocks = |shape: &[usize]| {
        let grid = launches(&Attention::plain(1.0), &[Type::new(DType::F32, shape)], false, 0)[0].2;
        assert_eq!(grid.threads[0], 128);
        grid.blocks[0] as usize
    };
    for (shape, rows) in [
        ([4, 256, 3, 8, 8], 32),
        ([4, 256, 3, 32, 2], 64),
        ([32, 512, 3, 8, 8], 256),
        ([32, 512, 3, 32, 2], 256),
        ([1, 7, 3, 1, 16], 16),
    ] {
        assert_eq!(blocks(&shape), shape[0] * shape[3] * shape[1].div_ceil(rows), "{shape:?}");
    }
}

/// Of half precision `out` is rounded: a sum over it would be too coarse for a narrow head with few keys.
#[test]
fn narrow_heads_of_half_precision_sum_their_own_deltas() {
    let entries = |dtype: DType| -> Vec<&'static str> {
        let qkv = Type::new(dtype, &[2, 5, 3, 4, 2]);
        let out = Type::new(dtype, &[2, 5, 4, 2]);
        let inputs = [qkv, out.clone(), Type::new(DType::F32, &[2, 4, 5]), out];
        let op = AttentionGrad(Attention::plain(1.0));
        launches(&op, &inputs, false, 0).into_iter().map(|(_, entry, _)| entry).collect()
    };
    assert_eq!(entries(DType::F32), ["deltas", "backward_queries", "backward_keys"]);
    assert_eq!(entries(DType::Bf16), ["backward_queries", "backward_keys"]);
}

/// A disentangled bias with its tables' types, for heads of this width.
fn disentangled(batch: usize, length: usize, width: usize) -> (Attention, Vec<Type>) {
    let bias = Bias::Disentangled { buckets: 256, max_distance: 512 };
    let shapes = [&[batch, length, 3, 12, width][..], &[512, 12, width], &[512, 12, width]];
    let types = shapes.map(|shape| Type::new(DType::Bf16, shape));
    (Attention { bias, ..Attention::plain(0.125) }, types.to_vec())
}

/// The products of a disentangled bias are as large as scores: only those of some samples exist at a time.
#[test]
fn samples_run_in_groups_whose_products_fit() {
    let workspace = |batch: usize| {
        let (op, types) = disentangled(batch, 512, 128);
        op.workspace(&types, &Target::CUDA)
    };
    assert!(workspace(2) < workspace(4) && workspace(16) == workspace(64) && workspace(64) < 65 << 20);
    let (op, types) = disentangled(16, 512, 128);
    let blocks: Vec<u32> = launches(&op, &types, false, 0)
        .into_iter()
        .filter_map(|(_, entry, grid)| (entry == "forward").then_some(grid.blocks[0]))
        .collect();
    assert!(blocks.len() > 1);
    assert_eq!(blocks.iter().sum::<u32>(), 16 * 12 * 512 / 64, "every tile of every head once");
}

/// Plans give shorter samples the workspace of longer ones.
#[test]
fn shorter_samples_want_no_more_workspace() {
    let mut rng = SampleRng::new(11);
    let biases = [
        Bias::None,
        Bias::Relative { bidirectional: true, max_distance: 20 },
        Bias::Disentangled { buckets: 8, max_distance: 40 },
    ];
    for case in 0..600 {
        let (batch, heads, dim) = (rng.size(1, 64), rng.size(1, 16), rng.size(1, 64));
        let op = Attention { bias: biases[case % 3], ..Attention::plain(1.0) };
        let types = |length: usize| {
            let qkv = Type::new(DType::Bf16, &[batch, length, 3, heads, dim]);
            let table = match op.bias {
                Bias::Disentangled { .. } => Type::new(DType::Bf16, &[16, heads, dim]),
                _ => Type::new(DType::Bf16, &[16, heads]),
            };
            [vec![qkv], vec![table; op.bias.tables()]].concat()
        };
        let longest = rng.size(2, 600);
        let [short, long] = [rng.size(1, longest), longest].map(types);
        assert!(op.outputs(&long).is_ok(), "{:?}", op.outputs(&long));
        for target in [Target::CUDA, Target::cpu(rng.size(1, 64))] {
            let grad = AttentionGrad(op.clone());
            for op in [&op as &dyn Op, &grad] {
                let [few, many] = [&short, &long].map(|types| op.workspace(types, &target));
                assert!(few <= many, "{op:?} on {target:?}: {few} bytes for {short:?}, {many} for {long:?}");
            }
        }
    }
}

/// Of heads up to 64 wide those products stay inside their tiles: one launch, and a workspace that does not grow.
#[test]
fn the_products_of_a_disentangled_bias_stay_in_their_tiles() {
    let (op, types) = disentangled(64, 512, 64);
    let entries: Vec<&str> = launches(&op, &types, false, 0).into_iter().map(|(_, entry, _)| entry).collect();
    assert_eq!(entries, ["distances", "pack", "pack", "forward"]);
    let workspace = |batch: usize| op.workspace(&disentangled(batch, 512, 64).1, &Target::CUDA);
    assert_eq!(workspace(2), workspace(64));
    // No vectors can be read from odd addresses: every sample has its products in the workspace.
    let forwards = launches(&op, &types, false, 2).into_iter().filter(|(_, entry, _)| *entry == "forward");
    assert_eq!(forwards.count(), 64);
}

fn backward(op: Attention, mut inputs: Vec<Type>) -> (AttentionGrad, Vec<Type>) {
    let outputs = op.outputs(&inputs).unwrap();
    inputs.extend([outputs[0].clone(), outputs[1].clone(), outputs[0].clone()]);
    (AttentionGrad(op), inputs)
}

/// The backward pass keeps the gradients of some heads' scores at a time, however long and many they are; where even one
/// head's are too many it keeps none.
#[test]
fn heads_run_in_groups_whose_slopes_fit() {
    for (batch, length) in [(1, 64), (3, 500), (64, 512), (4, 2000), (1, 8192), (1, 9000)] {
        let (op, types) = disentangled(batch, length, 64);
        let (op, inputs) = backward(op, types);
        let scores = batch * 12 * length.next_multiple_of(64).pow(2) * 2;
        assert!(length < 2000 || op.workspace(&inputs, &Target::CUDA) < scores, "{batch} × {length}");
        let found = launches(&op, &inputs, false, 0);
        let blocks = |name: &str| {
            let of_name = found.iter().filter(|(_, entry, _)| *entry == name);
            of_name.map(|(_, _, grid)| grid.blocks[0] as usize).collect::<Vec<_>>()
        };
        let (keys, tables) = (blocks("backward_keys"), blocks("backward_tables"));
        assert_eq!(keys.iter().sum::<usize>(), batch * 12 * length.div_ceil(64), "every tile of every head once");
        assert_eq!(keys, blocks("backward_queries"));
        assert_eq!(tables.len(), if length < 9000 { keys.len() } else { 0 });
        assert_eq!(keys.len() > 1, scores > 128 << 20 && length < 9000, "{batch} × {length}");
    }
    let (op, inputs) = backward(disentangled(64, 512, 64).0, disentangled(64, 512, 64).1);
    // Room for the shares of shorter samples included.
    assert!(op.workspace(&inputs, &Target::CUDA) < 168 << 20);
}
/// Whether an op on these types is computed by groups of four warps on cards of this architecture.
fn runs_in_groups(arch: u32, op: &dyn Op, inputs: &[Type], shift: u64) -> bool {
    let kernels = launches_on(arch, op, inputs, false, shift);
    kernels.iter().any(|(text, ..)| text.contains("wgmma"))
}

#[test]
fn groups_of_warps_compute_plain_attention_on_hopper_alone() {
    let qkv = |dtype: DType, length: usize, width: usize| [Type::new(dtype, &[2, length, 3, 4, width])];
    let plain = Attention::plain(0.125);
    for (dtype, length, width) in [(DType::Bf16, 384, 64), (DType::F16, 50, 64), (DType::Bf16, 4096, 128)] {
        let inputs = qkv(dtype, length, width);
        assert!(runs_in_groups(90, &plain, &inputs, 0), "{length} × {width}");
        for arch in [0, 75, 80, 86, 89, 120] {
            assert!(!runs_in_groups(arch, &plain, &inputs, 0), "sm_{arch}");
        }
    }
    // Other precisions and widths, lengths that leave blocks half empty, addresses between vectors.
    for (dtype, length, width, shift) in [
        (DType::F32, 384, 64, 0),
        (DType::Bf16, 384, 80, 0),
        (DType::Bf16, 77, 64, 0),
        (DType::Bf16, 64, 128, 0),
        (DType::Bf16, 384, 64, 8),
    ] {
        assert!(!runs_in_groups(90, &plain, &qkv(dtype, length, width), shift), "{length} × {width}, {shift}");
    }
    let inputs = qkv(DType::Bf16, 384, 64);
    assert!(!runs_in_groups(90, &Attention::plain(-1.0), &inputs, 0));
    // T5's bias, as long as every warp has room for the sums of its table.
    let bias = Bias::Relative { bidirectional: true, max_distance: 512 };
    let [qkv] = inputs;
    for (rows, groups) in [(8, true), (128, true), (130, false)] {
        let table = Type::new(DType::Bf16, &[rows, 4]);
        let op = Attention { bias, ..Attention::plain(0.125) };
        assert_eq!(runs_in_groups(90, &op, &[qkv.clone(), table], 0), groups, "{rows} rows");
    }
}

/// The same with the largest table that groups take.
#[test]
fn groups_with_a_bias_fit_into_a_block() {
    for width in [64, 128] {
        let bias = Bias::Relative { bidirectional: true, max_distance: 512 };
        let op = AttentionGrad(Attention { bias, ..Attention::plain(0.125) });
        let (qkv, out) = (Type::new(DType::Bf16, &[2, 500, 3, 4, width]), Type::new(DType::Bf16, &[2, 500, 4, width]));
        let forward = [qkv, Type::new(DType::Bf16, &[128, 4])];
        let statistics = [out.clone(), Type::new(DType::F32, &[2, 4, 500]), out];
        let backward: Vec<Type> = forward.iter().cloned().chain(statistics).collect();
        let kernels = [launches_on(90, &op.0, &forward, false, 0), launches_on(90, &op, &backward, false, 0)].concat();
        let groups: Vec<_> = kernels.iter().filter(|(text, ..)| text.contains("wgmma")).collect();
        assert_eq!(groups.len(), 3);
        for (_, entry, grid) in groups {
            assert!(grid.shared_bytes <= 227 << 10, "{entry} asks for {}", grid.shared_bytes);
        }
    }
}

/// The launches of attention on qkv (2, 500, 3, 4, width) and of its gradient, on Hopper.
fn launches_of_groups(op: &AttentionGrad, width: usize) -> Vec<(&'static str, &'static str, Grid)> {
    let (qkv, out) = (Type::new(DType::Bf16, &[2, 500, 3, 4, width]), Type::new(DType::Bf16, &[2, 500, 4, width]));
    let state = op.0.dropout.map(|_| Type::new(DType::I64, &[3]));
    let statistics = [out.clone(), Type::new(DType::F32, &[2, 4, 500]), out];
    let forward: Vec<Type> = [qkv].into_iter().chain(state).collect();
    let backward: Vec<Type> = forward.iter().cloned().chain(statistics).collect();
    [launches_on(90, &op.0, &forward, false, 0), launches_on(90, op, &backward, false, 0)].concat()
}

/// Blocks hold what the files of the kernels put there, and no more than a block of Hopper has.
#[test]
fn groups_fit_into_a_block() {
    for (causal, dropout) in [(false, None), (true, None), (false, Some((0.1, 7)))] {
        let op = AttentionGrad(Attention { causal, dropout, ..Attention::plain(0.125) });
        // Blocks of 64 rows, or, of a head of 64 that is not causal, of 256.
        let forward = if causal { 8 * 8 } else { 8 * 2 };
        let narrow = [("forward", forward), ("backward_queries", 8 * 8), ("backward_keys", 8 * 8)];
        let in_one_pass = [("deltas", 2 * 500 * 4 / 8), ("backward", 8 * 4), ("round_queries", 8 * 8)];
        let in_two = [("backward_queries", 8 * 4), ("backward_keys", 8 * 4)];
        let gradients = if dropout.is_none() { &in_one_pass[..] } else { &in_two };
        let wide = [&[("forward", 8 * 4)], gradients].concat();
        for (width, expected) in [(64, &narrow[..]), (128, &wide)] {
            let kernels = launches_of_groups(&op, width);
            let found: Vec<_> = kernels.iter().map(|(_, entry, grid)| (*entry, grid.blocks[0])).collect();
            assert_eq!(found, expected, "heads of {width}, causal: {causal}");
            for (_, entry, grid) in kernels {
                assert!(grid.shared_bytes <= 227 << 10, "{entry} asks for {}", grid.shared_bytes);
            }
        }
    }
}

/// Blocks that take one item after the other are as many as a card runs at a time, however many items there are.
#[test]
fn items_are_shared_by_the_blocks_that_run() {
    let blocks_of = |causal: bool, [batch, length, heads, width]: [usize; 4]| {
        let op = Attention { causal, ..Attention::plain(0.125) };
        let found = launches_on(90, &op, &[Type::new(DType::Bf16, &[batch, length, 3, heads, width])], false, 0);
        assert!(found[0].2.shared_bytes <= 227 << 10);
        (found[0].2.blocks[0], found[0].2.threads[0])
    };
    let blocks = |causal: bool, length: usize, width: usize| blocks_of(causal, [16, length, 16, width]);
    assert_eq!([384, 480].map(|length| blocks(false, length, 64)), [(132, 4 * 128), (132, 5 * 128)]);
    assert_eq!([1024, 8192].map(|length| blocks(true, length, 64)), [(16 * 16 * 16, 128), (132, 5 * 128)]);
    // A third of their rows would be empty; two heads fill them, if they are not too short, an even number, and enough for all multiprocessors.
    assert_eq!(blocks(false, 128, 64), (16 * 16 * 2, 128));
    assert_eq!(blocks_of(false, [17, 128, 16, 64]), (132, 5 * 128));
    assert_eq!(blocks_of(false, [17, 64, 16, 64]), (17 * 16, 128));
    assert_eq!(blocks_of(false, [19, 128, 15, 64]), (19 * 15 * 2, 128));
    assert_eq!(blocks_of(true, [17, 128, 16, 64]), (17 * 16 * 2, 128));
    assert_eq!(blocks(true, 4096, 128), (132, 3 * 128));
}

/// Of so many heads of 64 that most multiprocessors have one to the end, gradients are computed head by head, where shared
/// memory has room for what is added up.
#[test]
fn many_heads_are_computed_one_by_one() {
    let launched = |batch: usize, length: usize, causal: bool, dropout: Option<(f32, u64)>| {
        let op = AttentionGrad(Attention { causal, dropout, ..Attention::plain(0.125) });
        let out = Type::new(DType::Bf16, &[batch, length, 12, 64]);
        let state = dropout.map(|_| Type::new(DType::I64, &[3]));
        let statistics = [out.clone(), Type::new(DType::F32, &[batch, 12, length]), out];
        let qkv = [Type::new(DType::Bf16, &[batch, length, 3, 12, 64])];
        let inputs: Vec<Type> = qkv.into_iter().chain(state).chain(statistics).collect();
        launches_on(90, &op, &inputs, false, 0)
    };
    for (dropout, threads) in [(None, 384), (Some((0.1, 7)), 512)] {
        for length in [108, 128, 256, 333, 384, 480, 512] {
            let kernels = launched(11, length, false, dropout);
            let entries: Vec<_> = kernels.iter().map(|(_, entry, grid)| (*entry, grid.threads[0])).collect();
            assert_eq!(entries, [("deltas", 128), ("backward_heads", threads)], "{length} keys");
            let grid = kernels[1].2;
            assert!(grid.blocks[0] == 132 && grid.shared_bytes <= 227 << 10, "{length} keys: {grid:?}");
        }
        let entries = |batch: usize, length: usize, causal: bool| launched(batch, length, causal, dropout)[0].1;
        let in_two_passes = [(7, 384, false), (12, 384, false), (11, 576, false), (11, 384, true)];
        let in_two_passes = in_two_passes.map(|(batch, length, causal)| entries(batch, length, causal));
        assert_eq!(in_two_passes, ["backward_queries"; 4]);
        assert_eq!(entries(9, 384, false), "deltas");
    }
}

/// Gradients in one pass have sums of their queries in f32, of all samples or of as many as 128 MiB hold, and what a shorter
/// batch needs is never more.
#[test]
fn sums_of_gradients_in_one_pass_have_room() {
    let room = |bias: Bias, batch: usize, length: usize| {
        let op = AttentionGrad(Attention { bias, ..Attention::plain(0.125) });
        let (qkv, out) = ([batch, length, 3, 32, 128], Type::new(DType::Bf16, &[batch, length, 32, 128]));
        let table = (bias != Bias::None).then(|| Type::new(DType::Bf16, &[32, 32]));
        let statistics = [out.clone(), Type::new(DType::F32, &[batch, 32, length]), out];
        let inputs: Vec<Type> = [Type::new(DType::Bf16, &qkv)].into_iter().chain(table).chain(statistics).collect();
        (op.workspace(&inputs, &Target::CUDA), launches_on(90, &op, &inputs, false, 0).len())
    };
    let deltas = |batch: usize, length: usize| 4 * batch * 32 * length;
    // A turn to the sums of every 64 queries.
    let sums = |batch: usize, length: usize| (4 * 64 * 128 + 4) * batch * 32 * length / 64;
    assert_eq!(room(Bias::None, 2, 4096), (deltas(2, 4096) + sums(2, 4096), 3));
    // Two samples at a time.
    assert_eq!(room(Bias::None, 8, 4096), (deltas(8, 4096) + sums(2, 4096), 1 + 4 * 2));
    assert_eq!(room(Bias::None, 1, 16384), (deltas(1, 16384) + sums(1, 16384), 3));
    let longest = room(Bias::None, 8, 4096).0;
    assert!((128..4096).step_by(128).all(|length| room(Bias::None, 8, length).0 <= longest));
    let relative = Bias::Relative { bidirectional: true, max_distance: 128 };
    assert!(room(relative, 2, 4096).0 < sums(1, 4096));
}
