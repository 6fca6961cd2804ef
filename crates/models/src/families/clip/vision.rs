//! The image tower: patches and a class token, read out at the class token.

use super::ClipVision;
use super::tower::Tower;
use crate::families::Build;
use crate::families::layers::reshape;
use plimsoll_core::graph::{Graph, GraphError, Init, ValueId};
use plimsoll_core::ops::*;
use plimsoll_core::types::Type;

type Built = Result<ValueId, GraphError>;

/// Transformers' initializer_range.
const DEVIATION: f64 = 0.02;

/// `pixels` (B, C, I, I) → (B, D), normed.
pub(super) fn pooled(sizes: &ClipVision, graph: &mut Graph, build: &Build) -> Built {
    let (batch, width) = (build.batch, sizes.hidden_size);
    let tower = tower(sizes);
    let x = graph.scope("embeddings", |g| embeddings(sizes, g, batch))?; // (B, T, D)
    let time = graph.shape(x)[1];
    let x = reshape(graph, "rows", x, &[batch * time, width])?;
    let x = tower.norm(graph, "pre_layrnorm", x)?; // the checkpoints' spelling
    let x = tower.run(graph, build, time, x, |g, name, x| {
        let x = reshape(g, &format!("{name}.by_time"), x, &[batch, time, width])?;
        let x = g.apply(name, Slice { axis: 1, start: 0, len: 1 }, &[x])?;
        reshape(g, &format!("{name}.rows"), x, &[batch, width])
    })?;
    tower.norm(graph, "post_layernorm", x)
}

fn tower(sizes: &ClipVision) -> Tower {
    Tower {
        width: sizes.hidden_size,
        heads: sizes.num_attention_heads,
        intermediate: sizes.intermediate_size,
        layers: sizes.num_hidden_layers,
        act: sizes.hidden_act,
        eps: sizes.layer_norm_eps,
        dropout: sizes.attention_dropout,
        causal: false,
    }
}

/// Class token and patches with their positions: (B, 1 + patches, D).
fn embeddings(sizes: &ClipVision, g: &mut Graph, batch: usize) -> Built {
    let (width, count) = (sizes.hidden_size, sizes.side() * sizes.side());
    let patches = patches(sizes, g, batch)?; // (B, patches, D)
    let class = g.parameter("class_embedding", &[width], Init::Normal((width as f64).powf(-0.5)), false)?;
    let positions = g.parameter("position_embedding.weight", &[1 + count, width], Init::Normal(DEVIATION), true)?;
    // The class token is the same for every image: it joins the positions, which are added to all of them.
    let class = reshape(g, "class", class, &[1, width])?;
    let first = Concat { axis: 0, lens: vec![1, count], present: vec![true, false] };
    let class = g.apply("class.padded", first, &[class])?;
    let places = g.apply("places", Binary::ADD, &[class, positions])?; // (1 + patches, D)
    let after = Concat { axis: 1, lens: vec![1, count], present: vec![false, true] };
    let patches = g.apply("patches.padded", after, &[patches])?;
    g.apply("sum", Binary::ADD, &[patches, places])
}

/// A convolution whose stride is its size: one product over patches cut out as rows. What is left over at the right and
/// lower edge is not seen.
fn patches(sizes: &ClipVision, g: &mut Graph, batch: usize) -> Built {
    let (channels, side, patch, width) = (sizes.num_channels, sizes.side(), sizes.patch_size, sizes.hidden_size);
    let (image, area) = (sizes.image_size, channels * patch * patch);
    let mut x = g.data("pixels", Type::new(g.float, &[batch, channels, image, image]))?;
    if side * patch < image {
        x = g.apply("seen.rows", Slice { axis: 2, start: 0, len: side * patch }, &[x])?;
        x = g.apply("seen", Slice { axis: 3, start: 0, len: side * patch }, &[x])?;
    }
    let x = reshape(g, "grid", x, &[batch, channels, side, patch, side, patch])?;
    let x = g.apply("cut", Permute { order: vec![0, 2, 4, 1, 3, 5] }, &[x])?; // (B, side, side, C, patch, patch)
    let x = reshape(g, "cut.rows", x, &[batch * side * side, area])?;
    let shape = [width, channels, patch, patch];
    let kernel = g.parameter("patch_embedding.weight", &shape, Init::Normal(DEVIATION), true)?;
    let kernel = reshape(g, "patch_embedding.flat", kernel, &[width, area])?;
    let x = g.apply("patch_embedding", MatMul::TRANSPOSED, &[x, kernel])?;
    reshape(g, "patches", x, &[batch, side * side, width])
}
