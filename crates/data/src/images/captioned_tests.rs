use super::*;
use crate::{Batch, Loader, LoaderOptions, Place, Position, shapes_tokenizer};
use crate::{SHAPES_END, SHAPES_VOCABULARY};
use std::fs;

fn golden(name: &str) -> Vec<u8> {
    fs::read(format!("{}/../images/tests/goldens/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

fn options(folder: &Path, train: &str) -> CaptionOptions {
    let tokenizer = folder.join("tokenizer.json");
    fs::write(&tokenizer, shapes_tokenizer().unwrap().json()).unwrap();
    CaptionOptions {
        train: folder.join(train),
        format: None,
        validation: None,
        validation_fraction: 0.0,
        image: "image".into(),
        caption: "caption".into(),
        template: "a large {} on a dark background".into(),
        on_bad_row: BadRows::Error,
        tokenizer,
        sizes: CaptionSizes { max_length: 12, vocab: SHAPES_VOCABULARY, end: SHAPES_END as usize },
        preparation: Preparation::clip(16),
    }
}

fn write(folder: &Path, name: &str, content: impl AsRef<[u8]>) {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

/// A folder with three images and tables that list them.
fn gallery() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, content: &[u8]| write(folder.path(), name, content);
    for name in ["photo.jpg", "plain.png", "lossy.webp"] {
        write(&format!("pics/{name}"), &golden(name));
    }
    let row =
        |name: &str, caption: &str| format!("{{\"image\": \"pics/{name}\", \"caption\": \"{caption}\", \"n\": 1}}\n");
    let rows = row("photo.jpg", "a red circle")
        + &row("plain.png", "a star")
        + &row("lossy.webp", "a blue ring above a cross");
    write("train.jsonl", rows.as_bytes());
    write("train.csv", b"image,caption\npics/photo.jpg,a red circle\npics/plain.png,a star\n");
    folder
}

#[test]
fn rows_become_pixels_and_tokens() {
    let folder = gallery();
    let data = load_captions(&options(folder.path(), "train.jsonl")).unwrap().train;
    let mut batch = Batch::new(data.fields(), 4).unwrap();
    batch.fill(&data, 0..3).unwrap();
    let how = Preparation::clip(16);
    let mut expected = vec![0.0; how.elements()];
    how.run(&golden("plain.png"), &mut Studio::default(), &mut expected).unwrap();
    assert_eq!(batch.f32(PIXELS, 1..2), expected);
    assert_eq!(batch.i32(END, 0..4), [4, 3, 7, 0]);
    assert_eq!(batch.i32(IDS, 0..1)[4..], [SHAPES_END; 8]);
    assert_ne!(batch.i32(IDS, 0..1)[3], SHAPES_END);
    assert_eq!(batch.f32(WEIGHT, 0..4), [1.0, 1.0, 1.0, 0.0]);
    assert!(data.worker_bytes() > golden("photo.jpg").len() && data.resident_bytes() > 0);
    let csv = load_captions(&options(folder.path(), "train.csv")).unwrap().train;
    assert_eq!((csv.len(), csv.image(1).unwrap().ends_with("pics/plain.png")), (2, true));
}

#[test]
fn batches_are_the_same_whatever_the_workers() {
    let folder = gallery();
    let data = Arc::new(load_captions(&options(folder.path(), "train.jsonl")).unwrap().train);
    let all = |workers| {
        let options = LoaderOptions { epochs: Some(3), shuffle: Some(5), ..LoaderOptions::evaluation(2, workers, 2) };
        let mut loader = Loader::new(data.clone(), &options, Position::default()).unwrap();
        let mut batches = Vec::new();
        while let Some(batch) = loader.next() {
            batches.push(batch.unwrap().clone());
        }
        batches
    };
    let inline = all(0);
    assert_eq!(inline.len(), 6);
    assert_eq!(all(2), inline);
    assert!(data.shared.studios.lock().unwrap().len() <= 3, "studios are recycled");
}

#[test]
fn folders_give_captions_by_class_or_by_the_text_beside() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "set/star/b.png", golden("plain.png"));
    write(folder.path(), "set/star/a.JPG", golden("photo.jpg"));
    write(folder.path(), "set/star/notes.md", "not an image");
    write(folder.path(), "set/.hidden/x.png", "not looked at");
    write(folder.path(), "set/ring/c.png", golden("plain.png"));
    write(folder.path(), "set/ring/c.txt", "  a small green ring\n");
    let listed = of_folder(&folder.path().join("set"), "a {} here").unwrap();
    let captions: Vec<&str> = listed.iter().map(|listed| listed.as_ref().unwrap().caption.as_str()).collect();
    assert_eq!(captions, ["a small green ring", "a star here", "a star here"]);
    let data = load_captions(&options(folder.path(), "set")).unwrap();
    assert_eq!(data.train.len(), 3);
    write(folder.path(), "set/loose.png", golden("plain.png"));
    let error = load_captions(&options(folder.path(), "set")).err().unwrap();
    assert!(matches!(&error, DataError::NoCaption { file } if file.ends_with("set/loose.png")), "{error}");
}

#[test]
fn unusable_rows_are_named_or_skipped_and_counted() {
    let folder = gallery();
    write(folder.path(), "pics/text.png", "hello, I am no image at all");
    for (row, word) in [
        ("{\"image\": \"pics/gone.png\", \"caption\": \"a star\"}", "cannot be read"),
        ("{\"image\": \"pics/text.png\", \"caption\": \"a star\"}", "none of PNG"),
        ("{\"image\": \"pics/plain.png\", \"caption\": \"  \"}", "column `caption`"),
    ] {
        let mut table = fs::read_to_string(folder.path().join("train.jsonl")).unwrap();
        table += row;
        write(folder.path(), "bad.jsonl", table);
        let mut options = options(folder.path(), "bad.jsonl");
        let error = load_captions(&options).err().unwrap();
        let text = error.to_string();
        assert!(text.contains("bad.jsonl: line 4, column") && text.contains(word), "{text}");
        assert!(!error.hint().is_empty());
        options.on_bad_row = BadRows::Skip;
        let data = load_captions(&options).unwrap();
        let DataReport::Captions(report) = data.report else { panic!("a report of images") };
        assert_eq!((report.train, report.skipped), (3, 1));
    }
}

/// The header is whole but the pixels are not: seen when the image is decoded.
#[test]
fn images_broken_behind_their_header_are_errors_or_weigh_nothing() {
    let folder = gallery();
    let whole = golden("photo.jpg");
    write(folder.path(), "pics/photo.jpg", &whole[..whole.len() - 700]);
    let mut options = options(folder.path(), "train.jsonl");
    let data = load_captions(&options).unwrap().train;
    let mut batch = Batch::new(data.fields(), 3).unwrap();
    let error = batch.fill(&data, 0..3).unwrap_err();
    assert!(
        matches!(&error, DataError::Image { place, fault: ImageFault::Truncated(_) }
        if place.row.as_ref().is_some_and(|row| row.1 == Place::Line(1))),
        "{error}"
    );
    options.on_bad_row = BadRows::Skip;
    let data = load_captions(&options).unwrap().train;
    batch.fill(&data, 0..3).unwrap();
    assert_eq!(batch.f32(WEIGHT, 0..3), [0.0, 1.0, 1.0]);
    assert!(batch.f32(PIXELS, 0..1).iter().all(|&value| value == 0.0));
    assert_eq!(data.unusable(), 1);
}

/// What a model is asked about may be images alone, captions alone, and unusable in part.
#[test]
fn images_alone_and_captions_alone_can_be_asked_about() {
    let folder = gallery();
    write(folder.path(), "flat/a.png", golden("plain.png"));
    write(folder.path(), "flat/b.png", "no image");
    write(folder.path(), "flat/c.png", golden("plain.png"));
    let options = options(folder.path(), "train.jsonl");
    let (images, asked) = read_captions(&folder.path().join("flat"), &options, None).unwrap();
    assert_eq!((images.len(), asked.row(1), asked.unanswered().len()), (2, 2, 1));
    assert!(!images.has_caption(0) && images.image(1).unwrap().ends_with("c.png"));
    assert!(asked.unanswered()[0].row == 1 && asked.unanswered()[0].cause.contains("b.png"), "{asked:?}");
    write(folder.path(), "words.csv", "id,caption\n1,a star\n2,\n3,a ring\n");
    let (texts, asked) = read_captions(&folder.path().join("words.csv"), &options, Some("id")).unwrap();
    assert_eq!((texts.len(), texts.image(0), texts.has_caption(1)), (2, None, true));
    assert_eq!((asked.id(1), asked.unanswered()[0].row), (Some(&"3".into()), 1));
    let mut batch = Batch::new(texts.fields(), 2).unwrap();
    batch.fill(&texts, 0..2).unwrap();
    write(folder.path(), "none.csv", "a,b\n1,2\n");
    let error = read_captions(&folder.path().join("none.csv"), &options, None).err().unwrap();
    assert!(matches!(error, DataError::MissingColumn { .. }), "{error}");
}

#[test]
fn an_image_that_breaks_while_it_is_decoded_is_told_to_who_asked() {
    let folder = gallery();
    let whole = golden("photo.jpg");
    write(folder.path(), "pics/photo.jpg", &whole[..whole.len() - 700]);
    let options = options(folder.path(), "train.jsonl");
    let (images, _) = read_captions(&options.train, &options, None).unwrap();
    let mut batch = Batch::new(images.fields(), 3).unwrap();
    batch.fill(&images, 0..3).unwrap();
    let faults = [0, 1, 2].map(|sample| images.fault(sample).is_some());
    assert_eq!(faults, [true, false, false]);
    assert!(images.fault(0).unwrap().contains("photo.jpg"));
}

#[test]
fn a_part_is_split_off_for_validation() {
    let folder = tempfile::tempdir().unwrap();
    for at in 0..20 {
        write(folder.path(), &format!("set/star/{at:02}.png"), golden("tiny.png"));
    }
    let options = CaptionOptions { validation_fraction: 0.2, ..options(folder.path(), "set") };
    let data = load_captions(&options).unwrap();
    assert_eq!((data.train.len(), data.validation.len()), (16, 4));
    let names = |data: &Captioned| (0..data.len()).map(|at| data.image(at).unwrap().to_path_buf()).collect::<Vec<_>>();
    let (train, validation) = (names(&data.train), names(&data.validation));
    assert!(validation.iter().all(|image| !train.contains(image)));
    assert_eq!(names(&load_captions(&options).unwrap().validation), validation, "always the same");
    assert_ne!(validation, names(&read_captions(&options.train, &options, None).unwrap().0)[..4], "shuffled");
}

#[test]
fn long_captions_keep_their_end_and_are_counted() {
    let folder = gallery();
    let mut options = options(folder.path(), "train.jsonl");
    options.sizes.max_length = 5;
    let data = load_captions(&options).unwrap();
    let DataReport::Captions(report) = data.report else { panic!("a report of images") };
    assert_eq!((report.truncated, report.longest), (1, 5));
    let mut batch = Batch::new(data.train.fields(), 3).unwrap();
    batch.fill(&data.train, 0..3).unwrap();
    assert_eq!((batch.i32(END, 2..3), batch.i32(IDS, 2..3)[4]), (&[4][..], SHAPES_END));
    options.sizes.vocab = 5;
    assert!(matches!(load_captions(&options), Err(DataError::TokenBeyondVocabulary { .. })));
}
