//! Recurrent layers: the layout of their weights, and what they work with and keep for the backward pass.

use super::descriptors::{Dropout, Tensor};
use super::sizes::element_bytes;
use crate::answer::{SUCCESS, Status, put};
use crate::handles::Handle;
use std::ffi::{c_int, c_void};

#[derive(Clone, Copy, Default)]
pub struct Network {
    gates: u64,
    directions: u64,
    layers: u64,
    input: u64,
    hidden: u64,
    kind: c_int,
    cell: c_int,
    algorithm: c_int,
    /// Whether values are dropped between layers.
    drops: bool,
}

/// Steps, batch and width of what goes in.
#[derive(Clone, Copy, Default)]
pub struct Data {
    steps: u64,
    batch: u64,
}

/// The algorithm that keeps the weights of small layers in registers.
const SMALL: c_int = 3;
const LSTM: c_int = 2;
const GRU: c_int = 3;
const BIDIRECTIONAL: c_int = 1;

impl Network {
    /// Width of what a layer reads.
    fn input_of(&self, layer: u64) -> u64 {
        if layer == 0 { self.input } else { self.hidden * self.directions }
    }

    /// Elements of one direction's matrices in a layer.
    fn matrices(&self, layer: u64) -> u64 {
        self.gates * self.hidden * (self.input_of(layer) + self.hidden)
    }

    fn biases(&self) -> u64 {
        self.layers * self.directions * 2 * self.gates * self.hidden
    }

    fn weight_bytes(&self) -> u64 {
        let matrices: u64 = (0..self.layers).map(|layer| self.directions * self.matrices(layer)).sum();
        (matrices + self.biases()) * element_bytes(self.kind)
    }

    /// Where a gate's matrix starts, in elements: matrices of all layers first, then all biases.
    fn matrix_at(&self, pseudo_layer: u64, gate: u64) -> u64 {
        let before: u64 = (0..pseudo_layer).map(|earlier| self.matrices(earlier / self.directions)).sum();
        let input = self.input_of(pseudo_layer / self.directions);
        let inside = match gate.checked_sub(self.gates) {
            None => gate * self.hidden * input,
            Some(recurrent) => self.gates * self.hidden * input + recurrent * self.hidden * self.hidden,
        };
        before + inside
    }

    fn bias_at(&self, pseudo_layer: u64, gate: u64) -> u64 {
        let matrices: u64 = (0..self.layers).map(|layer| self.directions * self.matrices(layer)).sum();
        matrices + (pseudo_layer * 2 * self.gates + gate) * self.hidden
    }

    fn matrix_width(&self, pseudo_layer: u64, gate: u64) -> u64 {
        if gate < self.gates { self.input_of(pseudo_layer / self.directions) } else { self.hidden }
    }

    /// Values of a whole layer in one direction, for each unit.
    fn units(&self, data: &Data) -> u64 {
        data.steps * data.batch * self.hidden
    }

    /// Kept for the backward pass: gates and cells of every layer, what goes from layer to layer, and bits of what was
    /// dropped there. To the byte what cuDNN 9.19 says of 8,000 networks (`tools/ghost/gpu/recurrent.py`).
    fn kept_bytes(&self, data: &Data) -> u64 {
        let of_a_layer = match self.cell {
            LSTM => 5,
            GRU => 6,
            _ => 1,
        };
        let between = self.layers.saturating_sub(1);
        let values = self.units(data) * self.directions * (self.layers * of_a_layer + between);
        let bits = (self.units(data) * self.directions).div_ceil(8).next_multiple_of(32);
        let masks = if self.drops { between * self.directions * bits } else { 0 };
        (values * element_bytes(self.kind)).next_multiple_of(32) + masks + 256
    }

