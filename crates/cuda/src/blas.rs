//! Matrix products by cuBLASLt, in workspaces that lie in the arena. Which algorithm is used for a shape is found by
//! timing once, and remembered: on disk for the same card and library, and in the plan of a run, whose bits depend on it.

use super::compile;
use super::driver::{Event, Stream};
use super::libraries::Library;
use cudarc::cublaslt::{result, sys};
use plimsoll_core::kernels::cuda::{CudaError, Gemm, Matrix};
use plimsoll_core::types::DType;
use plimsoll_exec::{Algorithm, Algorithms};
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ops::Range;
use std::path::PathBuf;

/// Candidates that are timed, as the library ranks them.
const CANDIDATES: usize = 12;
/// Parts that deep sums are tried in besides: the library's ranking hardly ever splits them where it should.
const PARTS: [u32; 3] = [4, 8, 16];
/// Of how many of the candidates.
const SPLIT_CANDIDATES: usize = 6;
/// Partial sums are added in f32, in a fixed order.
const IN_COMPUTE_TYPE: u32 = 2;
/// Counted up when other algorithms are timed than before: what was remembered is then forgotten.
const GENERATION: u32 = 2;
/// Timings of each; the fastest counts.
const TRIALS: usize = 2;
/// Runs in a timing, one behind the other: a single small product would take as long as its launch.
const RUNS: usize = 8;
/// What is filled first, so that the device still has something to do while the host puts the runs on the stream.
const HEAD_START_BYTES: u64 = 128 << 20;
/// Operands that may lie in there become ordinary numbers: 0.0115 in every float type.
const FILLING: u8 = 0x3c;
/// What the library may at most assume about addresses, and what it wants of a workspace.
const ALIGNMENT: u64 = 256;

pub(super) struct Blas {
    handle: sys::cublasLtHandle_t,
    /// All that is known for this card.
    algorithms: BTreeMap<String, Algorithm>,
    file: Option<PathBuf>,
    is_changed: bool,
    /// Those of this run, and whether somebody was told about the latest.
    used: Algorithms,
    is_told: bool,
}

fn check(call: &'static str, answer: Result<(), result::CublasError>) -> Result<(), CudaError> {
    answer.map_err(|error| CudaError::Driver { call, cause: error.to_string() })
}

impl Blas {
    /// `card` and the version of the library say whose algorithms are kept in `cache`.
    pub fn new(card: &str, cache: Option<PathBuf>) -> Result<Blas, CudaError> {
        Library::CublasLt.load()?;
        // SAFETY: a query.
        let version = unsafe { sys::cublasLtGetVersion() };
        let card: String = card.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let file = cache.map(|folder| folder.join(format!("products-{card}-{version}-{GENERATION}.json")));
        let handle = result::create_handle();
        let handle = handle.map_err(|error| CudaError::Driver { call: "cublasLtCreate", cause: error.to_string() })?;
        let text = file.as_ref().and_then(|file| std::fs::read(file).ok());
        let algorithms = text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
        let used = Algorithms { library: version, algorithms: BTreeMap::new() };
        Ok(Blas { handle, algorithms, file, is_changed: false, used, is_told: true })
    }

    /// Goes on with the algorithms of an earlier run, whatever is known here.
    pub fn adopt(&mut self, products: &Algorithms) {
        if products.library == self.used.library {
            self.algorithms.extend(products.algorithms.clone());
            self.used.algorithms.extend(products.algorithms.clone());
        }
    }

    /// Those in use, if any were added since the last time.
    pub fn added(&mut self) -> Option<Algorithms> {
        (!std::mem::replace(&mut self.is_told, true)).then(|| self.used.clone())
    }

    /// A product ready to run. `scratch` is memory whose content is of no use now: candidates are timed there.
    pub fn prepare(&mut self, gemm: &Gemm, stream: &Stream, scratch: Range<u64>) -> Result<Product, CudaError> {
        let mut product = Product::new(gemm)?;
        let key = key(gemm);
        let known = self.algorithms.get(&key).copied().filter(|&algorithm| self.allows(&product, algorithm));
        product.algorithm = match known {
            Some(algorithm) => algorithm,
            None => self.choose(&mut product, gemm, stream, scratch)?,
        };
        if known.is_none() {
            self.algorithms.insert(key.clone(), product.algorithm);
            self.is_changed = true;
        }
        self.is_told &= self.used.algorithms.insert(key, product.algorithm) == Some(product.algorithm);
        Ok(product)
    }

