//! What a node does, in the quantities that its time is predicted from.

use crate::graph::{Class, Products};
use crate::graph::{Graph, NodeId};
use crate::types::{DType, Type, Types};
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

/// The quantities, in the order of [`Amounts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// The node itself: always one.
    Node,
    /// Operations, those of matrix products in whole tiles.
    Flops,
    /// Bytes that a cache near the cores still holds.
    NearBytes,
    /// Bytes that have to come from further away.
    FarBytes,
    /// Matrix products, and the elements that each of them goes through besides multiplying: the left matrix, the right
    /// one, and the result once per block of the sum.
    Products,
    Left,
    Right,
    Result,
    /// Bytes between the device and the host.
    HostBytes,
    /// Terms of the sums of a product that has fewer tiles than the device has multiprocessors: a tile takes as long as its
    /// sum is deep, however many multiprocessors have nothing to do.
    Depth,
}

pub const AMOUNTS: usize = 10;

/// One number per [`Amount`]: how much of it there is, or the seconds that one of it takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Amounts(pub [f64; AMOUNTS]);

impl Amounts {
    pub fn of(&self, amount: Amount) -> f64 {
        self.0[amount as usize]
    }

    pub fn set(&mut self, amount: Amount, value: f64) {
        self.0[amount as usize] = value;
    }

    pub fn with(mut self, amount: Amount, value: f64) -> Amounts {
        self.set(amount, value);
        self
    }

    pub fn dot(&self, other: &Amounts) -> f64 {
        self.0.iter().zip(other.0).map(|(a, b)| a * b).sum()
    }
}

/// How a device cuts work up, as far as amounts depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Grain {
    /// Rows and columns of a tile of a product: what does not fill one costs as much as one.
    pub tile: [usize; 2],
    /// Terms of a sum that are added up before the result is touched.
    pub depth: usize,
    /// Bytes that stay near from one node to the next.
    pub near_bytes: usize,
    /// Processors that take one tile at a time; a last round that not all have a tile for lasts as long as any other.
    pub units: usize,
}

/// How many multiprocessors can share a tile by parts of its sum, where there are fewer tiles than multiprocessors.
const SHARED_TILE: f64 = 4.0;

impl Grain {
    fn tiles(&self, Products { count, m, n, .. }: Products) -> usize {
        let [rows, columns] = self.tile.map(|size| size.max(1));
        (count * m.div_ceil(rows) * n.div_ceil(columns)).max(1)
    }

    /// Time of a product next to one that fills every tile and every multiprocessor.
    fn waste(&self, products: Products) -> f64 {
        let Products { m, n, .. } = products;
        let [rows, columns] = self.tile.map(|size| size.max(1));
        let padded = (m.next_multiple_of(rows) * n.next_multiple_of(columns)) as f64 / (m * n).max(1) as f64;
        let (tiles, units) = (self.tiles(products), self.units.max(1));
        let idle = (tiles.next_multiple_of(units) as f64) / tiles as f64;
        padded * if tiles < units { (idle / SHARED_TILE).max(1.0) } else { idle }
    }
}

/// What one node does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Work {
    pub class: Class,
    /// Element type of what is computed.
    pub dtype: DType,
    pub amounts: Amounts,
}

impl Work {
    /// Whether it is done in half precision.
    pub fn is_half(&self) -> bool {
        self.dtype.is_half()
    }

    pub fn of(graph: &Graph, id: NodeId, grain: &Grain) -> Work {
        let (work, traffic) = Work::and_traffic(graph, id, &graph.input_types(id), grain);
        let (near, far) = traffic.split(Work::is_far(graph, id));
        Work { amounts: work.amounts.with(Amount::NearBytes, near).with(Amount::FarBytes, far), ..work }
    }

    /// Whether an input of a node is far: it was written in another part of the step, or lives over phases.
    pub(super) fn is_far(graph: &Graph, id: NodeId) -> impl Fn(usize) -> bool + '_ {
        let node = graph.node(id);
        move |at| graph.producer(node.inputs[at]).is_none_or(|from| graph.node(from).role != node.role)
    }

    /// All but the bytes of the device; and these. `inputs`: the types of what the node reads.
    pub(super) fn and_traffic(graph: &Graph, id: NodeId, inputs: &[Type], grain: &Grain) -> (Work, Traffic) {
        let node = graph.node(id);
        let op = node.op.op();
        let class = op.class();
        let outputs: Types = node.outputs.iter().map(|&value| graph.ty(value).clone()).collect();
        let dtype = inputs.iter().chain(&outputs).map(|ty| ty.dtype).find(|d| d.is_float()).unwrap_or(graph.float);
        if class == Class::View {
            return (Work { class, dtype, amounts: Amounts::default() }, Traffic::default());
        }
        let cost = op.cost(inputs, &outputs);
        let amounts = Amounts::default()
            .with(Amount::Node, 1.0)
            .with(Amount::Flops, cost.flops)
            .with(Amount::HostBytes, op.host_bytes(inputs, &outputs));
        let products = op.products(inputs, &outputs);
        let amounts = products.map_or(amounts, |p| with_products(amounts, p, grain));
        (Work { class, dtype, amounts }, Traffic::new(cost.bytes, inputs, &outputs, grain.near_bytes))
    }
}

/// What a node reads and writes, before it is known which of its inputs are near.
#[derive(Default)]
pub(super) struct Traffic {
    bytes: f64,
    /// Of each input, its part of them.
    shares: SmallVec<[f32; 4]>,
    /// The part that the near cache does not hold, of what is near.
    spilled: f64,
}

impl Traffic {
    fn new(bytes: f64, inputs: &[Type], outputs: &[Type], near_bytes: usize) -> Traffic {
        let size = |ty: &Type| (ty.elements() * ty.dtype.bytes()) as f64;
        let total = inputs.iter().chain(outputs).map(size).sum::<f64>().max(1.0);
        let shares = inputs.iter().map(|ty| (size(ty) / total) as f32).collect();
        Traffic { bytes, shares, spilled: (1.0 - near_bytes as f64 / total).max(0.0) }
    }

    /// Bytes that are near and far: inputs that are far, and what is more than the near cache holds.
    pub(super) fn split(&self, is_far: impl Fn(usize) -> bool) -> (f64, f64) {
        let far: f64 = (0..self.shares.len()).filter(|&at| is_far(at)).map(|at| f64::from(self.shares[at])).sum();
        let far = self.bytes * (far + (1.0 - far) * self.spilled);
        (self.bytes - far, far)
    }
}

fn with_products(amounts: Amounts, products: Products, grain: &Grain) -> Amounts {
    let Products { count, m, n, k } = products;
    let (count, wasted) = (count as f64, products.flops() * (grain.waste(products) - 1.0));
    let elements = |a: usize, b: usize| count * a as f64 * b as f64;
    amounts
        .with(Amount::Flops, amounts.of(Amount::Flops) + wasted)
        .with(Amount::Products, count)
        .with(Amount::Left, elements(m, k))
        .with(Amount::Right, elements(k, n.next_multiple_of(grain.tile[1].max(1))))
        .with(Amount::Result, elements(m, n) * k.div_ceil(grain.depth.max(1)) as f64)
        .with(Amount::Depth, if grain.tiles(products) < grain.units { k as f64 } else { 0.0 })
}
