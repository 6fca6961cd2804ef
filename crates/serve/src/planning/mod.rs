//! Questions to the planner: read and checked, answered on as many threads as there are cores, remembered.

mod ahead;
mod answers;
mod cache;
mod devices;
mod fields;
mod paths;
mod question;
mod recipes;
mod turns;

pub(crate) use answers::{Kind, Planner};
pub(crate) use devices::Devices;
pub(crate) use fields::{Field, FieldValue, fields};
pub(crate) use paths::Allowed;
pub(crate) use question::{Checked, Question};
pub(crate) use recipes::{RecipeEntry, recipes};
