//! Lists for programs: `--output`, `--columns` and `--no-header` of every verb that prints a list. The columns are the keys of
//! what `--json` prints.

use clap::{Args, ValueEnum};
use serde::Serialize;
use serde_json::Value;

use super::Out;
use super::clean::clean_block;
use super::table::{Field, render};
use crate::error::{CliError, did_you_mean};
use taskqueue_domain::text::nearest::nearest_names;

/// How to print a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ListFormat {
    /// One JSON array
    Json,
    /// One JSON object per line
    Jsonl,
    /// Comma-separated values
    Csv,
    /// Columns for people
    Table,
    /// The id or the name of each, one per line
    Id,
}

/// The options of a verb that prints a list.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ListOptions {
    /// How to print the list: json (one array), jsonl (one object per line), csv, table, or id (one per line)
    #[arg(short, long, value_name = "FORMAT", hide_possible_values = true)]
    output: Option<ListFormat>,
    /// Print only these keys of --json, in this order; a dot leads into an object: id,class,why.reason
    #[arg(long, value_name = "KEYS", value_delimiter = ',')]
    columns: Vec<String>,
    /// Leave out the line with the names of the columns
    #[arg(long)]
    no_header: bool,
}

/// What the records of a list have.
pub(crate) struct ListKind {
    /// The columns of a table or of CSV unless --columns names others.
    pub(crate) columns: &'static [&'static str],
    /// The keys that identify a record: its first one that is present.
    pub(crate) ids: &'static [&'static str],
}

impl ListOptions {
    /// Returns these options, or those in front of the word `list`.
    pub(crate) fn or<'a>(&'a self, in_front: &'a Self) -> &'a Self {
        if self.is_given() { self } else { in_front }
    }

    pub(crate) const fn is_given(&self) -> bool {
        self.output.is_some() || self.no_header || !self.columns.is_empty()
    }

    /// Refuses the options in front of a subcommand that prints no list.
    pub(crate) fn refuse_without_list(&self) -> Result<(), CliError> {
        if self.is_given() {
            return Err(CliError::usage("--output, --columns and --no-header are for lists"));
        }
        Ok(())
    }

    /// Returns true if the output has an end, so that it cannot be followed.
    pub(crate) fn needs_end(&self) -> bool {
        match self.output {
            Some(format) => matches!(format, ListFormat::Json | ListFormat::Table),
            None => self.is_given(),
        }
    }

    /// Returns the format, unless the verb prints its own output for people or for `--json`.
    fn format(&self) -> Option<ListFormat> {
        let is_own = self.columns.is_empty() && matches!(self.output, None | Some(ListFormat::Table));
        (!is_own).then(|| self.output.unwrap_or(ListFormat::Table))
    }
}

/// Prints the records of one list, as they come.
pub(crate) struct Listing<'a> {
    options: &'a ListOptions,
    kind: &'a ListKind,
    format: ListFormat,
    has_header: bool,
}

impl<'a> Listing<'a> {
    /// Returns how to print the list; `None` if the verb prints its own output for people or for `--json`.
    pub(crate) fn of(options: &'a ListOptions, kind: &'a ListKind, out: &mut Out) -> Result<Option<Self>, CliError> {
        if options.is_given() && out.is_json() {
            let hint = "--output jsonl prints one object per line, --output json one array";
            return Err(
                CliError::usage("--json cannot be combined with --output, --columns or --no-header").with_hint(hint)
            );
        }
        out.hide_table_header(options.no_header);
        let Some(format) = options.format() else { return Ok(None) };
        if !options.columns.is_empty() && format == ListFormat::Id {
            return Err(CliError::usage("--columns cannot be combined with --output id"));
        }
        if kind.ids.is_empty() && format == ListFormat::Id {
            return Err(CliError::usage("--output id: the lines of this list have no id")
                .with_hint(format!("--output csv --columns {} --no-header", kind.columns.join(","))));
        }
        if matches!(format, ListFormat::Json | ListFormat::Jsonl) {
            out.print_errors_as_json();
        }
        Ok(Some(Self { options, kind, format, has_header: !options.no_header }))
    }

