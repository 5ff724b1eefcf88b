//! The documents tell the truth: their commands are run, their SQL is executed on the engine that it is for, their
//! configuration is loaded, and their tables equal what the code says.
//!
//! The first word after the fence of a block is its language, the next ones say what is done with it:
//! - `sh test`: each line that starts with `$ ` is run (`> ` continues it), in one home for the whole document. What
//!   follows is what it prints, on both streams, where `…` stands for anything; nothing there means nothing is compared.
//!   `[exit status N]` as its last line is an exit status other than 0.
//! - `LANGUAGE file:NAME`: the block is put into the home as an executable file.
//! - `sql ENGINE…`: executed on these engines (sqlite, postgres, mysql), on all of them if none is named.
//! - `toml`: loaded as configuration.
//!
//! `/home/ann` stands for the home.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use diesel::connection::SimpleConnection as _;
use taskqueue::config::{Environment, load};
use taskqueue::domain::exit_rules::ExitRules;
use taskqueue::domain::settings::Setting;
use taskqueue::domain::status::{RunStatus, TaskStatus};
use taskqueue::domain::transition::{RunEvent, TaskEvent, run_after, task_after};

use crate::each_engine;
use crate::support::db::Raw;
use crate::support::{Cli, EngineUnderTest, TestDb};

