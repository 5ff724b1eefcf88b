//! What the targets share.

use std::path::Path;

#[cfg(fuzzing)]
pub use libfuzzer_sys;
pub use taskqueue_cli::fuzzing;

/// A program that gives its input to the check of this name.
#[cfg(fuzzing)]
#[macro_export]
macro_rules! target {
    ($name:ident) => {
        $crate::libfuzzer_sys::fuzz_target!(
            init: $crate::write_seeds(stringify!($name)),
            |input: &[u8]| $crate::fuzzing::$name(input)
        );
    };
}

/// A program that checks an empty input, so that a target compiles without libFuzzer.
#[cfg(not(fuzzing))]
#[macro_export]
macro_rules! target {
    ($name:ident) => {
        fn main() {
            $crate::fuzzing::$name(&[]);
        }
    };
}

/// Writes the examples of a target into the directory that TASKQUEUE_FUZZ_SEEDS names, before libFuzzer reads it.
pub fn write_seeds(name: &str) {
    let Some(directory) = std::env::var_os("TASKQUEUE_FUZZ_SEEDS") else { return };
    let target = fuzzing::TARGETS.iter().find(|target| target.name == name).expect("a target of this name");
    for (number, seed) in target.seeds.iter().enumerate() {
        std::fs::write(Path::new(&directory).join(format!("seed-{number}")), seed).expect("a directory to write in");
    }
}
