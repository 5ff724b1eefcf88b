//! A program, its arguments and its environment in the form that the kernel needs, prepared before the child is created: the
//! child cannot allocate.

use std::cell::Cell;
use std::ffi::{CStr, CString, OsStr, OsString, c_char};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

/// Where a bare name is looked up if the environment has no PATH, as in the C library.
const DEFAULT_PATH: &[u8] = b"/bin:/usr/bin";
/// Executes files in a format that the kernel does not know: POSIX treats them as scripts.
const SHELL: &CStr = c"/bin/sh";

/// A program to execute.
pub(crate) struct Image {
    /// The paths of the program, to be tried in order.
    pub(crate) candidates: Vec<CString>,
    /// The name of the shell, followed by the arguments.
    argv: Pointers,
    envp: Pointers,
    /// The strings behind the pointers; moving the list does not move them.
    _strings: Vec<CString>,
}

/// An array of C strings that ends with a null pointer.
struct Pointers(Vec<Cell<*const c_char>>);

impl Image {
    /// # Errors
    /// A string contains NUL.
    pub(crate) fn new(program: &Path, args: &[OsString], env: &[(OsString, OsString)]) -> io::Result<Self> {
        let mut strings = Vec::with_capacity(1 + args.len() + env.len());
        for argument in [program.as_os_str()].into_iter().chain(args.iter().map(OsString::as_os_str)) {
            strings.push(CString::new(argument.as_bytes())?);
        }
        for (name, value) in env {
            strings.push(CString::new([name.as_bytes(), b"=", value.as_bytes()].concat())?);
        }
        let (arguments, variables) = strings.split_at(1 + args.len());
        Ok(Self {
            candidates: candidates(program.as_os_str(), env)?,
            argv: Pointers::to([SHELL].into_iter().chain(arguments.iter().map(CString::as_c_str))),
            envp: Pointers::to(variables.iter().map(CString::as_c_str)),
            _strings: strings,
        })
    }

    /// Returns the arguments; the first one is the program as it was named.
    pub(crate) fn arguments(&self) -> *const *const c_char {
        self.argv.after(1)
    }

    pub(crate) fn environment(&self) -> *const *const c_char {
        self.envp.after(0)
    }

    /// Returns the arguments of a shell that executes this file. Changes the array returned by `arguments`.
    pub(crate) fn arguments_of_shell(&self, file: &CStr) -> (&'static CStr, *const *const c_char) {
        if let Some(first) = self.argv.0.get(1) {
            first.set(file.as_ptr());
        }
        (SHELL, self.argv.after(0))
    }
}

impl Pointers {
    fn to<'s>(strings: impl Iterator<Item = &'s CStr>) -> Self {
        Self(strings.map(CStr::as_ptr).chain([ptr::null()]).map(Cell::new).collect())
    }

    fn after(&self, first: usize) -> *const *const c_char {
        self.0.get(first..).unwrap_or_default().as_ptr().cast()
    }
}

/// Looks up a name without a slash in the PATH of the child's environment, where an empty entry is the working directory.
pub(super) fn candidates(program: &OsStr, env: &[(OsString, OsString)]) -> io::Result<Vec<CString>> {
    let name = program.as_bytes();
    if name.is_empty() || name.contains(&b'/') {
        return Ok(vec![CString::new(name)?]);
    }
    let path = env.iter().rev().find(|(name, _)| name == "PATH").map_or(DEFAULT_PATH, |(_, path)| path.as_bytes());
    let in_directory = |directory: &[u8]| match directory {
        b"" => CString::new(name),
        directory => CString::new([directory, b"/", name].concat()),
    };
    Ok(path.split(|byte| *byte == b':').map(in_directory).collect::<Result<_, _>>()?)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn env(entries: &[(&str, &str)]) -> Vec<(OsString, OsString)> {
        entries.iter().map(|(name, value)| (OsString::from(*name), OsString::from(*value))).collect()
    }

    fn places(program: &str, entries: &[(&str, &str)]) -> Vec<String> {
        let found = candidates(OsStr::new(program), &env(entries)).unwrap();
        found.into_iter().map(|place| place.into_string().unwrap()).collect()
    }

    #[test]
    fn a_bare_name_is_looked_up_in_the_path_of_its_own_environment() {
        assert_eq!(places("sh", &[("PATH", "/a:/b")]), ["/a/sh", "/b/sh"]);
        assert_eq!(places("sh", &[("PATH", ":/b:")]), ["sh", "/b/sh", "sh"]);
        assert_eq!(places("sh", &[("HOME", "/")]), ["/bin/sh", "/usr/bin/sh"]);
        assert_eq!(places("./sh", &[("PATH", "/a")]), ["./sh"]);
        assert_eq!(places("/bin/sh", &[("PATH", "/a")]), ["/bin/sh"]);
        assert_eq!(places("", &[("PATH", "/a")]), [""]);
    }

    #[test]
    fn what_contains_nul_is_refused_wherever_it_stands() {
        let image = |program: &str, argument: &str, value: &str| {
            Image::new(Path::new(program), &[argument.into()], &env(&[("A", value)]))
                .map(|image| image.candidates.len())
        };
        assert_eq!(image("a/b", "c", "d").unwrap(), 1);
        for (program, argument, value) in [("a\0", "c", "d"), ("a", "c\0", "d"), ("a", "c", "\0d")] {
            assert_eq!(image(program, argument, value).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
    }
}
