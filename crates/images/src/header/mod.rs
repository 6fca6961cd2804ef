//! The first bytes of an image: enough to know its format, size and orientation, and to refuse what cannot be used,
//! without decoding it. Every file is looked at when the data is opened, and again when it is decoded: it may have
//! changed in between.

mod bmp;
mod exif;
mod gif;
mod jpeg;
mod png;
mod webp;

use super::fault::{ImageFault, MOST_PIXELS};
pub(super) use exif::Orientation;
pub(super) use jpeg::is_complete as is_complete_jpeg;
use std::{
    fs::File,
    io::{BufReader, Read, Seek},
    path::Path,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Jpeg,
    Png,
    WebP,
    Gif,
    Bmp,
}

/// What a decoder must know, checked: a size within bounds, one frame, colours that are RGB or grey.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub format: Format,
    /// As stored, before the orientation is applied.
    pub width: u32,
    pub height: u32,
    pub orientation: Orientation,
    /// A progressive JPEG keeps all its coefficients until the last scan.
    pub progressive: bool,
    /// Pixels of a side that share one sample of colour in a JPEG: 1, or 2 where colours are stored at half size.
    pub chroma: u32,
}

impl Header {
    fn new(format: Format, width: u32, height: u32) -> Self {
        Header { format, width, height, orientation: Orientation::default(), progressive: false, chroma: 1 }
    }

    /// Reads the header of `file` and the size of the file in bytes.
    pub fn of_file(file: &Path) -> Result<(Self, u64), ImageFault> {
        // Before it is opened: a pipe would wait for a writer for ever.
        let metadata = std::fs::metadata(file)?;
        let open = if metadata.is_file() {
            File::open(file)?
        } else {
            return Err(ImageFault::Unreadable("it is not a file".into()));
        };
        // Small, because most of what follows the header is skipped.
        let header = Self::read(&mut BufReader::with_capacity(4096, open))?;
        Ok((header, metadata.len()))
    }

    pub fn read(input: &mut (impl Read + Seek)) -> Result<Self, ImageFault> {
        let mut magic = [0; 12];
        input.read_exact(&mut magic).map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => ImageFault::UnknownFormat,
            _ => ImageFault::of_io(&error),
        })?;
        input.rewind()?;
        let header = match magic {
            [0xff, 0xd8, 0xff, ..] => jpeg::read(input)?,
            [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => png::read(input)?,
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P'] => webp::read(input)?,
            [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => gif::read(input)?,
            [b'B', b'M', ..] => bmp::read(input)?,
            _ => return Err(ImageFault::UnknownFormat),
        };
        header.checked()
    }

    fn checked(self) -> Result<Self, ImageFault> {
        let Header { width, height, .. } = self;
        match u64::from(width) * u64::from(height) {
            0 => Err(ImageFault::ZeroSized { width, height }),
            pixels if pixels > MOST_PIXELS => Err(ImageFault::TooLarge { width, height }),
            _ => Ok(self),
        }
    }

    /// Width and height as seen.
    pub(crate) fn upright(&self) -> (u32, u32) {
        if self.orientation.transposes() { (self.height, self.width) } else { (self.width, self.height) }
    }
}

fn bytes<const N: usize>(input: &mut impl Read) -> Result<[u8; N], ImageFault> {
    let mut bytes = [0; N];
    input.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Metadata longer than this is not read for its orientation.
const MOST_EXIF: u32 = 1 << 20;

/// The orientation in an EXIF block of `length` bytes at hand. Unreadable EXIF is no reason to refuse an image.
fn orientation(input: &mut impl Read, length: u32) -> Result<Orientation, ImageFault> {
    let mut block = vec![0; length as usize];
    input.read_exact(&mut block)?;
    Ok(Orientation::of_exif(&block).unwrap_or_default())
}

#[cfg(test)]
mod tests;
