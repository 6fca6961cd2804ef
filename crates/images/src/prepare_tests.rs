use super::*;
use plimsoll_base::random::mix;
use safetensors::SafeTensors;

const GOLDENS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/goldens");
const SIDE: usize = 16;
/// Of the workers that load batches.
const WORKER_STACK_BYTES: usize = 1 << 20;

pub(crate) fn golden(name: &str) -> Vec<u8> {
    std::fs::read(format!("{GOLDENS}/{name}")).unwrap()
}

fn prepared(file: &[u8], how: &Preparation) -> Result<Vec<f32>, ImageFault> {
    let mut out = vec![f32::NAN; how.elements()];
    how.run(file, &mut Studio::default(), &mut out).map(|()| out)
}

/// Mean and largest difference in steps of 255.
fn differences(ours: &[f32], theirs: &[f32]) -> (f64, f64) {
    let per_channel = ours.len() / 3;
    let steps = ours.iter().zip(theirs).enumerate().map(|(at, (a, b))| {
        assert!(a.is_finite());
        f64::from((a - b).abs()) * CLIP_STD[at / per_channel] * 255.0
    });
    let steps: Vec<f64> = steps.collect();
    (steps.iter().sum::<f64>() / steps.len() as f64, steps.iter().copied().fold(0.0, f64::max))
}

