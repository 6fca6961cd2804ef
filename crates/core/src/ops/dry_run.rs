//! Every sample and its gradients put on a recorder: each op has a kernel in each precision, and asks no more of a grid
//! than cards allow.

use super::*;
use crate::autodiff::gradients;
use crate::graph::{AliasKind, Component, Graph, Init, InputKind, Node, OpRef};
use crate::kernels::cuda::{Arg, DeviceTensor, Grid, Kernel, Recorded, Recorder};
use crate::types::DType;
use std::any::Any;
use std::collections::HashSet;
use std::sync::Arc;

/// Dynamic shared memory of a block that every card allows.
const SHARED_BYTES: u32 = 64 << 10;
const HOPPER_SHARED_BYTES: u32 = 227 << 10;

/// A sample's graph with its gradients; inputs that take none are of type `constant`. None if the op refuses that.
pub(super) fn graph_of(sample: &Sample, float: DType, constant: DType) -> Option<Graph> {
    let mut graph = Graph::new("sample", float);
    let mut inputs = Vec::new();
    for (index, input) in sample.inputs.iter().enumerate() {
        let dtype = match (input.ty.dtype.is_float(), input.checked) {
            (false, _) => input.ty.dtype,
            (true, checked) => [constant, float][checked as usize],
        };
        inputs.push(resident(&mut graph, &format!("in.{index}"), Type::new(dtype, &input.ty.shape)));
    }
    let outputs = graph.push_node("op".into(), sample.op.clone(), &inputs).ok()?;
    if let OpRef::Forward(_) = sample.op {
        let loss = loss_of(&mut graph, sample, &outputs);
        let seed_type = graph.ty(loss).clone();
        let seed = resident(&mut graph, "seed", seed_type);
        let wanted = inputs.iter().zip(&sample.inputs).filter(|(_, input)| input.checked).map(|(&id, _)| id);
        gradients(&mut graph, loss, seed, &wanted.collect::<Vec<_>>()).unwrap();
    }
    Some(graph)
}

fn resident(graph: &mut Graph, name: &str, ty: Type) -> ValueId {
    graph.input(name, ty, InputKind::Resident { component: Component::Inputs, init: Init::Zeros }).unwrap()
}

/// Σ coefficient · output, over output 0 where the others are by-products.
fn loss_of(graph: &mut Graph, sample: &Sample, outputs: &[ValueId]) -> ValueId {
    if sample.scalar_loss {
        return outputs[0];
    }
    let mut total = None;
    for (index, &output) in outputs[..if sample.first_output { 1 } else { outputs.len() }].iter().enumerate() {
        let ty = graph.ty(output).contiguous();
        let coefficients = resident(graph, &format!("c.{index}"), ty.clone());
        let weighted = graph.apply("weighted", Binary::MUL, &[output, coefficients]).unwrap();
        let flat = graph.apply("flat", Reshape { shape: vec![ty.elements()] }, &[weighted]).unwrap();
        let sum = graph.apply("sum", Sum { axis: 0 }, &[flat]).unwrap();
        total = Some(match total {
            None => sum,
            Some(before) => graph.apply("total", Binary::ADD, &[before, sum]).unwrap(),
        });
    }
    total.unwrap()
}

/// Addresses of all values: views and updates in place lie over their inputs, and so does whatever may if `sharing`.
fn addresses(graph: &Graph, sharing: bool) -> Vec<u64> {
    let mut next = 1 << 20;
    let mut own = |ty: &Type| {
        let address = next;
        next += ty.span_bytes().next_multiple_of(64) as u64 + 64;
        address
    };
    let mut addresses: Vec<u64> =
        graph.values().iter().map(|value| if value.input.is_some() { own(&value.ty) } else { 0 }).collect();
    for node in graph.nodes() {
        let types: Vec<Type> = node.inputs.iter().map(|&v| graph.ty(v).clone()).collect();
        let aliases = node.op.op().aliases(&types);
        for (index, &output) in node.outputs.iter().enumerate() {
            let over = aliases.iter().find_map(|alias| match alias.kind {
                _ if alias.output != index => None,
                AliasKind::May => sharing.then_some((alias.input, 0)),
                AliasKind::Must => Some((alias.input, 0)),
                AliasKind::View { offset } => Some((alias.input, offset * types[alias.input].dtype.bytes())),
            });
            addresses[output.index()] = match over {
                Some((input, offset)) => addresses[node.inputs[input].index()] + offset as u64,
                None => own(graph.ty(output)),
            };
        }
    }
    addresses
}

