//! Decides which process of a host performs a periodic job for all of them.
//!
//! A file stores which process took the last turn, and when. It is not locked between turns: a process that hangs loses only its
//! own turn. Does not depend on the job.

use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::Path;
use std::time::Duration;

use super::identity::{Liveness, ProcessIdentity};
use taskqueue_host::files::file_checks::create_trusted_dir;
use taskqueue_host::files::lock::FileLock;

/// Takes the turn, unless another live process took it less than `every` ago. Returns whether it was taken.
///
/// # Errors
/// The file or its directory cannot be used.
pub fn take_turn(path: &Path, me: &str, every: Duration) -> io::Result<bool> {
    if let Some(directory) = path.parent() {
        create_trusted_dir(directory)?;
    }
    let lock = match FileLock::acquire(path, Duration::ZERO) {
        Ok(lock) => lock,
        // Another process is taking it right now.
        Err(error) if error.kind() == io::ErrorKind::TimedOut => return Ok(false),
        Err(error) => return Err(error),
    };
    let mut file = lock.file();
    let mut owner = Vec::new();
    file.read_to_end(&mut owner)?;
    let owner = String::from_utf8_lossy(&owner);
    // A time in the future comes from a clock that was set back.
    let is_recent = file.metadata()?.modified()?.elapsed().is_ok_and(|age| age < every);
    if is_recent && owner != me && is_alive(&owner) {
        return Ok(false);
    }
    file.rewind()?;
    file.set_len(0)?;
    file.write_all(me.as_bytes())?;
    Ok(true)
}

fn is_alive(owner: &str) -> bool {
    owner.parse::<ProcessIdentity>().is_ok_and(|owner| owner.liveness() == Liveness::Alive)
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, clippy::unwrap_used)]
mod tests {
    use super::*;

    const EVERY: Duration = Duration::from_secs(3600);

    #[test]
    fn a_turn_is_that_of_who_took_it_until_it_is_old() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("private/turn");
        let alive = ProcessIdentity::own().unwrap().to_string();
        assert!(take_turn(&path, &alive, EVERY).unwrap());
        assert!(take_turn(&path, &alive, EVERY).unwrap(), "again by the same one");
        assert!(!take_turn(&path, "another", EVERY).unwrap());
        assert!(take_turn(&path, "another", Duration::ZERO).unwrap(), "it is old");
    }

    #[test]
    fn the_turn_of_a_process_that_is_dead_is_over_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("turn");
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let dead = ProcessIdentity::of_pid(i32::try_from(child.id()).unwrap()).unwrap().unwrap().to_string();
        assert!(take_turn(&path, &dead, EVERY).unwrap());
        child.wait().unwrap();
        assert!(take_turn(&path, "another", EVERY).unwrap());
    }

    #[test]
    fn nobody_waits_for_who_takes_a_turn_at_this_moment() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("turn");
        let _lock = FileLock::acquire(&path, Duration::ZERO).unwrap();
        assert!(!take_turn(&path, "another", EVERY).unwrap());
    }
}
