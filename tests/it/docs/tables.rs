//! The tables of the documentation match the code: keys, settings, columns, exit codes, variables, states.

use std::collections::BTreeSet;
use std::path::PathBuf;

use taskqueue_domain::run::exit_rules::ExitRules;
use taskqueue_domain::run::status::{RunStatus, TaskStatus};
use taskqueue_domain::run::transition::{RunEvent, TaskEvent, run_after, task_after};
use taskqueue_domain::settings::Setting;
use taskqueue_engine::config::{Environment, load};

use super::{read, root, table_rows};
use crate::support::Cli;
use crate::support::cli::listed_verbs;

pub(super) fn load_text(text: &str) -> Result<taskqueue_engine::config::Config, taskqueue_engine::config::ConfigError> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config.toml");
    std::fs::write(&path, text).unwrap();
    load(Some(&path), &Environment::default())
}

/// Returns every key of the configuration, from the error about an unknown one.
pub(crate) fn configuration_keys() -> BTreeSet<String> {
    let unknown = "no_such_key = 1\n";
    let class = "[class.a]\nargv = [\"/bin/true\"]\n";
    let tables = [
        unknown.to_owned(),
        format!("[exec]\n{unknown}"),
        format!("[notify]\n{unknown}"),
        format!("[hooks]\n{unknown}"),
        format!("{class}{unknown}"),
        format!("{class}[class.a.exit]\n{unknown}"),
        format!("{class}[class.a.limits]\n{unknown}"),
    ];
    let keys = |text: &String| {
        let message = load_text(text).unwrap_err().to_string();
        let (_, known) = message.split_once("no_such_key`").unwrap();
        // Every second part is between backquotes.
        known.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>()
    };
    let keys: BTreeSet<String> = tables.iter().flat_map(keys).collect();
    assert!(keys.contains("argv") && keys.contains("enabled") && keys.contains("no_retry"), "{keys:?}");
    keys
}

#[test]
fn every_key_of_the_configuration_is_documented() {
    let page = read("docs/configuration.md");
    for key in configuration_keys() {
        assert!(page.contains(&format!("`{key}`")), "{key}");
    }
}

#[test]
fn every_setting_is_documented_with_its_default_and_range() {
    let rows = table_rows(&read("docs/configuration.md"));
    for setting in Setting::ALL {
        let row = rows.iter().find(|row| row[0] == setting.name()).unwrap_or_else(|| panic!("{setting}"));
        let (low, high) = setting.range();
        let expected = [setting.default_value(), low, high].map(|value| value.to_string());
        assert_eq!(row[1..4], expected, "{setting}");
    }
}

#[test]
fn every_code_of_an_error_is_documented_with_its_exit_status() {
    let page = read("docs/json.md");
    let (_, table) = page.split_once("| Exit status | Codes |\n").unwrap();
    let rows = table.lines().skip(1).take_while(|line| line.starts_with('|'));
    let quoted = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    let documented: BTreeSet<String> = rows.flat_map(|row| quoted(row.split('|').nth(2).unwrap())).collect();
    let schema: serde_json::Value = serde_json::from_str(&read("docs/json/error.schema.json")).unwrap();
    let code = &schema["anyOf"][0]["properties"]["error"]["properties"]["code"];
    let known = code["x-known-values"].as_array().unwrap().iter().map(|code| code.as_str().unwrap().to_owned());
    // `worker claim --wait` has a status of its own, without a code of its own.
    let documented: BTreeSet<String> = documented.into_iter().filter(|code| code != "worker claim --wait").collect();
    assert_eq!(documented, known.collect());
}

#[test]
fn every_kind_of_event_is_documented_and_no_other() {
    let page = read("docs/events.md");
    let (_, kinds) = page.split_once("## Kinds\n").unwrap();
    let rows = kinds.split("\n## ").next().unwrap().lines().filter(|line| line.starts_with("| `"));
    let documented: BTreeSet<&str> =
        rows.flat_map(|row| row.split('|').nth(1).unwrap().split('`').skip(1).step_by(2)).collect();
    assert_eq!(documented, BTreeSet::from(taskqueue_engine::inspect::events::KINDS));
}

