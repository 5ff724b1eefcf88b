//! Build script of the package: how the program is linked. It is started often, by scripts and by cron, and so that a start costs
//! little, it lies at fixed addresses and has the C++ library inside. docs/performance.md has the figures, docs/security.md what is
//! given up.
#![expect(clippy::disallowed_methods, reason = "a build script reads variables of cargo and asks the compiler")]

use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    // Cargo runs a changed build script again anyway. A file that it does not find would make it build the program each time.
    for variable in ["TASKQUEUE_LINK_PIE", "CXX"] {
        println!("cargo:rerun-if-env-changed={variable}");
    }
    if variable("TASKQUEUE_LINK_PIE").is_none() {
        println!("cargo:rustc-link-arg-bins=-no-pie");
    }
    if let Some(directory) = static_libraries() {
        println!("cargo:rustc-link-arg-bins=-L{}", directory.display());
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// The directory with what is linked in place of the shared libraries of C++ and of the compiler. `None` where they are linked as
/// anywhere else: with the shared libraries of a distribution, which need them; for another machine, whose compiler is not known;
/// and where there are no archives.
fn static_libraries() -> Option<PathBuf> {
    let is_usual = variable("TARGET") == variable("HOST") && variable("CARGO_CFG_TARGET_ENV")? == "gnu";
    if !is_usual || variable("CARGO_FEATURE_BUNDLED").is_none() {
        return None;
    }
    let (cplusplus, _) = (archive("libstdc++.a")?, archive("libgcc_eh.a")?);
    let directory = PathBuf::from(variable("OUT_DIR")?).join("static");
    fill(&directory, &cplusplus).ok().map(|()| directory)
}

/// Where the compiler has it; it repeats the name of what it does not have.
fn archive(name: &str) -> Option<PathBuf> {
    let compiler = variable("CXX").unwrap_or_else(|| "c++".to_owned());
    let output = Command::new(compiler).arg(format!("-print-file-name={name}")).output().ok()?;
    let path = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
    path.is_absolute().then_some(path)
}

/// The linker takes the first library of a name, shared or not. Rust asks for a shared libgcc_s.
fn fill(directory: &Path, cplusplus: &Path) -> io::Result<()> {
    let _ = std::fs::remove_dir_all(directory);
    std::fs::create_dir_all(directory)?;
    symlink(cplusplus, directory.join("libstdc++.a"))?;
    std::fs::write(directory.join("libgcc_s.so"), "INPUT(-lgcc_eh -lgcc)\n")
}
