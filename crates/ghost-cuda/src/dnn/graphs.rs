//! cuDNN's graphs: descriptors remember their attributes; a plan says what its operation works with.

use super::convolutions::{Convolution, Pass};
use super::sizes::element_bytes;
use crate::answer::{SUCCESS, Status, put};
use std::ffi::{c_int, c_void};

struct Attribute {
    name: c_int,
    count: i64,
    bytes: Vec<u8>,
}

/// One backend descriptor. They are never freed: others may still point to them, and they are small.
pub struct Descriptor {
    kind: c_int,
    attributes: Vec<Attribute>,
    /// The graph that a heuristic's answer is for.
    graph: Option<&'static Descriptor>,
}

const HEURISTIC_GRAPH: c_int = 201;
const HEURISTIC_RESULTS: c_int = 202;
const CONFIGURATION_ENGINE: c_int = 300;
const PLAN_CONFIGURATION: c_int = 401;
const PLAN_WORK_BYTES: c_int = 402;
const GRAPH_OPERATIONS: c_int = 801;
const GRAPH_ENGINES: c_int = 802;
const TENSOR_KIND: c_int = 901;
const TENSOR_EXTENTS: c_int = 902;
const TENSOR_STRIDES: c_int = 903;
const CONVOLUTION_DILATIONS: c_int = 102;
const CONVOLUTION_STEPS: c_int = 103;
const ENGINE_GRAPH: c_int = 1300;

const CONVOLUTION_FORWARD: c_int = 10;
const CONVOLUTION_WEIGHTS: c_int = 11;
const CONVOLUTION_INPUT: c_int = 12;
const MATRIX_PRODUCT: c_int = 19;

/// Bytes of one value of an attribute.
fn value_bytes(kind: c_int) -> usize {
    match kind {
        // Boolean, character
        2 | 24 => 1,
        // Handle, i64, f64, pointer, descriptor, fraction
        0 | 3 | 5 | 6 | 15 | 26 => 8,
        _ => 4,
    }
}

impl Descriptor {
    fn attribute(&self, name: c_int) -> Option<&Attribute> {
        self.attributes.iter().rev().find(|attribute| attribute.name == name)
    }

