//! The gradients of attention on a CUDA device: which kernels run, on what.

use super::cuda::{Call, Heads, Part};
use super::form::Form;
use super::grad::AttentionGrad;
use super::groups::Sums;
use super::*;
use crate::kernels::cuda::{Arg, CudaError, Grid, Kernel, Launch, Source};
use crate::ops::device::{add_up, int};

const DELTAS: Source = Source { name: "attention/deltas", text: include_str!("deltas.cu") };

impl AttentionGrad {
    pub(super) fn cuda_backward(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        Backward::new(self, launch)?.run(launch)
    }
}

/// The backward pass: what it reads besides, and where gradients go.
pub(super) struct Backward<'a> {
    pub call: Call<'a>,
    out: u64,
    pub lse: u64,
    pub dout: u64,
    pub to: Heads,
    /// Addresses of the gradients of the bias's tables.
    pub dtables: Vec<u64>,
}

impl<'a> Backward<'a> {
    fn new(op: &'a AttentionGrad, launch: &Launch<'_>) -> Result<Backward<'a>, CudaError> {
        let call = Call::new(&op.0, op, launch, true)?;
        let [out, lse, dout] = [0, 1, 2].map(|n| launch.inputs[op.0.inputs() + n].address);
        let to = Heads::new(op.0.packing, launch.outputs, &call.shape);
        let dtables = launch.outputs[op.0.packing.inputs()..].iter().map(|table| table.address).collect();
        Ok(Backward { call, out, lse, dout, to, dtables })
    }

    fn run(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        let (call, s) = (&self.call, &self.call.shape);
        if let Some(space) = &call.space.banded {
            return self.run_banded(launch, space);
        }
        let disentangled = call.op.bias.tables() == 2;
        if disentangled {
            self.clear_tables(launch)?;
        }
        call.write_distances(launch)?;
        let by_heads = call.form == Form::Groups && heads::compute(call.op, s);
        if by_heads || call.space.sums.is_some() || !call.form.sums_deltas(call.dtype) {
            self.write_deltas(launch)?;
        }
        if by_heads {
            return self.write_by_heads(launch);
        }
        if let Some((sums, places)) = &call.space.sums {
            return self.write_in_one_pass(launch, sums, *places);
        }
        for part in call.parts(call.space.group) {
            if disentangled && s.q_len * s.k_len > 0 {
                call.write_products(launch, part)?;
                let bytes = |len: usize| 4 * part.samples * s.heads * len * call.space.pitch;
                launch.queue.fill(call.space.dby_query, 0, bytes(s.q_len))?;
                launch.queue.fill(call.space.dby_key, 0, bytes(s.k_len))?;
            }
            self.write_gradients(launch, part)?;
            if disentangled && s.q_len * s.k_len > 0 {
                self.add_products(launch, part)?;
            }
        }
        match call.op.bias {
            Bias::None => Ok(()),
            Bias::Relative { .. } => self.add_up_relative(launch),
            Bias::Disentangled { .. } => self.round_tables(launch),
        }
    }

    pub(super) fn write_deltas(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        let (call, s) = (&self.call, &self.call.shape);
        if call.is_empty(s.q_len) {
            return Ok(());
        }
        let rows = s.batch * s.q_len * s.heads;
        let operands = [self.out, self.dout, call.space.delta].map(Arg::Address);
        let args = [&operands[..], &[rows.into(), int(s.q_len), int(s.heads), int(s.head_dim)]].concat();
        let vector = 16 / call.dtype.bytes();
        let aligned = s.head_dim.is_multiple_of(vector) && (self.out | self.dout).is_multiple_of(16);
        let vector = if aligned { vector } else { 1 };
        let lanes = s.head_dim.div_ceil(vector).next_power_of_two().min(32);
        let kernel = Kernel::new(DELTAS, "deltas").dtype("T", call.dtype);
        let kernel = kernel.define("LANES", lanes).define("VECTOR", vector);
        launch.kernel(&kernel, Grid::new(rows.div_ceil(128 / lanes), 128), &args)
    }

    /// The gradients of a part's queries, then of its keys and values; beside them those of what a bias adds.
    fn write_gradients(&self, launch: &mut Launch<'_>, part: Part) -> Result<(), CudaError> {
        let (call, s, Part { first, samples, heads }) = (&self.call, &self.call.shape, part);
        let to = self.to.starting_at(first, s);
        let [out, dout] = [self.out, self.dout].map(|address| part.rows(address, s));
        let [lse, delta] = [self.lse, call.space.delta].map(|address| part.statistics(address, s));
        let operands = [heads.q, heads.k, heads.v, dout, lse, delta].map(Arg::Address);
        let rest = [&call.sizes(heads, samples)[..], &call.scores(first)].concat();
        if !call.is_empty(s.q_len) {
            let sums = if call.op.bias.tables() == 1 { call.space.parts } else { call.space.dby_query };
            let own = match call.form {
                Form::Groups => vec![Arg::Address(to.q), Arg::Address(out)],
                _ => vec![Arg::Address(to.q)],
            };
            let bias = [Arg::Address(sums), int(s.bias_rows)];
            let (args, entry) = ([&operands[..], &own, &bias, &rest].concat(), "backward_queries");
            launch.kernel(&call.kernel(entry, s.q_len), call.grid(entry, samples, s.q_len), &args)?;
        }
        if call.is_empty(s.k_len) {
            return Ok(());
        }
        let own = [to.k, to.v, call.space.dby_key].map(Arg::Address);
        let (args, entry) = ([&operands[..], &own, &rest].concat(), "backward_keys");
        launch.kernel(&call.kernel(entry, s.k_len), call.grid(entry, samples, s.k_len), &args)
    }

    /// All gradients of one head after the other.
    fn write_by_heads(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        let (call, s, to) = (&self.call, &self.call.shape, self.to);
        let Heads { q, k, v, .. } = call.heads;
        let operands = [q, k, v, self.dout, self.lse, call.space.delta, to.q, to.k, to.v].map(Arg::Address);
        let args = [&operands[..], &call.sizes(call.heads, s.batch), &call.scores(0)].concat();
        let entry = "backward_heads";
        launch.kernel(&call.kernel(entry, s.k_len), call.grid(entry, s.batch, s.k_len), &args)
    }

    /// All gradients of as many samples as there is room for sums of at a time.
    fn write_in_one_pass(
        &self,
        launch: &mut Launch<'_>,
        room: &Sums,
        [sums, turns]: [u64; 2],
    ) -> Result<(), CudaError> {
        let (call, s) = (&self.call, &self.call.shape);
        for part in call.parts(room.group) {
            let Part { first, samples, heads } = part;
            let (to, dout) = (self.to.starting_at(first, s), part.rows(self.dout, s));
            let [lse, delta] = [self.lse, call.space.delta].map(|address| part.statistics(address, s));
            launch.queue.fill(turns, 0, room.turn_bytes(samples))?;
            let operands = [heads.q, heads.k, heads.v, dout, lse, delta, to.k, to.v, sums, turns].map(Arg::Address);
            let args = [&operands[..], &call.sizes(heads, samples), &call.scores(first)].concat();
            launch.kernel(&call.kernel("backward", s.k_len), call.grid("backward", samples, s.k_len), &args)?;
            let operands = [sums, turns, to.q].map(Arg::Address);
            let sizes = [heads.q_row.into(), int(s.heads), int(s.q_len), Arg::F32(call.op.scale as f32)];
            let tiles = samples * s.heads * s.q_len.div_ceil(64);
            let kernel = call.kernel("round_queries", s.q_len);
            launch.kernel(&kernel, Grid::new(tiles, 128), &[&operands[..], &sizes].concat())?;
        }
        Ok(())
    }

    fn add_up_relative(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        let (call, s) = (&self.call, &self.call.shape);
        let tiles = call.blocks("backward_queries", s.q_len).0;
        add_up(launch, call.dtype, call.space.parts, self.dtables[0], s.bias_rows * s.heads, s.batch * tiles)
    }
}
