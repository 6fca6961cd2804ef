//! Listens, counts connections, hands requests on, and goes when asked.

use crate::api;
use crate::connection::Patient;
use crate::folders::{Folders, Studies, Tails};
use crate::gate::{Gate, cookie_key};
use crate::guard::Peer;
use crate::jobs::{Keeper, Queue, Tools};
use crate::options::{Options, Token};
use crate::planning::{Allowed, Planner};
use crate::state::{Shared, State};
use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use plimsoll::{Explain, Fault};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tower::ServiceExt;

/// A client has this long to say what it wants.
const LONGEST_HEAD: Duration = Duration::from_secs(15);
const LARGEST_HEAD: usize = 32 << 10;
const TICK: Duration = Duration::from_secs(1);

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address is taken, or not ours.
    #[error("cannot listen on {address}: {cause}")]
    Listen {
        /// Where to.
        address: SocketAddr,
        /// What the system says.
        cause: io::Error,
    },
    /// A folder is missing or cannot be made.
    #[error("{}: {cause}", path.display())]
    Folder {
        /// Which one.
        path: PathBuf,
        /// What the system says.
        cause: io::Error,
    },
    /// Another server keeps the queue of these runs.
    #[error("{}: another server has this folder: {keeper}", path.display())]
    Taken {
        /// The folder of runs.
        path: PathBuf,
        /// Which one, and where it is.
        keeper: crate::jobs::Other,
    },
    /// The system gives no randomness, no threads.
    #[error("the server cannot be set up: {0}")]
    System(#[from] io::Error),
}

impl Explain for ServeError {
    fn fault(&self) -> Fault {
        if matches!(self, ServeError::System(_)) { Fault::Failed } else { Fault::BadInput }
    }

    fn hints(&self) -> Vec<String> {
        match self {
            ServeError::Listen { .. } => {
                vec!["choose another address with --listen, or --port 0 for a free one".into()]
            }
            ServeError::Folder { .. } => {
                vec!["name folders that are there with --runs and --data; --read-only needs no right to write".into()]
            }
            ServeError::Taken { .. } => vec![
                "open that one, or end it first".into(),
                "--read-only shows the same runs beside it; --runs names a folder of other ones".into(),
            ],
            ServeError::System(_) => Vec::new(),
        }
    }
}

/// A server that listens.
pub struct Server {
    listener: TcpListener,
    state: Shared,
    launch: Option<Token>,
}

impl Server {
    /// Takes the address and the folders; nothing is answered yet.
    ///
    /// # Errors
    /// The address or a folder cannot be had.
    pub async fn bind(options: Options) -> Result<Server, ServeError> {
        let folders = Folders::new(&options.runs).map_err(in_folder(&options.runs))?;
        let data = options.data.canonicalize().map_err(in_folder(&options.data))?;
        let root = folders.root().to_path_buf();
        // Who is there already is said first: its port may well be the same.
        let mut keeper = if options.read_only { None } else { Some(keep_alone(&root)?) };
        let listener = TcpListener::bind(options.listen);
        let listener = listener.await.map_err(|cause| ServeError::Listen { address: options.listen, cause })?;
        let address = listener.local_addr()?;
        keeper.iter_mut().try_for_each(|keeper| keeper.sign(address)).map_err(in_folder(&root))?;
        let launch = options.token.is_some().then(Token::random).transpose()?;
        let key = cookie_key(&root, options.token.is_some() && !options.read_only)?;
        let state = State {
            gate: Gate::new(options.token.as_ref(), launch.as_ref(), &key),
            planner: Planner::start(Allowed::new(data.clone(), root.clone())),
            queue: Queue::open(&root, &data, &options, keeper),
            tools: Tools::new(&options.program, &data),
            tails: Tails::default(),
            studies: Studies::new(&options.studies, vec![data.clone(), root.clone()]),
            streams: Arc::new(Semaphore::new(options.limits.streams)),
            folders,
            options,
        };
        Ok(Server { listener, state: Arc::new(state), launch })
    }

    /// Where it listens: the port, where any was asked for.
    ///
    /// # Errors
    /// The system does not say.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// The link to open; where a token is asked for, with a code that is good once.
    ///
    /// # Errors
    /// The system does not say where it listens.
    pub fn link(&self) -> io::Result<String> {
        let mut address = self.address()?;
        if address.ip().is_unspecified() {
            address.set_ip(if address.is_ipv4() {
                [127, 0, 0, 1].into()
            } else {
                std::net::Ipv6Addr::LOCALHOST.into()
            });
        }
        let code = self.launch.as_ref().map(|code| format!("?token={}", code.secret())).unwrap_or_default();
        Ok(format!("http://{address}/{code}"))
    }

    /// Answers until `stop`; trainings go on after that.
    ///
    /// # Errors
    /// The listener broke.
    pub async fn run(self, stop: impl Future<Output = ()>) -> Result<(), ServeError> {
        let router = api::router(&self.state);
        let places = Arc::new(Semaphore::new(self.state.options.limits.connections));
        let keeper = tokio::spawn(keep(self.state.clone()));
        tokio::pin!(stop);
        loop {
            tokio::select! {
                () = &mut stop => break,
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, peer)) => admit(&router, &places, stream, peer),
                    // Too many open files, or a client that is gone already: others go on.
                    Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
                },
            }
        }
        keeper.abort();
        Ok(())
    }
}

fn in_folder(path: &Path) -> impl FnOnce(io::Error) -> ServeError {
    move |cause| ServeError::Folder { path: path.into(), cause }
}

fn keep_alone(runs: &Path) -> Result<Keeper, ServeError> {
    let taken = Keeper::take(runs).map_err(in_folder(runs))?;
    taken.map_err(|keeper| ServeError::Taken { path: runs.into(), keeper })
}

/// Follows the queue, whoever looks or not.
async fn keep(state: Shared) {
    let mut tick = tokio::time::interval(TICK);
    loop {
        tick.tick().await;
        let watched = state.clone();
        let changed = tokio::task::spawn_blocking(move || watched.queue.tick()).await.unwrap_or(false);
        if changed {
            state.planner.devices.forget();
        }
    }
}

/// One that there is no room for is closed at once.
fn admit(router: &Router, places: &Arc<Semaphore>, stream: TcpStream, peer: SocketAddr) {
    let Ok(place) = places.clone().try_acquire_owned() else { return };
    let router = router.clone();
    tokio::spawn(async move {
        let _ = stream.set_nodelay(true);
        let service = service_fn(move |mut request: hyper::Request<Incoming>| {
            request.extensions_mut().insert(ConnectInfo(Peer(peer)));
            router.clone().oneshot(request.map(Body::new))
        });
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(LONGEST_HEAD).max_buf_size(LARGEST_HEAD).half_close(false);
        // Errors of a connection are the client's to see.
        let _ = builder.serve_connection(TokioIo::new(Patient::new(stream)), service).await;
        drop(place);
    });
}
