//! What attention launches on a card, without one: `attention_launches BATCH LENGTH HEADS WIDTH [causal] [mask]
//! [dropout] [bias] [f16] [--arch N]` prints the kernels of both directions as JSON, with the arguments and the arena that they
//! would have, and where memory is filled before them. benches/attention runs them beside other libraries' attention.

use plimsoll_core::autodiff::gradients;
use plimsoll_core::graph::{Class, Target};
use plimsoll_core::graph::{Component, Graph, GraphError, Init, InputKind, ValueId};
use plimsoll_core::kernels::cuda::{Arg, Recorded, Recorder};
use plimsoll_core::ops::{Attention, Bias, Binary, Cast, Reshape, Sum};
use plimsoll_core::plan::{Layout, LayoutOptions, Phase, Program, lay_out};
use plimsoll_core::types::{DType, Type};
use plimsoll_cuda::{Bases, record_node};
use serde_json::{Value, json};
use std::error::Error;

/// What addresses count from: an argument that lies past it is one.
const BASES: Bases = Bases { device: 1 << 40, host: 1 << 44 };
const DROPOUT: f32 = 0.1;
/// T5's relative bias: rows of its table, and the distance from which on they no longer change.
const BIAS_ROWS: usize = 32;
const BIAS_DISTANCE: usize = 128;

/// What is asked for.
struct Shape {
    sizes: [usize; 4],
    words: Vec<String>,
    arch: u32,
}

impl Shape {
    fn new(arguments: &[String]) -> Result<Shape, Box<dyn Error>> {
        let at = arguments.iter().position(|a| a == "--arch");
        let arch = at.and_then(|at| arguments.get(at + 1)).map_or(Ok(90), |n| n.parse())?;
        let sizes = arguments.iter().take(4).map(|n| n.parse()).collect::<Result<Vec<usize>, _>>()?;
        let sizes = sizes.try_into().map_err(|_| "batch, length, heads and width of a head are asked for")?;
        Ok(Shape { sizes, words: arguments.to_vec(), arch })
    }

    fn has(&self, word: &str) -> bool {
        self.words.iter().any(|w| w == word)
    }

    fn op(&self) -> Attention {
        let plain = Attention::plain((self.sizes[3] as f64).powf(-0.5));
        let (causal, dropout) = (self.has("causal"), self.has("dropout").then_some((DROPOUT, 7)));
        let bias = match self.has("bias") {
            true => Bias::Relative { bidirectional: !causal, max_distance: BIAS_DISTANCE },
            false => Bias::None,
        };
        Attention { causal, key_mask: self.has("mask"), dropout, bias, ..plain }
    }

    /// Attention, a loss and the gradient of what goes in.
    fn graph(&self) -> Result<Graph, GraphError> {
        let dtype = if self.has("f16") { DType::F16 } else { DType::Bf16 };
        let [batch, length, heads, width] = self.sizes;
        let mut graph = Graph::new("attention", dtype);
        let mut input = |name: &str, ty: Type| {
            graph.input(name, ty, InputKind::Resident { component: Component::Inputs, init: Init::Zeros })
        };
        let qkv = input("qkv", Type::new(dtype, &[batch, length, 3, heads, width]))?;
        let coefficients = input("coefficients", Type::new(dtype, &[batch, length, heads, width]))?;
        let mut inputs = vec![qkv];
        if self.has("bias") {
            inputs.push(input("bias", Type::new(dtype, &[BIAS_ROWS, heads]))?);
        }
        let wanted = inputs.clone();
        if self.has("mask") {
            inputs.push(input("mask", Type::new(DType::I32, &[batch, length]))?);
        }
        if self.has("dropout") {
            inputs.push(input("state", Type::new(DType::I64, &[3]))?);
        }
        let out = graph.apply_all("attention", self.op(), &inputs)?[0];
        let loss = weighted_sum(&mut graph, out, coefficients)?;
        let seed = graph.scalar("seed")?;
        let found = gradients(&mut graph, loss, seed, &wanted)?;
        found.into_iter().flatten().for_each(|grad| graph.keep(grad));
        Ok(graph)
    }
}

fn weighted_sum(graph: &mut Graph, out: ValueId, coefficients: ValueId) -> Result<ValueId, GraphError> {
    let elements = graph.ty(out).elements();
    let weighted = graph.apply("weighted", Binary::MUL, &[out, coefficients])?;
    let flat = graph.apply("flat", Reshape { shape: vec![elements] }, &[weighted])?;
    let wide = graph.apply("wide", Cast(DType::F32), &[flat])?;
    graph.apply("sum", Sum { axis: 0 }, &[wide])
}

fn argument(arg: &Arg) -> Value {
    match *arg {
        Arg::Address(n) if n >= BASES.device => json!(["arena", n - BASES.device]),
        Arg::Address(n) => json!(["u64", n]),
        Arg::U32(n) => json!(["u32", n]),
        Arg::U64(n) => json!(["u64", n]),
        Arg::I32(n) => json!(["i32", n]),
        Arg::I64(n) => json!(["i64", n]),
        Arg::F32(x) => json!(["f32", x]),
    }
}

fn launch(recorded: &Recorded) -> Option<Value> {
    if let Recorded::Fill { address, byte, bytes } = recorded {
        return Some(json!({ "fill": byte, "offset": address - BASES.device, "bytes": bytes }));
    }
    let Recorded::Kernel { kernel, grid, args } = recorded else { return None };
    let args: Vec<Value> = args.iter().map(argument).collect();
    Some(json!({
        "entry": kernel.entry, "file": kernel.source.name, "text": kernel.source.text, "defines": kernel.defines,
        "blocks": grid.blocks, "threads": grid.threads, "shared_bytes": grid.shared_bytes, "args": args,
    }))
}

/// The launches of all nodes of a class.
fn launches(program: &Program, layout: &Layout, class: Class, arch: u32) -> Result<Vec<Value>, Box<dyn Error>> {
    let mut recorder = Recorder { arch, ..Recorder::default() };
    for &id in &layout.phases[0].order {
        if program.phases[0].graph.node(id).op.op().class() == class {
            record_node(program, layout, 0, id, BASES, false, &mut recorder)?;
        }
    }
    Ok(recorder.launches.iter().filter_map(launch).collect())
}

fn main() -> Result<(), Box<dyn Error>> {
    let shape = Shape::new(&std::env::args().skip(1).collect::<Vec<_>>())?;
    let program = Program::new(vec![Phase { name: "only".into(), graph: shape.graph()?, repeat: 1 }])?;
    // Nothing shares memory: both directions can run again and again.
    let layout = lay_out(&program, LayoutOptions { target: Target::CUDA, sharing: false })?;
    let residents = program.residents.iter().zip(&layout.residents);
    let inputs: Vec<Value> = residents
        .map(|(resident, slot)| json!({ "name": resident.name, "offset": slot.offset, "bytes": slot.bytes }))
        .collect();
    let [forward, backward] =
        [Class::Attention, Class::AttentionGrad].map(|class| launches(&program, &layout, class, shape.arch));
    let found = json!({
        "arena_bytes": layout.arena_bytes, "inputs": inputs, "forward": forward?, "backward": backward?,
    });
    println!("{found}");
    Ok(())
}
