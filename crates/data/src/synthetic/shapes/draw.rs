//! Scenes → normalized pixels, edges smooth over one pixel.

use super::scene::{Object, Scene, Shape};
use crate::images::Preparation;

/// Draws into `out`: 3 channels of `side` rows, as [`Preparation`] normalizes them.
pub(super) fn draw(scene: &Scene, how: &Preparation, out: &mut [f32]) {
    let side = how.side;
    let ground = scene.ground();
    for (channel, plane) in out.chunks_exact_mut(side * side).enumerate() {
        plane.fill(normalized(ground[channel], how, channel));
    }
    for object in &scene.objects {
        paint(object, how, out);
    }
}

fn normalized(value: f32, how: &Preparation, channel: usize) -> f32 {
    // `rescale` takes bytes; these are parts of 1.
    ((f64::from(value) * 255.0 * how.rescale - how.mean[channel]) / how.std[channel]) as f32
}

fn paint(object: &Object, how: &Preparation, out: &mut [f32]) {
    let side = how.side;
    let colour = object.colour();
    let colour: [f32; 3] = std::array::from_fn(|channel| normalized(colour[channel], how, channel));
    let pixel = 1.0 / side as f32;
    let reach = object.radius * 1.5 + pixel;
    let range = |centre: f32| {
        let first = ((centre - reach) / pixel).floor().max(0.0) as usize;
        first..(((centre + reach) / pixel).ceil().max(0.0) as usize).min(side)
    };
    let (sin, cos) = object.turn.sin_cos();
    for y in range(object.centre[1]) {
        for x in range(object.centre[0]) {
            let [dx, dy] = [x, y].map(|at| (at as f32 + 0.5) * pixel);
            let [dx, dy] = [dx - object.centre[0], dy - object.centre[1]];
            let place = [(cos * dx + sin * dy) / object.radius, (cos * dy - sin * dx) / object.radius];
            let outside = distance(object.shape(), place) * object.radius / pixel;
            let cover = (0.5 - outside).clamp(0.0, 1.0);
            for (channel, &colour) in colour.iter().enumerate() {
                let value = &mut out[(channel * side + y) * side + x];
                *value += cover * (colour - *value);
            }
        }
    }
}

/// How far a place is outside of a shape of radius 1; negative inside. Exact near the edge, which is all that counts.
pub(super) fn distance(shape: Shape, [x, y]: [f32; 2]) -> f32 {
    match shape {
        Shape::Circle => x.hypot(y) - 1.0,
        Shape::Ring => (x.hypot(y) - 0.78).abs() - 0.22,
        Shape::Square => x.abs().max(y.abs()) - 0.8,
        Shape::Cross => (x.abs().max(y.abs() - 0.65)).min(y.abs().max(x.abs() - 0.65)) - 0.3,
        // Upright, with its centre of mass in the middle.
        Shape::Triangle => (y - 0.55).max((0.866 * x.abs() - 0.5 * y) - 0.55),
        Shape::Star => star(x, y),
    }
}

/// Five points: in each fifth, folded to its half, one straight edge from a tip to a notch.
fn star(x: f32, y: f32) -> f32 {
    use std::f32::consts::PI;
    const NOTCH: f32 = 0.42;
    let turn = x.atan2(-y).rem_euclid(2.0 * PI / 5.0);
    let angle = (turn - PI / 5.0).abs();
    let (along, beside) = (x.hypot(y) * (PI / 5.0 - angle).cos(), x.hypot(y) * (PI / 5.0 - angle).sin());
    // From the tip (1, 0) to the notch at an angle of 36°.
    let (notch_along, notch_beside) = (NOTCH * (PI / 5.0).cos(), NOTCH * (PI / 5.0).sin());
    let (edge_along, edge_beside) = (notch_along - 1.0, notch_beside);
    let length = edge_along.hypot(edge_beside);
    ((along - 1.0) * edge_beside - beside * edge_along) / length
}
