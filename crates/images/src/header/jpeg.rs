//! JPEG: segments up to the start of the scan.

use super::{Format, Header, MOST_EXIF, Orientation, bytes, orientation};
use crate::fault::ImageFault;
use std::io::{Read, Seek};

pub(super) fn read(input: &mut (impl Read + Seek)) -> Result<Header, ImageFault> {
    input.seek_relative(2)?;
    let mut found = Orientation::default();
    loop {
        let marker = next_marker(input)?;
        match marker {
            // Frames: baseline, extended, progressive; the others are lossless or arithmetic, which nobody writes.
            0xc0..=0xc2 => {
                let mut header = frame(input, marker)?;
                header.orientation = orientation_behind(input, found)?;
                return Ok(header);
            }
            0xc3 | 0xc5..=0xc7 | 0xc9..=0xcb | 0xcd..=0xcf => {
                return Err(ImageFault::Damaged(format!("JPEG coding {marker:#x} is not supported")));
            }
            0xd8 | 0x01 | 0xd0..=0xd7 => {}
            0xd9 | 0xda => return Err(ImageFault::Damaged("a JPEG without a frame header".into())),
            _ => segment(input, marker, &mut found)?,
        }
    }
}

/// The byte behind the next 0xff; a marker may be preceded by any number of them.
fn next_marker(input: &mut impl Read) -> Result<u8, ImageFault> {
    if bytes::<1>(input)? != [0xff] {
        return Err(ImageFault::Damaged("a JPEG segment does not begin with a marker".into()));
    }
    loop {
        match bytes::<1>(input)? {
            [0xff] => {}
            [marker] => return Ok(marker),
        }
    }
}

/// Bytes of a segment behind its length field.
fn length(input: &mut impl Read) -> Result<u32, ImageFault> {
    let length = u16::from_be_bytes(bytes(input)?);
    length.checked_sub(2).map(u32::from).ok_or_else(|| ImageFault::Damaged("a JPEG segment of length 0".into()))
}

fn segment(input: &mut (impl Read + Seek), marker: u8, found: &mut Orientation) -> Result<(), ImageFault> {
    let length = length(input)?;
    if marker != 0xe1 || length > MOST_EXIF {
        return Ok(input.seek_relative(i64::from(length))?);
    }
    // APP1 holds EXIF or XMP; the latter has no orientation of this kind.
    let here = orientation(input, length)?;
    if here != Orientation::default() {
        *found = here;
    }
    Ok(())
}

fn frame(input: &mut (impl Read + Seek), marker: u8) -> Result<Header, ImageFault> {
    let length = length(input)?;
    let [precision, h1, h0, w1, w0, components] = bytes(input)?;
    let (width, height) = (u16::from_be_bytes([w1, w0]), u16::from_be_bytes([h1, h0]));
    match (precision, components) {
        (_, 4) => return Err(ImageFault::Cmyk),
        (8, 1 | 3) => {}
        _ => {
            let cause = format!("{components} components of {precision} bits; JPEG images have 1 or 3 of 8");
            return Err(ImageFault::Damaged(cause));
        }
    }
    let chroma = chroma(input, components)?;
    input.seek_relative(i64::from(length) - 6 - 3 * i64::from(components))?;
    Ok(Header { progressive: marker == 0xc2, chroma, ..Header::new(Format::Jpeg, width.into(), height.into()) })
}

/// How much finer the finest component is sampled than the coarsest, along the axis where they differ most.
fn chroma(input: &mut impl Read, components: u8) -> Result<u32, ImageFault> {
    let (mut finest, mut coarsest) = ([1; 2], [4; 2]);
    for _ in 0..components {
        let [_, sampling, _] = bytes(input)?;
        for (axis, factor) in [sampling >> 4, sampling & 15].into_iter().enumerate() {
            finest[axis] = factor.max(finest[axis]);
            coarsest[axis] = factor.clamp(1, coarsest[axis]);
        }
    }
    Ok((finest[0] / coarsest[0]).max(finest[1] / coarsest[1]).into())
}

/// EXIF may legally stand behind the frame header.
fn orientation_behind(input: &mut (impl Read + Seek), mut found: Orientation) -> Result<Orientation, ImageFault> {
    loop {
        match next_marker(input)? {
            0xda | 0xd9 => return Ok(found),
            marker => segment(input, marker, &mut found)?,
        }
    }
}

/// Whether the end marker is there: entropy-coded data never contains it, and thumbnails, which have their own, stand
/// before the scan.
pub(crate) fn is_complete(file: &[u8]) -> bool {
    let end = file.windows(2).rposition(|pair| pair == [0xff, 0xd9]);
    end.is_some_and(|end| !file[end..].windows(2).any(|pair| pair == [0xff, 0xda]))
}
