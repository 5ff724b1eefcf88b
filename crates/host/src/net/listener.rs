//! Listening sockets, TCP or Unix, and their clients.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Write};
use std::net::{IpAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use listenfd::ListenFd;
use rustix::io::{Errno, ioctl_fionbio};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::geteuid;

use crate::clock::Moment;
use taskqueue_domain::monitoring::listen_address::ListenAddress;

/// How long to wait for the lock of a directory, which other processes of this program hold briefly, and the pause between
/// attempts.
const LOCK_LIMIT: Duration = Duration::from_secs(1);
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// A non-blocking listener.
pub enum SocketListener {
    /// At an IP address.
    Internet(TcpListener),
    /// At a path.
    File(UnixListener),
}

/// A non-blocking connection to a client.
pub(crate) trait SocketStream: Read + Write + AsFd + Send {}

impl<T: Read + Write + AsFd + Send> SocketStream for T {}

impl SocketListener {
    /// Listens at an address. The stale socket of a dead process of this user is replaced, any other file stays.
    ///
    /// # Errors
    /// `AddrInUse` if another process listens there, or if a file has the path; otherwise the error of the kernel.
    pub fn bind(address: &ListenAddress) -> io::Result<Self> {
        let listener = match address {
            ListenAddress::Internet(address) => Self::Internet(TcpListener::bind(address)?),
            ListenAddress::File(path) => Self::File(bind_file(path)?),
        };
        ioctl_fionbio(&listener, true)?;
        Ok(listener)
    }

    /// Returns the socket that a service manager listens at for this process (socket activation of systemd), with its address.
    ///
    /// # Errors
    /// Returns an error if it passed something else than one listening socket, or a Unix socket without a path.
    pub fn inherited() -> io::Result<Option<(Self, ListenAddress)>> {
        let mut passed = ListenFd::from_env();
        match passed.len() {
            0 => return Ok(None),
            1 => {}
            count => return Err(io::Error::other(format!("the service manager passed {count} sockets, not one"))),
        }
        if let Ok(Some(listener)) = passed.take_tcp_listener(0) {
            ioctl_fionbio(&listener, true)?;
            let address = ListenAddress::Internet(listener.local_addr()?);
            return Ok(Some((Self::Internet(listener), address)));
        }
        let Some(listener) = passed.take_unix_listener(0)? else { return Ok(None) };
        ioctl_fionbio(&listener, true)?;
        let address = listener.local_addr()?;
        let path = address.as_pathname().ok_or_else(|| io::Error::other("the passed socket has no path"))?;
        Ok(Some((Self::File(listener), ListenAddress::File(path.to_owned()))))
    }

    /// Returns its address, with the port that the kernel chose if none was given.
    #[must_use]
    pub fn address(&self, wanted: &ListenAddress) -> ListenAddress {
        match self {
            Self::Internet(listener) => listener.local_addr().map_or_else(|_| wanted.clone(), ListenAddress::Internet),
            Self::File(_) => wanted.clone(),
        }
    }

    /// Accepts the next client, with its address if it has one.
    ///
    /// # Errors
    /// `WouldBlock` if no client waits.
    pub(crate) fn accept(&self) -> io::Result<(Box<dyn SocketStream>, Option<IpAddr>)> {
        let (stream, from): (Box<dyn SocketStream>, _) = match self {
            Self::Internet(listener) => {
                let (stream, from) = listener.accept()?;
                (Box::new(stream), Some(from.ip()))
            }
            Self::File(listener) => (Box::new(listener.accept()?.0), None),
        };
        ioctl_fionbio(&stream, true)?;
        Ok((stream, from))
    }
}

impl AsFd for SocketListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Internet(listener) => listener.as_fd(),
            Self::File(listener) => listener.as_fd(),
        }
    }
}

/// Removes the stale socket of a dead process of this user, if any, and binds.
fn bind_file(path: &Path) -> io::Result<UnixListener> {
    let directory = File::open(path.parent().unwrap_or(Path::new("/")))?;
    // If two processes find the same stale socket, the lock makes the second one find the socket of the first.
    lock_briefly(&directory)?;
    if is_stale(path)? {
        fs::remove_file(path)?;
    }
    UnixListener::bind(path)
}

/// Any process that may read the directory can hold its lock without limit, so the wait is limited.
fn lock_briefly(directory: &File) -> io::Result<()> {
    let give_up = Moment::after(LOCK_LIMIT);
    loop {
        match directory.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if !give_up.has_passed() => thread::sleep(LOCK_PAUSE),
            Err(TryLockError::WouldBlock) => {
                return Err(io::Error::new(io::ErrorKind::WouldBlock, "another process holds a lock on its directory"));
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
}

/// Returns true if the path is a socket of this user at which no process listens.
fn is_stale(path: &Path) -> io::Result<bool> {
    let metadata = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        found => found?,
    };
    if !metadata.file_type().is_socket() || metadata.uid() != geteuid().as_raw() {
        return Ok(false);
    }
    // A listener with a full backlog would block a blocking connect.
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let caller = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    Ok(connect(&caller, &SocketAddrUnix::new(path)?) == Err(Errno::CONNREFUSED))
}

/// Removes the file of a socket when dropped, if it is still the same file.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    device_and_inode: (u64, u64),
}

impl SocketFile {
    /// Returns `None` for an address without a file.
    #[must_use]
    pub fn of(address: &ListenAddress) -> Option<Self> {
        let ListenAddress::File(path) = address else { return None };
        Some(Self { path: path.clone(), device_and_inode: device_and_inode(path)? })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if device_and_inode(&self.path) == Some(self.device_and_inode) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn device_and_inode(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_stale_socket_is_replaced_and_one_with_a_listener_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let address = ListenAddress::File(path.clone());
        drop(SocketListener::bind(&address).unwrap());
        assert!(path.exists() && UnixStream::connect(&path).is_err(), "it is stale");
        let listener = SocketListener::bind(&address).unwrap();
        let file = SocketFile::of(&address).unwrap();
        let second = SocketListener::bind(&address).err().unwrap();
        assert_eq!(second.kind(), io::ErrorKind::AddrInUse);
        UnixStream::connect(&path).unwrap();
        assert_eq!(listener.address(&address), address);
        drop((listener, file));
        assert!(!path.exists());
    }

    #[test]
    fn what_is_no_socket_of_ours_is_not_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, "mine").unwrap();
        assert!(SocketListener::bind(&ListenAddress::File(path.clone())).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
        // A later socket with the same name is kept.
        let address = ListenAddress::File(directory.path().join("socket"));
        let (first, file) = (SocketListener::bind(&address).unwrap(), SocketFile::of(&address).unwrap());
        drop(first);
        let _second = SocketListener::bind(&address).unwrap();
        let later = SocketFile::of(&address).unwrap();
        // The kernel may reuse the inode number of the first for the second.
        if later.device_and_inode != file.device_and_inode {
            drop(file);
            assert!(later.path.exists());
        }
    }
}