/// Puts every node on a recorder, also in the form that adds to a total, and checks what it asks for.
fn record(name: &str, graph: &Graph, sharing: bool, tf32: bool) {
    let addresses = addresses(graph, sharing);
    let tensor = |&id: &ValueId| DeviceTensor { address: addresses[id.index()], ty: graph.ty(id).clone() };
    for node in graph.nodes() {
        let inputs: Vec<DeviceTensor> = node.inputs.iter().map(tensor).collect();
        let outputs: Vec<DeviceTensor> = node.outputs.iter().map(tensor).collect();
        put(name, node.op.op(), &inputs, &outputs, tf32);
        if let Some(op) = node.op.op().accumulating() {
            let inputs: Vec<DeviceTensor> = inputs.into_iter().chain(outputs.first().cloned()).collect();
            put(name, op.as_ref(), &inputs, &outputs, tf32);
        }
    }
}

fn put(name: &str, op: &dyn Op, inputs: &[DeviceTensor], outputs: &[DeviceTensor], tf32: bool) -> Vec<Recorded> {
    let types: Vec<Type> = inputs.iter().map(|t| t.ty.clone()).collect();
    let (workspace, workspace_bytes) = (1 << 40, op.workspace(&types, &Target::CUDA));
    // Of an architecture on which every kernel can run.
    let mut recorder = Recorder { arch: 90, ..Recorder::default() };
    let mut launch = Launch { inputs, outputs, workspace, workspace_bytes, tf32, queue: &mut recorder };
    op.cuda(&mut launch).unwrap_or_else(|error| panic!("{name}: {error}: {types:?}"));
    let tensors = inputs.iter().chain(outputs).map(|t| (t.address, t.ty.span_bytes()));
    // One more: a region of no bytes at the workspace's end begins there.
    let ranges: Vec<(u64, usize)> = tensors.chain([(workspace, workspace_bytes + 1)]).collect();
    recorder.launches.iter().for_each(|launch| check(&format!("{op:?}"), launch, &ranges));
    recorder.launches
}

/// A grid within the limits of every card; addresses (0 stands for none) inside tensors or the workspace.
fn check(name: &str, launch: &Recorded, ranges: &[(u64, usize)]) {
    let inside = |address: u64, bytes: usize| {
        ranges.iter().any(|&(start, len)| start <= address && address + bytes as u64 <= start + len as u64)
    };
    match launch {
        Recorded::Kernel { kernel, grid, args } => {
            let Grid { blocks, threads, shared_bytes } = *grid;
            let entry = kernel.entry;
            let is_there = |before: char| kernel.source.text.contains(&format!("{before}{entry}("));
            assert!([' ', '\n'].into_iter().any(is_there), "{name}: no kernel {entry}");
            assert!((1..=1024).contains(&threads.iter().product::<u32>()), "{name}: {entry} with {grid:?}");
            assert!(blocks[0] < 1 << 31 && blocks[1] < 1 << 16 && blocks[2] < 1 << 16, "{name}: {entry} {grid:?}");
            // Kernels for Hopper alone may take what a block of it has.
            let most = if kernel.source.text.contains("wgmma") { HOPPER_SHARED_BYTES } else { SHARED_BYTES };
            assert!(shared_bytes <= most, "{name}: {entry} takes {shared_bytes} bytes of shared memory");
            for arg in args {
                let Arg::Address(address) = *arg else { continue };
                assert!(address == 0 || inside(address, 1), "{name}: {entry} reads outside its tensors");
            }
        }
        Recorded::Sweep(sweep) => {
            let entry = sweep.kernel.entry;
            assert!(sweep.kernel.source.text.contains(&format!("void {entry}(")), "{name}: no kernel {entry}");
            let shared = sweep.shared.iter().filter_map(|arg| if let Arg::Address(at) = arg { Some(at) } else { None });
            let shared = shared.filter(|&&at| at != 0);
            let mut addresses = sweep.sets.iter().flat_map(|set| &set.addresses).chain(shared);
            assert!(addresses.all(|&at| inside(at, 1)), "{name}: {entry} reads outside its tensors");
        }
        Recorded::Gemm(_) => {}
        Recorded::Fill { address, bytes, .. } => assert!(inside(*address, *bytes), "{name}: fills outside its tensors"),
        Recorded::Copy { to, from, bytes } => {
            assert!(inside(*to, *bytes) && inside(*from, *bytes), "{name}: copies outside its tensors");
        }
    }
}

