//! The number is true: properties of plans over random training programs and random decisions. Every test prints the
//! seed it started from; PLIMSOLL_TEST_SEED repeats it.

mod common;

use common::random_graph::{Decisions, RandomStep, bits_after_two_steps, random_recompute};
use common::{TARGET, fresh_seed};
use plimsoll_core::graph::Role;
use plimsoll_core::ops::SampleRng;
use plimsoll_core::plan::{Layout, PlanFile, Program, Recompute, Summary, lay_out, live_by_tick, verify};
use plimsoll_exec::cpu::{Arena, CpuExecutor, page_bytes};

const GRAPHS: u64 = 300;

/// Calls `check` with many random steps, each from its own printed seed.
fn for_random_steps(count: u64, mut check: impl FnMut(&RandomStep, &mut SampleRng)) {
    let seed = fresh_seed();
    println!("PLIMSOLL_TEST_SEED={seed}");
    for index in 0..count {
        let mut rng = SampleRng::new(seed.wrapping_add(index));
        println!("graph {index}");
        check(&RandomStep::new(&mut rng), &mut rng);
    }
}

fn laid_out(step: &RandomStep, decisions: &Decisions) -> (Program, Layout) {
    let program = step.program(&decisions.recompute);
    let layout = lay_out(&program, decisions.options()).unwrap();
    (program, layout)
}

const SHARED: Decisions = Decisions { recompute: Recompute::None, sharing: true };
const UNSHARED: Decisions = Decisions { recompute: Recompute::None, sharing: false };

#[test]
fn the_sums_of_a_plan_agree() {
    let mut worst = 0.0f64;
    for_random_steps(GRAPHS, |step, rng| {
        for sharing in [true, false] {
            let decisions = Decisions { recompute: random_recompute(rng, step), sharing };
            let (program, layout) = laid_out(step, &decisions);
            assert!(layout.arena_bytes >= layout.live_peak_bytes);
            let summary = Summary::of(&program, &layout);
            assert_eq!(summary.breakdown.values().sum::<usize>(), layout.live_peak_bytes);
            assert_eq!(summary.layers.values().sum::<usize>(), layout.live_peak_bytes);
            assert_eq!(summary.live.iter().map(|b| b.bytes).sum::<usize>(), layout.live_peak_bytes);
            let ticks = (0..program.phases.len()).flat_map(|phase| live_by_tick(&program, &layout, phase));
            assert_eq!(ticks.map(|row| row.iter().sum::<usize>()).max(), Some(layout.live_peak_bytes));
            if sharing {
                worst = worst.max(layout.fragmentation_bytes() as f64 / layout.arena_bytes as f64);
            }
        }
    });
    println!("worst fragmentation: {:.2} %", 100.0 * worst);
}

#[test]
fn no_decision_changes_a_bit() {
    let mut recomputed = 0;
    for_random_steps(GRAPHS, |step, rng| {
        let (program, layout) = laid_out(step, &UNSHARED);
        let expected = bits_after_two_steps(&program, &layout, false);
        // A NaN would hide what poison shows.
        assert!(expected.iter().flat_map(|(_, bits)| bits).all(|&bits| f32::from_bits(bits).is_finite()));
        for recompute in [Recompute::None, random_recompute(rng, step)] {
            let decisions = Decisions { recompute, sharing: true };
            let (program, layout) = laid_out(step, &decisions);
            recomputed += program.phases[0].graph.nodes().iter().filter(|n| n.role == Role::Recompute).count();
            let found = bits_after_two_steps(&program, &layout, true);
            for (a, b) in found.iter().zip(&expected) {
                assert_eq!(a, b, "{decisions:?}\n{}", program.phases[0].graph);
            }
            assert_eq!(found.len(), expected.len());
        }
    });
    println!("{recomputed} nodes were recomputed");
    assert!(recomputed as u64 > GRAPHS);
}