    /// Prints these records: the whole list, or its next lines.
    pub(crate) fn print(&mut self, records: &[Value], out: &mut Out) -> anyhow::Result<()> {
        let columns = self.columns(records)?;
        match self.format {
            ListFormat::Json => {
                let all: Vec<Value> = records.iter().map(|record| self.chosen(record, &columns)).collect();
                out.json(&all)
            }
            ListFormat::Jsonl => records.iter().try_for_each(|record| out.json(&self.chosen(record, &columns))),
            ListFormat::Id => records.iter().try_for_each(|record| match self.id(record) {
                Some(id) => out.data(text(id)),
                None => Ok(()),
            }),
            ListFormat::Csv => {
                let header = self.has_header.then(|| columns.iter().map(|name| (*name).to_owned()).collect());
                self.has_header = false;
                let rows = records.iter().map(|record| cells(record, &columns));
                let lines = csv_lines(header.into_iter().chain(rows))?;
                if lines.is_empty() { Ok(()) } else { out.data(lines) }
            }
            ListFormat::Table => {
                let header: Vec<String> = columns.iter().map(|name| name.to_uppercase()).collect();
                let header: Vec<&str> = header.iter().map(String::as_str).collect();
                let row = |record| cells(record, &columns).into_iter().map(Field::from).collect();
                let rows: Vec<Vec<Field>> = records.iter().map(row).collect();
                if rows.is_empty() && self.options.no_header {
                    return Ok(());
                }
                out.data(render(out, &header, rows, &[]))
            }
        }
    }

    /// Returns the chosen columns, or the usual ones. A name that no record has is refused.
    fn columns(&self, records: &[Value]) -> Result<Vec<&'a str>, CliError> {
        if self.options.columns.is_empty() {
            return Ok(self.kind.columns.to_vec());
        }
        for name in &self.options.columns {
            let is_known = self.kind.columns.contains(&name.as_str()) || records.is_empty();
            if !is_known && records.iter().all(|record| value(record, name).is_none()) {
                let keys = records.iter().filter_map(Value::as_object).flat_map(|record| record.keys().cloned());
                let mut keys: Vec<String> = keys.collect();
                keys.sort();
                keys.dedup();
                let meant = did_you_mean(&nearest_names(name, keys.iter().cloned()));
                return Err(CliError::usage(format!("--columns: there is no column \"{name}\"{meant}"))
                    .with_hint(format!("the columns are {}", keys.join(", "))));
            }
        }
        Ok(self.options.columns.iter().map(String::as_str).collect())
    }

    /// Returns the record, or an object with the chosen columns alone.
    fn chosen(&self, record: &Value, columns: &[&str]) -> Value {
        if self.options.columns.is_empty() {
            return record.clone();
        }
        let chosen = |name: &&str| ((*name).to_owned(), value(record, name).cloned().unwrap_or_default());
        Value::Object(columns.iter().map(chosen).collect())
    }

    fn id<'r>(&self, record: &'r Value) -> Option<&'r Value> {
        self.kind.ids.iter().find_map(|name| record.get(*name))
    }
}

/// Prints these records as the listing, or with `--json` one per line. Returns false without either: then the verb prints its own
/// output for people.
pub(crate) fn print_for_programs<T: Serialize>(
    listing: Option<Listing<'_>>,
    records: impl IntoIterator<Item = T>,
    out: &mut Out,
) -> anyhow::Result<bool> {
    match listing {
        Some(mut listing) => {
            let records: Result<Vec<Value>, _> = records.into_iter().map(serde_json::to_value).collect();
            listing.print(&records?, out)?;
        }
        None if out.is_json() => records.into_iter().try_for_each(|record| out.json(&record))?,
        None => return Ok(false),
    }
    Ok(true)
}

/// Returns the value of a key; dots lead into objects.
fn value<'r>(record: &'r Value, name: &str) -> Option<&'r Value> {
    record.get(name).or_else(|| name.split('.').try_fold(record, |value, key| value.get(key)))
}

fn cells(record: &Value, columns: &[&str]) -> Vec<String> {
    columns.iter().map(|name| value(record, name).map(text).unwrap_or_default()).collect()
}

/// Returns a value for a cell: nothing for null, a list or an object as JSON.
fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Returns lines of comma-separated values, without a line break at the end. Control characters are replaced, as in tables.
fn csv_lines(rows: impl Iterator<Item = Vec<String>>) -> anyhow::Result<String> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for row in rows {
        writer.write_record(row.iter().map(|cell| clean_block(cell)))?;
    }
    let text = String::from_utf8(writer.into_inner()?)?;
    Ok(text.trim_end_matches('\n').to_owned())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn cells_are_quoted_where_they_must_be_and_dots_lead_into_objects() {
        let record = json!({ "id": 1, "a.b": true, "why": { "reason": "x", "on": null }, "text": "a,\"b\"\nc\x1b", "list": [1] });
        let row = cells(&record, &["id", "a.b", "why.reason", "why.on", "text", "list", "none"]);
        assert_eq!(csv_lines([row].into_iter()).unwrap(), "1,true,x,,\"a,\"\"b\"\"\nc\u{fffd}\",[1],");
    }
}
