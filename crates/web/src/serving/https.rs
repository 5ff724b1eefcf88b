//! HTTPS by the server itself. The files of the certificate are read again when they change, so a renewed certificate needs no restart.

use std::fmt;
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use openssl::error::ErrorStack;
use openssl::pkey::{PKey, Private};
use openssl::ssl::{Ssl, SslAcceptor, SslContext, SslMethod};
use openssl::x509::X509;
use tokio::net::TcpStream;
use tokio_openssl::SslStream;

use crate::following::refresh::Refresh;
use taskqueue_host::files::trusted_path::{Trust, TrustedPath};

/// The bits of a mode that let users outside the group read or write.
const MODE_OF_OTHERS: u32 = 0o006;

/// How HTTPS is provided.
#[derive(Clone, Debug)]
pub enum Https {
    /// Not at all: the page is for this host alone.
    Off,
    /// By a proxy before the server.
    Proxy,
    /// By the server, with this certificate.
    Server(Arc<Certificate>),
}

impl Https {
    /// Returns true if browsers use HTTPS.
    #[must_use]
    pub const fn is_used(&self) -> bool {
        !matches!(self, Self::Off)
    }
}

/// Prints a warning.
pub type Warn = Box<dyn Fn(&str) + Send + Sync>;

/// The certificate in use; read again when its files change.
pub struct Certificate {
    chain_file: PathBuf,
    key_file: PathBuf,
    warn: Warn,
    refresh: Refresh,
    last: Mutex<Last>,
}

struct Last {
    context: SslContext,
    content: Content,
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
    /// Reads the certificate, followed by its issuers' certificates, and its key, all in PEM. `warn` prints why a changed file is
    /// not used, and that other users can read the key.
    ///
    /// # Errors
    /// A file cannot be read, everybody can write it, it has no PEM of its kind or a key with a passphrase, or the two do not belong
    /// together; as a sentence without a full stop.
    pub fn read(chain_file: &Path, key_file: &Path, warn: Warn) -> Result<Self, String> {
        let content = Content::read(chain_file, key_file)?;
        let context = content.context(chain_file, key_file)?;
        if is_readable_by_others(key_file) {
            warn(&format!("other users can read the key {}; `chmod o= FILE` prevents it", key_file.display()));
        }
        let last = Last { context, content, problem: None };
        let (chain_file, key_file) = (chain_file.to_owned(), key_file.to_owned());
        Ok(Self { chain_file, key_file, warn, refresh: Refresh::new(), last: Mutex::new(last) })
    }

    /// Begins TLS with a client.
    ///
    /// # Errors
    /// The client speaks no TLS, or none that is safe.
    pub(crate) async fn accept(self: Arc<Self>, stream: TcpStream) -> io::Result<SslStream<TcpStream>> {
        let context = self.current().await;
        let mut stream = SslStream::new(Ssl::new(&context)?, stream)?;
        Pin::new(&mut stream).accept().await.map_err(io::Error::other)?;
        Ok(stream)
    }

    async fn current(self: Arc<Self>) -> SslContext {
        let certificate = Arc::clone(&self);
        self.refresh.run(move || certificate.read_again()).await;
        self.locked().context.clone()
    }

    fn read_again(&self) {
        let news = self.take(self.changed());
        // Without the lock: standard error may be a pipe that is full.
        if let Some(news) = news {
            (self.warn)(&news);
        }
    }

    /// Returns the content and what is made of it; `None` if it has not changed.
    fn changed(&self) -> Result<Option<(Content, SslContext)>, String> {
        let content = Content::read(&self.chain_file, &self.key_file)?;
        if self.locked().content == content {
            return Ok(None);
        }
        let context = content.context(&self.chain_file, &self.key_file)?;
        Ok(Some((content, context)))
    }

    /// Takes over what was read. Returns what is new to say.
    fn take(&self, read: Result<Option<(Content, SslContext)>, String>) -> Option<String> {
        let mut last = self.locked();
        let problem = match read {
            Ok(changed) => {
                let is_changed = changed.is_some();
                if let Some((content, context)) = changed {
                    (last.content, last.context) = (content, context);
                }
                let had_problem = last.problem.take().is_some();
                return (is_changed && had_problem).then(|| "the changed certificate is used now".to_owned());
            }
            Err(problem) => problem,
        };
        let is_new = last.problem.as_ref() != Some(&problem);
        last.problem = Some(problem.clone());
        is_new.then(|| format!("the changed certificate is not used, the old one remains: {problem}"))
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
        Ok(Self { chain: bytes_of(chain_file)?, key: bytes_of(key_file)? })
    }

    fn context(&self, chain_file: &Path, key_file: &Path) -> Result<SslContext, String> {
        let chain = X509::stack_from_pem(&self.chain)
            .map_err(|error| format!("the certificates in {} cannot be read: {error}", chain_file.display()))?;
        let own = chain.first().ok_or_else(|| format!("{} has no certificate in PEM", chain_file.display()))?;
        let key = self
            .key()
            .map_err(|_| format!("{} has no private key in PEM, or one with a passphrase", key_file.display()))?;
        if !own.public_key().is_ok_and(|public| public.public_eq(&key)) {
            let (key, chain) = (key_file.display(), chain_file.display());
            return Err(format!("the key in {key} does not belong to the certificate in {chain}"));
        }
        context(&chain, &key).map_err(|error| format!("{} cannot be used: {error}", chain_file.display()))
    }

    /// A key with a passphrase is refused: OpenSSL would ask for it on the terminal.
    fn key(&self) -> Result<PKey<Private>, ErrorStack> {
        PKey::private_key_from_pem_callback(&self.key, |_| Err(ErrorStack::get()))
    }
}

/// Only of a regular file, because opening others may block forever; and of none that everybody can change.
fn bytes_of(path: &Path) -> Result<Vec<u8>, String> {
    let found = TrustedPath::find(path, Trust::NotEverybody).map_err(|problem| problem.to_string())?;
    if found.file_type().is_some_and(|kind| !kind.is_file()) {
        return Err(format!("{} is not a regular file", path.display()));
    }
    let mut bytes = Vec::new();
    let read = found.open().and_then(|mut file| file.read_to_end(&mut bytes));
    read.map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    Ok(bytes)
}

fn is_readable_by_others(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.permissions().mode() & MODE_OF_OTHERS != 0)
}

/// TLS 1.2 and 1.3 as browsers of today speak them, without the slow exchanges of keys, of which a few clients could use all time.
fn context(chain: &[X509], key: &PKey<Private>) -> Result<SslContext, ErrorStack> {
    let mut acceptor = SslAcceptor::mozilla_intermediate_v5(SslMethod::tls_server())?;
    acceptor.set_cipher_list("ECDHE+AESGCM:ECDHE+CHACHA20")?;
    acceptor.set_groups_list("X25519:P-256:P-384")?;
    if let Some((own, issuers)) = chain.split_first() {
        acceptor.set_certificate(own)?;
        issuers.iter().try_for_each(|issuer| acceptor.add_extra_chain_cert(issuer.clone()))?;
    }
    acceptor.set_private_key(key)?;
    Ok(acceptor.build().into_context())
}
