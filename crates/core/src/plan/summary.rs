//! What a layout spends its memory on at the peak.

#![deny(missing_docs)]

use super::{Layout, Owner, Program};
use crate::graph::{Component, Space};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// The moment of most memory.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Peak {
    /// The phase in which it is.
    pub phase: String,
    /// How many nodes ran before it.
    pub tick: usize,
    /// The node that runs then.
    pub node: String,
}

/// One buffer alive at the peak.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct LiveBuffer {
    /// Its name, as nodes and parameters have it.
    pub name: String,
    /// Its size.
    pub bytes: usize,
    /// What it is for.
    pub component: Component,
}

/// Bytes alive on the device at the peak, by component and by layer, and every live buffer by size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// When.
    pub peak: Peak,
    /// Bytes by component.
    pub breakdown: BTreeMap<&'static str, usize>,
    /// Bytes by layer.
    pub layers: BTreeMap<String, usize>,
    /// Every live buffer, the largest first.
    pub live: Vec<LiveBuffer>,
}

impl Summary {
    /// Looks at a layout at its peak.
    pub fn of(program: &Program, layout: &Layout) -> Summary {
        let phase = layout.peak_phase();
        let tick = layout.phases[phase].peak_tick;
        let mut live = live_residents(program, layout);
        live.extend(live_temporaries(program, layout, phase, tick));
        live.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.name.cmp(&b.name)));
        let mut breakdown: BTreeMap<_, usize> = Component::ALL.map(|c| (c.name(), 0)).into();
        let mut layers = BTreeMap::new();
        for buffer in &live {
            *breakdown.entry(buffer.component.name()).or_default() += buffer.bytes;
            *layers.entry(layer_of(&buffer.name)).or_default() += buffer.bytes;
        }
        Summary { peak: peak(program, layout, phase, tick), breakdown, layers, live }
    }
}

/// Bytes alive at the peak for one part of a model, over all of its layers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModuleBytes {
    /// Over all layers.
    pub bytes: usize,
    /// Layers that have such a part; 1 where it is not part of a row of layers.
    pub layers: usize,
}

impl Summary {
    /// The same bytes by the parts that layers are made of: `layers.*.ffn`, `bert.encoder.layer.*.attention`, `head`.
    pub fn modules(&self) -> BTreeMap<String, ModuleBytes> {
        let mut found: BTreeMap<String, (usize, BTreeSet<String>)> = BTreeMap::new();
        for buffer in &self.live {
            let (bytes, layers) = found.entry(module_of(&buffer.name)).or_default();
            *bytes += buffer.bytes;
            layers.insert(layer_of(&buffer.name));
        }
        found.into_iter().map(|(name, (bytes, layers))| (name, ModuleBytes { bytes, layers: layers.len() })).collect()
    }
}

/// `layers.3.ffn.up.grad` → `layers.*.ffn`; `head.weight` → `head`.
fn module_of(name: &str) -> String {
    let layer = layer_of(name);
    let path = RESIDENT_PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name);
    let is_number = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    let Some((stack, _)) = layer.rsplit_once('.').filter(|(_, number)| is_number(number)) else { return layer };
    let inner = path.get(layer.len() + 1..).and_then(|rest| rest.split(['.', ' ', ':', '#']).next());
    match inner.filter(|part| !part.is_empty() && !part.starts_with('(')) {
        Some(part) => format!("{stack}.*.{part}"),
        None => format!("{stack}.*"),
    }
}

fn peak(program: &Program, layout: &Layout, phase: usize, tick: usize) -> Peak {
    let (definition, plan) = (&program.phases[phase], &layout.phases[phase]);
    let node = plan.order.get(tick).map_or(String::new(), |&id| definition.graph.node(id).name.to_string());
    Peak { phase: definition.name.clone(), tick, node }
}

fn live_residents(program: &Program, layout: &Layout) -> Vec<LiveBuffer> {
    let residents = program.residents.iter().zip(&layout.residents).filter(|(r, _)| r.space == Space::Device);
    residents.map(|(r, slot)| LiveBuffer { name: r.name.clone(), bytes: slot.bytes, component: r.component }).collect()
}

