//! The users of this machine according to its name service, and whether a handler can run as one of them.
//!
//! All lookups happen before a fork: their answers may come from a network.

use std::ffi::CString;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::sync::LazyLock;

use nix::unistd::{Group, User, getgrouplist};
use rustix::process::{getegid, geteuid};

use super::host::{self, Account};
use crate::recent::Recent;

/// What a process needs to become another user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// The user.
    pub uid: u32,
    /// Its primary group.
    pub gid: u32,
    /// All its groups.
    pub groups: Vec<u32>,
}

/// The user as whom a handler runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunAs {
    /// Name and home.
    pub account: Account,
    /// What is needed to become this user; `None` if this process already runs as this user.
    pub credentials: Option<Credentials>,
}

/// Why a handler cannot run as a user.
#[derive(Debug, thiserror::Error)]
pub enum UserProblem {
    /// The name service does not know the user.
    #[error("there is no user \"{0}\" on this machine")]
    Unknown(String),
    /// Only root can become another user.
    #[error("it must run as \"{wanted}\", but this runner is \"{ours}\", not root")]
    NotRoot {
        /// The user of the class.
        wanted: String,
        /// The user of this process.
        ours: String,
    },
    /// The name service did not answer.
    #[error("the user \"{name}\" cannot be looked up: {error}")]
    Unanswered {
        /// The user of the class.
        name: String,
        /// The error of the name service.
        #[source]
        error: io::Error,
    },
}

/// Returns true if this process may become any user.
#[must_use]
pub fn is_root() -> bool {
    geteuid().is_root()
}

/// Returns true if a process with these credentials, or one of this user if there are none, has the rights of root. Root of a
/// user namespace with a single user (`unshare --map-root-user`) has only the rights of that user.
#[must_use]
pub fn has_rights_of_root(credentials: Option<&Credentials>) -> bool {
    static IS_SINGLE_USER: LazyLock<bool> = LazyLock::new(|| {
        let map = uid_map();
        let fields: Vec<&str> = map.split_whitespace().collect();
        matches!(fields[..], ["0", outside, "1"] if outside != "0")
    });
    credentials.map_or_else(is_root, |user| user.uid == 0) && !*IS_SINGLE_USER
}

/// Returns the users of the user namespace of this process: their first number in it, their first number outside, their count.
pub(crate) fn uid_map() -> String {
    std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default()
}

/// Returns true if the file belongs to the effective user of this process.
#[must_use]
pub fn is_own_file(found: &Metadata) -> bool {
    found.uid() == geteuid().as_raw()
}

/// Returns true for a regular file, and no link, that belongs to the effective user of this process.
#[must_use]
pub fn is_own_regular_file(found: &Metadata) -> bool {
    found.is_file() && is_own_file(found)
}

/// Returns true if the group is private to this user, as most systems create one for each new user. Such groups have the name of
/// the user and no other members, and the process is in them.
#[must_use]
pub fn is_private_group(gid: u32) -> bool {
    if gid != getegid().as_raw() {
        return false;
    }
    let user = host::user_name();
    let group = Group::from_gid(nix::unistd::Gid::from_raw(gid)).ok().flatten();
    group.is_some_and(|group| group.name == user && group.mem.iter().all(|member| *member == user))
}

/// Returns the number of the user with this name; `None` if there is none.
#[must_use]
pub fn uid_of(name: &str) -> Option<u32> {
    Some(User::from_name(name).ok()??.uid.as_raw())
}

/// Same as [`run_as`], with an answer that may be a second old: a handler started a second ago also keeps the groups of that time
/// while it runs.
///
/// # Errors
/// As for [`run_as`].
pub fn recently_run_as(name: Option<&str>) -> Result<RunAs, UserProblem> {
    static USERS: Recent<Option<String>, RunAs> = Recent::new();
    USERS.answer(name.map(str::to_owned), |name| run_as(name.as_deref()))
}

/// Returns the user as whom a handler runs: the user of this name, or the user of this process.
///
/// # Errors
/// There is no such user, or this process may not become it.
pub fn run_as(name: Option<&str>) -> Result<RunAs, UserProblem> {
    let Some(name) = name else { return Ok(RunAs { account: host::account(), credentials: None }) };
    let unanswered = |errno: nix::Error| UserProblem::Unanswered { name: name.to_owned(), error: errno.into() };
    let user = User::from_name(name).map_err(unanswered)?.ok_or_else(|| UserProblem::Unknown(name.to_owned()))?;
    let home = user.dir.to_str().filter(|home| home.starts_with('/')).map(str::to_owned);
    let account = Account { name: user.name.clone(), home };
    if user.uid.as_raw() == geteuid().as_raw() {
        return Ok(RunAs { account, credentials: None });
    }
    if !is_root() {
        return Err(UserProblem::NotRoot { wanted: name.to_owned(), ours: host::user_name() });
    }
    let c_name = CString::new(user.name).map_err(|_| UserProblem::Unknown(name.to_owned()))?;
    let groups = getgrouplist(&c_name, user.gid).map_err(unanswered)?;
    let groups = groups.into_iter().map(nix::unistd::Gid::as_raw).collect();
    Ok(RunAs { account, credentials: Some(Credentials { uid: user.uid.as_raw(), gid: user.gid.as_raw(), groups }) })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_the_groups_that_the_tools_say() {
        let says = |args: &[&str]| {
            let output = std::process::Command::new("id").args(args).output().unwrap();
            String::from_utf8_lossy(&output.stdout).trim().to_owned()
        };
        if !is_root() {
            assert!(matches!(run_as(Some("root")), Err(UserProblem::NotRoot { .. })));
            return;
        }
        let credentials = run_as(Some("nobody")).unwrap().credentials.unwrap();
        assert_eq!(credentials.uid.to_string(), says(&["-u", "nobody"]));
        assert_eq!(credentials.gid.to_string(), says(&["-g", "nobody"]));
        let mut groups = credentials.groups.iter().map(ToString::to_string).collect::<Vec<_>>();
        let mut expected = says(&["-G", "nobody"]).split(' ').map(str::to_owned).collect::<Vec<_>>();
        groups.sort();
        expected.sort();
        assert_eq!(groups, expected);
    }

    #[test]
    fn who_we_are_needs_no_change_and_an_unknown_user_is_named() {
        let ours = host::user_name();
        assert_eq!(run_as(Some(&ours)).unwrap().credentials, None);
        assert_eq!(run_as(None).unwrap().credentials, None);
        let problem = run_as(Some("no-such-user")).unwrap_err();
        assert_eq!(problem.to_string(), "there is no user \"no-such-user\" on this machine");
        assert!(run_as(Some("a\0b")).is_err());
    }
}
