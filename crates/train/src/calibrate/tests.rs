//! What is trained covers what is to be known.

use super::*;
use plimsoll_core::graph::Target;
use plimsoll_models::recipe::Recipe;
use plimsoll_planner::cards::card;
use plimsoll_planner::choose::{Planned, plan};
use std::collections::BTreeSet;

/// Every workload as it is planned for the device.
fn planned(device: &Device) -> Vec<Planned> {
    let plan = |(family, workload): (FamilyName, &Workload)| {
        let recipe = Recipe::parse(&workload.recipe(family), workload.name, &[]).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(recipe.model.name(), family.name(), "{}", workload.name);
        plan(&recipe, device).unwrap_or_else(|e| panic!("{}: {e}", workload.name))
    };
    workloads(device.target.backend).map(plan).collect()
}

fn classes(planned: &[Planned]) -> BTreeSet<Class> {
    let phases = planned.iter().flat_map(|planned| &planned.choice.program.phases).filter(|phase| phase.repeat > 0);
    let nodes = phases.flat_map(|phase| phase.graph.nodes());
    nodes.map(|node| node.op.op().class()).chain([Class::View]).collect()
}

#[test]
fn every_class_of_work_is_in_them_and_little_memory_is_enough() {
    let profile = card("h200").unwrap().profile();
    let card = Device { target: Target::CUDA, profile, ..Device::cpu(1, 8 << 30) };
    // CPUs have no use for fused feed-forwards.
    let for_cards_only = vec![Class::FeedForward, Class::FeedForwardGrad];
    for (device, most_bytes, not_there) in
        [(Device::cpu(2, 8 << 30), 512 << 20, for_cards_only), (card, 3 << 30, vec![])]
    {
        let planned = planned(&device);
        let largest = planned.iter().map(|planned| planned.choice.layout.arena_bytes).max();
        assert!(largest < Some(most_bytes), "{largest:?} on {:?}", device.target);
        let seen = classes(&planned);
        let missing: Vec<Class> = Class::ALL.into_iter().filter(|class| !seen.contains(class)).collect();
        assert_eq!(missing, not_there, "{:?}", device.target);
    }
}

#[test]
fn every_family_has_its_turn() {
    for backend in [Backend::Cpu, Backend::Cuda] {
        let turns: Vec<FamilyName> = workloads(backend).map(|(family, _)| family).collect();
        let missing: Vec<_> = FamilyName::ALL.iter().filter(|family| !turns.contains(family)).collect();
        assert!(missing.is_empty(), "{missing:?} on {backend:?}");
    }
}
