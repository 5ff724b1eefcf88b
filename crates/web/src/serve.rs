//! The server: listens, and gives each connection its time limits, until a signal stops it.

use std::convert::Infallible;
use std::os::unix::fs::PermissionsExt as _;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tower::ServiceExt as _;

use crate::app::{App, WebOptions};
use crate::database::Database;
use crate::routes::router;
use taskqueue_domain::monitoring::listen_address::ListenAddress;
use taskqueue_engine::{Context, StopSignals};

/// How long a client may take for the head of a request, also between two requests of a connection.
const HEAD_LIMIT: Duration = Duration::from_secs(15);
/// The largest head of a request.
const HEAD_BYTES: usize = 16 << 10;
/// How many connections are served at the same time; further ones wait.
const CONNECTIONS: usize = 1_000;
/// How long open requests may take after the signal to stop.
const STOP_LIMIT: Duration = Duration::from_secs(3);
/// How often the signals are looked at.
const SIGNALS_EVERY: Duration = Duration::from_secs(3_600);
/// How long to wait before the next connection if this process has too many files open.
const AFTER_FAILURE: Duration = Duration::from_millis(100);

/// Serves until one of the signals comes. `ready` gets the address once it is listened at, with the port that was chosen.
///
/// # Errors
/// Returns an error if the address cannot be listened at, or the runtime does not start.
pub fn serve(
    context: Context,
    mut options: WebOptions,
    stop: Arc<StopSignals>,
    ready: &mut dyn FnMut(&ListenAddress),
) -> io::Result<()> {
    let opener = context.reopener();
    drop(context);
    let (database, working) = Database::start(Box::new(opener))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let _in_runtime = runtime.enter();
    let listener = Listener::bind(&options.listen)?;
    options.listen = listener.address(&options.listen)?;
    ready(&options.listen);
    let app = App::new(options, database);
    let (tell, told) = oneshot::channel();
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        while !stop.wait(SIGNALS_EVERY) {}
        let _ = tell.send(());
    })?;
    runtime.block_on(accept(&listener, &app, told));
    drop(app);
    runtime.shutdown_timeout(STOP_LIMIT);
    working.wait(STOP_LIMIT);
    Ok(())
}

/// What is listened at.
enum Listener {
    Internet(TcpListener),
    File(UnixListener),
}

impl Listener {
    fn bind(address: &ListenAddress) -> io::Result<Self> {
        match address {
            ListenAddress::Internet(address) => {
                let listener = std::net::TcpListener::bind(address)?;
                listener.set_nonblocking(true)?;
                Ok(Self::Internet(TcpListener::from_std(listener)?))
            }
            ListenAddress::File(path) => {
                // A socket that nobody listens at is what an earlier server left behind.
                if std::os::unix::net::UnixStream::connect(path)
                    .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
                {
                    fs::remove_file(path)?;
                }
                let listener = UnixListener::bind(path)?;
                fs::set_permissions(path, fs::Permissions::from_mode(0o660))?;
                Ok(Self::File(listener))
            }
        }
    }

    fn address(&self, asked: &ListenAddress) -> io::Result<ListenAddress> {
        match self {
            Self::Internet(listener) => Ok(ListenAddress::Internet(listener.local_addr()?)),
            Self::File(_) => Ok(asked.clone()),
        }
    }
}

async fn accept(listener: &Listener, app: &App, mut stop: oneshot::Receiver<()>) {
    let (router, graceful) = (router(app), GracefulShutdown::new());
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let poller = tokio::spawn({
        let app = app.clone();
        async move { app.live().poll().await }
    });
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { break };
        tokio::select! {
            _ = &mut stop => break,
            served = accept_one(listener, &router, &graceful, place) => {
                if served.is_err() {
                    tokio::time::sleep(AFTER_FAILURE).await;
                }
            }
        }
    }
    poller.abort();
    let _ = tokio::time::timeout(STOP_LIMIT, graceful.shutdown()).await;
    if let (Listener::File(_), ListenAddress::File(path)) = (listener, &app.options().listen) {
        let _ = fs::remove_file(path);
    }
}

async fn accept_one(
    listener: &Listener,
    router: &Router,
    graceful: &GracefulShutdown,
    place: OwnedSemaphorePermit,
) -> io::Result<()> {
    match listener {
        Listener::Internet(listener) => {
            let (stream, _) = listener.accept().await?;
            // Small answers are not held back.
            let _ = stream.set_nodelay(true);
            serve_one(stream, router.clone(), graceful, place);
        }
        Listener::File(listener) => serve_one(listener.accept().await?.0, router.clone(), graceful, place),
    }
    Ok(())
}

fn serve_one<Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: Stream,
    router: Router,
    graceful: &GracefulShutdown,
    place: OwnedSemaphorePermit,
) {
    let service = service_fn(move |request: Request<Incoming>| {
        let router = router.clone();
        async move { Ok::<_, Infallible>(answer(router, request).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_LIMIT)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    let connection = graceful.watch(connection);
    tokio::spawn(async move {
        let _place = place;
        // A client that breaks the protocol or goes away has nobody to be told.
        let _ = pin!(connection).await;
    });
}

async fn answer(router: Router, request: Request<Incoming>) -> axum::response::Response {
    match router.oneshot(request.map(Body::new)).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}
