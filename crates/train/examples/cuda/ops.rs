//! Every op's samples on the GPU against f64 on the CPU, from inputs that both hold exactly.

use crate::case::{Built, Case, Outcome as Found, cases};
use crate::{Outcome, Report, on_gpu};
use half::{bf16, f16};
use plimsoll_core::graph::Graph;
use plimsoll_core::graph::Target;
use plimsoll_core::kernels::cuda::{CudaError, Kernel};
use plimsoll_core::plan::{LayoutOptions, Phase, Program, lay_out};
use plimsoll_core::types::DType;
use plimsoll_cuda::{Bases, CudaOptions, Gpu, record_phase};
use plimsoll_exec::Executor;
use plimsoll_exec::cpu::CpuExecutor;
use std::collections::HashSet;
use std::error::Error;
use std::rc::Rc;
use std::time::Instant;

/// A way to compute, and the error it is allowed: ‖a − b‖ / ‖b‖.
struct Arithmetic {
    name: &'static str,
    float: DType,
    tf32: bool,
    allowed: f64,
}

const ARITHMETICS: [Arithmetic; 4] = [
    // A few hundred roundings of 6e-8 each, as for f32 on the CPU.
    Arithmetic { name: "f32", float: DType::F32, tf32: false, allowed: 3e-5 },
    // Factors keep 10 bits: 2⁻¹¹ each, two of them, in sums whose errors mostly cancel.
    Arithmetic { name: "tf32", float: DType::F32, tf32: true, allowed: 2e-3 },
    // Every value between ops is rounded to 8 bits, 2⁻⁹ each: a handful of ops in a row.
    Arithmetic { name: "bf16", float: DType::Bf16, tf32: false, allowed: 2e-2 },
    // The same with 11 bits.
    Arithmetic { name: "f16", float: DType::F16, tf32: false, allowed: 3e-3 },
];

/// Draws of every op's samples.
const ROUNDS: usize = 3;
/// Kernels that are compiled between two signs of life.
const KERNELS_AT_A_TIME: usize = 200;

pub(crate) fn check(gpu: &Rc<Gpu>, report: &mut Report, only: Option<&str>) -> Result<(), Box<dyn Error>> {
    let seed = std::env::var("PLIMSOLL_TEST_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(1);
    let mut cases = cases(seed, ROUNDS);
    cases.retain(|(name, _)| only.is_none_or(|text| name.contains(text)));
    compile_ahead(gpu, cases.iter().map(|(_, case)| case));
    for (name, case) in &cases {
        for arithmetic in &ARITHMETICS {
            let kind = format!("ops in {}", arithmetic.name);
            // An op that does not take these inputs at all is not asked.
            let Ok(built) = case.build(arithmetic.float, case.is_differentiable()) else { continue };
            let detail = |text: String| format!("{:?}: {text}", case.sample.op.op());
            match compare(gpu, case, built, arithmetic) {
                Ok(error) if error <= arithmetic.allowed => {
                    report.add(&kind, name, Outcome::Holds, format!("{error:e}"))
                }
                Ok(error) => {
                    let text = format!("off by {error:e}, allowed {:e}: {:?}", arithmetic.allowed, case.sample);
                    report.add(&kind, name, Outcome::Fails, text)
                }
                Err(error) => match error.downcast_ref::<CudaError>() {
                    Some(CudaError::NoKernel { .. }) => {
                        report.add(&kind, name, Outcome::Missing, detail(error.to_string()))
                    }
                    _ => report.add(&kind, name, Outcome::Fails, detail(error.to_string())),
                },
            }
        }
    }
    Ok(())
}

/// Compiles the kernels of all cases on all cores: one case at a time would leave most of them idle. What does not compile
/// shows again in its case.
fn compile_ahead<'a>(gpu: &Rc<Gpu>, cases: impl Iterator<Item = &'a Case>) {
    let (began, mut seen, mut kernels) = (Instant::now(), HashSet::new(), Vec::new());
    for case in cases {
        for kernel in ARITHMETICS.iter().flat_map(|a| kernels_of(case, a, gpu.arch()).unwrap_or_default()) {
            if seen.insert((kernel.source, kernel.defines.clone())) {
                kernels.push(kernel);
            }
        }
    }
    for (done, some) in kernels.chunks(KERNELS_AT_A_TIME).enumerate() {
        let loaded = gpu.load(some);
        let (done, seconds) = (done * KERNELS_AT_A_TIME + some.len(), began.elapsed().as_secs());
        println!("ops: {done} of {} kernels compiled after {seconds} s", kernels.len());
        loaded.unwrap_or_else(|error| println!("{error}"));
    }
}

/// What a case would launch.
fn kernels_of(case: &Case, arithmetic: &Arithmetic, arch: u32) -> Result<Vec<Kernel>, Box<dyn Error>> {
    let graph = case.build(arithmetic.float, case.is_differentiable())?.graph;
    let program = Program::new(vec![Phase { name: "only".into(), graph, repeat: 1 }])?;
    let layout = lay_out(&program, LayoutOptions { target: Target::CUDA, sharing: true })?;
    // Aligned as any arena is; variants depend on no more of an address.
    let bases = Bases { device: 1 << 40, host: 1 << 41 };
    let launches = record_phase(&program, &layout, 0, bases, arithmetic.tf32, arch)?;
    Ok(launches.iter().filter_map(|joined| joined.launch.kernel()).collect())
}

