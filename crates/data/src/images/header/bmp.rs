//! BMP: a header of fixed places. Decoders fill up what a cut file lacks, so its length is held against its size here.

use super::{Format, Header, bytes};
use crate::images::fault::ImageFault;
use std::io::{Read, Seek, SeekFrom};

pub(super) fn read(input: &mut (impl Read + Seek)) -> Result<Header, ImageFault> {
    input.seek_relative(10)?;
    let pixels = u32::from_le_bytes(bytes(input)?);
    let mut compression = 0;
    let (width, height, bits) = match u32::from_le_bytes(bytes(input)?) {
        12 => {
            let [w0, w1, h0, h1] = bytes(input)?;
            let bits = bits_per_pixel(input)?;
            (u32::from(u16::from_le_bytes([w0, w1])), u32::from(u16::from_le_bytes([h0, h1])), bits)
        }
        40.. => {
            let (width, height) = (i32::from_le_bytes(bytes(input)?), i32::from_le_bytes(bytes(input)?));
            let width = u32::try_from(width).map_err(|_| ImageFault::Damaged("a BMP of negative width".into()))?;
            let bits = bits_per_pixel(input)?;
            compression = u32::from_le_bytes(bytes(input)?);
            // A negative height says that rows run from top to bottom.
            (width, height.unsigned_abs(), bits)
        }
        size => return Err(ImageFault::Damaged(format!("a BMP header of {size} bytes"))),
    };
    // Packed rows have no length that could be known beforehand.
    if matches!(compression, 0 | 3) {
        check_length(input, u64::from(pixels), width, height, bits)?;
    }
    Ok(Header::new(Format::Bmp, width, height))
}

fn bits_per_pixel(input: &mut impl Read) -> Result<u16, ImageFault> {
    let [_, _, low, high] = bytes(input)?;
    Ok(u16::from_le_bytes([low, high]))
}

fn check_length(input: &mut impl Seek, pixels: u64, width: u32, height: u32, bits: u16) -> Result<(), ImageFault> {
    let row = (u64::from(width) * u64::from(bits)).div_ceil(32).saturating_mul(4);
    let needed = pixels.saturating_add(row.saturating_mul(u64::from(height)));
    let there = input.seek(SeekFrom::End(0))?;
    match needed <= there {
        true => Ok(()),
        false => Err(ImageFault::Truncated("its pixels end before its header says")),
    }
}