#[test]
fn a_plan_survives_its_file() {
    for_random_steps(GRAPHS, |step, rng| {
        let decisions = Decisions { recompute: random_recompute(rng, step), sharing: rng.size(0, 3) > 0 };
        let (program, layout) = laid_out(step, &decisions);
        let text = serde_json::to_string(&PlanFile::new(&program, &layout, decisions.options())).unwrap();
        let read: PlanFile = serde_json::from_str(&text).unwrap();
        assert_eq!(read.options(), decisions.options());
        // A program built anew, as a later run does.
        assert_eq!(read.layout(&step.program(&decisions.recompute)).unwrap(), layout);
    });
}

/// A layout changed on purpose, and whether the change is wrong whatever else is true.
struct Sabotage {
    what: &'static str,
    layout: Layout,
    always_wrong: bool,
}

#[test]
fn the_verifier_catches_sabotage() {
    let (mut caught, mut harmless) = (std::collections::BTreeMap::new(), 0);
    for_random_steps(GRAPHS, |step, rng| {
        let decisions = Decisions { recompute: random_recompute(rng, step), sharing: true };
        let (program, layout) = laid_out(step, &decisions);
        let expected = bits_after_two_steps(&program, &layout, false);
        for _ in 0..6 {
            for sabotage in sabotages(&program, &layout, rng) {
                match verify(&program, &sabotage.layout, decisions.options()) {
                    Err(_) => *caught.entry(sabotage.what).or_insert(0) += 1,
                    Ok(()) => {
                        assert!(!sabotage.always_wrong, "missed: {}", sabotage.what);
                        // What it lets pass must compute the same.
                        let found = bits_after_two_steps(&program, &sabotage.layout, false);
                        assert_eq!(found, expected, "missed: {}", sabotage.what);
                        harmless += 1;
                    }
                }
            }
        }
    });
    println!("caught {caught:?}, {harmless} changes were harmless");
    assert_eq!(caught.len(), SABOTAGES.len(), "{caught:?}");
}

type Saboteur = fn(&Program, &mut Layout, usize, &mut SampleRng) -> Option<()>;

/// Name, whether it is always wrong, and the change; `None` where the layout offers no place for it.
const SABOTAGES: [(&str, bool, Saboteur); 7] = [
    ("a buffer moved onto a live one", false, move_onto_live),
    ("a buffer moved onto a resident", false, move_onto_resident),
    ("dependent nodes swapped", true, swap_dependent),
    ("an address shifted", true, shift_address),
    ("a value shifted in its buffer", true, shift_value),
    ("a workspace shrunk", true, shrink_workspace),
    ("a workspace forgotten", true, forget_workspace),
];

fn sabotages(program: &Program, layout: &Layout, rng: &mut SampleRng) -> Vec<Sabotage> {
    let mut made = Vec::new();
    for (what, always_wrong, change) in SABOTAGES {
        let mut layout = layout.clone();
        let phase = rng.size(0, program.phases.len() - 1);
        if change(program, &mut layout, phase, rng).is_some() {
            made.push(Sabotage { what, layout, always_wrong });
        }
    }
    made
}

fn choose<T: Copy>(items: &[T], rng: &mut SampleRng) -> Option<T> {
    items.get(rng.size(0, items.len().max(1) - 1)).copied()
}

fn move_onto_live(_: &Program, layout: &mut Layout, phase: usize, rng: &mut SampleRng) -> Option<()> {
    let buffers = &mut layout.phases[phase].buffers;
    let moved = choose(&(0..buffers.len()).collect::<Vec<_>>(), rng)?;
    let together =
        |b: usize| b != moved && buffers[b].first <= buffers[moved].last && buffers[moved].first <= buffers[b].last;
    let onto = choose(&(0..buffers.len()).filter(|&b| together(b)).collect::<Vec<_>>(), rng)?;
    buffers[moved].slot.offset = buffers[onto].slot.offset;
    Some(())
}

fn move_onto_resident(_: &Program, layout: &mut Layout, phase: usize, rng: &mut SampleRng) -> Option<()> {
    let slot = choose(&layout.residents, rng)?;
    let buffers = &mut layout.phases[phase].buffers;
    let moved = choose(&(0..buffers.len()).collect::<Vec<_>>(), rng)?;
    buffers[moved].slot.offset = slot.offset;
    Some(())
}

