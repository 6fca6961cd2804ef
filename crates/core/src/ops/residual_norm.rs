//! Dropout, the sum with what went around a branch, and the norm of that, in one pass over rows that are in registers. A
//! graph has three nodes for it, so that each can be kept or recomputed by itself; an executor that finds them behind one
//! another runs this in their place. The bits are the same.

use super::cuda::{mismatch, refuse_f64};
use super::norm::{Forward, ResidualSum, norm_rows, put_residual_norm};
use super::*;
use crate::graph::{Aliases, Graph, NodeId};
use crate::kernels::cpu::Element;
use crate::kernels::cpu::float::Float;
use crate::kernels::cpu::parallel::{SharedMut, parallel};
use crate::kernels::cpu::rows::{self, InPlace};
use crate::kernels::cpu::with_float;
use crate::types::{DType, Results};
use plimsoll_base::simd::simd;
use smallvec::smallvec;

/// Inputs: branch and residual (…, D), gamma (D), beta (D) if centered, `rng` if it drops. Outputs: their sum, its norm,
/// the mean per row if centered, rstd per row. The norm may lie where the sum does; then there is no sum.
#[derive(Debug, Clone, PartialEq)]
pub struct ResidualNorm {
    dropout: Option<Dropout>,
    centered: bool,
    eps: f64,
}

/// The nodes that it stands for, and what of theirs it reads and writes.
pub struct ResidualNodes {
    pub op: ResidualNorm,
    /// Dropout if there is any, the sum, the norm.
    pub nodes: Vec<NodeId>,
    pub inputs: Vec<ValueId>,
    pub outputs: Vec<ValueId>,
}

impl ResidualNorm {
    pub(super) fn samples(rng: &mut SampleRng) -> Vec<Sample> {
        let mut samples = Vec::new();
        for (centered, width) in [(true, 8 * rng.size(1, 20)), (false, rng.size(3, 70)), (true, 264), (false, 1032)] {
            for drops in [true, false] {
                let (batch, rows) = (rng.size(1, 3), rng.size(1, 30));
                let dropout = drops.then_some(Dropout { p: 0.3, site: 12, samples: batch });
                let all = || SampleInput::float(&[batch, rows, width], Fill::Normal);
                let mut inputs = vec![all(), all()];
                inputs.extend((0..1 + usize::from(centered)).map(|_| SampleInput::float(&[width], Fill::Normal)));
                inputs.extend(drops.then(|| SampleInput::new(Type::new(DType::I64, &[3]), Fill::Ids(1000))));
                samples.push(Sample::plain(ResidualNorm { dropout, centered, eps: 1e-5 }, inputs));
            }
        }
        samples
    }

    /// What a norm and the nodes before it are, if they are this. A dropped branch that anyone else reads is not.
    pub fn ending_in(graph: &Graph, norm: NodeId) -> Option<ResidualNodes> {
        let node = graph.node(norm);
        let (centered, eps) = match node.op.op().downcast::<LayerNorm>() {
            Some(layer_norm) => (true, layer_norm.eps),
            None => (false, node.op.op().downcast::<RmsNorm>()?.eps),
        };
        let total = node.inputs[0];
        let add = graph.producer(total).filter(|&id| graph.node(id).op.op().downcast() == Some(&Binary::ADD))?;
        let [a, b] = graph.node(add).inputs[..] else { return None };
        if [a, b].iter().any(|&part| graph.ty(part) != graph.ty(total)) {
            return None;
        }
        let mut found = ResidualNodes {
            op: ResidualNorm { dropout: None, centered, eps },
            nodes: vec![add, norm],
            inputs: [&[a, b][..], &node.inputs[1..]].concat(),
            outputs: [&[total][..], &node.outputs].concat(),
        };
        if let Some((id, dropout)) = [a, b].into_iter().find_map(|part| dropped(graph, part)) {
            let residual = if graph.producer(a) == Some(id) { b } else { a };
            found.inputs[..2].copy_from_slice(&[graph.node(id).inputs[0], residual]);
            found.inputs.push(graph.node(id).inputs[1]);
            found.nodes.insert(0, id);
            found.op.dropout = Some(dropout);
        }
        Some(found)
    }

    /// Where beta, `rng` and, of the outputs, rstd are.
    fn places(&self) -> (Option<usize>, usize, usize) {
        let centered = usize::from(self.centered);
        (self.centered.then_some(3), 3 + centered, 2 + centered)
    }
}

/// The dropout behind a value that nothing but one sum reads, whose rows are whole parts of samples.
fn dropped(graph: &Graph, value: ValueId) -> Option<(NodeId, Dropout)> {
    let id = graph.producer(value)?;
    let dropout = graph.node(id).op.op().downcast::<Dropout>()?.clone();
    let (elements, width) = (graph.ty(value).elements(), *graph.shape(value).last()?);
    let whole = width > 0 && (elements / dropout.samples.max(1)).is_multiple_of(width);
    let once = graph.reads_of(value) == 1 && !graph.kept().contains(&value);
    (whole && once && dropout.p > 0.0).then_some((id, dropout))
}

