//! What cuDNN works with in convolutions. Rules that were read off 1,900 convolutions in three precisions, measured on an
//! H200 with cuDNN 9.19 (`tools/ghost/gpu/convolutions.py`): half of them come out to the byte, and most others err to
//! the large side; which kernel cuDNN prefers for odd shapes is not public.

/// Which of its three passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    Forward,
    InputGradient,
    WeightGradient,
}

/// Extents as cuDNN has them: samples, channels, space.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Convolution {
    pub input: Vec<u64>,
    pub weights: Vec<u64>,
    pub output: Vec<u64>,
    pub element_bytes: u64,
    /// Channels lie side by side.
    pub channels_last: bool,
    pub strided: bool,
    /// Places of the kernel lie apart.
    pub dilated: bool,
}

/// A header, or a table of places, that some kernels want.
const TINY: u64 = 400;
/// Into how many parts sums over a whole batch are cut.
const PARTS: u64 = 32;
/// Most that parts of weights take.
const MOST_PARTS_BYTES: u64 = 8 << 20;
/// Dilated ones have as many parts, however large, where their outputs are one row of tiles. Measured were none to eight for
/// the same weights, by how many places there are: the most is taken.
const DILATED_PARTS: u64 = 8;
const ROW_OF_TILES: u64 = 256;

impl Convolution {
    fn bytes(&self, extents: &[u64]) -> u64 {
        extents.iter().product::<u64>() * self.element_bytes
    }

    /// Input, weights and output: kernels want channels side by side, and copy everything where they are not. Weights of a
    /// single place lie the same both ways.
    fn copies(&self) -> u64 {
        let weights = if self.has_one_place() { 0 } else { self.bytes(&self.weights) };
        self.bytes(&self.input) + weights + self.bytes(&self.output) + 16
    }

    fn has_one_place(&self) -> bool {
        self.weights.iter().skip(2).all(|extent| *extent == 1)
    }

    fn channels(extents: &[u64]) -> u64 {
        extents.get(1).copied().unwrap_or(1)
    }

    fn is_grouped(&self) -> bool {
        Self::channels(&self.input) != Self::channels(&self.weights)
    }

    /// A plain matrix product over all places.
    fn is_pointwise(&self) -> bool {
        let places: u64 = self.input.iter().skip(2).product();
        self.has_one_place() && !self.strided && places > 64
    }

    fn weights_in_f32(&self) -> u64 {
        self.weights.iter().product::<u64>() * 4
    }

    pub(crate) fn work_bytes(&self, pass: Pass) -> u64 {
        match pass {
            _ if self.is_grouped() => 0,
            Pass::WeightGradient => self.weight_gradient_bytes(),
            _ if self.channels_last => self.padded_bytes(),
            _ if self.is_pointwise() => TINY,
            _ => self.copies(),
        }
    }

    /// So few channels (those of images) are padded first: 3 become 4.
    fn padded_bytes(&self) -> u64 {
        if Self::channels(&self.input) >= 4 {
            return TINY;
        }
        (self.bytes(&self.input) + self.bytes(&self.weights)).div_ceil(3) * 4
    }

    fn parts_bytes(&self) -> u64 {
        let parts = (14 * self.weights_in_f32()).min(MOST_PARTS_BYTES);
        let outputs = self.weights.first().copied().unwrap_or(0);
        if self.dilated && outputs <= ROW_OF_TILES { parts.max(DILATED_PARTS * self.weights_in_f32()) } else { parts }
    }

    fn weight_gradient_bytes(&self) -> u64 {
        let parts = self.parts_bytes();
        if self.channels_last {
            parts
        } else if self.is_pointwise() {
            PARTS * self.weights_in_f32()
        } else if self.element_bytes == 4 {
            self.copies() + parts
        } else {
            self.copies()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn convolution(batch: u64, channels: (u64, u64), extent: u64, kernel: u64, bytes: u64, last: bool) -> Convolution {
        Convolution {
            input: vec![batch, channels.0, extent, extent],
            weights: vec![channels.1, channels.0, kernel, kernel],
            output: vec![batch, channels.1, extent, extent],
            element_bytes: bytes,
            channels_last: last,
            strided: false,
            dilated: false,
        }
    }

    /// As measured.
    #[test]
    fn ordinary_convolutions_come_out_to_the_byte() {
        let first = convolution(32, (256, 256), 14, 3, 2, false);
        for pass in [Pass::Forward, Pass::InputGradient, Pass::WeightGradient] {
            assert_eq!(first.work_bytes(pass), 7_602_192);
        }
        assert_eq!(convolution(32, (512, 512), 7, 3, 4, false).work_bytes(Pass::Forward), 15_859_728);
        assert_eq!(convolution(32, (2048, 512), 7, 1, 2, false).work_bytes(Pass::Forward), 8_028_176);
        assert_eq!(convolution(32, (256, 128), 56, 1, 4, false).work_bytes(Pass::WeightGradient), 4_194_304);
        assert_eq!(convolution(32, (512, 128), 28, 1, 2, false).work_bytes(Pass::WeightGradient), 8_388_608);
    }

    /// The largest of DeepLabV3, as measured but for 128 bytes.
    #[test]
    fn weights_of_dilated_ones_are_summed_in_eight_parts() {
        let dilated = Convolution { dilated: true, ..convolution(8, (2048, 256), 32, 3, 4, false) };
        assert_eq!(dilated.work_bytes(Pass::WeightGradient), 245_366_928 - 128);
        assert_eq!(dilated.work_bytes(Pass::InputGradient), 94_371_856);
    }

    #[test]
    fn channels_that_lie_side_by_side_need_no_copies() {
        let last = convolution(32, (128, 128), 28, 3, 2, true);
        assert_eq!(last.work_bytes(Pass::Forward), TINY);
        assert!(last.work_bytes(Pass::WeightGradient) >= 3_539_535);
    }

    #[test]
    fn groups_take_nothing() {
        let grouped = Convolution { weights: vec![64, 1, 3, 3], ..convolution(8, (64, 64), 28, 3, 4, false) };
        assert_eq!(grouped.work_bytes(Pass::WeightGradient), 0);
    }
}