/// Formats without loss may differ by roundings in and between the passes of the filter; lossy ones also in the inverse
/// transform and in the interpolation of colours.
#[test]
fn images_become_what_clips_processor_makes_of_them() {
    let bytes = golden("expected.safetensors");
    let expected = SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(expected.len(), 13);
    let mut wrong = Vec::new();
    for name in expected.names() {
        let theirs: Vec<f32> = expected
            .tensor(name)
            .unwrap()
            .data()
            .chunks_exact(4)
            .map(|b| f32::from_le_bytes(b.try_into().unwrap()))
            .collect();
        let (mean, most) = differences(&prepared(&golden(name), &Preparation::clip(SIDE)).unwrap(), &theirs);
        let lossy = name.ends_with("jpg") || name.starts_with("lossy");
        let (mean_bound, most_bound) = if lossy { (1.0, 6.0) } else { (0.3, 4.0) };
        if mean > mean_bound || most > most_bound {
            wrong.push(format!("{name}: mean {mean:.3}, largest {most:.3} steps of 255"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// `file`, a JPEG, with an EXIF block that says how to turn it.
fn turned(file: &[u8], orientation: u8) -> Vec<u8> {
    let mut tiff = b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0".to_vec();
    tiff.extend([orientation, 0, 0, 0, 0, 0, 0]);
    let mut out = file[..2].to_vec();
    out.extend([0xff, 0xe1, 0, tiff.len() as u8 + 2]);
    out.extend(tiff);
    out.extend(&file[2..]);
    out
}

#[test]
fn every_orientation_shows_the_same_scene() {
    let how = Preparation { scaling: Scaling::Squeeze, ..Preparation::clip(SIDE) };
    let photo = golden("photo.jpg");
    let upright = prepared(&photo, &how).unwrap();
    // Where the pixel shown at (x, y) is stored, from the definition of the tag.
    let last = SIDE - 1;
    type Stored = fn(usize, usize, usize) -> (usize, usize);
    let stored: [Stored; 8] = [
        |x, y, _| (x, y),
        |x, y, last| (last - x, y),
        |x, y, last| (last - x, last - y),
        |x, y, last| (x, last - y),
        |x, y, _| (y, x),
        |x, y, last| (y, last - x),
        |x, y, last| (last - y, last - x),
        |x, y, last| (last - y, x),
    ];
    for (number, stored) in (1..).zip(stored) {
        let shown = prepared(&turned(&photo, number), &how).unwrap();
        for (at, &value) in shown.iter().enumerate() {
            let (channel, y, x) = (at / SIDE / SIDE, at / SIDE % SIDE, at % SIDE);
            let (column, row) = stored(x, y, last);
            assert_eq!(value, upright[(channel * SIDE + row) * SIDE + column], "orientation {number}, {x} {y}");
        }
    }
}

/// The middle is cut out along the axes as seen: a tall image stored lying keeps its middle.
#[test]
fn turned_images_are_cut_along_the_axes_as_seen() {
    let how = Preparation::clip(SIDE);
    let header = |width, height, number| Header {
        orientation: Orientation::new(number).unwrap(),
        ..Header::read(&mut Cursor::new(bmp_header(width, height))).unwrap()
    };
    let window = how.window(&header(100, 41, 1));
    // 16 × 100 / 41 = 39.02 → 39 columns, of which 11 to 27 are kept.
    assert_eq!((window.columns.start, window.columns.length), (11.0 * 100.0 / 39.0, 16.0 * 100.0 / 39.0));
    assert_eq!((window.rows.start, window.rows.length), (0.0, 41.0));
    let mirrored = how.window(&header(100, 41, 2));
    assert!((mirrored.columns.start - (100.0 - 27.0 * 100.0 / 39.0)).abs() < 1e-9);
    let lying = how.window(&header(41, 100, 6));
    assert_eq!((lying.columns.start, lying.columns.length), (0.0, 41.0));
}

pub(crate) fn bmp_header(width: i32, height: i32) -> Vec<u8> {
    let mut file = b"BM".to_vec();
    file.extend([0; 12]);
    file.extend(40u32.to_le_bytes());
    file.extend(width.to_le_bytes());
    file.extend(height.to_le_bytes());
    file
}

#[test]
fn large_jpegs_are_shrunk_while_decoding_only_where_the_filter_still_shrinks() {
    let shrink = |width, height, side, chroma| {
        let mut header = Header::read(&mut Cursor::new(bmp_header(width, height))).unwrap();
        assert_eq!(Preparation::clip(side).window(&header).shrink(&header), 1, "only JPEG can");
        (header.format, header.chroma) = (super::super::header::Format::Jpeg, chroma);
        Preparation::clip(side).window(&header).shrink(&header)
    };
    assert_eq!(shrink(640, 480, 224, 1), 1);
    assert_eq!(shrink(2000, 1500, 224, 1), 2);
    assert_eq!(shrink(2000, 1500, 224, 2), 1);
    assert_eq!(shrink(4000, 3000, 224, 1), 4);
    assert_eq!(shrink(4000, 3000, 224, 2), 2);
    assert_eq!(shrink(9000, 9000, 224, 1), 8);
    assert_eq!(shrink(100, 30_000, 224, 1), 1);
}

/// Shrinking first is a different filter; it must stay below one step of 255 on average.
#[test]
fn a_shrunk_jpeg_is_near_the_whole_one() {
    let file = golden("large.jpg");
    let header = Header::read(&mut Cursor::new(&file)).unwrap();
    let how = Preparation::clip(SIDE);
    let window = how.window(&header);
    assert_eq!(window.shrink(&header), 2);
    let result = |shrink: u32| {
        let mut studio = Studio::default();
        let pixels = decode(&file, &header, shrink, &mut studio.buffers).unwrap();
        how.resize(&window, f64::from(shrink), &pixels, &mut studio).unwrap();
        let mut out = vec![0.0; how.elements()];
        how.write(header.orientation, &studio.small, &mut out);
        out
    };
    let (mean, most) = differences(&result(2), &result(1));
    assert!(mean < 1.0 && most < 24.0, "mean {mean:.3}, largest {most:.3}");
}

/// Damage gives an error or another image, never a panic, also on the small stack of a worker.
#[test]
fn damaged_images_do_not_panic() {
    let names = [
        "photo.jpg",
        "progressive.jpg",
        "large.jpg",
        "clear.png",
        "palette.png",
        "lossy.webp",
        "lossless.webp",
        "still.gif",
        "plain.bmp",
    ];
    let worker = std::thread::Builder::new().stack_size(WORKER_STACK_BYTES);
    let work = move || {
        let how = Preparation::clip(SIDE);
        let (mut studio, mut out) = (Studio::default(), vec![0.0; how.elements()]);
        for name in names {
            let whole = golden(name);
            for seed in 0..60u64 {
                let mut file = whole.clone();
                for change in 0..1 + seed % 4 {
                    let draw = mix(seed * 4 + change + 1);
                    // Headers are where damage is dangerous.
                    let reach = if draw.is_multiple_of(3) { file.len() } else { file.len().min(80) };
                    file[(draw >> 16) as usize % reach] = (draw >> 8) as u8;
                }
                if seed.is_multiple_of(5) {
                    file.truncate(mix(seed) as usize % file.len());
                }
                if how.run(&file, &mut studio, &mut out).is_ok() {
                    assert!(out.iter().all(|value| value.is_finite()));
                }
            }
        }
    };
    worker.spawn(work).unwrap().join().unwrap();
}

#[test]
fn truncated_images_are_refused() {
    for name in ["photo.jpg", "progressive.jpg", "large.jpg", "clear.png", "lossless.webp", "still.gif", "plain.bmp"] {
        let whole = golden(name);
        for keep in [whole.len() / 3, whole.len() * 3 / 4] {
            let fault = prepared(&whole[..keep], &Preparation::clip(SIDE)).unwrap_err();
            assert!(matches!(fault, ImageFault::Truncated(_) | ImageFault::Damaged(_)), "{name}: {fault}");
        }
    }
}

#[test]
fn the_bytes_needed_bound_the_bytes_used() {
    for name in ["photo.jpg", "progressive.jpg", "large.jpg", "clear.png", "plain.bmp", "lossy.webp", "tiny.png"] {
        let file = golden(name);
        let (how, mut studio) = (Preparation::clip(SIDE), Studio::default());
        how.run(&file, &mut studio, &mut vec![0.0; how.elements()]).unwrap();
        let header = Header::read(&mut Cursor::new(&file)).unwrap();
        assert!(studio.bytes() <= how.bytes_needed(&header, file.len() as u64), "{name}");
    }
}
