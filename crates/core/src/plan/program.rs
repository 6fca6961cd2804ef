//! A program: the phases of a run and what lives over them.

use super::PlanError;
use crate::graph::{Component, Graph, Init, InputKind, Space};
use crate::types::Type;
use rustc_hash::FxHashMap;

/// A graph and how often it runs in a step (0: not part of a step, such as evaluation).
#[derive(Clone, Debug)]
pub struct Phase {
    pub name: String,
    pub graph: Graph,
    pub repeat: usize,
}

/// A buffer that keeps its content from phase to phase.
#[derive(Clone, Debug, PartialEq)]
pub struct Resident {
    pub name: String,
    pub ty: Type,
    pub component: Component,
    pub init: Init,
    /// A weight, as against accumulators, moments, statistics and scalars.
    pub is_parameter: bool,
    pub space: Space,
}

impl Resident {
    /// Whether both name the same bytes of the same memory.
    fn agrees(&self, other: &Resident) -> bool {
        self.ty == other.ty && self.space == other.space
    }
}

/// The phases of a run. Graph inputs with the same name are the same resident in every phase.
#[derive(Clone, Debug)]
pub struct Program {
    pub phases: Vec<Phase>,
    pub residents: Vec<Resident>,
    /// Residents by name.
    known: FxHashMap<String, usize>,
}

impl Program {
    pub fn new(phases: Vec<Phase>) -> Result<Program, PlanError> {
        let mut residents: Vec<Resident> = Vec::new();
        let mut known: FxHashMap<String, usize> = FxHashMap::default();
        for phase in &phases {
            phase.graph.verify()?;
            for found in phase.graph.values().iter().filter_map(resident_of) {
                match known.get(&found.name) {
                    None => {
                        known.insert(found.name.clone(), residents.len());
                        residents.push(found);
                    }
                    Some(&at) if !residents[at].agrees(&found) => {
                        let (name, phase) = (found.name, &phase.name);
                        return Err(PlanError::Broken(format!("{name} has another type or memory in phase {phase}")));
                    }
                    Some(_) => {}
                }
            }
        }
        Ok(Program { phases, residents, known })
    }

    /// Further phases over the same residents: batches of another length, in the same run.
    pub fn with_phases(&self, phases: Vec<Phase>) -> Result<Program, PlanError> {
        for phase in &phases {
            phase.graph.verify()?;
            let strange = phase
                .graph
                .values()
                .iter()
                .filter_map(resident_of)
                .find(|found| self.resident(&found.name).is_none_or(|at| !self.residents[at].agrees(found)));
            if let Some(strange) = strange {
                return Err(PlanError::Broken(format!("phase {} brings its own {}", phase.name, strange.name)));
            }
        }
        Ok(Program { phases, residents: self.residents.clone(), known: self.known.clone() })
    }

    pub fn phase(&self, name: &str) -> Option<usize> {
        self.phases.iter().position(|p| p.name == name)
    }

    pub fn resident(&self, name: &str) -> Option<usize> {
        self.known.get(name).copied()
    }

    /// Number of weights, trained or frozen.
    pub fn parameters(&self) -> usize {
        self.residents.iter().filter(|r| r.is_parameter).map(|r| r.ty.elements()).sum()
    }
}

fn resident_of(value: &crate::graph::Value) -> Option<Resident> {
    let (init, is_parameter) = match value.input.as_ref()? {
        InputKind::Parameter { init, .. } => (*init, true),
        InputKind::Resident { init, .. } => (*init, false),
        InputKind::Data => return None,
    };
    let (name, ty) = (value.name.to_string(), value.ty.clone());
    Some(Resident { name, ty, component: value.component, init, is_parameter, space: value.space })
}
