//! A file's bytes → 8-bit RGB, row by row. JPEGs much larger than needed are decoded at a half, a quarter or an
//! eighth of their size, straight from their frequencies.

use super::{
    fault::ImageFault,
    header::{Format, Header, is_complete_jpeg},
};
use plimsoll_base::guard::guarded;
use std::io::Cursor;
use zune_core::{bytestream::ZCursor, colorspace::ColorSpace, options::DecoderOptions};

/// Pixels in RGB with the size that they were decoded at.
pub(super) struct Pixels {
    pub width: u32,
    pub height: u32,
}

/// Buffers that are kept from image to image.
#[derive(Default)]
pub(super) struct Buffers {
    pub rgb: Vec<u8>,
    /// Pixels as the file has them, where that is not RGB.
    native: Vec<u8>,
}

impl Buffers {
    pub(super) fn bytes(&self) -> usize {
        self.rgb.capacity() + self.native.capacity()
    }

    /// Memory that is not there is a fault of the image, not the end of the process.
    fn size(buffer: &mut Vec<u8>, bytes: usize) -> Result<&mut [u8], ImageFault> {
        let missing = bytes.saturating_sub(buffer.len());
        buffer.try_reserve_exact(missing).map_err(|error| ImageFault::Unreadable(error.to_string()))?;
        buffer.resize(bytes, 0);
        Ok(buffer)
    }
}

/// Decodes `file`, whose header is `header`, into `buffers.rgb`; the sides are divided by `shrink` (1, 2, 4 or 8,
/// above 1 only for JPEG).
pub(super) fn decode(file: &[u8], header: &Header, shrink: u32, buffers: &mut Buffers) -> Result<Pixels, ImageFault> {
    // The decoders are safe code for files from anywhere; should one still panic, the image is to blame.
    guarded(|| match header.format {
        Format::Jpeg if !is_complete_jpeg(file) => Err(ImageFault::Truncated("the end of the JPEG is missing")),
        Format::Jpeg if shrink > 1 => shrunk_jpeg(file, header, shrink, buffers),
        Format::Jpeg => jpeg(file, header, buffers),
        Format::Png => png(file, header, buffers),
        Format::WebP => webp(file, header, buffers),
        Format::Gif => gif(file, header, buffers),
        Format::Bmp => bmp(file, header, buffers),
    })
    .map_err(ImageFault::Damaged)?
}

fn damaged(error: impl std::fmt::Display) -> ImageFault {
    ImageFault::Damaged(error.to_string())
}

/// `channels` bytes for each pixel of the image; at most 8 × 100 million, so there is no overflow.
fn bytes(header: &Header, channels: usize) -> usize {
    header.width as usize * header.height as usize * channels
}

fn options() -> DecoderOptions {
    // The size has been checked as a product; the defaults would refuse long thin images.
    DecoderOptions::new_fast().set_max_width(usize::MAX).set_max_height(usize::MAX)
}

fn whole(header: &Header) -> Pixels {
    Pixels { width: header.width, height: header.height }
}

fn jpeg(file: &[u8], header: &Header, buffers: &mut Buffers) -> Result<Pixels, ImageFault> {
    let options = options().jpeg_set_out_colorspace(ColorSpace::RGB);
    let mut decoder = zune_jpeg::JpegDecoder::new_with_options(ZCursor::new(file), options);
    decoder.decode_headers().map_err(damaged)?;
    if decoder.output_buffer_size() != Some(bytes(header, 3)) {
        return Err(damaged("its size is unclear"));
    }
    decoder.decode_into(Buffers::size(&mut buffers.rgb, bytes(header, 3))?).map_err(damaged)?;
    Ok(whole(header))
}

fn shrunk_jpeg(file: &[u8], header: &Header, shrink: u32, buffers: &mut Buffers) -> Result<Pixels, ImageFault> {
    let mut decoder = jpeg_decoder::Decoder::new(file);
    let (width, height) = (header.width.div_ceil(shrink), header.height.div_ceil(shrink));
    // Sides of a JPEG have 16 bits.
    let scaled = decoder.scale(width as u16, height as u16).map_err(damaged)?;
    if (u32::from(scaled.0), u32::from(scaled.1)) != (width, height) {
        return Err(damaged("its size is unclear"));
    }
    let pixels = decoder.decode().map_err(damaged)?;
    match decoder.info().map(|info| info.pixel_format) {
        Some(jpeg_decoder::PixelFormat::RGB24) => buffers.rgb = pixels,
        Some(jpeg_decoder::PixelFormat::L8) => {
            let rgb = Buffers::size(&mut buffers.rgb, pixels.len() * 3)?;
            flatten(&pixels, 1, rgb);
        }
        _ => return Err(damaged("its colours are unclear")),
    }
    Ok(Pixels { width, height })
}

fn png(file: &[u8], header: &Header, buffers: &mut Buffers) -> Result<Pixels, ImageFault> {
    let limits = png::Limits { bytes: bytes(header, 8) + (64 << 20) };
    let mut decoder = png::Decoder::new_with_limits(Cursor::new(file), limits);
    decoder.set_transformations(png::Transformations::normalize_to_color8());
    decoder.set_ignore_text_chunk(true);
    let mut reader = decoder.read_info().map_err(damaged)?;
    let channels = reader.output_color_type().0.samples();
    let native = Buffers::size(&mut buffers.native, bytes(header, channels))?;
    reader.next_frame(native).map_err(damaged)?;
    flatten(native, channels, Buffers::size(&mut buffers.rgb, bytes(header, 3))?);
    Ok(whole(header))
}

