//! Build script of the package. A debug build of the program is linked at fixed addresses: tests start it ten thousands of times,
//! and to relocate it takes a sixth of a start. A release keeps its random addresses.

#[expect(clippy::disallowed_methods, reason = "how cargo names the profile to a build script")]
fn main() {
    println!("cargo:rerun-if-changed=tests/build/link.rs");
    if std::env::var("PROFILE").is_ok_and(|profile| profile == "debug") {
        println!("cargo:rustc-link-arg-bins=-no-pie");
    }
}
