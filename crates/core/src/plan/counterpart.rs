//! A phase of a shorter batch in the places of the longest one: every value lies where its counterpart does, in a buffer
//! that is at least as large. What shares a buffer there shares it here, so a shorter batch fits wherever no value and
//! no workspace of it is larger than its counterpart.

use super::layout::{Buffer, PhaseLayout, Place, Slot, Storage};
use super::lifetimes::Lifetime;
use super::place;
use super::sketch::{Origin, Sketch};
use crate::graph::AliasKind;
use crate::graph::{NodeId, ValueId};

/// The layout of `sketch` in the places of `longest`; none if something has no counterpart, or one that is too small.
pub(super) fn counterpart(sketch: &Sketch, longest: &PhaseLayout) -> Option<PhaseLayout> {
    if sketch.nodes.len() != longest.workspaces.len() || !sketch.runs_in(&longest.order) {
        return None;
    }
    // The longest may have residents of its own behind these values, such as the landing.
    let places = longest.places.get(..sketch.values.len())?.to_vec();
    let mut within = Within { sketch, longest, bytes: vec![0; longest.buffers.len()], places };
    within.place_values()?;
    within.place_workspaces()?;
    Some(within.finish())
}

struct Within<'a> {
    sketch: &'a Sketch,
    longest: &'a PhaseLayout,
    /// Bytes of each buffer that are needed.
    bytes: Vec<usize>,
    places: Vec<Place>,
}

impl Within<'_> {
    fn place_values(&mut self) -> Option<()> {
        for index in 0..self.sketch.values.len() {
            let id = ValueId(index as u32);
            match self.sketch.values[index].origin {
                Origin::Data => self.begin(id)?,
                Origin::Resident(at) => self.put(id, Place { storage: Storage::Resident(at), offset: 0 })?,
                Origin::Node(_) => {}
            }
        }
        self.longest.order.iter().try_for_each(|&id| self.place_outputs(id))
    }

    /// Views and updates in place lie where their input does; other outputs are at the start of a buffer.
    fn place_outputs(&mut self, id: NodeId) -> Option<()> {
        let node = self.sketch.node(id);
        for (index, &output) in node.outputs.iter().enumerate() {
            match node.aliases.iter().find(|a| a.output == index && a.kind != AliasKind::May) {
                None => self.begin(output)?,
                Some(alias) => {
                    let at = self.places[node.inputs[alias.input].index()];
                    self.put(output, Place { offset: at.offset + alias.skip_bytes, ..at })?;
                }
            }
        }
        Some(())
    }

    fn begin(&mut self, id: ValueId) -> Option<()> {
        let storage = self.longest.places[id.index()].storage;
        let Storage::Buffer(buffer) = storage else { return None };
        self.need(buffer, self.sketch.values[id.index()].bytes)?;
        self.put(id, Place { storage, offset: 0 })
    }

    fn put(&mut self, id: ValueId, place: Place) -> Option<()> {
        self.places[id.index()] = place;
        (place.storage == self.longest.places[id.index()].storage).then_some(())
    }

    fn need(&mut self, buffer: usize, bytes: usize) -> Option<()> {
        let (needed, there) = (self.bytes.get_mut(buffer)?, self.longest.buffers.get(buffer)?);
        *needed = bytes.max(*needed);
        (bytes <= there.slot.bytes).then_some(())
    }

    fn place_workspaces(&mut self) -> Option<()> {
        let nodes = self.sketch.nodes.iter().zip(&self.longest.workspaces);
        let needs: Vec<(usize, Option<usize>)> = nodes.map(|(node, &at)| (node.workspace_bytes, at)).collect();
        needs.into_iter().try_for_each(|(bytes, buffer)| match buffer {
            Some(buffer) => self.need(buffer, bytes),
            None => (bytes == 0).then_some(()),
        })
    }

    fn finish(self) -> PhaseLayout {
        let shrunk = |(b, &bytes): (&Buffer, &usize)| Buffer { slot: Slot { bytes, ..b.slot }, ..*b };
        let buffers: Vec<Buffer> = self.longest.buffers.iter().zip(&self.bytes).map(shrunk).collect();
        let lives: Vec<Lifetime> = buffers.iter().map(lifetime).collect();
        let (live_bytes, peak_tick) = place::device_peak(&lives);
        let (order, workspaces) = (self.longest.order.clone(), self.longest.workspaces.clone());
        PhaseLayout { order, buffers, places: self.places, workspaces, live_bytes, peak_tick }
    }
}

fn lifetime(buffer: &Buffer) -> Lifetime {
    let &Buffer { owner, slot, first, last, component, space } = buffer;
    Lifetime { owner, bytes: slot.bytes, first, last, component, space }
}