impl Op for ResidualNorm {
    fn outputs(&self, inputs: &[Type]) -> Result<Results, OpError> {
        let (_, rng, _) = self.places();
        if inputs.len() != rng + usize::from(self.dropout.is_some()) || inputs[0].shape != inputs[1].shape {
            return OpError::new("needs a branch and a residual of one shape, what a norm reads, and rng if it drops");
        }
        let statistic = norm_rows(&inputs[0], &inputs[2..rng])?;
        let all = inputs[0].contiguous();
        let mut outputs: Results = smallvec![all.clone(), all];
        outputs.extend(std::iter::repeat_n(statistic, 1 + usize::from(self.centered)));
        Ok(outputs)
    }
    fn aliases(&self, _: &[Type]) -> Aliases {
        smallvec![Alias::may(0, 0)]
    }
    fn class(&self) -> Class {
        Class::Norm
    }
    fn cost(&self, inputs: &[Type], outputs: &[Type]) -> Cost {
        Cost::elementwise(inputs, outputs, 8.0)
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        with_float!(io.output_type(0).dtype, T => self.run::<T>(io))
    }
    fn cuda(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        refuse_f64(self, launch)?;
        let (beta, rng, rstd) = self.places();
        if launch.inputs.len() != rng + usize::from(self.dropout.is_some()) || launch.outputs.len() != rstd + 1 {
            return Err(mismatch(self, launch, "branch, residual and what a norm reads for their sum and its norm"));
        }
        let (inputs, outputs) = (launch.inputs, launch.outputs);
        let norm = Forward {
            x: &inputs[0],
            gamma: &inputs[2],
            beta: beta.map(|index| &inputs[index]),
            y: &outputs[1],
            mean: self.centered.then(|| &outputs[2]),
            rstd: &outputs[rstd],
        };
        let residual = ResidualSum {
            residual: &inputs[1],
            total: &outputs[0],
            dropout: self.dropout.as_ref(),
            rng: inputs.get(rng),
        };
        put_residual_norm(launch, norm, residual, self.eps)
    }
}

impl ResidualNorm {
    fn run<T: Float + Element>(&self, io: &CpuIo<'_>) {
        let (beta, rng, rstd) = self.places();
        let (residual, gamma) = (io.input::<T>(1), io.input::<T>(2));
        let beta = beta.map_or(&[][..], |index| io.input::<T>(index));
        let (count, width) = (io.output_type(rstd).elements(), gamma.len());
        let mask = self.dropout.as_ref().map(|dropout| dropout.mask(io, rng, count * width));
        let (total, step) = (InPlace::<T>::new(io, 0, 0), rows::rows_per_task(width));
        let [y, means, rstds] = [1, 2, rstd].map(|i| SharedMut::new(io.output_ptr(i).cast::<T>()));
        let eps = T::of(self.eps);
        parallel(count.div_ceil(step), |task| {
            simd(
                #[inline(always)]
                || {
                    for row in task * step..((task + 1) * step).min(count) {
                        let at = row * width;
                        // SAFETY: a row belongs to one task.
                        let (total, y) = unsafe { (total.load(at, width), y.slice(at, width)) };
                        mask.iter().for_each(|mask| mask.apply(at, total));
                        rows::add(total, &residual[at..][..width]);
                        y.copy_from_slice(total);
                        let (mean, rstd) = match self.centered {
                            true => layer_norm::normalize(y, gamma, beta, eps),
                            false => (T::ZERO, rms_norm::normalize(y, gamma, eps)),
                        };
                        // SAFETY: as above. Without a mean, output 2 is rstd.
                        unsafe {
                            means.slice(row, 1)[0] = mean;
                            rstds.slice(row, 1)[0] = rstd;
                        }
                    }
                },
            )
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Init;

    fn graph_of(p: f64, reads_twice: bool) -> (Graph, Option<ResidualNodes>) {
        let mut graph = Graph::new("test", DType::F32);
        let ty = Type::new(DType::F32, &[6, 16]);
        let (branch, around) = (graph.data("branch", ty.clone()).unwrap(), graph.data("around", ty).unwrap());
        let rng = graph.data("rng", Type::new(DType::I64, &[3])).unwrap();
        let gamma = graph.parameter("gamma", &[16], Init::Ones, false).unwrap();
        let branch = graph.apply("drop", Dropout { p, site: 1, samples: 3 }, &[branch, rng]).unwrap();
        let total = graph.apply("residual", Binary::ADD, &[around, branch]).unwrap();
        let norm = graph.apply_all("norm", RmsNorm { eps: 1e-6 }, &[total, gamma]).unwrap();
        if reads_twice {
            graph.apply("again", Exp, &[branch]).unwrap();
        }
        let found = ResidualNorm::ending_in(&graph, graph.producer(norm[0]).unwrap());
        (graph, found)
    }

    #[test]
    fn three_nodes_are_found_whichever_way_round_they_are_added() {
        let (graph, found) = graph_of(0.1, false);
        let found = found.unwrap();
        let names: Vec<&str> = found.nodes.iter().map(|&id| &*graph.node(id).name).collect();
        assert_eq!(names, ["drop", "residual", "norm"]);
        let names: Vec<&str> = found.inputs.iter().map(|&id| &*graph.value(id).name).collect();
        assert_eq!(names, ["branch", "around", "gamma", "rng"]);
        assert_eq!(found.outputs.len(), 3);
    }

    #[test]
    fn a_branch_that_is_read_elsewhere_is_dropped_from_by_itself() {
        for (p, reads_twice) in [(0.1, true), (0.0, false)] {
            let found = graph_of(p, reads_twice).1.unwrap();
            assert!(found.nodes.len() == 2 && found.op.dropout.is_none());
        }
    }
}