const HOME: &str = "/home/ann";
const PAGES: [&str; 6] =
    ["README.md", "CHANGELOG.md", "docs/configuration.md", "docs/handlers.md", "docs/schema.md", "docs/states.md"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(name: &str) -> String {
    std::fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// A fenced block.
struct Block {
    page: &'static str,
    line: usize,
    words: Vec<String>,
    text: String,
}

impl Block {
    fn is(&self, language: &str) -> bool {
        self.words.first().is_some_and(|word| word == language)
    }

    fn file(&self) -> Option<&str> {
        self.words.iter().find_map(|word| word.strip_prefix("file:"))
    }

    fn place(&self) -> String {
        format!("{}, line {}", self.page, self.line)
    }
}

fn blocks(page: &'static str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut is_inside = false;
    for (index, line) in read(page).lines().enumerate() {
        match line.strip_prefix("```") {
            Some(words) if !is_inside => {
                let words = words.split_whitespace().map(str::to_owned).collect();
                blocks.push(Block { page, line: index + 1, words, text: String::new() });
                is_inside = true;
            }
            Some(_) => is_inside = false,
            None if is_inside => blocks.last_mut().unwrap().text.extend([line, "\n"]),
            None => {}
        }
    }
    assert!(!is_inside, "{page}: a fence is not closed");
    blocks
}

fn all_blocks() -> Vec<Block> {
    PAGES.into_iter().flat_map(blocks).collect()
}

/// The cells of the table rows of a page, backquotes taken off.
fn table_rows(text: &str) -> Vec<Vec<String>> {
    let cells = |line: &str| line.trim_matches('|').split('|').map(|cell| cell.trim().replace('`', "")).collect();
    text.lines().filter(|line| line.starts_with('|')).map(cells).collect()
}

/// Whether `actual` is what `expected` says, where `…` stands for anything.
fn matches(expected: &str, actual: &str) -> bool {
    let parts: Vec<&str> = expected.split('…').collect();
    let [first, middle @ .., last] = parts.as_slice() else { return expected == actual };
    let Some(mut rest) = actual.strip_prefix(first) else { return false };
    for part in middle {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

/// The commands of a block, each with what it should print.
fn commands(block: &Block) -> Vec<(String, String)> {
    let mut commands: Vec<(String, String)> = Vec::new();
    for line in block.text.lines() {
        if let Some(command) = line.strip_prefix("$ ") {
            commands.push((command.to_owned(), String::new()));
            continue;
        }
        let (command, expected) = commands.last_mut().unwrap_or_else(|| panic!("{}: no command", block.place()));
        match line.strip_prefix("> ") {
            Some(more) => command.extend(["\n", more]),
            None => expected.extend([line, "\n"]),
        }
    }
    commands
}

fn run_block(block: &Block, home: &str) {
    let directory = Path::new(env!("CARGO_BIN_EXE_taskqueue")).parent().unwrap();
    let path = format!("{}:{}", directory.display(), std::env::var("PATH").unwrap());
    for (command, expected) in commands(block) {
        let line = format!("exec 2>&1\n{}", command.replace(HOME, home));
        let ended = Cli::new(Path::new(home)).program(Path::new("/bin/sh")).env("PATH", &path).run(&["-c", &line]);
        let (expected, status) =
            match expected.trim_end().strip_suffix(']').and_then(|s| s.rsplit_once("[exit status ")) {
                Some((expected, status)) => (expected.to_owned(), status.parse().unwrap()),
                None => (expected, 0),
            };
        let printed = ended.stdout.replace(home, HOME);
        let at = format!("{}: $ {command}\n{printed}", block.place());
        assert_eq!(ended.code, Some(status), "{at}");
        assert!(expected.is_empty() || matches(&expected, &printed), "{at}instead of\n{expected}");
    }
}

fn check_commands_of(page: &'static str) {
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path().to_str().unwrap();
    for block in blocks(page) {
        if let Some(name) = block.file() {
            let path = directory.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, block.text.replace(HOME, home)).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        } else if block.is("sh") && block.words.get(1).is_some_and(|word| word == "test") {
            run_block(&block, home);
        }
    }
}

#[test]
fn the_commands_of_the_readme_do_what_it_says() {
    check_commands_of("README.md");
}

#[test]
fn the_commands_of_the_other_pages_do_what_they_say() {
    for page in PAGES.into_iter().filter(|page| *page != "README.md") {
        check_commands_of(page);
    }
}

#[test]
fn an_expectation_is_compared_whole() {
    assert!(matches("a\n", "a\n") && !matches("a\n", "ab\n") && !matches("a\n", "b\na\n"));
    assert!(matches("a…c\n", "a b c\n") && matches("…", "") && matches("a…b…c", "a1b\n2c"));
    assert!(!matches("a…c", "b c") && !matches("a…c", "a b") && !matches("a…b…c", "a c"));
}

/// As it is written: the double quotes of `TestDb::execute` would be turned into backquotes, those of JSON too.
fn execute_as_written(db: &TestDb, block: &Block) {
    let result = match db.raw() {
        Raw::Sqlite(mut conn) => conn.batch_execute(&block.text),
        Raw::Postgres(mut conn) => conn.batch_execute(&block.text),
        Raw::Mysql(mut conn) => conn.batch_execute(&block.text),
    };
    result.unwrap_or_else(|error| panic!("{}: {error}", block.place()));
}

each_engine! {
    fn the_sql_of_the_documents_works(db) {
        let engine = match db.engine {
            EngineUnderTest::Sqlite => "sqlite",
            EngineUnderTest::Postgres => "postgres",
            EngineUnderTest::Mariadb | EngineUnderTest::Mysql => "mysql",
        };
        // What an application has besides.
        db.execute("CREATE TABLE orders (id integer, status varchar(20)); INSERT INTO orders VALUES (17, 'new')");
        let mut inserts = 0;
        for block in all_blocks() {
            let is_for_us = block.words.len() == 1 || block.words.iter().any(|word| word == engine);
            if block.is("sql") && is_for_us {
                execute_as_written(db, &block);
                inserts += block.text.matches("INSERT INTO").count();
            }
        }
        assert!(inserts > 1, "{inserts}");
        let queued = db.number("SELECT COUNT(*) AS value FROM \"TaskQueue\"");
        assert_eq!(usize::try_from(queued).unwrap(), inserts);
    }
}

fn load_text(text: &str) -> Result<taskqueue::config::Config, taskqueue::config::ConfigError> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config.toml");
    std::fs::write(&path, text).unwrap();
    load(Some(&path), &Environment::default())
}

#[test]
fn every_configuration_of_the_documents_loads() {
    let mut count = 0;
    for block in all_blocks().into_iter().filter(|block| block.is("toml")) {
        load_text(&block.text).unwrap_or_else(|error| panic!("{}: {error}", block.place()));
        count += 1;
    }
    assert!(count > 2, "{count}");
}

/// Every key that the configuration knows, from its own complaints about one that it does not know.
pub(crate) fn configuration_keys() -> BTreeSet<String> {
    let unknown = "no_such_key = 1\n";
    let class = "[class.a]\nargv = [\"/bin/true\"]\n";
    let tables = [
        unknown.to_owned(),
        format!("[exec]\n{unknown}"),
        format!("{class}{unknown}"),
        format!("{class}[class.a.exit]\n{unknown}"),
    ];
    let keys = |text: &String| {
        let message = load_text(text).unwrap_err().to_string();
        let (_, known) = message.split_once("no_such_key`").unwrap();
        // Every second part stands between backquotes.
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

/// Table and columns, as a migration creates them.
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

/// Every migration of an engine, one after the other.
fn migrations(engine: &str) -> String {
    let directory = root().join("migrations").join(engine);
    let mut paths: Vec<PathBuf> = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read_to_string(path.join("up.sql")).unwrap()).collect()
}

#[test]
fn every_column_is_documented_and_no_other() {
    let mut table = String::new();
    let mut documented = BTreeSet::new();
    for line in read("docs/schema.md").lines() {
        if let Some(name) = line.strip_prefix("## ") {
            table = name.to_owned();
        } else if let Some(rest) = line.strip_prefix("| `") {
            documented.insert((table.clone(), rest.split('`').next().unwrap().to_owned()));
        }
    }
    for engine in ["sqlite", "postgres", "mysql"] {
        let real = columns(&migrations(engine));
        assert!(real.len() > 50, "{engine}: {real:?}");
        assert_eq!(documented, real, "{engine}");
    }
}

#[test]
fn every_exit_status_of_the_program_is_in_the_readme() {
    let rows = table_rows(&read("README.md"));
    let source = read("src/cli/error.rs");
    let constants = source.lines().filter_map(|line| line.strip_prefix("pub(crate) const "));
    let codes: Vec<&str> = constants.filter_map(|line| line.split_once(": u8 = ")?.1.strip_suffix(';')).collect();
    assert!(codes.contains(&"69") && codes.len() > 7, "{codes:?}");
    for code in codes {
        assert!(rows.iter().any(|row| row[0] == code), "{code}");
    }
}

#[test]
fn every_verb_is_in_the_readme() {
    let home = tempfile::tempdir().unwrap();
    let help = Cli::new(home.path()).run(&["--help"]).ok();
    let (_, verbs) = help.split_once("Commands:\n").unwrap();
    let verbs: Vec<&str> =
        verbs.lines().take_while(|line| !line.is_empty()).filter_map(|line| line.split_whitespace().next()).collect();
    assert!(verbs.contains(&"create-runs"), "{verbs:?}");
    let rows = table_rows(&read("README.md"));
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
    let page = read("docs/handlers.md");
    let source = read("src/handler/command.rs");
    let names: BTreeSet<&str> = source.split('"').filter(|text| text.starts_with("TASKQUEUE_")).collect();
    assert!(names.len() > 8, "{names:?}");
    for name in names {
        assert!(page.contains(&format!("`{name}`")), "{name}");
    }
}

type Change = (String, String, String);

/// The first three cells of each row of a section of docs/states.md: from, event, to.
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

#[test]
fn links_lead_somewhere() {
    for page in PAGES {
        let text = read(page);
        let here = root().join(page);
        for target in text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target) {
            let file = target.split('#').next().unwrap();
            let is_local = !file.is_empty() && !file.contains("://");
            assert!(!is_local || here.with_file_name(file).exists(), "{page}: {target}");
        }
    }
}

#[test]
fn one_word_for_each_thing() {
    let synonyms = ["enqueue", "worker pool", "reaper", "exactly once execution", "exactly-once processing"];
    for page in PAGES {
        let text = read(page).to_lowercase();
        for synonym in synonyms {
            assert!(!text.contains(synonym), "{page}: {synonym}");
        }
        let jobs = text.split(|c: char| !c.is_alphanumeric()).filter(|word| matches!(*word, "job" | "jobs")).count();
        assert_eq!(jobs, usize::from(page == "README.md"), "{page}: a task is called a task");
    }
}
