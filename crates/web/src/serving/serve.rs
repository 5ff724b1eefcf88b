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
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::{oneshot, watch};
use tokio_io_timeout::TimeoutStream;
use tower::ServiceExt as _;

use crate::api::openapi;
use crate::app::{App, SelfDescription, WebOptions};
use crate::configuration::CurrentConfiguration;
use crate::logins::proxy_users::Peer;
use crate::querying::database::Database;
use crate::routes;
use crate::routes::router;
use crate::serving::connections::{CONNECTIONS, Connections, Place};
use crate::serving::https::{Certificate, Https};
use taskqueue_domain::monitoring::listen_address::ListenAddress;
use taskqueue_engine::{Context, StopSignals};
use taskqueue_host::machine::{descriptors, own_memory};
use taskqueue_host::net::listener::{SocketFile, SocketListener};

/// How long a client may take for the head of a request, also between two requests of a connection.
const HEAD_LIMIT: Duration = Duration::from_secs(15);
/// How long a client may read nothing.
const WRITE_LIMIT: Duration = Duration::from_secs(30);
/// The largest head of a request.
const HEAD_BYTES: usize = 16 << 10;
/// More files than it has open beside its connections.
const OTHER_FILES: u64 = 100;
/// How long open requests may take after the signal to stop.
const STOP_LIMIT: Duration = Duration::from_secs(3);
/// How long the threads of the database may take then: longer than the store waits for a last answer.
const DATABASE_STOP_LIMIT: Duration = Duration::from_secs(6);
/// How long a wait for a signal takes at most.
const SIGNALS_EVERY: Duration = Duration::from_secs(3_600);
/// How long to wait before the next connection if this process has too many files open.
const AFTER_FAILURE: Duration = Duration::from_millis(100);

/// Serves until one of the signals comes, at a socket that the service manager passed or else at the address of the options.
/// `ready` gets the address once it is listened at, with the port that was chosen.
///
/// # Errors
/// Returns an error if the address cannot be listened at, or the runtime does not start.
pub fn serve(
    context: Context,
    mut options: WebOptions,
    configuration: CurrentConfiguration,
    passed: Option<SocketListener>,
    stop: Arc<StopSignals>,
    ready: &mut dyn FnMut(&ListenAddress),
) -> io::Result<()> {
    let (database, working) = Database::start(&context, &configuration)?;
    drop(context);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let _in_runtime = runtime.enter();
    let _removed_at_the_end;
    let listener = match passed {
        // Its file and the mode of that belong to the service manager.
        Some(listener) => Listener::of(listener, &options.https)?,
        None => {
            let listener = SocketListener::bind(&options.listen)?;
            options.listen = listener.address(&options.listen);
            _removed_at_the_end = SocketFile::of(&options.listen);
            open_to_group(&options.listen)?;
            Listener::of(listener, &options.https)?
        }
    };
    ready(&options.listen);
    let description = SelfDescription { routes: routes::listed, openapi: openapi::document };
    let app = App::new(options, description, configuration, database);
    let (stop_sender, stopped) = oneshot::channel();
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        while !stop.wait(SIGNALS_EVERY) {}
        let _ = stop_sender.send(());
    })?;
    descriptors::raise_limit(OTHER_FILES + CONNECTIONS as u64);
    own_memory::give_back();
    runtime.block_on(accept(&listener, &app, stopped));
    drop(app);
    runtime.shutdown_timeout(STOP_LIMIT);
    working.wait(DATABASE_STOP_LIMIT);
    Ok(())
}

/// A listener of the runtime.
enum Listener {
    Internet(TcpListener),
    Https(TcpListener, Arc<Certificate>),
    File(UnixListener),
}

impl Listener {
    fn of(listener: SocketListener, https: &Https) -> io::Result<Self> {
        Ok(match (listener, https) {
            (SocketListener::Internet(listener), Https::Server(certificate)) => {
                Self::Https(TcpListener::from_std(listener)?, Arc::clone(certificate))
            }
            (SocketListener::Internet(listener), _) => Self::Internet(TcpListener::from_std(listener)?),
            (SocketListener::File(listener), _) => Self::File(UnixListener::from_std(listener)?),
        })
    }
}

/// Lets a proxy in the same group connect to the file of a socket, whatever the umask.
fn open_to_group(address: &ListenAddress) -> io::Result<()> {
    match address {
        ListenAddress::File(path) => fs::set_permissions(path, fs::Permissions::from_mode(0o660)),
        ListenAddress::Internet(_) => Ok(()),
    }
}

async fn accept(listener: &Listener, app: &App, mut stop: oneshot::Receiver<()>) {
    let (router, graceful) = (router(app), GracefulShutdown::new());
    let (stopping, is_stopping) = watch::channel(());
    let connections = Connections::new();
    let readers = tokio::spawn({
        let app = app.clone();
        async move {
            let live = &app.live;
            let charts = app.charts.fill(|| live.changed());
            tokio::join!(
                live.poll(),
                app.feed.poll(),
                app.logs.poll(),
                charts,
                app.classes.follow(live),
                app.troubles.follow(live)
            )
        }
    });
    loop {
        tokio::select! {
            _ = &mut stop => break,
            served = accept_one(listener, &router, &graceful, &connections, &is_stopping) => {
                if served.is_err() {
                    tokio::time::sleep(AFTER_FAILURE).await;
                }
            }
        }
    }
    drop(stopping);
    readers.abort();
    let _ = tokio::time::timeout(STOP_LIMIT, graceful.shutdown()).await;
}

