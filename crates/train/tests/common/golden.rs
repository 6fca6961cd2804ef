//! A golden file: safetensors with what PyTorch computed. `tools/reference/README.md` lists what it holds.

use safetensors::{Dtype, SafeTensors};

pub struct Golden<'f> {
    file: SafeTensors<'f>,
    /// The recipe's `model` table, and what the script noted beside it.
    pub config: serde_json::Value,
}

impl<'f> Golden<'f> {
    pub fn new(bytes: &'f [u8]) -> Self {
        let file = SafeTensors::deserialize(bytes).unwrap();
        let (_, header) = SafeTensors::read_metadata(bytes).unwrap();
        let config = serde_json::from_str(&header.metadata().as_ref().unwrap()["config"]).unwrap();
        Golden { file, config }
    }

    pub fn has(&self, name: &str) -> bool {
        self.file.tensor(name).is_ok()
    }

    pub fn shape(&self, name: &str) -> Option<Vec<usize>> {
        self.file.tensor(name).ok().map(|t| t.shape().to_vec())
    }

    pub fn floats(&self, name: &str) -> Vec<f64> {
        let tensor = self.file.tensor(name).unwrap_or_else(|_| panic!("the golden file has no {name}"));
        let data = tensor.data();
        match tensor.dtype() {
            Dtype::F64 => data.chunks_exact(8).map(|b| f64::from_le_bytes(b.try_into().unwrap())).collect(),
            Dtype::F32 => data.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap()) as f64).collect(),
            Dtype::I64 => data.chunks_exact(8).map(|b| i64::from_le_bytes(b.try_into().unwrap()) as f64).collect(),
            other => panic!("{name} is {other:?}"),
        }
    }

    /// A parameter's values, or its gradient's (`kind` is `param` or `grad`). One that packs several tensors names them
    /// in braces; they lie behind one another.
    pub fn parameter(&self, kind: &str, name: &str, shape: &[usize]) -> Vec<f64> {
        let names: Vec<String> = unpack(name).iter().map(|name| format!("{kind}.{name}")).collect();
        let rows = |name: &String| self.shape(name).map_or(0, |shape| shape.first().copied().unwrap_or(1));
        let first = self.shape(&names[0]).unwrap_or_else(|| panic!("the golden file has no {}", names[0]));
        let inner = first.get(1..).unwrap_or(&[]);
        assert_eq!((names.iter().map(rows).sum(), inner), (shape[0], &shape[1..]), "the shape of {name}");
        names.iter().flat_map(|name| self.floats(name)).collect()
    }

    pub fn has_parameter(&self, name: &str) -> bool {
        unpack(name).iter().all(|name| self.has(&format!("param.{name}")))
    }

    /// What the mean of the loss is taken over: Σ of the rows' or tokens' weights.
    pub fn count(&self) -> f64 {
        let name = if self.has("input.weights") { "input.weights" } else { "input.weight" };
        self.floats(name).iter().sum()
    }

    /// Size of one dimension of the first of these inputs that is there.
    pub fn extent(&self, inputs: &[&str], axis: usize) -> Option<usize> {
        inputs.iter().find_map(|name| Some(self.shape(&format!("input.{name}"))?[axis]))
    }
}

/// `self.{query,key}.weight` → `self.query.weight`, `self.key.weight`.
fn unpack(name: &str) -> Vec<String> {
    let parts = name.split_once('{').and_then(|(before, rest)| Some((before, rest.split_once('}')?)));
    match parts {
        Some((before, (inside, after))) => inside.split(',').map(|part| format!("{before}{part}{after}")).collect(),
        None => vec![name.into()],
    }
}
