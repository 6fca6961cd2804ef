use super::*;
use crate::prepare::tests::{bmp_header, golden};
use std::io::Cursor;

fn read(file: impl AsRef<[u8]>) -> Result<Header, ImageFault> {
    Header::read(&mut Cursor::new(file.as_ref()))
}

#[test]
fn sizes_and_turns_are_known_without_decoding() {
    for (name, width, height, upright, progressive) in [
        ("photo.jpg", 97, 61, (97, 61), false),
        ("progressive.jpg", 61, 83, (61, 83), true),
        ("turned.jpg", 50, 90, (90, 50), false),
        ("tiny.png", 11, 7, (7, 11), false),
        ("lossless.webp", 52, 39, (52, 39), false),
        ("lossy.webp", 64, 48, (64, 48), false),
        ("still.gif", 38, 50, (38, 50), false),
        ("plain.bmp", 33, 29, (33, 29), false),
    ] {
        let header = read(golden(name)).unwrap();
        assert_eq!((header.width, header.height, header.progressive), (width, height, progressive), "{name}");
        assert_eq!(header.upright(), upright, "{name}");
    }
    let chroma = ["photo.jpg", "turned.jpg", "grey.jpg"].map(|name| read(golden(name)).unwrap().chroma);
    assert_eq!(chroma, [2, 1, 1]);
}

#[test]
fn what_cannot_be_used_is_refused_with_its_reason() {
    assert_eq!(read(bmp_header(20_000, -20_000)), Err(ImageFault::TooLarge { width: 20_000, height: 20_000 }));
    assert_eq!(read(bmp_header(0, 7)), Err(ImageFault::ZeroSized { width: 0, height: 7 }));
    assert!(matches!(read(bmp_header(-5, 7)), Err(ImageFault::Damaged(_))));
    assert_eq!(read("<svg xmlns='…'></svg>"), Err(ImageFault::UnknownFormat));
    assert_eq!(read(""), Err(ImageFault::UnknownFormat));
    assert!(matches!(Header::of_file(Path::new("/nowhere/a.png")), Err(ImageFault::Unreadable(_))));
    assert!(matches!(Header::of_file(Path::new("/")), Err(ImageFault::Unreadable(_))));
}

#[test]
fn a_jpeg_of_four_components_is_cmyk() {
    let mut file = golden("photo.jpg");
    let frame = file.windows(2).position(|pair| pair == [0xff, 0xc0]).unwrap();
    file[frame + 9] = 4;
    assert_eq!(read(&file), Err(ImageFault::Cmyk));
}

#[test]
fn animations_are_refused() {
    let still = golden("still.gif");
    // The image's blocks once more, before the trailer.
    let start = 13 + 3 * (2 << (still[10] & 7));
    let mut moving = still[..still.len() - 1].to_vec();
    moving.extend(&still[start..]);
    assert_eq!(read(&moving), Err(ImageFault::Animated("GIF")));

    let plain = golden("plain.png");
    let mut moving = plain[..33].to_vec();
    moving.extend(b"\0\0\0\x08acTL\0\0\0\x03\0\0\0\0????");
    moving.extend(&plain[33..]);
    assert_eq!(read(&moving), Err(ImageFault::Animated("PNG")));

    let moving = b"RIFF\x20\0\0\0WEBPVP8X\x0a\0\0\0\x02\0\0\0\x0f\0\0\x0f\0\0";
    assert_eq!(read(moving), Err(ImageFault::Animated("WebP")));
}

#[test]
fn truncation_is_told_from_damage() {
    for name in ["photo.jpg", "plain.png", "still.gif"] {
        assert!(matches!(read(&golden(name)[..30]), Err(ImageFault::Truncated(_))), "{name}");
    }
}
