//! What a node does, in the quantities that its time is predicted from.

use crate::graph::{Class, Products};
use crate::graph::{Graph, NodeId, ValueId};
use crate::types::{DType, Type};
use serde::{Deserialize, Serialize};

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
        let node = graph.node(id);
        let op = node.op.op();
        let class = op.class();
        let (inputs, outputs) = (types(graph, &node.inputs), types(graph, &node.outputs));
        let dtype = inputs.iter().chain(&outputs).map(|ty| ty.dtype).find(|d| d.is_float()).unwrap_or(graph.float);
        if class == Class::View {
            return Work { class, dtype, amounts: Amounts::default() };
        }
        let cost = op.cost(&inputs, &outputs);
        let far = cost.bytes * far_share(graph, id, grain.near_bytes);
        let amounts = Amounts::default()
            .with(Amount::Node, 1.0)
            .with(Amount::Flops, cost.flops)
            .with(Amount::NearBytes, cost.bytes - far)
            .with(Amount::FarBytes, far)
            .with(Amount::HostBytes, op.host_bytes(&inputs, &outputs));
        let products = op.products(&inputs, &outputs);
        Work { class, dtype, amounts: products.map_or(amounts, |p| with_products(amounts, p, grain)) }
    }
}

fn types(graph: &Graph, values: &[ValueId]) -> Vec<Type> {
    values.iter().map(|&v| graph.ty(v).clone()).collect()
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

/// The share of a node's bytes that is not near: what was written in another part of the step, what lives over phases,
/// and what is more than the near cache holds.
fn far_share(graph: &Graph, id: NodeId, near_bytes: usize) -> f64 {
    let node = graph.node(id);
    let bytes = |v: ValueId| (graph.ty(v).elements() * graph.ty(v).dtype.bytes()) as f64;
    let is_far = |v: ValueId| graph.producer(v).is_none_or(|from| graph.node(from).role != node.role);
    let far: f64 = node.inputs.iter().filter(|&&v| is_far(v)).map(|&v| bytes(v)).sum();
    let near: f64 = node.inputs.iter().filter(|&&v| !is_far(v)).chain(&node.outputs).map(|&v| bytes(v)).sum();
    let total = far + near;
    let spilled = (1.0 - near_bytes as f64 / total.max(1.0)).max(0.0);
    (far + near * spilled) / total.max(1.0)
}