/// Returns the tables and columns that a migration creates.
fn columns(sql: &str) -> BTreeSet<(String, String)> {
    let mut table = String::new();
    let mut columns = BTreeSet::new();
    for line in sql.lines() {
        if let Some(rest) = line.strip_prefix("CREATE TABLE ") {
            table = rest.split(['"', '`']).nth(1).unwrap().to_owned();
        } else if let Some(column) = line.strip_prefix("    ").and_then(|line| line.strip_prefix(['"', '`'])) {
            columns.insert((table.clone(), column.split(['"', '`']).next().unwrap().to_owned()));
        } else if !line.starts_with(' ') {
            table.clear();
        }
    }
    columns.retain(|(table, _)| !table.is_empty());
    columns
}

/// Returns all migrations of an engine, one after the other.
pub(super) fn migrations(engine: &str) -> String {
    let directory = root().join("migrations").join(engine);
    let mut paths: Vec<PathBuf> = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read_to_string(path.join("up.sql")).unwrap()).collect()
}

/// Instead of a partial index.
const ONLY_ON_MYSQL: &str = "PriorityDueOn";

#[test]
fn every_column_is_documented_and_no_other() {
    let mut table = String::new();
    let mut documented = BTreeSet::new();
    for line in read("docs/schema.md").lines() {
        if let Some(name) = line.strip_prefix("## ") {
            table = name.to_owned();
        } else if let Some(rest) = line.strip_prefix("| `").filter(|_| table != "Indexes") {
            documented.insert((table.clone(), rest.split('`').next().unwrap().to_owned()));
        }
    }
    for engine in ["sqlite", "postgres", "mysql"] {
        let real = columns(&migrations(engine));
        assert!(real.len() > 50, "{engine}: {real:?}");
        let is_there = |column: &&(String, String)| engine == "mysql" || column.1 != ONLY_ON_MYSQL;
        assert_eq!(documented.iter().filter(is_there).cloned().collect::<BTreeSet<_>>(), real, "{engine}");
    }
}

#[test]
fn every_exit_status_of_the_program_is_documented() {
    let rows = table_rows(&read("docs/commands.md"));
    let source = read("crates/cli/src/error.rs");
    let constants = source.lines().filter_map(|line| line.strip_prefix("pub(crate) const "));
    let codes: Vec<&str> = constants.filter_map(|line| line.split_once(": u8 = ")?.1.strip_suffix(';')).collect();
    assert!(codes.contains(&"69") && codes.len() > 7, "{codes:?}");
    for code in codes {
        assert!(rows.iter().any(|row| row[0] == code), "{code}");
    }
}

#[test]
fn every_verb_is_documented() {
    let home = tempfile::tempdir().unwrap();
    let help = Cli::new(home.path()).run(&["help", "all"]).ok();
    let verbs = listed_verbs(&help);
    assert!(verbs.contains(&"create-runs"), "{verbs:?}");
    let rows = table_rows(&read("docs/commands.md"));
    for verb in verbs {
        assert!(rows.iter().any(|row| row[0] == verb || row[0].starts_with(&format!("{verb} "))), "{verb}");
    }
}

#[test]
fn the_exit_codes_of_handlers_are_the_default_rules() {
    let rows = table_rows(&read("docs/handlers.md"));
    let rules = ExitRules::default();
    let documented = |code: i32| {
        let has = |row: &&Vec<String>| row[0].split(", ").any(|cell| cell == code.to_string());
        let row = rows.iter().find(has).or_else(|| rows.iter().find(|row| row[0] == "others"));
        row.unwrap()[1].clone()
    };
    for code in 0..=255 {
        assert_eq!(documented(code), rules.meaning(code).0.to_string(), "exit {code}");
    }
}

#[test]
fn every_variable_of_a_handler_is_documented() {
    let variables = |sources: &[&str]| -> BTreeSet<String> {
        let text: String = sources.iter().map(|source| read(source)).collect();
        text.split('"').filter(|text| text.starts_with("TASKQUEUE_")).map(str::to_owned).collect()
    };
    let of_a_run = variables(&["crates/engine/src/handler/command.rs"]);
    let mut of_a_coprocess = variables(&[
        "crates/engine/src/handler/coprocess/coprocess_handler.rs",
        "crates/process/src/identities/survivors.rs",
    ]);
    of_a_coprocess.retain(|name| !of_a_run.contains(name) || name == "TASKQUEUE_RUN_TOKEN");
    of_a_coprocess.retain(|name| !name.contains('='));
    assert!(of_a_run.len() > 8 && of_a_coprocess.len() == 3, "{of_a_run:?} {of_a_coprocess:?}");
    for (page, names) in [("docs/handlers.md", of_a_run), ("docs/coprocess.md", of_a_coprocess)] {
        for name in names {
            assert!(read(page).contains(&format!("`{name}`")), "{page}: {name}");
        }
    }
}