    /// Worked with: weights once more, values around a layer, and 8 MiB for the products of each. Read off the same
    /// networks: both directions to the byte for most, one direction within 2 % of it.
    fn work_bytes(&self, data: &Data) -> u64 {
        let counts = self.work_counts();
        let (rows, wide) = (data.steps * data.batch, self.hidden.max(self.input));
        let spaces = [rows * self.hidden, rows * self.input, rows * wide, data.batch * self.hidden];
        let values: f64 = counts.iter().zip(spaces).map(|(count, space)| count * space as f64).sum();
        let small = if self.algorithm == SMALL { self.small_count() * (rows * self.hidden) as f64 } else { 0.0 };
        let weights: u64 = (0..self.layers).map(|layer| self.directions * self.matrices(layer)).sum();
        let elements = weights + (values + small) as u64;
        elements * element_bytes(self.kind) + self.layers * self.directions * PRODUCT_BYTES + 288
    }

    /// How often hidden values, inputs, the wider of both, and hidden values of one step are there.
    fn work_counts(&self) -> [f64; 4] {
        let layers = self.layers as f64;
        match (self.directions, self.cell, self.layers) {
            (2, LSTM, _) => [9.0, 1.0, 5.0, 24.0 * layers],
            (2, GRU, 1) => [6.8, 0.6, 5.3, 14.0],
            (2, _, 1) => [6.0, 2.0, 4.0, 14.0],
            (2, ..) => [8.0, 2.0, 4.0, 14.0 * layers],
            (_, LSTM, 1) => [3.0, 1.0, 2.0, 10.0],
            (_, LSTM, _) => [2.9, 0.8, 2.1, 10.5 * layers],
            (_, _, 1) => [3.0, 2.0, 1.0, 5.0],
            (_, GRU, _) => [2.2, 1.2, 1.8, 5.5 * layers],
            _ => [2.2, 2.0, 1.0, 6.0 * layers],
        }
    }

    /// Hidden values more for the algorithm of small layers.
    fn small_count(&self) -> f64 {
        let stacked = self.directions == 1 && self.layers > 1;
        match self.cell {
            LSTM => 15.0 + if stacked { 0.9 } else { 0.0 },
            GRU => 14.0 + if stacked { 1.8 } else { 0.0 },
            _ => 9.0 + if stacked { 1.8 } else { 0.0 },
        }
    }
}

