//! GIF: blocks up to a second image, which makes it an animation.

use super::{Format, Header, bytes};
use crate::fault::ImageFault;
use std::io::{Read, Seek};

const HAS_TABLE: u8 = 0x80;

pub(super) fn read(input: &mut (impl Read + Seek)) -> Result<Header, ImageFault> {
    input.seek_relative(6)?;
    let [w0, w1, h0, h1, flags, _, _] = bytes(input)?;
    let size = |low, high| u32::from(u16::from_le_bytes([low, high]));
    skip_colours(input, flags)?;
    let mut images = 0;
    loop {
        match bytes::<1>(input)? {
            [b','] if images == 1 => return Err(ImageFault::Animated("GIF")),
            [b','] => {
                images += 1;
                let descriptor: [u8; 9] = bytes(input)?;
                skip_colours(input, descriptor[8])?;
                input.seek_relative(1)?;
                skip_blocks(input)?;
            }
            [b'!'] => {
                input.seek_relative(1)?;
                skip_blocks(input)?;
            }
            [b';'] if images == 1 => return Ok(Header::new(Format::Gif, size(w0, w1), size(h0, h1))),
            _ => return Err(ImageFault::Damaged("a GIF block of an unknown kind".into())),
        }
    }
}

fn skip_colours(input: &mut impl Seek, flags: u8) -> Result<(), ImageFault> {
    let entries = if flags & HAS_TABLE != 0 { 2i64 << (flags & 7) } else { 0 };
    Ok(input.seek_relative(3 * entries)?)
}

fn skip_blocks(input: &mut (impl Read + Seek)) -> Result<(), ImageFault> {
    loop {
        match bytes::<1>(input)? {
            [0] => return Ok(()),
            [length] => input.seek_relative(i64::from(length))?,
        }
    }
}
