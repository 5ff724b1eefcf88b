//! Rules of the project that neither the compiler nor a lint can enforce. Dependencies between crates are set in their
//! manifests.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

fn files_below(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(files_below(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}

/// Returns the sources of all crates, each with its name: the crate, and the path below its `src`.
fn sources() -> Vec<(String, PathBuf)> {
    let root = Path::new(env!("REPOSITORY_DIR"));
    let mut found = Vec::new();
    for krate in std::fs::read_dir(root.join("crates")).unwrap() {
        let krate = krate.unwrap();
        let name = krate.file_name().into_string().unwrap();
        found.extend(named_files(&krate.path().join("src"), &name));
    }
    found.extend(named_files(&root.join("src"), "taskqueue"));
    found
}

fn named_files(src: &Path, krate: &str) -> Vec<(String, PathBuf)> {
    let name = |file: &PathBuf| format!("{krate}/{}", file.strip_prefix(src).unwrap().display());
    files_below(src).into_iter().map(|file| (name(&file), file)).collect()
}

/// Returns every line of the program with its place, without test modules.
pub(crate) fn program_lines() -> Vec<(String, String)> {
    let mut lines = Vec::new();
    for (name, file) in sources() {
        if name.ends_with("tests.rs") || name.ends_with("testing.rs") || name.starts_with("cli/fuzzing/") {
            continue;
        }
        let text = std::fs::read_to_string(&file).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        lines.extend(code.lines().enumerate().map(|(index, line)| (format!("{name}:{}", index + 1), line.to_owned())));
    }
    lines
}

/// Returns every line of the program that contains one of `words`, as `crate/file: line`, except in the files in `allowed`.
fn lines_with(words: &[&str], allowed: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for (name, file) in sources() {
        // Checks of the parsers are in no program.
        let is_test = name.ends_with("tests.rs") || name.ends_with("testing.rs") || name.starts_with("cli/fuzzing/");
        if is_test || allowed.iter().any(|place| name.starts_with(place)) {
            continue;
        }
        let text = std::fs::read_to_string(&file).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
        found.extend(
            lines.filter(|line| words.iter().any(|word| line.contains(word))).map(|line| format!("{name}: {line}")),
        );
    }
    found
}

#[track_caller]
fn only_in(words: &[&str], allowed: &[&str]) {
    assert!(!lines_with(words, &[]).is_empty(), "nothing in src has {words:?}: the rule checks nothing");
    assert_eq!(lines_with(words, allowed), Vec::<String>::new(), "{words:?} are outside {allowed:?}");
}

#[test]
fn the_domain_reads_no_clock_no_file_and_no_environment() {
    let words = [
        "std::fs",
        "std::env",
        "std::process",
        "std::net::Tcp",
        "std::net::Udp",
        "SystemTime",
        "Instant::now",
        "Utc::now",
        "Local::now",
    ];
    let outside = ["cli/", "engine/", "host/", "process/", "store/", "taskqueue/", "views/clock.rs", "web/"];
    assert_eq!(lines_with(&words, &outside), Vec::<String>::new());
}

#[test]
fn only_the_command_line_prints() {
    only_in(&["io::stdout()", "io::stderr()"], &["cli/output/"]);
    let found = lines_with(&["println!", "print!(", "eprintln!", "eprint!("], &[]);
    assert_eq!(found, Vec::<String>::new());
    only_in(&["ProgressStyle"], &["cli/output/", "cli/commands/running/work_narrator.rs"]);
    only_in(&["comfy_table"], &["cli/output/table.rs"]);
    // The first one controls the terminal, the second one only draws.
    only_in(&["ratatui"], &["cli/output/screen.rs", "cli/top/draw.rs"]);
    only_in(&["crossterm"], &["cli/output/screen.rs"]);
    only_in(&["prometheus_client"], &["engine/inspect/monitoring/metrics_text.rs"]);
    only_in(&["httparse"], &["host/net/http.rs"]);
}

/// Only there is it escaped.
#[test]
fn json_over_http_is_written_in_one_place() {
    let answers = ["axum::Json", "response::Json", " Json,", "{Json,", ", Json}", "Json<"];
    assert!(
        lines_with(&answers, &[]).iter().any(|line| line.starts_with("web/api/json.rs")),
        "the rule checks nothing"
    );
    let mut elsewhere = lines_with(&answers, &["web/api/json.rs"]);
    elsewhere.extend(lines_with(&["serde_json::to_"], &[]));
    elsewhere.retain(|line| line.starts_with("web/"));
    assert_eq!(elsewhere, Vec::<String>::new());
}

#[test]
fn only_host_and_process_talk_to_the_kernel_by_hand() {
    only_in(
        &["unsafe "],
        &[
            "process/spawning/vfork.rs",
            "process/spawning/pre_exec.rs",
            "host/net/sockets.rs",
            "host/machine/closed_output.rs",
            "host/machine/own_memory.rs",
            "process/spawning/ignored_signals.rs",
            "process/children/exit.rs",
            "store/backend/sqlite/kept_log.rs",
            "store/backend/postgres/parameters.rs",
            "store/backend/postgres/sqlstate.rs",
        ],
    );
    only_in(&["rustix::"], &["host/", "process/"]);
}

#[test]
fn only_the_backends_differ_by_engine() {
    only_in(&["AnyConnection::Sqlite", "AnyConnection::Postgres", "AnyConnection::Mysql"], &["store/backend/"]);
    only_in(&["sql_query"], &["store/backend/"]);
}

#[test]
fn files_stay_small() {
    for (name, file) in sources() {
        let lines = std::fs::read_to_string(&file).unwrap().lines().count();
        assert!(lines <= 600, "{name} has {lines} lines: split it");
    }
}

#[test]
fn no_folder_has_more_names_than_a_reader_can_survey() {
    let mut folders: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (name, _) in sources() {
        let is_module = !["mod.rs", "lib.rs", "main.rs", "tests.rs"].iter().any(|end| name.ends_with(end));
        let mut folder = name.trim_end_matches(".rs");
        while let Some((above, module)) = folder.rsplit_once('/').filter(|_| is_module) {
            folders.entry(above.to_owned()).or_default().insert(module.to_owned());
            folder = above;
        }
    }
    let crowded: Vec<_> = folders.iter().filter(|(_, modules)| modules.len() > 15).collect();
    assert!(crowded.is_empty(), "group them: {crowded:?}");
}

#[test]
fn every_step_that_the_fault_suite_breaks_has_a_name_of_its_own() {
    let name = |line: String| {
        let (_, rest) = line.split_once("(\"").unwrap();
        rest.split('"').next().unwrap_or_default().to_owned()
    };
    let mut names: Vec<String> =
        lines_with(&["fault_point!(\"", "fault::planned(\""], &[]).into_iter().map(name).collect();
    names.sort();
    let twice: Vec<_> = names.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| &pair[0]).collect();
    assert_eq!(twice, Vec::<&String>::new());
    assert!(names.len() >= 35, "only {} steps", names.len());
    assert!(names.iter().all(|name| name.split_once('.').is_some()), "a step is named AREA.STEP: {names:?}");
}

#[test]
fn no_default_build_can_be_broken_by_a_variable() {
    let manifest = std::fs::read_to_string(Path::new(env!("REPOSITORY_DIR")).join("crates/cli/Cargo.toml")).unwrap();
    let default = manifest.lines().find(|line| line.starts_with("default = ")).unwrap();
    assert!(!default.contains("fault-points"), "{default}");
    only_in(&["TASKQUEUE_FAULT"], &["host/fault.rs"]);
}

/// The fault suite rarely runs with all of them.
#[test]
fn every_seeded_bug_of_the_fault_suite_can_still_be_planted() {
    let root = Path::new(env!("REPOSITORY_DIR"));
    let mut patches = 0;
    for entry in std::fs::read_dir(root.join("tests/fault_suite/bugs")).unwrap() {
        let patch = entry.unwrap().path();
        let mut git = Command::new("git");
        let checked = git.args(["apply", "--check", "-p1"]).arg(&patch).current_dir(root).output().unwrap();
        assert!(checked.status.success(), "{}: {}", patch.display(), String::from_utf8_lossy(&checked.stderr));
        patches += 1;
    }
    assert!(patches >= 12, "{patches}");
}

#[test]
fn only_the_chosen_database_clients_are_compiled() {
    const CLIENTS: [&str; 4] = ["libsqlite3-sys", "mysqlclient-sys", "openssl-sys", "pq-sys"];
    for (package, features, expected) in [
        ("taskqueue", "sqlite", &CLIENTS[..1]),
        ("taskqueue", "bundled,sqlite", &CLIENTS[..1]),
        ("taskqueue", "bundled,mysql", &CLIENTS[1..3]),
        ("taskqueue", "bundled,postgres", &CLIENTS[2..]),
        ("taskqueue", "bundled,mysql,postgres,sqlite", &CLIENTS[..]),
        ("taskqueue-cli", "", &CLIENTS[..]),
        ("taskqueue-cli", "bundled", &CLIENTS[..]),
    ] {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["tree", "--offline", "--locked", "--edges", "normal", "--prefix", "none", "--no-default-features"]);
        cargo.args(["--package", package, "--features", features]).current_dir(env!("REPOSITORY_DIR"));
        let listed = cargo.output().unwrap();
        assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
        let tree = String::from_utf8(listed.stdout).unwrap();
        let names: Vec<&str> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
        let found: Vec<&str> = CLIENTS.into_iter().filter(|client| names.contains(client)).collect();
        assert_eq!(found, expected, "{package} with the features {features}");
    }
}