/// Forms that the registry leaves out because the CPU has no such thing: stochastic rounding, half precision.
fn more_samples() -> Vec<(&'static str, Sample)> {
    let constant = |shape: &[usize]| SampleInput::constant(shape, Fill::Normal);
    let float = |shape: &[usize]| SampleInput::float(shape, Fill::Normal);
    let rng = SampleInput::new(Type::new(DType::I64, &[3]), Fill::Ids(9));
    let (chance, of_chance) = (Some(Rounding { site: 3, first: 16 }), std::slice::from_ref(&rng));
    let update = |op: Arc<dyn Op>, tensors: &[&[usize]], scalars: usize, more: &[SampleInput]| {
        let tensors = tensors.iter().map(|shape| constant(shape));
        let inputs = tensors.chain(vec![constant(&[1]); scalars]).chain(more.iter().cloned()).collect();
        Sample { op: OpRef::Plain(op), inputs, scalar_loss: false, first_output: false }
    };
    let adamw = AdamW { beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.1, zero_gradient: true, rounding: chance };
    let sgd = Sgd { momentum: 0.9, weight_decay: 0.1, zero_gradient: true, rounding: chance };
    let adafactor = Arc::new(Adafactor { rounding: chance, ..Adafactor::DEFAULT });
    vec![
        ("adamw", update(Arc::new(adamw), &[&[3, 7][..]; 4], 4, of_chance)),
        ("sgd", update(Arc::new(sgd), &[&[9, 8][..]; 3], 2, of_chance)),
        ("adafactor", update(adafactor.clone(), &[&[9, 8], &[9, 1], &[1, 8], &[9, 8]], 3, of_chance)),
        ("adafactor", update(adafactor, &[&[90][..]; 3], 3, of_chance)),
        ("cast", Sample::new(Cast(DType::F32), vec![float(&[7, 3])])),
        ("cast", Sample::new(Cast(DType::Bf16), vec![float(&[8, 8])])),
        ("clip", Sample::plain(ClipNorm { max_norm: Some(1.0) }, (1..70).map(|n| constant(&[n * n * n])).collect())),
    ]
}

/// Larger shapes than the registry's: several blocks, several vectors to a thread, parts of sums.
fn large_samples() -> Vec<(&'static str, Sample)> {
    let float = |shape: &[usize]| SampleInput::float(shape, Fill::Normal);
    let ids = |n: usize, below: usize| SampleInput::new(Type::new(DType::I32, &[n]), Fill::Ids(below));
    let norm = |width: usize| vec![float(&[300, width]), float(&[width]), float(&[width])];
    let entropy = vec![float(&[70, 50_000]), ids(70, 50_000), SampleInput::constant(&[70], Fill::Mask)];
    vec![
        ("layer_norm", Sample::new(LayerNorm { eps: 1e-5 }, norm(1024)).first_output()),
        ("layer_norm", Sample::new(LayerNorm { eps: 1e-5 }, norm(5001)).first_output()),
        ("rms_norm", Sample::new(RmsNorm { eps: 1e-6 }, norm(4096)[..2].to_vec()).first_output()),
        ("reduce", Sample::new(Sum { axis: 0 }, vec![float(&[5000, 96])])),
        ("reduce", Sample::new(Sum { axis: 0 }, vec![float(&[100_000])])),
        ("cross_entropy", Sample::new(CrossEntropy, entropy).scalar_loss()),
        ("embedding", Sample::new(Embedding, vec![float(&[900, 64]), ids(5000, 900)])),
        ("softmax", Sample::new(Softmax { scale: 1.0, causal: true, scores: true }, vec![float(&[2, 900, 3000])])),
    ]
}