type Change = (String, String, String);

/// Returns the first three cells of each row of a section of docs/states.md: from, event, to.
fn documented_changes(section: &str) -> BTreeSet<Change> {
    let page = read("docs/states.md");
    let (_, rest) = page.split_once(&format!("## {section}\n")).unwrap();
    let text = rest.split("\n## ").next().unwrap();
    let rows = table_rows(text).into_iter().skip(2);
    rows.map(|row| (row[0].clone(), row[1].clone(), row[2].clone())).collect()
}

fn word(event: impl std::fmt::Debug) -> String {
    format!("{event:?}").to_lowercase()
}

#[test]
fn the_table_of_runs_is_the_state_machine() {
    let mut real = BTreeSet::new();
    for from in RunStatus::ALL {
        for event in RunEvent::ALL {
            real.extend(run_after(from, event).map(|to| (from.to_string(), word(event), to.to_string())));
        }
    }
    assert_eq!(documented_changes("Runs"), real);
}

#[test]
fn the_table_of_tasks_is_the_state_machine() {
    let mut real = BTreeSet::new();
    for from in TaskStatus::ALL {
        for event in TaskEvent::ALL {
            let ends = TaskStatus::ALL.map(|before| task_after(from, event, before));
            let to = match ends {
                [None, ..] => continue,
                [Some(to), ..] if ends.iter().all(|end| *end == Some(to)) => to.to_string(),
                _ => "as before".to_owned(),
            };
            real.insert((from.to_string(), word(event), to));
        }
    }
    assert_eq!(documented_changes("Tasks"), real);
}

/// Returns every file below a directory.
fn files_below(directory: &std::path::Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

#[test]
fn every_feature_of_the_sources_names_a_test_that_exists() {
    let code: String = ["src", "crates", "tests"]
        .iter()
        .flat_map(|directory| files_below(&root().join(directory)))
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .map(|path| std::fs::read_to_string(path).unwrap())
        .collect();
    let rows = table_rows(&read("docs/sources.md"));
    let features: Vec<&Vec<String>> =
        rows.iter().filter(|row| row[0] != "Feature" && !row[0].starts_with("--")).collect();
    assert!(features.len() > 50, "{}", features.len());
    for row in features {
        let test = &row[4];
        assert!(code.contains(&format!("fn {test}(")), "{}: {test}", row[0]);
    }
}

/// Returns the names of tests in the last cell of each row of the tables of attacks, as file and function.
fn attacks() -> Vec<(String, Vec<(String, String)>)> {
    let page = read("docs/security.md");
    let rows = ["## Tests of each promise\n", "## Attacks on the web page\n"].into_iter().flat_map(|heading| {
        let (_, rest) = page.split_once(heading).unwrap();
        table_rows(rest.split("\n## ").next().unwrap()).into_iter().skip(2)
    });
    let names = |cell: &str| -> Vec<(String, String)> {
        let split = |name: &str| name.trim().split_once("::").map(|(file, test)| (file.to_owned(), test.to_owned()));
        cell.split(',').map(|name| split(name).unwrap_or_else(|| panic!("{name}"))).collect()
    };
    rows.map(|row| (row[0].clone(), names(&row[2]))).collect()
}

#[test]
fn every_promise_of_the_security_page_names_attacks_that_exist() {
    let files: Vec<PathBuf> =
        ["src", "crates", "tests/it"].iter().flat_map(|directory| files_below(&root().join(directory))).collect();
    let attacks = attacks();
    assert!(attacks.len() > 20, "{}", attacks.len());
    for (promise, tests) in attacks {
        for (file, test) in tests {
            let of_name = files.iter().filter(|path| path.ends_with(format!("{file}.rs")));
            let forms = [format!("fn {test}("), format!("] {test} db {{")];
            let has_test =
                |path: &PathBuf| forms.iter().any(|form| std::fs::read_to_string(path).unwrap().contains(form));
            assert!(of_name.into_iter().any(has_test), "{promise}: {file}::{test}");
        }
    }
}