fn live_temporaries(program: &Program, layout: &Layout, phase: usize, tick: usize) -> Vec<LiveBuffer> {
    let graph = &program.phases[phase].graph;
    let on_device = layout.phases[phase].buffers.iter().filter(|b| b.space == Space::Device);
    let alive = on_device.filter(|b| b.first <= tick && tick <= b.last);
    alive
        .map(|b| {
            let name = match b.owner {
                Owner::Value(id) => graph.value(id).name.to_string(),
                Owner::Workspace(id) => format!("{} (workspace)", graph.node(id).name),
            };
            LiveBuffer { name, bytes: b.slot.bytes, component: b.component }
        })
        .collect()
}

/// `layers.3.ffn.up.grad` → `layers.3`; `moment1.bert.encoder.layer.3.output` → `bert.encoder.layer.3`; `head.weight` →
/// `head`.
fn layer_of(name: &str) -> String {
    let path = RESIDENT_PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name);
    let parts: Vec<&str> = path.split(['.', ' ', ':']).collect();
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let counts_layers = |at: usize| at == 1 || at > 1 && STACKS.contains(&parts[at - 1]);
    match (0..parts.len()).find(|&at| is_number(parts[at]) && counts_layers(at)) {
        Some(at) => parts[..=at].join("."),
        None => parts[0].to_string(),
    }
}

/// What models call a row of layers, deeper in a name than at its beginning.
const STACKS: [&str; 3] = ["layer", "layers", "block"];

/// Accumulators and moments are named after their parameter, behind one of these.
const RESIDENT_PREFIXES: [&str; 3] = ["gradient.", "moment1.", "moment2."];

/// Live bytes of each component on the device at every tick of a phase, residents included: what the timeline draws.
pub fn live_by_tick(program: &Program, layout: &Layout, phase: usize) -> Vec<[usize; 7]> {
    let ticks = layout.phases[phase].order.len();
    let mut rows = vec![[0usize; 7]; ticks];
    let mut add = |component: Component, bytes: usize, first: usize, last: usize| {
        let column = Component::ALL.iter().position(|&c| c == component).unwrap_or(0);
        rows.iter_mut().take(last + 1).skip(first).for_each(|row| row[column] += bytes);
    };
    let residents = program.residents.iter().zip(&layout.residents);
    for (resident, slot) in residents.filter(|(r, _)| r.space == Space::Device) {
        add(resident.component, slot.bytes, 0, ticks);
    }
    for buffer in layout.phases[phase].buffers.iter().filter(|b| b.space == Space::Device) {
        add(buffer.component, buffer.slot.bytes, buffer.first, buffer.last);
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_the_parts_of_all_layers_together() {
        for (name, module) in [
            ("layers.3.ffn.up.grad", "layers.*.ffn"),
            ("moment1.bert.encoder.layer.12.attention.self.query", "bert.encoder.layer.*.attention"),
            ("layers.3", "layers.*"),
            ("layers.3 (workspace)", "layers.*"),
            ("head.weight", "head"),
            ("ids", "ids"),
        ] {
            assert_eq!(module_of(name), module, "{name}");
        }
        let buffer = |name: &str, bytes| LiveBuffer { name: name.into(), bytes, component: Component::Weights };
        let live = vec![buffer("layers.0.ffn.up", 5), buffer("layers.1.ffn.up", 5), buffer("layers.1.ffn.down", 2)];
        let peak = Peak { phase: "step".into(), tick: 0, node: "n".into() };
        let summary = Summary { peak, breakdown: [].into(), layers: [].into(), live };
        assert_eq!(summary.modules(), [("layers.*.ffn".to_string(), ModuleBytes { bytes: 12, layers: 2 })].into());
    }

    #[test]
    fn names_fold_to_layers() {
        assert_eq!(layer_of("layers.3.ffn.up.grad"), "layers.3");
        assert_eq!(layer_of("moment1.layers.3.ffn.up"), "layers.3");
        assert_eq!(layer_of("gradient.bert.encoder.layer.11.output.dense.weight"), "bert.encoder.layer.11");
        assert_eq!(layer_of("encoder.block.2.layer.1.layer_norm"), "encoder.block.2");
        assert_eq!(layer_of("head.chunk.3.logits"), "head");
        assert_eq!(layer_of("head.weight"), "head");
        assert_eq!(layer_of("lr"), "lr");
    }
}