    /// Writes what was found since the last time.
    pub fn save(&mut self) {
        if let (Some(file), true, Ok(text)) = (&self.file, self.is_changed, serde_json::to_vec(&self.algorithms)) {
            compile::store(file, &text);
        }
        self.is_changed = false;
    }

    pub fn run(&self, product: &Product, stream: &Stream) -> Result<(), CudaError> {
        product.run(self.handle, stream, product.c_address)
    }

    /// Whether a remembered algorithm does this product inside its workspace.
    fn allows(&self, product: &Product, algorithm: Algorithm) -> bool {
        let algorithm = sys::cublasLtMatmulAlgo_t { data: algorithm };
        let mut found = std::mem::MaybeUninit::<sys::cublasLtMatmulHeuristicResult_t>::zeroed();
        // SAFETY: the descriptors live in `product`; the answer is read only if the call succeeded.
        unsafe {
            let Product { operation, a, b, c, .. } = product;
            let answer = sys::cublasLtMatmulAlgoCheck(
                self.handle,
                operation.0,
                a.0,
                b.0,
                c.0,
                c.0,
                &algorithm,
                found.as_mut_ptr(),
            );
            answer.result().is_ok() && (*found.as_ptr()).workspaceSize <= product.workspace_bytes
        }
    }

    fn choose(
        &self,
        product: &mut Product,
        gemm: &Gemm,
        stream: &Stream,
        scratch: Range<u64>,
    ) -> Result<Algorithm, CudaError> {
        let candidates = self.candidates(product, gemm)?;
        let workspace = product.workspace..product.workspace + product.workspace_bytes as u64;
        let output = place_of_output(gemm.c.address % ALIGNMENT, span_bytes(gemm), &scratch, &workspace);
        let Some(output) = output.filter(|_| candidates.len() > 1) else { return Ok(candidates[0]) };
        let mut best: Option<(f32, Algorithm)> = None;
        for algorithm in candidates {
            product.algorithm = algorithm;
            let Ok(ms) = self.time(product, stream, output, &scratch) else { continue };
            if best.is_none_or(|(fastest, _)| ms < fastest) {
                best = Some((ms, algorithm));
            }
        }
        // The last candidate's own error, if none could run.
        best.map_or_else(
            || self.time(product, stream, output, &scratch).map(|_| product.algorithm),
            |(_, found)| Ok(found),
        )
    }

    /// Milliseconds of the runs at their fastest, written to `output`.
    fn time(&self, product: &Product, stream: &Stream, output: u64, scratch: &Range<u64>) -> Result<f32, CudaError> {
        let (start, end) = (Event::new()?, Event::new()?);
        product.run(self.handle, stream, output)?;
        let mut fastest = f32::INFINITY;
        for _ in 0..TRIALS {
            let head_start = (scratch.end - scratch.start).min(HEAD_START_BYTES);
            stream.fill(scratch.start, FILLING, head_start as usize)?;
            start.record(stream)?;
            (0..RUNS).try_for_each(|_| product.run(self.handle, stream, output))?;
            end.record(stream)?;
            end.wait()?;
            fastest = fastest.min(end.ms_since(&start)?);
        }
        Ok(fastest)
    }

    /// What the library proposes within the workspace, likeliest first.
    fn candidates(&self, product: &Product, gemm: &Gemm) -> Result<Vec<Algorithm>, CudaError> {
        use sys::cublasLtMatmulPreferenceAttributes_t::*;
        let preference = Preference::new()?;
        preference.set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &product.workspace_bytes)?;
        preference.set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &IN_COMPUTE_TYPE)?;
        // The library's first operand is our second.
        preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &alignment(&gemm.b))?;
        preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &alignment(&gemm.a))?;
        preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &alignment(&gemm.c))?;
        preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &alignment(&gemm.c))?;
        let mut found = [std::mem::MaybeUninit::<sys::cublasLtMatmulHeuristicResult_t>::zeroed(); CANDIDATES];
        let mut count = 0;
        // SAFETY: all descriptors are alive; the library writes at most as many answers as there is room for.
        let found: Vec<_> = unsafe {
            let Product { operation, a, b, c, .. } = product;
            let answer = sys::cublasLtMatmulAlgoGetHeuristic(
                self.handle,
                operation.0,
                a.0,
                b.0,
                c.0,
                c.0,
                preference.0,
                CANDIDATES as i32,
                found.as_mut_ptr().cast(),
                &mut count,
            );
            answer.result().map_err(|error| refused(gemm, &error.to_string()))?;
            found[..(count.max(0) as usize).min(CANDIDATES)].iter().map(|answer| *answer.as_ptr()).collect()
        };
        let usable = |answer: &&sys::cublasLtMatmulHeuristicResult_t| answer.state.result().is_ok();
        let mut algorithms: Vec<Algorithm> = found.iter().filter(usable).map(|answer| answer.algo.data).collect();
        if algorithms.is_empty() {
            return Err(refused(gemm, "no algorithm"));
        }
        if is_deep(gemm) {
            algorithms.extend(self.split(product, &algorithms));
        }
        Ok(algorithms)
    }

    /// The first of these algorithms with their sums in parts, as far as they can do that inside the workspace.
    fn split(&self, product: &Product, algorithms: &[Algorithm]) -> Vec<Algorithm> {
        let first = &algorithms[..algorithms.len().min(SPLIT_CANDIDATES)];
        let variants = first.iter().flat_map(|&algorithm| PARTS.map(|parts| in_parts(algorithm, parts)));
        let mut found: Vec<Algorithm> = Vec::new();
        for variant in variants.flatten() {
            if !algorithms.contains(&variant) && !found.contains(&variant) && self.allows(product, variant) {
                found.push(variant);
            }
        }
        found
    }
}

