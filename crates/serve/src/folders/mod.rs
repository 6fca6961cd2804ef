//! What is known about runs and studies: their folders, read and never written here.

mod curves;
mod follow;
mod id;
mod lines;
mod store;
mod studies;
mod summary;

pub(crate) use curves::{Curves, Thinned};
pub(crate) use follow::{Next, Reader, Tails};
pub(crate) use id::RunId;
pub(crate) use lines::{FileId, Lines, Place, read_some};
pub(crate) use store::{Checkpoint, Folders, OWN, unix_seconds};
pub(crate) use studies::{Listed, Studies};
pub(crate) use summary::{Summary, Times};