fn webp(file: &[u8], header: &Header, buffers: &mut Buffers) -> Result<Pixels, ImageFault> {
    let mut decoder = image_webp::WebPDecoder::new(Cursor::new(file)).map_err(damaged)?;
    if decoder.dimensions() != (header.width, header.height) {
        return Err(damaged("its size is unclear"));
    }
    if !decoder.has_alpha() {
        decoder.read_image(Buffers::size(&mut buffers.rgb, bytes(header, 3))?).map_err(damaged)?;
        return Ok(whole(header));
    }
    let native = Buffers::size(&mut buffers.native, bytes(header, 4))?;
    decoder.read_image(native).map_err(damaged)?;
    flatten(native, 4, Buffers::size(&mut buffers.rgb, bytes(header, 3))?);
    Ok(whole(header))
}

/// The one frame may cover a part of the image; the rest is white, like everything transparent.
fn gif(file: &[u8], header: &Header, buffers: &mut Buffers) -> Result<Pixels, ImageFault> {
    let mut options = gif::DecodeOptions::new();
    options.set_color_output(gif::ColorOutput::RGBA);
    options.check_frame_consistency(true);
    let mut decoder = options.read_info(Cursor::new(file)).map_err(damaged)?;
    let frame = decoder.next_frame_info().map_err(damaged)?.ok_or_else(|| damaged("a GIF without an image"))?;
    let (left, top, columns, rows) =
        (usize::from(frame.left), usize::from(frame.top), usize::from(frame.width), usize::from(frame.height));
    let native = Buffers::size(&mut buffers.native, columns * rows * 4)?;
    decoder.read_into_buffer(native).map_err(damaged)?;
    let width = header.width as usize;
    let rgb = Buffers::size(&mut buffers.rgb, bytes(header, 3))?;
    rgb.fill(255);
    for (row, line) in native.chunks_exact(columns.max(1) * 4).enumerate() {
        let start = (top + row) * width + left;
        let target = rgb.get_mut(start * 3..(start + columns) * 3);
        flatten(line, 4, target.ok_or_else(|| damaged("a GIF frame outside of its image"))?);
    }
    Ok(whole(header))
}

fn bmp(file: &[u8], header: &Header, buffers: &mut Buffers) -> Result<Pixels, ImageFault> {
    let mut decoder = zune_bmp::BmpDecoder::new_with_options(ZCursor::new(file), options());
    decoder.decode_headers().map_err(|error| damaged(format!("{error:?}")))?;
    let channels = decoder.colorspace().map_or(0, |colours| colours.num_components());
    if !(1..=4).contains(&channels) || decoder.output_buf_size() != Some(bytes(header, channels)) {
        return Err(damaged("its colours are unclear"));
    }
    let native = Buffers::size(&mut buffers.native, bytes(header, channels))?;
    decoder.decode_into(native).map_err(|error| damaged(format!("{error:?}")))?;
    // Many programs leave the fourth byte 0 and mean an image, not nothing.
    if channels == 4 && native.iter().skip(3).step_by(4).all(|&alpha| alpha == 0) {
        native.iter_mut().skip(3).step_by(4).for_each(|alpha| *alpha = 255);
    }
    flatten(native, channels, Buffers::size(&mut buffers.rgb, bytes(header, 3))?);
    Ok(whole(header))
}

/// Grey (1), grey with alpha (2), RGB (3) or RGBA (4) → RGB on white.
fn flatten(native: &[u8], channels: usize, rgb: &mut [u8]) {
    let pixels = rgb.chunks_exact_mut(3);
    match channels {
        1 => native.iter().zip(pixels).for_each(|(&grey, pixel)| pixel.fill(grey)),
        2 => native.chunks_exact(2).zip(pixels).for_each(|(grey, pixel)| pixel.fill(on_white(grey[0], grey[1]))),
        3 => rgb.copy_from_slice(native),
        _ => native.chunks_exact(4).zip(pixels).for_each(|(colour, pixel)| {
            for (value, &channel) in pixel.iter_mut().zip(colour) {
                *value = on_white(channel, colour[3]);
            }
        }),
    }
}

/// Rounded division by 255.
#[inline(always)]
fn on_white(value: u8, alpha: u8) -> u8 {
    let sum = u32::from(value) * u32::from(alpha) + 255 * (255 - u32::from(alpha));
    ((sum + 127) / 255) as u8
}

/// An upper bound of the bytes that decoding takes besides the file itself.
pub(super) fn bytes_needed(header: &Header, shrink: u32) -> usize {
    /// Tables, windows and rows of the decoders.
    const FIXED: usize = 1 << 20;
    let pixels = header.width as usize * header.height as usize;
    let per_pixel = match header.format {
        // Coefficients of all components, 16 bits each, blocks at the edge being whole.
        Format::Jpeg if header.progressive => 6 * (pixels + 16 * (header.width + header.height + 16) as usize),
        Format::Jpeg => 0,
        // Native pixels; lossless WebP and interlaced PNG work on a copy.
        _ => 8 * pixels,
    };
    let shrunk = header.width.div_ceil(shrink) as usize * header.height.div_ceil(shrink) as usize;
    // RGB; a shrunk JPEG passes through its own planes first.
    FIXED + per_pixel + if shrink > 1 { 6 * shrunk } else { 3 * shrunk }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_transparent_is_white() {
        let mut rgb = [7; 6];
        flatten(&[10, 20, 30, 255, 10, 20, 30, 0], 4, &mut rgb);
        assert_eq!(rgb, [10, 20, 30, 255, 255, 255]);
        flatten(&[100, 128, 50, 255], 2, &mut rgb);
        assert_eq!(rgb, [177, 177, 177, 50, 50, 50]);
        flatten(&[3, 4], 1, &mut rgb);
        assert_eq!(rgb, [3, 3, 3, 4, 4, 4]);
    }
}
