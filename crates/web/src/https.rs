//! HTTPS by the server itself. The files of the certificate are read again when they change, so a renewed certificate needs no restart.

use std::fmt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use openssl::error::ErrorStack;
use openssl::pkey::{PKey, Private};
use openssl::ssl::{Ssl, SslAcceptor, SslContext, SslMethod};
use openssl::x509::X509;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_openssl::SslStream;

/// How old the certificate may be when a connection comes.
const READ_EVERY: Duration = Duration::from_secs(1);

/// Who speaks HTTPS with the browsers.
#[derive(Clone, Debug)]
pub enum Https {
    /// Nobody: the page is for this host alone.
    Nobody,
    /// A proxy before the server.
    Proxy,
    /// The server itself, with this certificate.
    Server(Arc<Certificate>),
}

impl Https {
    /// Returns true if browsers use HTTPS.
    #[must_use]
    pub const fn is_spoken(&self) -> bool {
        !matches!(self, Self::Nobody)
    }
}

/// A certificate and its key, as they are in their files now.
pub struct Certificate {
    chain_file: PathBuf,
    key_file: PathBuf,
    /// Prints a warning.
    warn: Box<dyn Fn(&str) + Send + Sync>,
    last: Mutex<Last>,
}

struct Last {
    context: SslContext,
    content: Content,
    read_at: Instant,
    /// The problem of the last reading, which is printed once.
    problem: Option<String>,
}

/// The bytes of both files.
#[derive(PartialEq, Eq)]
struct Content {
    chain: Vec<u8>,
    key: Vec<u8>,
}

impl Certificate {
    /// Reads the certificate, followed by those that its issuer needs, and its key, both in PEM. `warn` prints why a changed file
    /// is not used.
    ///
    /// # Errors
    /// A file cannot be read, has no PEM of its kind or a key with a passphrase, or the two do not belong together; as a sentence
    /// without a full stop.
    pub fn read(chain_file: &Path, key_file: &Path, warn: Box<dyn Fn(&str) + Send + Sync>) -> Result<Self, String> {
        let content = Content::read(chain_file, key_file)?;
        let context = content.context(chain_file, key_file)?;
        let last = Mutex::new(Last { context, content, read_at: Instant::now(), problem: None });
        Ok(Self { chain_file: chain_file.to_owned(), key_file: key_file.to_owned(), warn, last })
    }

    /// Begins TLS with a client.
    ///
    /// # Errors
    /// The client speaks no TLS, or none that is safe.
    pub(crate) async fn accept(self: Arc<Self>, stream: TcpStream) -> std::io::Result<SslStream<TcpStream>> {
        let context = self.current().await;
        let ssl = Ssl::new(&context).map_err(std::io::Error::other)?;
        let mut stream = SslStream::new(ssl, stream).map_err(std::io::Error::other)?;
        Pin::new(&mut stream).accept().await.map_err(std::io::Error::other)?;
        Ok(stream)
    }

    async fn current(self: Arc<Self>) -> SslContext {
        if self.begins_to_read() {
            let reader = Arc::clone(&self);
            // On a thread that may block.
            let _ = tokio::task::spawn_blocking(move || reader.read_again()).await;
        }
        self.locked().context.clone()
    }

    /// Returns true for one connection in each interval.
    fn begins_to_read(&self) -> bool {
        let mut last = self.locked();
        let begins = last.read_at.elapsed() >= READ_EVERY;
        if begins {
            last.read_at = Instant::now();
        }
        begins
    }

    fn read_again(&self) {
        let read = Content::read(&self.chain_file, &self.key_file).and_then(|content| {
            if self.locked().content == content {
                return Ok(None);
            }
            let context = content.context(&self.chain_file, &self.key_file)?;
            Ok(Some((content, context)))
        });
        let mut last = self.locked();
        let problem = match read {
            Ok(None) => None,
            Ok(Some((content, context))) => {
                (last.content, last.context) = (content, context);
                None
            }
            Err(problem) => Some(problem),
        };
        if let Some(problem) = problem.as_ref().filter(|_| last.problem != problem) {
            (self.warn)(&format!("the changed certificate is not used, the old one remains: {problem}"));
        }
        last.problem = problem;
    }

    fn locked(&self) -> MutexGuard<'_, Last> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificate").field("chain_file", &self.chain_file).finish_non_exhaustive()
    }
}

impl Content {
    fn read(chain_file: &Path, key_file: &Path) -> Result<Self, String> {
        let read =
            |path: &Path| std::fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()));
        Ok(Self { chain: read(chain_file)?, key: read(key_file)? })
    }

    fn context(&self, chain_file: &Path, key_file: &Path) -> Result<SslContext, String> {
        let chain = X509::stack_from_pem(&self.chain).unwrap_or_default();
        if chain.is_empty() {
            return Err(format!("{} has no certificate in PEM", chain_file.display()));
        }
        let key = self
            .key()
            .map_err(|_| format!("{} has no private key in PEM, or one with a passphrase", key_file.display()))?;
        acceptor(chain, &key).map_err(|_| {
            format!("the key of {} does not belong to the certificate of {}", key_file.display(), chain_file.display())
        })
    }

    /// A key with a passphrase is refused: OpenSSL would ask for it on the terminal.
    fn key(&self) -> Result<PKey<Private>, ErrorStack> {
        PKey::private_key_from_pem_callback(&self.key, |_| Err(ErrorStack::get()))
    }
}

/// TLS 1.2 and 1.3 as browsers of today speak them.
fn acceptor(chain: Vec<X509>, key: &PKey<Private>) -> Result<SslContext, ErrorStack> {
    let mut acceptor = SslAcceptor::mozilla_intermediate_v5(SslMethod::tls_server())?;
    let mut chain = chain.into_iter();
    if let Some(own) = chain.next() {
        acceptor.set_certificate(&own)?;
    }
    chain.try_for_each(|issuer| acceptor.add_extra_chain_cert(issuer))?;
    acceptor.set_private_key(key)?;
    acceptor.check_private_key()?;
    Ok(acceptor.build().into_context())
}
