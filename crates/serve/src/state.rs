//! What all requests share.

use crate::folders::{Folders, Studies, Tails};
use crate::gate::Gate;
use crate::jobs::{Queue, Tools};
use crate::options::Options;
use crate::planning::Planner;
use std::sync::Arc;
use tokio::sync::Semaphore;

pub(crate) type Shared = Arc<State>;

pub(crate) struct State {
    pub options: Options,
    pub gate: Gate,
    pub folders: Folders,
    pub studies: Studies,
    pub tails: Tails,
    pub planner: Arc<Planner>,
    pub queue: Queue,
    pub tools: Tools,
    pub streams: Arc<Semaphore>,
}