async fn accept_one(
    listener: &Listener,
    router: &Router,
    graceful: &GracefulShutdown,
    connections: &Connections,
    is_stopping: &watch::Receiver<()>,
) -> io::Result<()> {
    let place = connections.place().await?;
    let service = |peer| {
        let place = connections.of_client(place, peer)?;
        Some(Service { router: router.clone(), peer, watcher: graceful.watcher(), _place: place })
    };
    match listener {
        Listener::Internet(listener) => {
            let (stream, peer) = accept_internet(listener).await?;
            service(peer).map(|service| tokio::spawn(service.serve(stream)));
        }
        Listener::Https(listener, certificate) => {
            let (stream, peer) = accept_internet(listener).await?;
            let (certificate, is_stopping) = (Arc::clone(certificate), is_stopping.clone());
            service(peer).map(|service| tokio::spawn(service.serve_https(stream, certificate, is_stopping)));
        }
        Listener::File(listener) => {
            let (stream, _) = listener.accept().await?;
            let peer = Peer::User(stream.peer_cred()?.uid());
            service(peer).map(|service| tokio::spawn(service.serve(stream)));
        }
    }
    Ok(())
}

async fn accept_internet(listener: &TcpListener) -> io::Result<(TcpStream, Peer)> {
    let (stream, from) = listener.accept().await?;
    // Small answers are not held back.
    let _ = stream.set_nodelay(true);
    Ok((stream, Peer::Address(from.ip().to_canonical())))
}

/// What serves one connection.
struct Service {
    router: Router,
    peer: Peer,
    watcher: Watcher,
    _place: Place,
}

impl Service {
    /// A client that has not begun TLS yet delays no stop.
    async fn serve_https(self, stream: TcpStream, certificate: Arc<Certificate>, mut is_stopping: watch::Receiver<()>) {
        tokio::select! {
            _ = is_stopping.changed() => {}
            accepted = tokio::time::timeout(HEAD_LIMIT, certificate.accept(stream)) => {
                if let Ok(Ok(stream)) = accepted {
                    self.serve(stream).await;
                }
            }
        }
    }

    async fn serve<Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static>(self, stream: Stream) {
        let Self { router, peer, watcher, _place } = self;
        let service = service_fn(move |mut request: Request<Incoming>| {
            let router = router.clone();
            request.extensions_mut().insert(peer);
            async move { Ok::<_, Infallible>(answer(router, request).await) }
        });
        // A client that does not read its answers must not keep its connection.
        let mut stream = TimeoutStream::new(stream);
        stream.set_write_timeout(Some(WRITE_LIMIT));
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_LIMIT)
            .max_buf_size(HEAD_BYTES)
            .serve_connection(TokioIo::new(Box::pin(stream)), service);
        // There is no reply to a client that breaks the protocol or has gone.
        let _ = pin!(watcher.watch(connection)).await;
    }
}

async fn answer(router: Router, request: Request<Incoming>) -> axum::response::Response {
    match router.oneshot(request.map(Body::new)).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;

    use axum::routing::get;
    use tokio::time::Instant;

    use super::*;

    /// Returns after what time a connection is closed on which a client writes this and does not read. The runtime sets its paused
    /// clock to the next timer, so the test does not wait.
    fn life_of_a_connection(written: &str) -> Duration {
        let (mut client, stream) = UnixStream::pair().expect("two sockets");
        client.write_all(written.as_bytes()).expect("room");
        stream.set_nonblocking(true).expect("a socket");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        runtime.expect("a runtime").block_on(async {
            let stream = tokio::net::UnixStream::from_std(stream).expect("a socket");
            let router = Router::new().route("/", get(|| async { "x".repeat(1 << 20) }));
            let (graceful, connections, peer) = (GracefulShutdown::new(), Connections::new(), Peer::User(0));
            let place = connections.of_client(connections.place().await.expect("a place"), peer).expect("a share");
            let service = Service { router, peer, watcher: graceful.watcher(), _place: place };
            let started = Instant::now();
            service.serve(stream).await;
            started.elapsed()
        })
    }

    #[test]
    fn a_client_that_reads_nothing_loses_its_connection_after_the_limit() {
        let life = life_of_a_connection("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert!(life >= WRITE_LIMIT && life < 2 * WRITE_LIMIT, "{life:?}");
    }

    #[test]
    fn a_client_that_ends_no_head_loses_its_connection_after_the_limit() {
        for written in ["", "GET / HTTP/1.1\r\nHost: loc"] {
            let life = life_of_a_connection(written);
            assert!(life >= HEAD_LIMIT && life < 2 * HEAD_LIMIT, "{written:?}: {life:?}");
        }
    }
}