/// Whether the sums are long and the results so few that most of a card would idle.
fn is_deep(gemm: &Gemm) -> bool {
    let tiles = gemm.batch * gemm.m.div_ceil(64) * gemm.n.div_ceil(64);
    gemm.k >= 1024 && tiles <= 64
}

/// `None` if the library does not know how.
fn in_parts(algorithm: Algorithm, parts: u32) -> Option<Algorithm> {
    use sys::cublasLtMatmulAlgoConfigAttributes_t::*;
    let mut algorithm = sys::cublasLtMatmulAlgo_t { data: algorithm };
    let mut set = |attribute, value: &u32| {
        let (value, size) = ((value as *const u32).cast::<c_void>(), size_of::<u32>());
        // SAFETY: both attributes are 32 bits; the library only changes its own description of the algorithm.
        unsafe { sys::cublasLtMatmulAlgoConfigSetAttribute(&mut algorithm, attribute, value, size).result().is_ok() }
    };
    let is_set =
        set(CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &parts) && set(CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &IN_COMPUTE_TYPE);
    is_set.then_some(algorithm.data)
}

fn refused(gemm: &Gemm, cause: &str) -> CudaError {
    CudaError::Driver { call: "cublasLtMatmulAlgoGetHeuristic", cause: format!("{cause} for {gemm:?}") }
}

impl Drop for Blas {
    fn drop(&mut self) {
        // SAFETY: created in `new`.
        let _ = unsafe { result::destroy_handle(self.handle) };
    }
}

/// Everything that the choice of an algorithm depends on; addresses only by their alignment.
fn key(gemm: &Gemm) -> String {
    let matrix = |m: &Matrix| {
        let Matrix { dtype, row_stride, column_stride, batch_stride, .. } = m;
        format!("{}/{row_stride}/{column_stride}/{batch_stride}/{}", dtype.name(), alignment(m))
    };
    let Gemm { m, n, k, batch, a, b, c, beta, bias, tf32, workspace_bytes, .. } = gemm;
    let (bias, workspace) = (bias.is_some(), workspace_bytes >> 10);
    format!("{m}x{n}x{k}x{batch} {} {} {} {beta} {bias} {tf32} {workspace}", matrix(a), matrix(b), matrix(c))
}

fn alignment(matrix: &Matrix) -> u32 {
    1 << matrix.address.trailing_zeros().min(ALIGNMENT.trailing_zeros())
}

/// Where in `scratch` a result of `bytes` may lie, `offset` behind an aligned address. It must not touch the workspace:
/// the parts of a product that is split wait for each other by flags there, and would wait forever for one overwritten.
fn place_of_output(offset: u64, bytes: u64, scratch: &Range<u64>, workspace: &Range<u64>) -> Option<u64> {
    let fits = |&place: &u64| {
        let end = place + bytes;
        end <= scratch.end && (end <= workspace.start || place >= workspace.end)
    };
    let next = |from: u64| from + (ALIGNMENT + offset - from % ALIGNMENT) % ALIGNMENT;
    [scratch.start, workspace.end.max(scratch.start)].map(next).into_iter().find(fits)
}

