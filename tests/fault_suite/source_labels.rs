//! The labels in the source of the program.

use std::path::Path;

use super::database::EngineUnderTest;

/// Labels in code that one engine does not use.
pub const NOT_ON: [(&str, EngineUnderTest); 1] = [("queue.one_committed", EngineUnderTest::Sqlite)];

/// Returns every label, sorted.
pub fn all_labels() -> Vec<String> {
    let mut labels = Vec::new();
    collect(&Path::new(env!("REPOSITORY_DIR")).join("crates"), &mut labels);
    labels.sort();
    labels
}

fn collect(directory: &Path, labels: &mut Vec<String>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, labels);
            continue;
        }
        if path.extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        for line in text.lines().filter(|line| !line.trim_start().starts_with("//")) {
            for opening in ["fault_point!(\"", "fault::planned(\""] {
                labels.extend(line.split(opening).skip(1).filter_map(|rest| rest.split('"').next()).map(str::to_owned));
            }
        }
    }
}
