//! What a kernel sees while it runs: addresses inside the arena, and the types found there.

use super::float::Float;
use crate::types::{DType, Type};

/// One value of a compiled phase.
#[derive(Clone, Debug)]
pub struct Tensor {
    pub ptr: *mut u8,
    pub ty: Type,
}

/// A Rust type that an element type is stored as.
pub trait Element: Copy + Send + Sync + 'static {
    const DTYPE: DType;
}
impl Element for f32 {
    const DTYPE: DType = DType::F32;
}
impl Element for f64 {
    const DTYPE: DType = DType::F64;
}
impl Element for i32 {
    const DTYPE: DType = DType::I32;
}
impl Element for i64 {
    const DTYPE: DType = DType::I64;
}

/// The inputs, outputs and workspace of one node.
///
/// The plan was verified before this exists: outputs overlap no input that is still needed, except where the op
/// declared an alias. An op that did reads the input through the output (see [`CpuIo::is_in_place`]).
pub struct CpuIo<'a> {
    pub(crate) inputs: &'a [Tensor],
    pub(crate) outputs: &'a [Tensor],
    pub(crate) workspace: *mut u8,
    pub(crate) workspace_bytes: usize,
}

impl<'a> CpuIo<'a> {
    /// # Safety
    /// Every tensor and the workspace lie inside memory that outlives this, each where its type needs no more bytes than
    /// there are, and a verified plan says that they overlap nowhere but in declared aliases.
    pub unsafe fn new(
        inputs: &'a [Tensor],
        outputs: &'a [Tensor],
        workspace: *mut u8,
        workspace_bytes: usize,
    ) -> CpuIo<'a> {
        CpuIo { inputs, outputs, workspace, workspace_bytes }
    }

    pub(crate) fn input_type(&self, index: usize) -> &'a Type {
        &self.inputs[index].ty
    }

    pub(crate) fn output_type(&self, index: usize) -> &'a Type {
        &self.outputs[index].ty
    }

    pub fn inputs(&self) -> usize {
        self.inputs.len()
    }

    pub(crate) fn input_ptr(&self, index: usize) -> *const u8 {
        self.inputs[index].ptr
    }

    pub(crate) fn output_ptr(&self, index: usize) -> *mut u8 {
        self.outputs[index].ptr
    }

    /// Whether the plan put this output where this input is.
    pub(crate) fn is_in_place(&self, output: usize, input: usize) -> bool {
        std::ptr::eq(self.outputs[output].ptr, self.inputs[input].ptr)
    }

    /// A row-major input as a slice. Not for inputs this node overwrites.
    pub fn input<T: Element>(&self, index: usize) -> &'a [T] {
        let tensor = &self.inputs[index];
        debug_assert!(tensor.ty.is_contiguous() && tensor.ty.dtype == T::DTYPE, "{}", tensor.ty);
        // SAFETY: the slot holds this many elements for as long as the node runs.
        unsafe { std::slice::from_raw_parts(tensor.ptr.cast(), tensor.ty.elements()) }
    }

    /// An output as a slice. Each output is taken at most once per run of the node.
    #[allow(clippy::mut_from_ref)]
    pub fn output<T: Element>(&self, index: usize) -> &'a mut [T] {
        let tensor = &self.outputs[index];
        debug_assert!(tensor.ty.dtype == T::DTYPE, "{}", tensor.ty);
        // SAFETY: the slot holds this many elements, and only this node writes it now.
        unsafe { std::slice::from_raw_parts_mut(tensor.ptr.cast(), tensor.ty.elements()) }
    }

    /// The workspace the op asked for, as elements.
    #[allow(clippy::mut_from_ref)]
    pub fn workspace<T: Element>(&self) -> &'a mut [T] {
        // SAFETY: the workspace slot belongs to this node while it runs.
        unsafe { std::slice::from_raw_parts_mut(self.workspace.cast(), self.workspace_bytes / size_of::<T>()) }
    }

    /// A one-element float input.
    pub fn scalar<T: Float + Element>(&self, index: usize) -> T {
        self.input::<T>(index)[0]
    }
}

/// Runs `$body` with `$t` standing for the float type behind a dtype: f32 to train, f64 to test gradients, which only
/// tests ask for.
macro_rules! with_float {
    ($dtype:expr, $t:ident => $body:expr) => {
        match $dtype {
            $crate::types::DType::F32 => {
                type $t = f32;
                $body
            }
            #[cfg(any(test, feature = "f64"))]
            $crate::types::DType::F64 => {
                type $t = f64;
                $body
            }
            other => unreachable!("the CPU computes in f32, and in f64 with the feature, not in {}", other.name()),
        }
    };
}
pub(crate) use with_float;
