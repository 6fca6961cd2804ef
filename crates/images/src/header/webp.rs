//! WebP: a RIFF file with one of three first chunks.

use super::{Format, Header, MOST_EXIF, bytes, orientation};
use crate::fault::ImageFault;
use std::io::{ErrorKind, Read, Seek};

const HAS_EXIF: u8 = 0x08;
const IS_ANIMATED: u8 = 0x02;

pub(super) fn read(input: &mut (impl Read + Seek)) -> Result<Header, ImageFault> {
    input.seek_relative(12)?;
    let (kind, length) = chunk(input)?;
    match &kind {
        b"VP8 " => lossy(input),
        b"VP8L" => lossless(input),
        b"VP8X" => extended(input, length),
        _ => Err(ImageFault::Damaged("a WebP whose first chunk is unknown".into())),
    }
}

fn lossy(input: &mut impl Read) -> Result<Header, ImageFault> {
    let [_, _, _, s0, s1, s2, w0, w1, h0, h1] = bytes(input)?;
    if [s0, s1, s2] != [0x9d, 0x01, 0x2a] {
        return Err(ImageFault::Damaged("a lossy WebP without a key frame".into()));
    }
    // The two upper bits are a display scale, which nobody honours.
    let size = |low, high| u32::from(u16::from_le_bytes([low, high]) & 0x3fff);
    Ok(Header::new(Format::WebP, size(w0, w1), size(h0, h1)))
}

fn lossless(input: &mut impl Read) -> Result<Header, ImageFault> {
    let [signature] = bytes(input)?;
    if signature != 0x2f {
        return Err(ImageFault::Damaged("a lossless WebP without its signature".into()));
    }
    let bits = u32::from_le_bytes(bytes(input)?);
    Ok(Header::new(Format::WebP, (bits & 0x3fff) + 1, (bits >> 14 & 0x3fff) + 1))
}

fn extended(input: &mut (impl Read + Seek), length: u32) -> Result<Header, ImageFault> {
    let [flags, _, _, _, w0, w1, w2, h0, h1, h2] = bytes(input)?;
    if flags & IS_ANIMATED != 0 {
        return Err(ImageFault::Animated("WebP"));
    }
    let size = |low, middle, high| u32::from_le_bytes([low, middle, high, 0]) + 1;
    let mut header = Header::new(Format::WebP, size(w0, w1, w2), size(h0, h1, h2));
    if flags & HAS_EXIF != 0 {
        input.seek_relative(padded(length) - 10)?;
        find_orientation(input, &mut header)?;
    }
    Ok(header)
}

/// EXIF stands behind the pixels. A file that ends before it is left to the decoder.
fn find_orientation(input: &mut (impl Read + Seek), header: &mut Header) -> Result<(), ImageFault> {
    loop {
        let mut start = [0; 8];
        match input.read_exact(&mut start) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(()),
            result => result?,
        }
        let [k0, k1, k2, k3, l0, l1, l2, l3] = start;
        let length = u32::from_le_bytes([l0, l1, l2, l3]);
        if [k0, k1, k2, k3] == *b"EXIF" && length <= MOST_EXIF {
            header.orientation = orientation(input, length)?;
            return Ok(());
        }
        input.seek_relative(padded(length))?;
    }
}

fn chunk(input: &mut impl Read) -> Result<([u8; 4], u32), ImageFault> {
    Ok((bytes(input)?, u32::from_le_bytes(bytes(input)?)))
}

/// Chunks begin at even offsets.
fn padded(length: u32) -> i64 {
    i64::from(length) + i64::from(length & 1)
}