/// Bytes from the first to the last element of the result.
fn span_bytes(gemm: &Gemm) -> u64 {
    let last = (gemm.batch - 1) * gemm.c.batch_stride + (gemm.m - 1) * gemm.c.row_stride + gemm.n;
    (last * gemm.c.dtype.bytes()) as u64
}

/// A product with its descriptors. The library counts columns first: it sees every matrix transposed, and computes
/// cᵀ = bᵀ · aᵀ.
pub(super) struct Product {
    operation: Operation,
    a: MatrixLayout,
    b: MatrixLayout,
    c: MatrixLayout,
    addresses: [u64; 2],
    c_address: u64,
    alpha: f32,
    beta: f32,
    algorithm: Algorithm,
    workspace: u64,
    workspace_bytes: usize,
}

impl Product {
    fn new(gemm: &Gemm) -> Result<Product, CudaError> {
        use sys::cublasLtMatmulDescAttributes_t::*;
        let (b, b_turned) = MatrixLayout::operand(&gemm.b, gemm.k, gemm.n, gemm.batch)?;
        let (a, a_turned) = MatrixLayout::operand(&gemm.a, gemm.m, gemm.k, gemm.batch)?;
        let c = MatrixLayout::new(&gemm.c, gemm.n, gemm.m, gemm.c.row_stride, gemm.batch)?;
        let operation = Operation::new(gemm.a.dtype == DType::F32 && gemm.tf32)?;
        let turned = |turned: bool| i32::from(turned);
        operation.set(CUBLASLT_MATMUL_DESC_TRANSA, &turned(b_turned))?;
        operation.set(CUBLASLT_MATMUL_DESC_TRANSB, &turned(a_turned))?;
        if let Some(bias) = gemm.bias {
            operation.set(CUBLASLT_MATMUL_DESC_EPILOGUE, &(sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_BIAS as u32))?;
            operation.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias)?;
            operation.set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &(data_type(gemm.c.dtype)? as u32))?;
        }
        let workspace = gemm.workspace.next_multiple_of(ALIGNMENT);
        let workspace_bytes = gemm.workspace_bytes.saturating_sub((workspace - gemm.workspace) as usize);
        Ok(Product {
            operation,
            a: b,
            b: a,
            c,
            addresses: [gemm.b.address, gemm.a.address],
            c_address: gemm.c.address,
            alpha: gemm.alpha,
            beta: gemm.beta,
            algorithm: [0; 8],
            workspace,
            workspace_bytes,
        })
    }

    fn run(&self, handle: sys::cublasLtHandle_t, stream: &Stream, output: u64) -> Result<(), CudaError> {
        let algorithm = sys::cublasLtMatmulAlgo_t { data: self.algorithm };
        let address = |address: u64| address as *mut c_void;
        let [a, b] = self.addresses.map(address);
        // SAFETY: the descriptors are alive, the addresses lie in the arena as the plan says.
        let answer = unsafe {
            result::matmul(
                handle,
                self.operation.0,
                (&raw const self.alpha).cast(),
                (&raw const self.beta).cast(),
                a,
                self.a.0,
                b,
                self.b.0,
                address(output),
                self.c.0,
                address(output),
                self.c.0,
                &algorithm,
                address(self.workspace),
                self.workspace_bytes,
                stream.0.cast(),
            )
        };
        check("cublasLtMatmul", answer)
    }
}

fn data_type(dtype: DType) -> Result<sys::cudaDataType, CudaError> {
    match dtype {
        DType::F32 => Ok(sys::cudaDataType::CUDA_R_32F),
        DType::Bf16 => Ok(sys::cudaDataType::CUDA_R_16BF),
        DType::F16 => Ok(sys::cudaDataType::CUDA_R_16F),
        other => Err(CudaError::NoKernel { op: "matrix product".into(), dtype: other }),
    }
}

/// Bytes of a value, for the library's untyped setters.
fn raw<T>(value: &T) -> (*const c_void, usize) {
    ((value as *const T).cast(), size_of::<T>())
}

struct MatrixLayout(sys::cublasLtMatrixLayout_t);

impl MatrixLayout {
    /// Our `rows`×`columns` operand, which the library sees transposed; and whether it has to turn it.
    fn operand(matrix: &Matrix, rows: usize, columns: usize, batch: usize) -> Result<(MatrixLayout, bool), CudaError> {
        match matrix.column_stride == 1 || columns == 1 {
            true => Ok((MatrixLayout::new(matrix, columns, rows, matrix.row_stride, batch)?, false)),
            false => Ok((MatrixLayout::new(matrix, rows, columns, matrix.column_stride, batch)?, true)),
        }
    }

