//! Pixels → the numbers a model reads: resized, cut out of the middle, turned upright, normalized, channel by channel.

use super::{
    decode::{Buffers, Pixels, bytes_needed, decode},
    fault::ImageFault,
    header::{Header, Orientation},
};
use fast_image_resize::{
    self as resize,
    images::{TypedImage, TypedImageRef},
    pixels::U8x3,
};
use plimsoll_base::simd::simd;
use std::{io::Cursor, path::Path};

/// How images become numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct Preparation {
    /// Width and height of the result.
    pub side: usize,
    pub scaling: Scaling,
    pub filter: Filter,
    /// What a byte is multiplied by first; 1/255 unless told.
    pub rescale: f64,
    pub mean: [f64; 3],
    pub std: [f64; 3],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scaling {
    /// The shorter side becomes this long; the middle is cut out.
    Shortest(usize),
    /// The whole image becomes the square, whatever its proportions.
    Squeeze,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filter {
    Bilinear,
    Bicubic,
    Lanczos,
}

/// Moments of the images that CLIP was trained on, per channel.
const CLIP_MEAN: [f64; 3] = [0.48145466, 0.4578275, 0.40821073];
const CLIP_STD: [f64; 3] = [0.26862954, 0.26130258, 0.27577711];

/// A JPEG is decoded at a fraction of its size only where the filter still shrinks it by this much, its colours too,
/// which most have at half size: then the result differs from that of the whole image by less than one step of 255
/// on average.
const LEAST_SHRINK: f64 = 3.2;

impl Preparation {
    /// As CLIP's own processor, for images of `side`.
    pub fn clip(side: usize) -> Self {
        Preparation {
            side,
            scaling: Scaling::Shortest(side),
            filter: Filter::Bicubic,
            rescale: 1.0 / 255.0,
            mean: CLIP_MEAN,
            std: CLIP_STD,
        }
    }

    /// Floats of one image: 3 channels of `side` rows.
    pub fn elements(&self) -> usize {
        3 * self.side * self.side
    }

    /// The part of the stored image that is seen, and how far a JPEG may be shrunk while decoding.
    fn window(&self, header: &Header) -> Window {
        let (width, height) = header.upright();
        let (width, height) = (f64::from(width), f64::from(height));
        let side = self.side as f64;
        let (scaled_width, scaled_height) = match self.scaling {
            Scaling::Squeeze => (side, side),
            Scaling::Shortest(shortest) => {
                let shortest = shortest as f64;
                let long = |long: f64, short: f64| (shortest * long / short).floor();
                if width <= height { (shortest, long(height, width)) } else { (long(width, height), shortest) }
            }
        };
        let axis = |full: f64, scaled: f64| {
            let start = ((scaled - side) / 2.0).floor();
            Span { start: start * full / scaled, length: side * full / scaled, full }
        };
        Window::new(axis(width, scaled_width), axis(height, scaled_height), header.orientation, side)
    }

    /// Decodes the image in `file` into `out`, which has `elements()` floats.
    pub fn run(&self, file: &[u8], studio: &mut Studio, out: &mut [f32]) -> Result<(), ImageFault> {
        let header = Header::read(&mut Cursor::new(file))?;
        let window = self.window(&header);
        let shrink = window.shrink(&header);
        let pixels = decode(file, &header, shrink, &mut studio.buffers)?;
        self.resize(&window, f64::from(shrink), &pixels, studio)?;
        self.write(header.orientation, &studio.small, out);
        Ok(())
    }

    fn resize(&self, window: &Window, shrink: f64, pixels: &Pixels, studio: &mut Studio) -> Result<(), ImageFault> {
        let refused = |error: &dyn std::fmt::Display| ImageFault::Damaged(error.to_string());
        let filter = match self.filter {
            Filter::Bilinear => resize::FilterType::Bilinear,
            Filter::Bicubic => resize::FilterType::CatmullRom,
            Filter::Lanczos => resize::FilterType::Lanczos3,
        };
        let options = resize::ResizeOptions::new().resize_alg(resize::ResizeAlg::Convolution(filter)).crop(
            window.columns.start / shrink,
            window.rows.start / shrink,
            (window.columns.length / shrink).min(f64::from(pixels.width) - window.columns.start / shrink),
            (window.rows.length / shrink).min(f64::from(pixels.height) - window.rows.start / shrink),
        );
        studio.small.resize(self.elements(), 0);
        let side = self.side as u32;
        // By its type: otherwise every kind of pixel is compiled in, which takes minutes and megabytes.
        let source = TypedImageRef::<U8x3>::from_buffer(pixels.width, pixels.height, &studio.buffers.rgb)
            .map_err(|error| refused(&error))?;
        let mut target =
            TypedImage::<U8x3>::from_buffer(side, side, &mut studio.small).map_err(|error| refused(&error))?;
        studio.resizer.resize_typed(&source, &mut target, &options).map_err(|error| refused(&error))
    }

    /// Pixels by rows as stored → upright channels, normalized.
    fn write(&self, orientation: Orientation, small: &[u8], out: &mut [f32]) {
        let side = self.side;
        let (mirror_columns, mirror_rows) = orientation.mirrors();
        let start = |mirrored: bool, step: isize| if mirrored { (side as isize - 1) * step } else { 0 };
        let sign = |mirrored: bool| if mirrored { -1 } else { 1 };
        let (column, row) = (3, 3 * side as isize);
        let first = start(mirror_columns, column) + start(mirror_rows, row);
        let (across, down) = (sign(mirror_columns) * column, sign(mirror_rows) * row);
        let (across, down) = if orientation.transposes() { (down, across) } else { (across, down) };
        for (channel, plane) in out.chunks_exact_mut(side * side).enumerate() {
            let scale = (self.rescale / self.std[channel]) as f32;
            let shift = (-self.mean[channel] / self.std[channel]) as f32;
            simd(
                #[inline(always)]
                || {
                    for (y, line) in plane.chunks_exact_mut(side).enumerate() {
                        let start = first + channel as isize + y as isize * down;
                        for (x, value) in line.iter_mut().enumerate() {
                            let at = (start + x as isize * across) as usize;
                            *value = f32::from(small[at]) * scale + shift;
                        }
                    }
                },
            );
        }
    }

    /// An upper bound of the bytes that preparing an image takes, its file of `file_bytes` included.
    pub fn bytes_needed(&self, header: &Header, file_bytes: u64) -> usize {
        let window = self.window(header);
        let shrink = window.shrink(header);
        // Between the two passes of the filter: whole rows of the result's width, or whole columns of its height.
        let longest = header.width.max(header.height).div_ceil(shrink) as usize;
        let between = 3 * longest * self.side;
        file_bytes as usize + bytes_needed(header, shrink) + between + self.elements()
    }
}

/// A part of one axis, in pixels of the whole image.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Span {
    start: f64,
    length: f64,
    full: f64,
}