fn swap_dependent(program: &Program, layout: &mut Layout, phase: usize, rng: &mut SampleRng) -> Option<()> {
    let (graph, order) = (&program.phases[phase].graph, &mut layout.phases[phase].order);
    let place = |id| order.iter().position(|&other| other == id);
    let reader = choose(order, rng)?;
    let producers: Vec<_> = graph.node(reader).inputs.iter().filter_map(|&v| graph.producer(v)).collect();
    let (early, late) = (place(choose(&producers, rng)?)?, place(reader)?);
    order.swap(early, late);
    Some(())
}

fn shift_address(_: &Program, layout: &mut Layout, phase: usize, rng: &mut SampleRng) -> Option<()> {
    let buffers = &mut layout.phases[phase].buffers;
    match rng.size(0, 3) {
        0 => {
            let at = rng.size(0, layout.residents.len().checked_sub(1)?);
            layout.residents[at].offset += 4;
        }
        _ => {
            let at = rng.size(0, buffers.len().checked_sub(1)?);
            buffers[at].slot.offset += 4;
        }
    }
    Some(())
}

fn shift_value(_: &Program, layout: &mut Layout, phase: usize, rng: &mut SampleRng) -> Option<()> {
    let places = &mut layout.phases[phase].places;
    let at = rng.size(0, places.len().checked_sub(1)?);
    places[at].offset += 4;
    Some(())
}

fn nodes_with_workspace(layout: &Layout, phase: usize) -> Vec<usize> {
    let workspaces = &layout.phases[phase].workspaces;
    (0..workspaces.len()).filter(|&node| workspaces[node].is_some()).collect()
}

fn shrink_workspace(program: &Program, layout: &mut Layout, phase: usize, rng: &mut SampleRng) -> Option<()> {
    let node = choose(&nodes_with_workspace(layout, phase), rng)?;
    let graph = &program.phases[phase].graph;
    let id = graph.node_ids().nth(node)?;
    let needed = graph.node(id).op.op().workspace(&graph.input_types(id), &TARGET);
    let buffer = layout.phases[phase].workspaces[node]?;
    layout.phases[phase].buffers[buffer].slot.bytes = needed - 1;
    Some(())
}

fn forget_workspace(_: &Program, layout: &mut Layout, phase: usize, rng: &mut SampleRng) -> Option<()> {
    let node = choose(&nodes_with_workspace(layout, phase), rng)?;
    layout.phases[phase].workspaces[node] = None;
    Some(())
}

#[test]
fn the_arena_is_resident_and_no_larger_than_planned() {
    for_random_steps(40, |step, _| {
        let (program, layout) = laid_out(step, &SHARED);
        let executor = CpuExecutor::new(&program, &layout, TARGET.threads).unwrap();
        let pages = layout.arena_bytes.next_multiple_of(page_bytes());
        assert_eq!((executor.arena().bytes(), executor.arena().resident_bytes()), (pages, pages));
    });
}

#[test]
fn a_touch_outside_the_arena_ends_the_process() {
    use std::os::unix::process::ExitStatusExt;
    for child in ["child_touches_the_page_after", "child_touches_the_page_before"] {
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        let status = command.args(["--exact", child, "--ignored"]).output().unwrap().status;
        assert_eq!(status.signal(), Some(libc::SIGSEGV), "{child}: {status}");
    }
}

#[test]
#[ignore = "dies on purpose; run as a child by `cargo test -p plimsoll-train --test plans a_touch_outside_the_arena_ends_the_process`"]
fn child_touches_the_page_after() {
    let arena = Arena::new(3 * page_bytes() - 5).unwrap();
    // SAFETY: none; the guard page must stop it.
    unsafe { arena.base().add(arena.bytes()).write_volatile(1) };
}

#[test]
#[ignore = "dies on purpose; run as a child by `cargo test -p plimsoll-train --test plans a_touch_outside_the_arena_ends_the_process`"]
fn child_touches_the_page_before() {
    let arena = Arena::new(3 * page_bytes() - 5).unwrap();
    // SAFETY: none; the guard page must stop it.
    unsafe { arena.base().sub(1).write_volatile(1) };
}
