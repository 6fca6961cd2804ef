//! What is in an image, and the words for it.

use super::super::Noise;
use smallvec::SmallVec;

/// Words of a caption, in their order.
pub(super) type Words = SmallVec<[&'static str; 16]>;

pub(super) const SIZES: [(&str, f32); 2] = [("small", 0.09), ("large", 0.18)];

pub(super) const COLOURS: [(&str, [f32; 3]); 8] = [
    ("red", [0.86, 0.12, 0.12]),
    ("green", [0.10, 0.62, 0.20]),
    ("blue", [0.15, 0.30, 0.88]),
    ("yellow", [0.95, 0.85, 0.15]),
    ("orange", [0.96, 0.52, 0.08]),
    ("purple", [0.55, 0.20, 0.70]),
    ("pink", [0.97, 0.55, 0.75]),
    ("cyan", [0.15, 0.80, 0.85]),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Circle,
    Square,
    Triangle,
    Star,
    Ring,
    Cross,
}

pub(super) const SHAPES: [(&str, Shape); 6] = [
    ("circle", Shape::Circle),
    ("square", Shape::Square),
    ("triangle", Shape::Triangle),
    ("star", Shape::Star),
    ("ring", Shape::Ring),
    ("cross", Shape::Cross),
];

/// The ground, and the word for it; no colour of a shape comes near.
pub(super) const GROUNDS: [(&str, [f32; 3]); 2] = [("bright", [0.93, 0.93, 0.93]), ("dark", [0.13, 0.13, 0.15])];

/// Distances in parts of the image's side, from its upper left corner.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Object {
    size: usize,
    colour: usize,
    shape: usize,
    pub centre: [f32; 2],
    pub radius: f32,
    /// Radians.
    pub turn: f32,
    /// Light on the colour.
    pub light: f32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relation {
    LeftOf,
    Above,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Scene {
    ground: usize,
    /// One, or two of which the first is left of or above the second.
    pub objects: SmallVec<[Object; 2]>,
    relation: Relation,
}

/// A scene of one object.
const ALONE: f64 = 0.25;

impl Scene {
    pub(super) fn new(seed: u64, index: usize) -> Self {
        let mut noise = Noise::at(seed, "shapes", index as u64);
        let ground = pick(&mut noise, GROUNDS.len());
        let relation = if noise.uniform() < 0.5 { Relation::LeftOf } else { Relation::Above };
        let count = if noise.uniform() < ALONE { 1 } else { 2 };
        let objects = (0..count).map(|at| Object::new(&mut noise, (count == 2).then_some((at, relation)))).collect();
        Scene { ground, objects, relation }
    }

    pub(super) fn ground(&self) -> [f32; 3] {
        GROUNDS[self.ground].1
    }

    pub(super) fn words(&self) -> Words {
        let mut words = Words::new();
        for (at, object) in self.objects.iter().enumerate() {
            match (at, self.relation) {
                (0, _) => {}
                (_, Relation::LeftOf) => words.extend(["left", "of"]),
                (_, Relation::Above) => words.push("above"),
            }
            words.extend(["a", SIZES[object.size].0, COLOURS[object.colour].0, SHAPES[object.shape].0]);
        }
        words.extend(["on", "a", GROUNDS[self.ground].0, "background"]);
        words
    }

    #[cfg(test)]
    pub(super) fn caption(&self) -> String {
        self.words().join(" ")
    }
}

impl Object {
    /// `beside`: which of two objects it is, and how they lie. Each keeps to its half, so they never touch.
    fn new(noise: &mut Noise, beside: Option<(usize, Relation)>) -> Self {
        let (size, colour, shape) = (pick(noise, SIZES.len()), pick(noise, COLOURS.len()), pick(noise, SHAPES.len()));
        let radius = SIZES[size].1 * between(noise, 0.9, 1.1);
        // The reach of a turned square is √2 of its radius.
        let free = radius * 1.15 + 0.02;
        let half = |at: usize| if at == 0 { (free, 0.5 - free) } else { (0.5 + free, 1.0 - free) };
        let whole = (free, 1.0 - free);
        let (across, down) = match beside {
            None => (whole, whole),
            Some((at, Relation::LeftOf)) => (half(at), (0.3, 0.7)),
            Some((at, Relation::Above)) => ((0.3, 0.7), half(at)),
        };
        let centre = [between(noise, across.0, across.1), between(noise, down.0, down.1)];
        Object { size, colour, shape, centre, radius, turn: between(noise, -0.2, 0.2), light: between(noise, 0.9, 1.0) }
    }

    pub(super) fn shape(&self) -> Shape {
        SHAPES[self.shape].1
    }

    pub(super) fn colour(&self) -> [f32; 3] {
        COLOURS[self.colour].1.map(|channel| channel * self.light)
    }
}

fn pick(noise: &mut Noise, count: usize) -> usize {
    ((noise.uniform() * count as f64) as usize).min(count - 1)
}

fn between(noise: &mut Noise, low: f32, high: f32) -> f32 {
    low + noise.uniform() as f32 * (high - low)
}