impl Span {
    fn mirrored(self, mirrored: bool) -> Self {
        Span { start: if mirrored { self.full - self.start - self.length } else { self.start }, ..self }
    }

    /// Rounding must not carry it over an edge.
    fn inside(self) -> Self {
        let start = self.start.clamp(0.0, self.full);
        Span { start, length: self.length.min(self.full - start), ..self }
    }
}

/// What is seen, along the axes as stored.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Window {
    columns: Span,
    rows: Span,
    side: f64,
}

impl Window {
    fn new(across: Span, down: Span, orientation: Orientation, side: f64) -> Self {
        let (columns, rows) = if orientation.transposes() { (down, across) } else { (across, down) };
        let (mirror_columns, mirror_rows) = orientation.mirrors();
        Window { columns: columns.mirrored(mirror_columns).inside(), rows: rows.mirrored(mirror_rows).inside(), side }
    }

    fn shrink(&self, header: &Header) -> u32 {
        let ratio = self.columns.length.min(self.rows.length) / self.side;
        let enough = |&shrink: &u32| ratio >= LEAST_SHRINK * f64::from(shrink * header.chroma);
        let is_jpeg = header.format == super::header::Format::Jpeg;
        [8, 4, 2].into_iter().find(enough).filter(|_| is_jpeg).unwrap_or(1)
    }
}

/// What one worker needs to prepare images; kept from image to image.
#[derive(Default)]
pub struct Studio {
    file: Vec<u8>,
    buffers: Buffers,
    resizer: resize::Resizer,
    small: Vec<u8>,
}

impl Studio {
    /// Reads and prepares the image at `path`.
    pub fn open(&mut self, path: &Path, how: &Preparation, out: &mut [f32]) -> Result<(), ImageFault> {
        let mut file = std::mem::take(&mut self.file);
        let result = read_whole(path, &mut file).and_then(|()| how.run(&file, self, out));
        self.file = file;
        result
    }

    pub fn bytes(&self) -> usize {
        self.file.capacity() + self.buffers.bytes() + self.resizer.size_of_internal_buffers() + self.small.capacity()
    }
}

/// Files above this are no images of up to 100 million pixels.
const MOST_FILE_BYTES: u64 = 1 << 30;

fn read_whole(path: &Path, file: &mut Vec<u8>) -> Result<(), ImageFault> {
    use std::io::Read;
    let open = std::fs::File::open(path)?;
    let length = open.metadata()?.len();
    if length > MOST_FILE_BYTES {
        return Err(ImageFault::Damaged(format!("a file of {length} bytes")));
    }
    file.clear();
    file.reserve_exact(length as usize);
    open.take(length).read_to_end(file)?;
    Ok(())
}

#[cfg(test)]
#[path = "prepare_tests.rs"]
pub(super) mod tests;