fn all_samples() -> Vec<(&'static str, Sample)> {
    let mut rng = SampleRng::new(1);
    let mut samples = Vec::new();
    for (name, of) in registry() {
        for _ in 0..3 {
            samples.extend(of(&mut rng).into_iter().map(|sample| (name, sample)));
        }
    }
    samples.into_iter().chain(more_samples()).chain(large_samples()).collect()
}

#[test]
fn every_sample_has_kernels_in_every_precision() {
    for (name, sample) in all_samples() {
        for float in [DType::F32, DType::Bf16, DType::F16] {
            // Weights of losses and scalars of updates are f32 whatever the rest is.
            let graphs: Vec<Graph> =
                [float, float.wide()].iter().filter_map(|&c| graph_of(&sample, float, c)).collect();
            assert!(!graphs.is_empty(), "{name} takes no {}", float.name());
            for graph in &graphs {
                for (sharing, tf32) in [(false, false), (true, false), (false, true)] {
                    record(name, graph, sharing, tf32);
                }
            }
        }
    }
}

#[test]
fn updates_read_gradients_of_another_type() {
    let tensor = |address: u64, dtype: DType| DeviceTensor { address, ty: Type::new(dtype, &[3, 7]) };
    let scalar = |address: u64| DeviceTensor { address, ty: Type::scalar(DType::F32) };
    let [w, m, v] = [1 << 10, 2 << 10, 3 << 10].map(|at| tensor(at, DType::F32));
    let g = tensor(4 << 10, DType::Bf16);
    let scalars = [5 << 10, 6 << 10, 7 << 10, 8 << 10].map(scalar);
    let adamw = AdamW { beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.1, zero_gradient: false, rounding: None };
    let sgd = Sgd { momentum: 0.9, weight_decay: 0.1, zero_gradient: false, rounding: None };
    let adafactor = Adafactor::DEFAULT;
    let few = |rest: &[&DeviceTensor]| [&[&w], rest].concat().into_iter().cloned().collect::<Vec<_>>();
    let column = |address: u64, shape: &[usize]| DeviceTensor { address, ty: Type::new(DType::F32, shape) };
    let (rows, columns) = (column(2 << 10, &[3, 1]), column(3 << 10, &[1, 7]));
    let [lr, a, b, clip] = &scalars;
    let cases: [(&dyn Op, Vec<DeviceTensor>); 4] = [
        (&adamw, few(&[&m, &v, &g, lr, a, b, clip])),
        (&sgd, few(&[&m, &g, lr, clip])),
        (&adafactor, few(&[&rows, &columns, &g, lr, a, clip])),
        (&Accumulate, vec![g.clone(), w.clone()]),
    ];
    for (op, inputs) in cases {
        let types: Vec<Type> = inputs.iter().map(|t| t.ty.clone()).collect();
        let outputs = op.outputs(&types).unwrap().len();
        let outputs = if inputs.len() == 2 { vec![w.clone()] } else { inputs[..outputs].to_vec() };
        let launches = put("mixed", op, &inputs, &outputs, false);
        let reads_both = |kernel: Kernel| {
            let types: Vec<&str> = kernel.defines.iter().map(|(_, value)| value.as_str()).collect();
            types.contains(&"bf16") && types.contains(&"float")
        };
        assert!(launches.iter().filter_map(Recorded::kernel).any(reads_both), "{op:?}");
    }
}

