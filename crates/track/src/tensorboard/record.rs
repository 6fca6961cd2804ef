//! TFRecord: length, checksum of the length, bytes, checksum of the bytes; all little endian.

use std::io::{self, Write};

pub(super) fn write_record(to: &mut impl Write, data: &[u8]) -> io::Result<()> {
    let length = (data.len() as u64).to_le_bytes();
    to.write_all(&length)?;
    to.write_all(&masked(&length).to_le_bytes())?;
    to.write_all(data)?;
    to.write_all(&masked(data).to_le_bytes())
}

/// CRC-32C, rotated and shifted: a checksum of data that holds checksums would be weak.
fn masked(data: &[u8]) -> u32 {
    crc32c::crc32c(data).rotate_right(15).wrapping_add(0xA282_EAD8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_framed_as_tensorflow_frames_it() {
        let mut bytes = Vec::new();
        write_record(&mut bytes, b"abc").unwrap();
        assert_eq!(bytes.len(), 8 + 4 + 3 + 4);
        assert_eq!(bytes[..8], [3, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[12..15], *b"abc");
        // The checksum of 32 zero bytes is a vector of RFC 3720.
        assert_eq!(crc32c::crc32c(&[0; 32]), 0x8A91_36AA);
        assert_eq!(masked(&[0; 32]), 0x8A91_36AA_u32.rotate_right(15).wrapping_add(0xA282_EAD8));
    }
}