/// Of each layer's products, in each direction.
const PRODUCT_BYTES: u64 = 8 << 20;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnCreateRNNDescriptor(descriptor: *mut *mut Network) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { put(descriptor, Box::into_raw(Box::default())) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnDestroyRNNDescriptor(descriptor: *mut Network) -> Status {
    if !descriptor.is_null() {
        // SAFETY: it came from cudnnCreateRNNDescriptor, and the caller gives it up.
        drop(unsafe { Box::from_raw(descriptor) });
    }
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnCreateRNNDataDescriptor(descriptor: *mut *mut Data) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { put(descriptor, Box::into_raw(Box::default())) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnDestroyRNNDataDescriptor(descriptor: *mut Data) -> Status {
    if !descriptor.is_null() {
        // SAFETY: it came from cudnnCreateRNNDataDescriptor, and the caller gives it up.
        drop(unsafe { Box::from_raw(descriptor) });
    }
    SUCCESS
}

fn gates_of(cell: c_int) -> u64 {
    match cell {
        LSTM => 4,
        GRU => 3,
        _ => 1,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnSetRNNDescriptor_v8(
    descriptor: *mut Network,
    algorithm: c_int,
    cell: c_int,
    _bias: c_int,
    direction: c_int,
    _input_mode: c_int,
    kind: c_int,
    _precision: c_int,
    _math: c_int,
    input: i32,
    hidden: i32,
    _projection: i32,
    layers: i32,
    dropout: *const Dropout,
    _flags: u32,
) -> Status {
    // SAFETY: a descriptor of ours, where there is one.
    let drops = unsafe { dropout.as_ref() }.is_some_and(|dropout| dropout.share > 0.0);
    let network = Network {
        gates: gates_of(cell),
        directions: if direction == BIDIRECTIONAL { 2 } else { 1 },
        layers: layers.max(0) as u64,
        input: input.max(0) as u64,
        hidden: hidden.max(0) as u64,
        kind,
        cell,
        algorithm,
        drops,
    };
    // SAFETY: a descriptor of ours.
    unsafe { put(descriptor, network) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnSetRNNDataDescriptor(
    descriptor: *mut Data,
    _kind: c_int,
    _layout: c_int,
    steps: c_int,
    batch: c_int,
    _width: c_int,
    _lengths: *const c_int,
    _padding: *mut c_void,
) -> Status {
    // SAFETY: a descriptor of ours.
    unsafe { put(descriptor, Data { steps: steps.max(0) as u64, batch: batch.max(0) as u64 }) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnGetRNNWeightSpaceSize(_: Handle, network: *const Network, bytes: *mut usize) -> Status {
    // SAFETY: a descriptor of ours, and the caller's place for the answer.
    unsafe { put(bytes, (*network).weight_bytes() as usize) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnGetRNNTempSpaceSizes(
    _handle: Handle,
    network: *const Network,
    training: c_int,
    data: *const Data,
    work: *mut usize,
    kept: *mut usize,
) -> Status {
    // SAFETY: descriptors of ours, and the caller's places for the answers.
    unsafe {
        let (network, data) = (&*network, &*data);
        put(work, network.work_bytes(data) as usize);
        put(kept, if training != 0 { network.kept_bytes(data) as usize } else { 0 })
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnGetRNNWeightParams(
    _handle: Handle,
    network: *const Network,
    pseudo_layer: i32,
    _bytes: usize,
    weights: *const c_void,
    gate: i32,
    matrix_shape: *mut Tensor,
    matrix: *mut *const c_void,
    bias_shape: *mut Tensor,
    bias: *mut *const c_void,
) -> Status {
    // SAFETY: descriptors of ours, and the caller's places for the answers.
    unsafe {
        let network = &*network;
        let (layer, gate) = (pseudo_layer.max(0) as u64, gate.max(0) as u64);
        let size = element_bytes(network.kind);
        let (hidden, width) = (network.hidden as c_int, network.matrix_width(layer, gate) as c_int);
        put(matrix_shape, Tensor { kind: network.kind, extents: [1, hidden, width] });
        put(bias_shape, Tensor { kind: network.kind, extents: [1, hidden, 1] });
        put(matrix, weights.wrapping_byte_add((network.matrix_at(layer, gate) * size) as usize));
        put(bias, weights.wrapping_byte_add((network.bias_at(layer, gate) * size) as usize))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_weights_of_a_network_lie_side_by_side_and_fill_its_space() {
        let network = Network { gates: 4, directions: 2, layers: 2, input: 5, hidden: 3, ..Network::default() };
        let mut pieces = Vec::new();
        for layer in 0..4 {
            for gate in 0..8 {
                pieces.push((network.matrix_at(layer, gate), 3 * network.matrix_width(layer, gate)));
                pieces.push((network.bias_at(layer, gate), 3));
            }
        }
        pieces.sort_unstable();
        let end = pieces.iter().fold(0, |end, (start, length)| {
            assert_eq!(*start, end);
            end + length
        });
        assert_eq!(end * 4, network.weight_bytes());
    }

    /// What cuDNN 9.19 said on an H200.
    #[test]
    fn spaces_are_what_cudnn_says() {
        let lstm = Network {
            gates: 4,
            directions: 2,
            layers: 2,
            input: 256,
            hidden: 256,
            kind: 0,
            cell: LSTM,
            algorithm: 0,
            drops: true,
        };
        for (kind, batch, work, kept) in [
            (0, 1, 45_011_232, 1_359_616),
            (0, 16, 59_572_608, 21_750_016),
            (2, 1, 39_282_976, 683_776),
            (2, 12, 44_622_176, 8_202_496),
        ] {
            let (network, data) = (Network { kind, ..lstm }, Data { steps: 60, batch });
            assert_eq!(network.kept_bytes(&data), kept);
            assert!(network.work_bytes(&data).abs_diff(work) < 512, "{} {work}", network.work_bytes(&data));
        }
        let one_way = Network { directions: 1, gates: 3, cell: GRU, drops: false, ..lstm };
        assert_eq!(one_way.kept_bytes(&Data { steps: 10, batch: 4 }), 10 * 4 * 256 * 13 * 4 + 256);
    }
}