#[test]
fn f64_is_left_to_the_cpu() {
    let tensor = |address: u64| DeviceTensor { address, ty: Type::new(DType::F64, &[4]) };
    let (input, output, mut recorder) = ([tensor(64)], [tensor(128)], Recorder::default());
    let queue = &mut recorder;
    let mut launch = Launch { inputs: &input, outputs: &output, workspace: 0, workspace_bytes: 0, tf32: false, queue };
    assert!(matches!(Exp.cuda(&mut launch), Err(CudaError::NoKernel { dtype: DType::F64, .. })));
}

/// Ops that once answered a launch they could not understand with nothing at all, and their gradients.
const ONCE_SILENT: [&str; 8] =
    ["adamw", "cache_reorder", "cache_write", "count_correct", "cross_entropy", "label_loss", "layer_norm", "rms_norm"];

/// The nodes of a sample's op and of its gradient, without what the test itself puts around them.
fn own_nodes(graph: &Graph) -> impl Iterator<Item = &Node> {
    let around = |op: &dyn Op| op.is::<Binary>() || op.is::<Reshape>() || op.is::<Sum>() || op.is::<reduce::Repeat>();
    graph.nodes().iter().filter(move |node| !around(node.op.op()))
}

#[test]
fn a_launch_with_a_tensor_too_few_or_too_many_is_an_error() {
    let samples = all_samples().into_iter().filter(|(name, _)| ONCE_SILENT.contains(name));
    let mut refused = HashSet::new();
    for (name, sample) in samples {
        let graph = graph_of(&sample, DType::F32, DType::F32).unwrap();
        let addresses = addresses(&graph, false);
        let tensor = |&id: &ValueId| DeviceTensor { address: addresses[id.index()], ty: graph.ty(id).clone() };
        for node in own_nodes(&graph) {
            let inputs: Vec<DeviceTensor> = node.inputs.iter().map(tensor).collect();
            let outputs: Vec<DeviceTensor> = node.outputs.iter().map(tensor).collect();
            let many = [&inputs[..], &inputs[..1]].concat();
            for wrong in [&many[..], &inputs[..inputs.len() - 1], &inputs[..1], &[]] {
                let mut recorder = Recorder { arch: 90, ..Recorder::default() };
                let (workspace, workspace_bytes, tf32) = (1 << 40, 1 << 30, false);
                let queue = &mut recorder;
                let mut launch = Launch { inputs: wrong, outputs: &outputs, workspace, workspace_bytes, tf32, queue };
                let answer = node.op.op().cuda(&mut launch);
                assert!(matches!(answer, Err(CudaError::Mismatch { .. })), "{name}: {:?}: {answer:?}", node.op);
                assert!(recorder.launches.is_empty(), "{name}: {:?} put something on the queue", node.op);
            }
            refused.insert((node.op.op() as &dyn Any).type_id());
        }
    }
    // Both norms have one gradient.
    assert_eq!(refused.len(), 11, "not every op, or not every gradient, came by");
}

#[test]
fn what_is_no_cache_is_an_error() {
    let flat = DeviceTensor { address: 64, ty: Type::new(DType::F32, &[4, 3]) };
    let cases: [(&dyn Op, usize); 2] = [(&CacheWrite { at_position: false }, 2), (&CacheReorder, 3)];
    for (op, count) in cases {
        let (inputs, outputs, mut recorder) = (vec![flat.clone(); count], [flat.clone()], Recorder::default());
        let (workspace, workspace_bytes, tf32, queue) = (0, 0, false, &mut recorder);
        let mut launch = Launch { inputs: &inputs, outputs: &outputs, workspace, workspace_bytes, tf32, queue };
        let error = op.cuda(&mut launch).unwrap_err().to_string();
        assert!(error.starts_with("Cache") && error.contains("f32[4,3]"), "{error}");
    }
}
