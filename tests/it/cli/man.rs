//! Manual pages of every verb and topic: formatted without warnings, and reproducible on every host.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use super::error_and_hint;
use crate::support::Cli;
use crate::support::cli::listed_verbs;

/// Returns all pages by name.
fn pages(cli: &Cli, directory: &Path) -> BTreeMap<String, String> {
    let ended = cli.run(&["man", "--directory", directory.to_str().unwrap()]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), ""), "{ended:?}");
    let page = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.unwrap().path();
        (path.file_name().unwrap().to_string_lossy().into_owned(), std::fs::read_to_string(&path).unwrap())
    };
    std::fs::read_dir(directory).unwrap().map(page).collect()
}

/// Formats a page with a typesetting program.
fn set(program: &str, args: &[&str], page: &str) -> Output {
    let mut child = Command::new(program)
        .args(args)
        .env("LC_ALL", "C.UTF-8")
        .env("MANWIDTH", "400")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let text = page.to_owned();
    let writer = std::thread::spawn(move || input.write_all(text.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    output
}

#[test]
fn every_page_is_set_without_a_warning() {
    let home = tempfile::tempdir().unwrap();
    let pages = pages(&Cli::new(home.path()), &home.path().join("new/pages"));
    assert!(pages.len() > 40, "{:?}", pages.keys());
    for (name, text) in &pages {
        for (program, args) in
            [("groff", &["-man", "-ww", "-Tutf8", "-"][..]), ("man", &["--warnings", "--local-file", "-"])]
        {
            let output = set(program, args, text);
            let complaints = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && complaints.is_empty(), "{program} {name}: {complaints}");
            assert!(!output.stdout.is_empty(), "{program} {name}");
        }
        assert!(text.is_ascii(), "{name}");
    }
}

#[test]
fn every_verb_has_a_page_that_says_what_its_help_says() {
    let home = tempfile::tempdir().unwrap();
    let cli = Cli::new(home.path());
    let help = cli.run(&["help", "all"]).ok();
    let mut seen = 0;
    for verb in listed_verbs(&help) {
        let page = cli.run(&["man", verb]).ok();
        let set = set("man", &["--local-file", "-"], &page);
        let flat = String::from_utf8_lossy(&set.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(flat.contains(&format!("taskqueue-{verb} - ")) && flat.contains("GLOBAL OPTIONS"), "{verb}: {flat}");
        seen += 1;
    }
    assert!(seen > 34, "{seen}");
    let nested = cli.run(&["man", "schedule", "edit"]).ok();
    assert!(nested.contains("taskqueue schedule edit") && nested.contains(".SH SYNOPSIS"), "{nested}");
}

#[test]
fn a_topic_has_a_page_with_what_the_help_says() {
    let home = tempfile::tempdir().unwrap();
    let cli = Cli::new(home.path());
    for (topic, words) in [
        ("exit-status", "found nothing to claim"),
        ("handlers", "TASKQUEUE_TASK_ID"),
        ("selections", "Filters of different keys must all hold"),
        ("times", "forms that GNU date -d accepts"),
    ] {
        let set = set("man", &["--local-file", "-"], &cli.run(&["man", topic]).ok());
        let flat = String::from_utf8_lossy(&set.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(flat.starts_with(&format!("taskqueue-{topic}(7)")) && flat.contains(words), "{topic}: {flat}");
    }
    let (error, hint) = error_and_hint(&cli.run(&["man", "nothing"]).fails(2));
    assert!(error.contains("\"nothing\"") && hint.contains("--help"), "{error}\n{hint}");
}

#[test]
fn pages_depend_neither_on_the_clock_nor_on_the_host() {
    let homes = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let here = Cli::new(homes[0].path());
    let elsewhere = Cli::new(homes[1].path())
        .env("TZ", "Asia/Tokyo")
        .env("LANG", "C")
        .env("COLUMNS", "40")
        .env("TASKQUEUE_DATABASE_URL", "postgres://db.example.org/tasks")
        .env("TASKQUEUE_CLAIMANT", "bot-1");
    let pages = [(&here, &homes[0]), (&elsewhere, &homes[1])].map(|(cli, home)| pages(cli, &home.path().join("pages")));
    assert_eq!(pages[0], pages[1]);
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    for (name, text) in &pages[0] {
        let homes = homes.iter().map(|home| home.path().to_str().unwrap());
        for place in homes.chain([host.trim()].into_iter().filter(|host| host.len() > 9)) {
            assert!(!text.contains(place), "{name}: {place}");
        }
        assert!(text.contains(".TH \"") && text.contains("\" \"\" \"taskqueue "), "{name}: {text}");
    }
}
