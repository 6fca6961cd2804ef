//! BMP: a header of fixed places.

use super::{Format, Header, bytes};
use crate::fault::ImageFault;
use std::io::{Read, Seek};

pub(super) fn read(input: &mut (impl Read + Seek)) -> Result<Header, ImageFault> {
    input.seek_relative(14)?;
    let (width, height) = match u32::from_le_bytes(bytes(input)?) {
        12 => {
            let [w0, w1, h0, h1] = bytes(input)?;
            (u16::from_le_bytes([w0, w1]).into(), u16::from_le_bytes([h0, h1]).into())
        }
        40.. => {
            let (width, height) = (i32::from_le_bytes(bytes(input)?), i32::from_le_bytes(bytes(input)?));
            let width = u32::try_from(width).map_err(|_| ImageFault::Damaged("a BMP of negative width".into()))?;
            // A negative height says that rows run from top to bottom.
            (width, height.unsigned_abs())
        }
        size => return Err(ImageFault::Damaged(format!("a BMP header of {size} bytes"))),
    };
    Ok(Header::new(Format::Bmp, width, height))
}
