//! Questions to the planner: read and checked, answered on as many threads as there are cores, remembered.

mod ahead;
mod answers;
mod cache;
mod devices;
mod fields;
mod files;
mod paths;
mod question;
mod readiness;
mod recipes;
mod turns;

pub(crate) use answers::{Kind, Largest, LargestOnCard, Planner};
pub(crate) use devices::Devices;
pub(crate) use fields::{Field, fields};
pub(crate) use files::{DataFiles, files};
pub(crate) use paths::Allowed;
pub(crate) use question::{Checked, Question};
use readiness::{missing_file, stamps, unusable_data};
pub(crate) use recipes::{RecipeEntry, recipes};