/// The largest relative error of an output or gradient.
fn compare(gpu: &Rc<Gpu>, case: &Case, built: Built, arithmetic: &Arithmetic) -> Result<f64, Box<dyn Error>> {
    let written: Vec<(String, Vec<f64>)> =
        case.inputs(&case.values).into_iter().map(|(name, values)| rounded(&built.graph, name, values)).collect();
    let exact = on_cpu(case, &written)?;
    let program = Program::new(vec![Phase { name: "only".into(), graph: built.graph.clone(), repeat: 1 }])?;
    let options = CudaOptions { tf32: arithmetic.tf32, ..CudaOptions::default() };
    let mut executor = on_gpu(gpu, &program, options)?;
    executor.poison_temporaries();
    for (name, values) in &written {
        let dtype = dtype_of(&built.graph, name);
        executor.write_resident(name, &encode(dtype, values))?;
    }
    executor.run(0);
    let found = built.outcome(|name| {
        let bytes = executor.read_output(0, name).or_else(|| executor.read_resident(name)).unwrap_or_default();
        decode(dtype_of(&built.graph, name), &bytes)
    });
    executor.check()?;
    // In half precision a sum's terms and its partial sums are rounded: what is allowed of a tenth would be one rounding.
    let floor = if arithmetic.float == DType::F32 { 0.1 } else { 0.2 };
    Ok(error(&found, &exact, floor))
}

/// As tests/conformance.rs measures f32 against f64: a gradient that cancels is as exact as its terms, of which `floor` is
/// the share of the whole gradient.
fn error(found: &Found, exact: &Found, floor: f64) -> f64 {
    let outputs = found.outputs.iter().zip(&exact.outputs).map(|(a, b)| relative(a, b, 1e-2));
    let whole = exact.grads.iter().flatten().flatten().map(|x| x * x).sum::<f64>().sqrt();
    let pairs = found.grads.iter().zip(&exact.grads).filter_map(|(a, b)| Some((a.as_ref()?, b.as_ref()?)));
    let grads = pairs.map(|(a, b)| relative(a, b, (floor * whole).max(1e-2)));
    // NaN must not get lost in a maximum.
    outputs.chain(grads).fold(0.0, |worst, error| if error > worst || error.is_nan() { error } else { worst })
}

/// ‖a − b‖ / max(‖b‖, floor); equal infinities do not differ.
fn relative(a: &[f64], b: &[f64], floor: f64) -> f64 {
    if a.len() != b.len() {
        return f64::NAN;
    }
    let norm = |v: &mut dyn Iterator<Item = f64>| v.map(|x| x * x).sum::<f64>().sqrt();
    let difference = norm(&mut a.iter().zip(b).map(|(x, y)| if x == y { 0.0 } else { x - y }));
    difference / norm(&mut b.iter().copied().filter(|x| !x.is_infinite())).max(floor)
}

fn on_cpu(case: &Case, written: &[(String, Vec<f64>)]) -> Result<Found, Box<dyn Error>> {
    let built = case.build(DType::F64, case.is_differentiable())?;
    let program = Program::new(vec![Phase { name: "only".into(), graph: built.graph.clone(), repeat: 1 }])?;
    let target = Target::cpu(2);
    let layout = lay_out(&program, LayoutOptions { target, sharing: true })?;
    let mut executor = CpuExecutor::new(&program, &layout, target.threads)?;
    for (name, values) in written {
        Executor::write_resident(&mut executor, name, &encode(dtype_of(&built.graph, name), values))?;
    }
    Executor::run(&mut executor, 0);
    Ok(built.outcome(|name| {
        let bytes = executor.read_output(0, name).or_else(|| executor.read_resident(name)).unwrap_or_default();
        decode(dtype_of(&built.graph, name), &bytes)
    }))
}

fn dtype_of(graph: &Graph, name: &str) -> DType {
    graph.find(name).map_or(DType::F32, |id| graph.ty(id).dtype)
}

/// Values that an input of this type holds exactly.
fn rounded(graph: &Graph, name: String, values: &[f64]) -> (String, Vec<f64>) {
    let dtype = dtype_of(graph, &name);
    let values = decode(dtype, &encode(dtype, values));
    (name, values)
}

fn encode(dtype: DType, values: &[f64]) -> Vec<u8> {
    let each = |bytes: &dyn Fn(f64) -> Vec<u8>| values.iter().flat_map(|&x| bytes(x)).collect();
    match dtype {
        DType::F64 => each(&|x| x.to_ne_bytes().into()),
        DType::F32 => each(&|x| (x as f32).to_ne_bytes().into()),
        DType::Bf16 => each(&|x| bf16::from_f64(x).to_ne_bytes().into()),
        DType::F16 => each(&|x| f16::from_f64(x).to_ne_bytes().into()),
        DType::I32 => each(&|x| (x as i32).to_ne_bytes().into()),
        DType::I64 => each(&|x| (x as i64).to_ne_bytes().into()),
        DType::Bool => each(&|x| vec![(x != 0.0) as u8]),
    }
}

fn decode(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    let each = |number: &dyn Fn(&[u8]) -> f64| bytes.chunks_exact(dtype.bytes()).map(number).collect();
    match dtype {
        DType::F64 => each(&|b| bytemuck::pod_read_unaligned(b)),
        DType::F32 => each(&|b| bytemuck::pod_read_unaligned::<f32>(b).into()),
        DType::Bf16 => each(&|b| bf16::from_bits(bytemuck::pod_read_unaligned(b)).to_f64()),
        DType::F16 => each(&|b| f16::from_bits(bytemuck::pod_read_unaligned(b)).to_f64()),
        DType::I32 => each(&|b| bytemuck::pod_read_unaligned::<i32>(b).into()),
        DType::I64 => each(&|b| bytemuck::pod_read_unaligned::<i64>(b) as f64),
        DType::Bool => each(&|b| b[0].into()),
    }
}
