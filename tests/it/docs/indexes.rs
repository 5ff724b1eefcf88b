//! The docs list every index with its purpose, and a plan check names it.

use std::collections::{BTreeMap, BTreeSet};

use super::tables::migrations;
use super::{read, table_rows};

/// Returns the indexes and columns that the migrations of an engine create.
fn made(engine: &str) -> BTreeMap<String, String> {
    let sql = migrations(engine);
    let statements = sql.lines().map(str::trim);
    let definitions = statements.filter_map(|line| {
        let line = line.strip_prefix("CREATE ").unwrap_or(line);
        let line = line.strip_prefix("UNIQUE ").unwrap_or(line);
        line.strip_prefix("INDEX ").or_else(|| line.strip_prefix("KEY "))
    });
    let definition = |text: &str| {
        let text = text.replace(['"', '`'], "");
        let (name, columns) = text.split_once('(').unwrap();
        (name.split(' ').next().unwrap().to_owned(), columns.split(')').next().unwrap().to_owned())
    };
    definitions.map(definition).collect()
}

fn documented() -> BTreeMap<String, String> {
    let page = read("docs/schema.md");
    let (_, section) = page.split_once("\n## Indexes\n").unwrap();
    let rows = table_rows(section.split("\n## ").next().unwrap());
    let rows: Vec<Vec<String>> = rows.into_iter().filter(|row| row[0].starts_with("TaskQueue")).collect();
    assert!(rows.iter().all(|row| row.len() == 5 && row.iter().all(|cell| !cell.is_empty())), "{rows:?}");
    rows.into_iter().map(|row| (row[0].clone(), row[1].clone())).collect()
}

#[test]
fn every_index_is_documented_with_its_columns_and_no_other() {
    let documented = documented();
    for engine in ["sqlite", "postgres", "mysql"] {
        let mut made = made(engine);
        // Instead of a partial index.
        made.values_mut().for_each(|columns| *columns = columns.replace("PriorityDueOn", "DueOn"));
        assert!(made.len() > 20, "{engine}: {made:?}");
        assert_eq!(documented, made, "{engine}");
    }
}

#[test]
fn every_index_is_named_by_a_check_of_plans() {
    let folder = "tests/it/conformance/plans";
    let mut sources = read("tests/it/conformance/plans.rs");
    for entry in std::fs::read_dir(super::root().join(folder)).unwrap() {
        sources.push_str(&read(&format!("{folder}/{}", entry.unwrap().file_name().display())));
    }
    // In SQL, names of tables are between escaped quotes.
    let sources = sources.replace("\\\"", "");
    let named: BTreeSet<&str> = sources.split('"').flat_map(|text| text.split('|')).collect();
    let missing: Vec<String> = made("sqlite").into_keys().filter(|index| !named.contains(index.as_str())).collect();
    assert!(missing.is_empty(), "no plan names {missing:?}");
}
