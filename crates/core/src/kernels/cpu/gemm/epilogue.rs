//! What happens to a finished sum before it leaves the cache.

use crate::kernels::cpu::float::Float;
use plimsoll_base::simd::simd;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    None,
    Relu,
    /// The exact form, by the error function.
    Gelu,
    /// Its approximation by tanh (`gelu_new`, `gelu_pytorch_tanh`).
    GeluTanh,
    Tanh,
    Sigmoid,
    Silu,
    /// x · sigmoid(1.702 x), as CLIP has it.
    QuickGelu,
}

/// The slope of the sigmoid in [`Activation::QuickGelu`].
pub(crate) const QUICK: f64 = 1.702;

#[derive(Clone, Copy, Debug)]
pub struct Epilogue<T> {
    pub alpha: T,
    /// One value per column of C.
    pub bias: Option<*const T>,
    pub activation: Activation,
    /// Add the product to what C holds; otherwise C is never read.
    pub accumulate: bool,
}

// SAFETY: the bias is only read, as the caller of a product promises.
unsafe impl<T: Sync> Send for Epilogue<T> {}
unsafe impl<T: Sync> Sync for Epilogue<T> {}

impl<T: Float> Epilogue<T> {
    /// `c = a · b`.
    pub fn store() -> Self {
        Epilogue { alpha: T::ONE, bias: None, activation: Activation::None, accumulate: false }
    }

    /// The epilogue of the part of C that starts at column `first`.
    ///
    /// # Safety
    /// The bias has at least `first` values.
    pub(super) unsafe fn at_column(self, first: usize) -> Self {
        Epilogue { bias: self.bias.map(|bias| unsafe { bias.add(first) }), ..self }
    }
}

impl Activation {
    #[inline(always)]
    pub fn apply<T: Float>(self, x: T) -> T {
        let half = T::of(0.5);
        match self {
            Activation::None => x,
            // In this order a NaN comes through.
            Activation::Relu => T::ZERO.max(x),
            Activation::Gelu => half * x * (T::ONE + (x * T::of(std::f64::consts::FRAC_1_SQRT_2)).erf()),
            Activation::GeluTanh => {
                let cubic = (x * x * x).mul_add(T::of(0.044715), x);
                half * x * (T::ONE + (T::of((2.0 / std::f64::consts::PI).sqrt()) * cubic).tanh())
            }
            Activation::Tanh => x.tanh(),
            Activation::Sigmoid => x.sigmoid(),
            Activation::Silu => x * x.sigmoid(),
            Activation::QuickGelu => x * (T::of(QUICK) * x).sigmoid(),
        }
    }

    /// Applies the function in place to a tile of C.
    ///
    /// # Safety
    /// `c` covers `rows` × `cols` at row stride `ldc`.
    pub(super) unsafe fn apply_tile<T: Float>(self, c: *mut T, ldc: usize, rows: usize, cols: usize) {
        // The constant in each arm lets the inner loop be compiled for one function.
        macro_rules! arm {
            ($f:ident) => {
                simd(
                    #[inline(always)]
                    || {
                        for row in 0..rows {
                            let line = unsafe { std::slice::from_raw_parts_mut(c.add(row * ldc), cols) };
                            line.iter_mut().for_each(|x| *x = Activation::$f.apply(*x));
                        }
                    },
                )
            };
        }
        match self {
            Activation::None => {}
            Activation::Relu => arm!(Relu),
            Activation::Gelu => arm!(Gelu),
            Activation::GeluTanh => arm!(GeluTanh),
            Activation::Tanh => arm!(Tanh),
            Activation::Sigmoid => arm!(Sigmoid),
            Activation::Silu => arm!(Silu),
            Activation::QuickGelu => arm!(QuickGelu),
        }
    }
}
