//! Lists for programs: `--output`, `--columns` and `--no-header` of every verb that prints a list. The columns are the keys of
//! what `--json` prints.

use std::collections::HashMap;

use clap::{Args, ValueEnum};
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use super::Out;
use super::clean::clean_block;
use super::table::{Field, render};
use crate::error::{CliError, did_you_mean};
use taskqueue_domain::text::nearest::nearest_names;
use taskqueue_views::json::Object;

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
    /// Print only these keys of --json, in this order; a dot selects a key of an object: id,class,why.reason
    #[arg(long, value_name = "KEYS", value_delimiter = ',')]
    columns: Vec<String>,
    /// Do not print the header line
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
            return Err(CliError::usage("--output, --columns and --no-header apply only to lists"));
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

    /// Prints these records: the whole list, or its next lines. JSON in them stays as it was written.
    pub(crate) fn print<T: Serialize>(&mut self, records: &[T], out: &mut Out) -> anyhow::Result<()> {
        match self.format {
            ListFormat::Json if self.options.columns.is_empty() => return out.json(records),
            ListFormat::Jsonl if self.options.columns.is_empty() => {
                return records.iter().try_for_each(|record| out.json(record));
            }
            _ => {}
        }
        let records: Vec<Box<RawValue>> = records.iter().map(to_raw_value).collect::<Result<_, _>>()?;
        let records: Vec<Record<'_>> = records.iter().map(|record| keys_of(record).unwrap_or_default()).collect();
        let columns = self.columns(&records)?;
        let chosen = |record: &Record<'_>| {
            columns.iter().fold(Object::default(), |object, name| object.with(name, &value(record, name)))
        };
        match self.format {
            ListFormat::Json => out.json(&records.iter().map(chosen).collect::<Vec<_>>()),
            ListFormat::Jsonl => records.iter().try_for_each(|record| out.json(&chosen(record))),
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
    fn columns(&self, records: &[Record<'_>]) -> Result<Vec<&'a str>, CliError> {
        if self.options.columns.is_empty() {
            return Ok(self.kind.columns.to_vec());
        }
        for name in &self.options.columns {
            let is_known = self.kind.columns.contains(&name.as_str()) || records.is_empty();
            if !is_known && records.iter().all(|record| value(record, name).is_none()) {
                let mut keys: Vec<String> = records.iter().flat_map(|record| record.keys().cloned()).collect();
                keys.sort();
                keys.dedup();
                let meant = did_you_mean(&nearest_names(name, keys.iter().cloned()));
                return Err(CliError::usage(format!("--columns: there is no column \"{name}\"{meant}"))
                    .with_hint(format!("the columns are {}", keys.join(", "))));
            }
        }
        Ok(self.options.columns.iter().map(String::as_str).collect())
    }

    fn id<'r>(&self, record: &Record<'r>) -> Option<&'r RawValue> {
        self.kind.ids.iter().find_map(|name| record.get(*name).copied())
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
            let records: Vec<T> = records.into_iter().collect();
            listing.print(&records, out)?;
        }
        None if out.is_json() => records.into_iter().try_for_each(|record| out.json(&record))?,
        None => return Ok(false),
    }
    Ok(true)
}

/// The keys of an object.
type Record<'r> = HashMap<String, &'r RawValue>;

fn keys_of(value: &RawValue) -> Option<Record<'_>> {
    serde_json::from_str(value.get()).ok()
}

/// Returns the value of a key; dots lead into objects.
fn value<'r>(record: &Record<'r>, name: &str) -> Option<&'r RawValue> {
    record.get(name).copied().or_else(|| {
        let (first, inner) = name.split_once('.')?;
        inner.split('.').try_fold(*record.get(first)?, |value, key| keys_of(value)?.remove(key))
    })
}

fn cells(record: &Record<'_>, columns: &[&str]) -> Vec<String> {
    columns.iter().map(|name| value(record, name).map(text).unwrap_or_default()).collect()
}

/// Returns a value for a cell: nothing for null, a list or an object as JSON.
fn text(value: &RawValue) -> String {
    match value.get() {
        "null" => String::new(),
        json => serde_json::from_str(json).unwrap_or_else(|_| json.to_owned()),
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
        let record = to_raw_value(&record).unwrap();
        let row = cells(&keys_of(&record).unwrap(), &["id", "a.b", "why.reason", "why.on", "text", "list", "none"]);
        assert_eq!(csv_lines([row].into_iter()).unwrap(), "1,true,x,,\"a,\"\"b\"\"\nc\u{fffd}\",[1],");
    }
}
