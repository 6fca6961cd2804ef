//! A queue that runs nothing: which kernels a graph would launch, for checks on machines without a GPU.

use super::{Arg, CudaError, Gemm, Grid, Kernel, Queue, Sweep};

#[derive(Clone, Debug, PartialEq)]
pub enum Recorded {
    Kernel { kernel: Kernel, grid: Grid, args: Vec<Arg> },
    Sweep(Sweep),
    Gemm(Gemm),
    Fill { address: u64, byte: u8, bytes: usize },
    Copy { to: u64, from: u64, bytes: usize },
}

impl Recorded {
    pub fn kernel(&self) -> Option<Kernel> {
        match self {
            Recorded::Kernel { kernel, .. } => Some(kernel.clone()),
            Recorded::Sweep(sweep) => Some(sweep.kernel()),
            _ => None,
        }
    }
}

#[derive(Debug, Default)]
pub struct Recorder {
    pub launches: Vec<Recorded>,
    /// What the kernels are for; 0, the default, is any.
    pub arch: u32,
}

impl Queue for Recorder {
    fn kernel(&mut self, kernel: &Kernel, grid: Grid, args: &[Arg]) -> Result<(), CudaError> {
        self.launches.push(Recorded::Kernel { kernel: kernel.clone(), grid, args: args.to_vec() });
        Ok(())
    }
    fn sweep(&mut self, sweep: Sweep) -> Result<(), CudaError> {
        self.launches.push(Recorded::Sweep(sweep));
        Ok(())
    }
    fn gemm(&mut self, gemm: &Gemm) -> Result<(), CudaError> {
        self.launches.push(Recorded::Gemm(*gemm));
        Ok(())
    }
    fn fill(&mut self, address: u64, byte: u8, bytes: usize) -> Result<(), CudaError> {
        self.launches.push(Recorded::Fill { address, byte, bytes });
        Ok(())
    }
    fn copy(&mut self, to: u64, from: u64, bytes: usize) -> Result<(), CudaError> {
        self.launches.push(Recorded::Copy { to, from, bytes });
        Ok(())
    }
    fn arch(&self) -> u32 {
        self.arch
    }
}
