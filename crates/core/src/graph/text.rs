//! The readable form of a graph, for debugging, snapshots and fingerprints.

use super::*;
use sha2::{Digest, Sha256};
use std::fmt;

impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "graph {} ({})", self.name, self.float.name())?;
        for value in self.values.iter().filter(|v| v.source == Source::Input) {
            writeln!(f, "  {}: {} = {}", value.name, value.ty, input_text(value))?;
        }
        for node in &self.nodes {
            let inputs = node.inputs.iter().map(|&v| &*self.value(v).name).collect::<Vec<_>>().join(", ");
            let types = node.outputs.iter().map(|&v| self.ty(v).to_string()).collect::<Vec<_>>().join(", ");
            let mark = match node.role {
                Role::Forward => "",
                Role::Backward => " @backward",
                Role::Recompute => " @recompute",
                Role::Update => " @update",
            };
            writeln!(f, "  {}: {} = {:?}({}){}", node.name, types, node.op.op(), inputs, mark)?;
        }
        for &value in &self.kept {
            writeln!(f, "  keep {}", self.value(value).name)?;
        }
        Ok(())
    }
}

fn input_text(value: &Value) -> String {
    match value.input.as_ref() {
        Some(InputKind::Parameter { trained, decay, .. }) => {
            let state = if *trained { "trained" } else { "frozen" };
            format!("parameter ({state}{})", if *decay { ", decayed" } else { "" })
        }
        Some(InputKind::Resident { component, .. }) => {
            format!("resident ({}{})", component.name(), if value.space == Space::Host { ", host" } else { "" })
        }
        Some(InputKind::Data) | None => "data".into(),
    }
}

impl Graph {
    /// A hash of everything that decides what the graph computes and how it is laid out.
    pub fn fingerprint(&self) -> String {
        let mut hasher = Sha256::new();
        hasher.update(self.to_string().as_bytes());
        hasher.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
    }
}
