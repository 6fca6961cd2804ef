//! PNG: chunks up to the pixels. An `acTL` chunk before them makes it an animation.

use super::{Format, Header, MOST_EXIF, bytes, orientation};
use crate::fault::ImageFault;
use std::io::{Read, Seek};

pub(super) fn read(input: &mut (impl Read + Seek)) -> Result<Header, ImageFault> {
    input.seek_relative(8)?;
    let (_, kind) = chunk(input)?;
    if kind != *b"IHDR" {
        return Err(ImageFault::Damaged("a PNG whose first chunk is not its header".into()));
    }
    let (width, height) = (u32::from_be_bytes(bytes(input)?), u32::from_be_bytes(bytes(input)?));
    input.seek_relative(5 + 4)?;
    let mut header = Header::new(Format::Png, width, height);
    loop {
        let (length, kind) = chunk(input)?;
        match &kind {
            b"IDAT" => return Ok(header),
            b"acTL" => {
                let frames = u32::from_be_bytes(bytes(input)?);
                if frames > 1 {
                    return Err(ImageFault::Animated("PNG"));
                }
                input.seek_relative(i64::from(length) - 4 + 4)?;
            }
            b"eXIf" if length <= MOST_EXIF => {
                header.orientation = orientation(input, length)?;
                input.seek_relative(4)?;
            }
            b"IEND" => return Err(ImageFault::Damaged("a PNG without pixels".into())),
            _ => input.seek_relative(i64::from(length) + 4)?,
        }
    }
}

/// Length and name; the contents and a checksum of 4 bytes follow.
fn chunk(input: &mut impl Read) -> Result<(u32, [u8; 4]), ImageFault> {
    Ok((u32::from_be_bytes(bytes(input)?), bytes(input)?))
}