    /// `inner` elements side by side, `outer` times, `stride` apart.
    fn new(
        matrix: &Matrix,
        inner: usize,
        outer: usize,
        stride: usize,
        batch: usize,
    ) -> Result<MatrixLayout, CudaError> {
        use sys::cublasLtMatrixLayoutAttribute_t::*;
        // A stride that is never stepped over may be anything; the library wants it not to be too small.
        let stride = stride.max(inner) as i64;
        let layout = result::create_matrix_layout(data_type(matrix.dtype)?, inner as u64, outer as u64, stride);
        let layout =
            layout.map_err(|e| CudaError::Driver { call: "cublasLtMatrixLayoutCreate", cause: e.to_string() })?;
        let layout = MatrixLayout(layout);
        if batch > 1 {
            layout.set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &(batch as i32))?;
            layout.set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &(matrix.batch_stride as i64))?;
        }
        Ok(layout)
    }

    fn set<T>(&self, attribute: sys::cublasLtMatrixLayoutAttribute_t, value: &T) -> Result<(), CudaError> {
        let (pointer, bytes) = raw(value);
        // SAFETY: the library copies the value.
        let answer = unsafe { result::set_matrix_layout_attribute(self.0, attribute, pointer, bytes) };
        check("cublasLtMatrixLayoutSetAttribute", answer)
    }
}

impl Drop for MatrixLayout {
    fn drop(&mut self) {
        // SAFETY: created in `new`.
        let _ = unsafe { result::destroy_matrix_layout(self.0) };
    }
}

struct Operation(sys::cublasLtMatmulDesc_t);

impl Operation {
    fn new(tf32: bool) -> Result<Operation, CudaError> {
        use sys::cublasComputeType_t::*;
        let compute = if tf32 { CUBLAS_COMPUTE_32F_FAST_TF32 } else { CUBLAS_COMPUTE_32F };
        let operation = result::create_matmul_desc(compute, sys::cudaDataType::CUDA_R_32F);
        operation
            .map(Operation)
            .map_err(|error| CudaError::Driver { call: "cublasLtMatmulDescCreate", cause: error.to_string() })
    }

    fn set<T>(&self, attribute: sys::cublasLtMatmulDescAttributes_t, value: &T) -> Result<(), CudaError> {
        let (pointer, bytes) = raw(value);
        // SAFETY: the library copies the value.
        let answer = unsafe { result::set_matmul_desc_attribute(self.0, attribute, pointer, bytes) };
        check("cublasLtMatmulDescSetAttribute", answer)
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        // SAFETY: created in `new`.
        let _ = unsafe { result::destroy_matmul_desc(self.0) };
    }
}

struct Preference(sys::cublasLtMatmulPreference_t);

impl Preference {
    fn new() -> Result<Preference, CudaError> {
        result::create_matmul_pref()
            .map(Preference)
            .map_err(|error| CudaError::Driver { call: "cublasLtMatmulPreferenceCreate", cause: error.to_string() })
    }

    fn set<T>(&self, attribute: sys::cublasLtMatmulPreferenceAttributes_t, value: &T) -> Result<(), CudaError> {
        let (pointer, bytes) = raw(value);
        // SAFETY: the library copies the value.
        let answer = unsafe { result::set_matmul_pref_attribute(self.0, attribute, pointer, bytes) };
        check("cublasLtMatmulPreferenceSetAttribute", answer)
    }
}

impl Drop for Preference {
    fn drop(&mut self) {
        // SAFETY: created in `new`.
        let _ = unsafe { result::destroy_matmul_pref(self.0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn results_are_timed_in_scratch_beside_the_workspace(
            offset in 0u64..256, bytes in 1u64..5000, start in 0u64..4000, length in 0u64..9000,
            workspace in 0u64..40, workspace_bytes in 0u64..4000,
        ) {
            let scratch = start..start + length;
            let workspace = workspace * ALIGNMENT..workspace * ALIGNMENT + workspace_bytes;
            let place = place_of_output(offset, bytes, &scratch, &workspace);
            let free = |place: u64| {
                place % ALIGNMENT == offset
                    && place >= scratch.start
                    && place + bytes <= scratch.end
                    && (place + bytes <= workspace.start || place >= workspace.end)
            };
            prop_assert_eq!(place.is_some(), (scratch.start..scratch.end).any(free));
            prop_assert!(place.is_none_or(free));
        }
    }
}