    /// Descriptors that an attribute points to.
    fn pointed(&self, name: c_int) -> Vec<&'static Descriptor> {
        let bytes = self.attribute(name).map_or(&[][..], |attribute| &attribute.bytes);
        let addresses = bytes.chunks_exact(8).filter_map(|chunk| chunk.try_into().ok().map(usize::from_ne_bytes));
        // SAFETY: attributes of this kind hold descriptors of ours, which are never freed.
        addresses.filter_map(|address| unsafe { (address as *const Descriptor).as_ref() }).collect()
    }

    fn one(&self, name: c_int) -> Option<&'static Descriptor> {
        self.pointed(name).first().copied()
    }

    fn numbers(&self, name: c_int) -> Vec<u64> {
        let bytes = self.attribute(name).map_or(&[][..], |attribute| &attribute.bytes);
        bytes.chunks_exact(8).filter_map(|chunk| chunk.try_into().ok().map(u64::from_ne_bytes)).collect()
    }

    /// Bytes of a tensor's element.
    fn element_bytes(&self) -> u64 {
        let kind = self.attribute(TENSOR_KIND).and_then(|attribute| attribute.bytes.get(..4)?.try_into().ok());
        kind.map_or(0, |kind| element_bytes(c_int::from_ne_bytes(kind)))
    }

    /// The graph that a plan runs: by its engine, or by the heuristic that gave its configuration.
    fn graph_of_plan(&self) -> Option<&'static Descriptor> {
        let configuration = self.one(PLAN_CONFIGURATION)?;
        let engine = configuration.one(CONFIGURATION_ENGINE);
        engine.and_then(|engine| engine.one(ENGINE_GRAPH)).or(configuration.graph)
    }

    fn work_bytes(&self) -> u64 {
        let operations = self.graph_of_plan().map_or_else(Vec::new, |graph| graph.pointed(GRAPH_OPERATIONS));
        if operations.iter().any(|operation| operation.kind == MATRIX_PRODUCT) {
            return 256;
        }
        operations.first().map_or(0, |operation| operation.convolution_bytes())
    }

    fn convolution_bytes(&self) -> u64 {
        let (pass, settings, weights, input, output) = match self.kind {
            CONVOLUTION_FORWARD => (Pass::Forward, 702, 703, 704, 705),
            CONVOLUTION_INPUT => (Pass::InputGradient, 708, 709, 710, 711),
            CONVOLUTION_WEIGHTS => (Pass::WeightGradient, 714, 715, 716, 717),
            _ => return 0,
        };
        let (Some(input), Some(weights), Some(output)) = (self.one(input), self.one(weights), self.one(output)) else {
            return 0;
        };
        let setting = |name| self.one(settings).map_or_else(Vec::new, |settings| settings.numbers(name));
        let any_above_one = |name| setting(name).iter().any(|number: &u64| *number > 1);
        let strides = input.numbers(TENSOR_STRIDES);
        let convolution = Convolution {
            input: input.numbers(TENSOR_EXTENTS),
            weights: weights.numbers(TENSOR_EXTENTS),
            output: output.numbers(TENSOR_EXTENTS),
            element_bytes: input.element_bytes(),
            channels_last: strides.get(1) == Some(&1) && strides.last() != Some(&1),
            strided: any_above_one(CONVOLUTION_STEPS),
            dilated: any_above_one(CONVOLUTION_DILATIONS),
        };
        convolution.work_bytes(pass)
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnBackendCreateDescriptor(kind: c_int, place: *mut *mut Descriptor) -> Status {
    let descriptor = Descriptor { kind, attributes: Vec::new(), graph: None };
    // SAFETY: the caller's place for the answer.
    unsafe { put(place, Box::into_raw(Box::new(descriptor))) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnBackendSetAttribute(
    descriptor: *mut Descriptor,
    name: c_int,
    kind: c_int,
    count: i64,
    values: *const c_void,
) -> Status {
    let mut bytes = vec![0; value_bytes(kind) * count.max(0) as usize];
    // SAFETY: a descriptor of ours, and `count` values of the caller's.
    unsafe {
        if !values.is_null() {
            bytes.as_mut_ptr().copy_from(values.cast(), bytes.len());
        }
        (*descriptor).attributes.push(Attribute { name, count, bytes });
    }
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnBackendGetAttribute(
    descriptor: *mut Descriptor,
    name: c_int,
    kind: c_int,
    wanted: i64,
    count: *mut i64,
    values: *mut c_void,
) -> Status {
    // SAFETY: descriptors of ours, and the caller's places for `wanted` answers.
    unsafe {
        let descriptor = &*descriptor;
        match name {
            HEURISTIC_RESULTS => offer_one(descriptor, wanted, values.cast()) + put(count, 1),
            PLAN_WORK_BYTES => put(values.cast(), descriptor.work_bytes() as i64) + put(count, 1),
            GRAPH_ENGINES => put(values.cast(), 1i64) + put(count, 1),
            CONFIGURATION_ENGINE if descriptor.attribute(name).is_none() => put(count, 1),
            _ => recall(descriptor.attribute(name), value_bytes(kind), wanted, count, values.cast()),
        }
    }
}

/// One configuration, for the graph that was asked about.
unsafe fn offer_one(heuristic: &Descriptor, wanted: i64, configurations: *mut *mut Descriptor) -> Status {
    if wanted > 0 && !configurations.is_null() {
        // SAFETY: the caller made the descriptors that are to be filled in, with ours.
        unsafe { (**configurations).graph = heuristic.one(HEURISTIC_GRAPH) };
    }
    SUCCESS
}

/// What was set, or zeros.
unsafe fn recall(attribute: Option<&Attribute>, size: usize, wanted: i64, count: *mut i64, values: *mut u8) -> Status {
    let room = size * wanted.max(0) as usize;
    // SAFETY: the caller has room for `wanted` values.
    unsafe {
        put(count, attribute.map_or(0, |attribute| attribute.count));
        match attribute {
            _ if values.is_null() => {}
            Some(attribute) => values.copy_from(attribute.bytes.as_ptr(), attribute.bytes.len().min(room)),
            None => values.write_bytes(0, room),
        }
    }
    SUCCESS
}
