use super::*;
use crate::{Batch, CaptionTokenizer};

fn options(side: usize) -> ShapesOptions {
    ShapesOptions {
        seed: 3,
        samples: 400,
        validation_fraction: 0.25,
        max_length: 20,
        vocab: SHAPES_VOCABULARY,
        preparation: Preparation::clip(side),
        batch: 32,
    }
}

fn batch(data: &Shapes, samples: Range<usize>) -> Batch {
    let mut batch = Batch::new(data.fields(), samples.len()).unwrap();
    batch.fill(data, samples).unwrap();
    batch
}

#[test]
fn samples_are_functions_of_seed_and_index() {
    let data = shapes(&options(32)).unwrap();
    assert_eq!((data.train.len(), data.validation.len()), (300, 100));
    assert_eq!(batch(&data.train, 5..9), batch(&shapes(&options(32)).unwrap().train, 5..9));
    let other = shapes(&ShapesOptions { seed: 4, ..options(32) }).unwrap();
    assert_ne!(data.train.caption(0), other.train.caption(0));
    let longer = shapes(&ShapesOptions { samples: 800, ..options(32) }).unwrap();
    assert_eq!(data.validation.caption(7), longer.train.caption(307), "validation follows training");
}

/// What the tokenizer file makes of a caption is what the dataset feeds.
#[test]
fn the_tokenizer_agrees_with_the_samples() {
    let data = shapes(&options(8)).unwrap().train;
    let rows = batch(&data, 0..64);
    for end in [2, SHAPES_END as usize] {
        let tokenizer = CaptionTokenizer::new(shapes_tokenizer().unwrap(), 20, end, SHAPES_VOCABULARY).unwrap();
        let mut ids = Vec::new();
        for sample in 0..64 {
            let (position, truncated) = tokenizer.encode(&data.caption(sample), &mut ids).unwrap();
            assert!(position < SHAPES_LONGEST && !truncated && !ids.contains(&0));
            assert_eq!(rows.i32(1, sample..sample + 1), ids, "{}", data.caption(sample));
            assert_eq!(rows.i32(2, sample..sample + 1), [position as i32]);
        }
    }
}

/// The pixel in the middle of an object has its colour; corners show the ground; rings are hollow.
#[test]
fn images_show_what_captions_say() {
    let data = shapes(&options(64)).unwrap().train;
    let how = Preparation::clip(64);
    let mut hollow = 0;
    for sample in 0..100 {
        let (rows, scene) = (batch(&data, sample..sample + 1), data.scene(sample));
        let pixels = rows.f32(0, 0..1);
        let colour = |x: usize, y: usize| -> [f64; 3] {
            std::array::from_fn(|c| f64::from(pixels[(c * 64 + y) * 64 + x]) * how.std[c] + how.mean[c])
        };
        let near = |a: [f64; 3], b: [f32; 3]| a.iter().zip(b).all(|(a, b)| (a - f64::from(b)).abs() < 1e-3);
        assert!(near(colour(0, 0), scene.ground()) && near(colour(63, 63), scene.ground()));
        for object in &scene.objects {
            let [x, y] = object.centre.map(|at| (at * 64.0) as usize);
            let is_ring = object.shape() == scene::Shape::Ring;
            hollow += usize::from(is_ring);
            let expected = if is_ring { scene.ground() } else { object.colour() };
            assert!(near(colour(x, y), expected), "{}", scene.caption());
        }
        let words = scene.words();
        if let [first, second] = &scene.objects[..] {
            let axis = usize::from(words.contains(&"above"));
            assert!(first.centre[axis] < second.centre[axis], "{}", scene.caption());
        }
    }
    assert!(hollow > 5);
}

/// Every shape covers about as much as its kind should, whatever the side of the image.
#[test]
fn shapes_have_their_areas() {
    let area = |shape, side: usize| {
        let inside = (0..side * side).filter(|at| {
            let place = [at % side, at / side].map(|i| (i as f32 + 0.5) / side as f32 * 3.0 - 1.5);
            draw::distance(shape, place) < 0.0
        });
        inside.count() as f32 * 9.0 / (side * side) as f32
    };
    use scene::Shape::*;
    for (shape, expected) in
        [(Circle, std::f32::consts::PI), (Square, 2.56), (Ring, 2.156), (Cross, 1.92), (Triangle, 1.572), (Star, 1.234)]
    {
        let found = area(shape, 600);
        assert!((found - expected).abs() < 0.02, "{shape:?} covers {found}");
    }
}

/// A model that compares captions exactly, and takes the first of equals, reaches the stated accuracy and no more.
#[test]
fn the_best_accuracy_is_that_of_a_perfect_model() {
    let data = shapes(&ShapesOptions { samples: 4000, ..options(8) }).unwrap();
    for size in [1, 32, 400, 1000] {
        let captions: Vec<String> = (0..data.validation.len()).map(|sample| data.validation.caption(sample)).collect();
        let found = captions.chunks(size).map(|batch| {
            let own = |(at, caption): (usize, &String)| batch.iter().position(|other| other == caption) == Some(at);
            batch.iter().enumerate().filter(|&pair| own(pair)).count()
        });
        let accuracy = found.sum::<usize>() as f64 / captions.len() as f64;
        assert_eq!(data.validation.best_accuracy(size), Some(accuracy));
        assert_eq!(size == 1, accuracy == 1.0, "batches of {size} hold equal captions");
    }
}

#[test]
fn options_are_checked() {
    for (bad, name) in [
        (ShapesOptions { samples: 0, ..options(8) }, "samples"),
        (ShapesOptions { max_length: SHAPES_LONGEST - 1, ..options(8) }, "max_length"),
        (ShapesOptions { vocab: SHAPES_VOCABULARY - 1, ..options(8) }, "vocab_size"),
        (options(0), "image_size"),
        (ShapesOptions { validation_fraction: 1.0, ..options(8) }, "validation_fraction"),
    ] {
        let error = shapes(&bad).err().unwrap();
        assert!(error.to_string().contains(name), "{error}");
    }
}
