//! Data is made where the device takes it from, by as many threads as there are: no copy in between.

use plimsoll_core::kernels::cpu::parallel::parallel_chunks;

/// Writes the bytes from an offset on into a piece of the destination. Pieces come in any order and from several threads;
/// their offsets are multiples of 64.
pub type Fill<'a> = dyn Fn(usize, &mut [u8]) + Sync + 'a;

/// What one thread fills at a time: far more than handing it out costs.
const PIECE_BYTES: usize = 256 << 10;

/// Fills with what is there already.
pub fn copy_of(data: &[u8]) -> impl Fn(usize, &mut [u8]) + Sync {
    move |at: usize, piece: &mut [u8]| piece.copy_from_slice(&data[at..at + piece.len()])
}

/// Fills `to`, which lies `offset` bytes into the whole.
pub fn fill_in_pieces(to: &mut [u8], offset: usize, fill: &Fill<'_>) {
    if to.len() <= PIECE_BYTES {
        return fill(offset, to);
    }
    parallel_chunks(to, PIECE_BYTES, |i, piece| fill(offset + i * PIECE_BYTES, piece));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_written_once_from_its_own_offset() {
        for bytes in [0, 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES - 5] {
            let mut to = vec![0u8; bytes];
            let value = |at: usize| (at % 251) as u8;
            fill_in_pieces(&mut to, 128, &|at, piece| {
                assert_eq!(at % 64, 0);
                piece.iter_mut().enumerate().for_each(|(i, byte)| *byte = byte.wrapping_add(value(at + i)));
            });
            assert!(to.iter().enumerate().all(|(i, &byte)| byte == value(128 + i)), "{bytes} bytes");
        }
    }

    #[test]
    fn a_copy_is_whole() {
        let data: Vec<u8> = (0..2 * PIECE_BYTES + 3).map(|at| (at % 251) as u8).collect();
        let mut to = vec![0u8; data.len()];
        fill_in_pieces(&mut to, 0, &copy_of(&data));
        assert!(to == data);
    }
}
