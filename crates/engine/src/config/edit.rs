//! Adds a class or a token to a configuration file, or removes one. Comments and the other keys are kept.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::Path;

use toml_edit::{Array, DocumentMut, Item, Table, TableLike, value};

use super::{ConfigError, WebToken, file, write_first};

/// A class to write.
#[derive(Clone, Debug, Default)]
pub struct NewClass {
    /// Its name, or a pattern.
    pub name: String,
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// Seconds without an end or a report after which a run times out.
    pub timeout_secs: Option<i64>,
    /// The user that runs its handlers.
    pub user: Option<String>,
}

/// The text of a configuration after a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EditedConfig {
    /// The whole text.
    pub text: String,
    /// The lines that were added or removed.
    pub lines: String,
}

/// Returns the text with the class. A class of this name is replaced.
///
/// # Errors
/// Returns what is wrong with the text or with the class.
pub fn with_class(path: &Path, text: &str, class: &NewClass) -> Result<EditedConfig, ConfigError> {
    let mut table = Table::new();
    table["argv"] = value(class.argv.iter().collect::<Array>());
    if let Some(secs) = class.timeout_secs {
        table["timeout_secs"] = value(secs);
    }
    if let Some(user) = &class.user {
        table["user"] = value(user.as_str());
    }
    with_table(path, document_of(path, text)?, &["class"], &class.name, table)
}

/// Returns the text with the token of the web server. A token of this name is replaced.
///
/// # Errors
/// Returns what is wrong with the text or with the token.
pub fn with_token(path: &Path, text: &str, name: &str, token: &WebToken) -> Result<EditedConfig, ConfigError> {
    let mut table = Table::new();
    table["sha256"] = value(token.sha256.as_str());
    table["may"] = value(token.may.as_str());
    if let Some(classes) = &token.classes {
        table["class"] = value(classes.patterns().collect::<Array>());
    }
    with_table(path, document_of(path, text)?, &["web", "token"], name, table)
}

/// Returns the text without the token; `None` if it has none of this name.
///
/// # Errors
/// Returns what is wrong with the text.
pub fn without_token(path: &Path, text: &str, name: &str) -> Result<Option<EditedConfig>, ConfigError> {
    without_table(path, text, &["web", "token"], name)
}

/// Inserts a table under this key, into these tables; replaces one with this key.
fn with_table(
    path: &Path,
    mut document: DocumentMut,
    parents: &[&str],
    key: &str,
    mut table: Table,
) -> Result<EditedConfig, ConfigError> {
    let lines = alone(parents, key, Item::Table(table.clone()));
    if !document.is_empty() {
        table.decor_mut().set_prefix("\n");
    }
    let mut place: &mut dyn TableLike = document.as_table_mut();
    for parent in parents {
        let entry = place.entry(parent).or_insert_with(|| Item::Table(implicit()));
        place = entry.as_table_like_mut().ok_or_else(|| ConfigError::new(path, format!("{parent} is no table")))?;
    }
    place.remove(key);
    place.insert(key, Item::Table(table));
    edited(path, document.to_string(), &lines)
}

/// Returns a table alone, as text.
fn alone(parents: &[&str], key: &str, item: Item) -> String {
    let mut document = DocumentMut::new();
    let mut inner = implicit();
    inner.insert(key, item);
    let mut whole = inner;
    for parent in parents.iter().rev() {
        let mut outer = implicit();
        outer.insert(parent, Item::Table(whole));
        whole = outer;
    }
    *document.as_table_mut() = whole;
    document.to_string()
}

fn without_table(path: &Path, text: &str, parents: &[&str], key: &str) -> Result<Option<EditedConfig>, ConfigError> {
    let mut document = document_of(path, text)?;
    let mut place: &mut dyn TableLike = document.as_table_mut();
    for parent in parents {
        match place.get_mut(parent).and_then(Item::as_table_like_mut) {
            Some(inner) => place = inner,
            None => return Ok(None),
        }
    }
    let Some(removed) = place.remove(key) else { return Ok(None) };
    edited(path, document.to_string(), &alone(parents, key, removed)).map(Some)
}

/// Returns the text without the class, and without the comments above it; `None` if it has no class of this name.
///
/// # Errors
/// Returns what is wrong with the text.
pub fn without_class(path: &Path, text: &str, name: &str) -> Result<Option<EditedConfig>, ConfigError> {
    without_table(path, text, &["class"], name)
}

fn implicit() -> Table {
    let mut table = Table::new();
    table.set_implicit(true);
    table
}

/// Parses the text after the usual checks, whose messages are better.
fn document_of(path: &Path, text: &str) -> Result<DocumentMut, ConfigError> {
    file::from_text(path, text)?;
    text.parse().map_err(|_| ConfigError::new(path, "this is not TOML"))
}

/// Checks the new text before it is written.
fn edited(path: &Path, text: String, lines: &str) -> Result<EditedConfig, ConfigError> {
    file::from_text(path, &text)?;
    Ok(EditedConfig { text, lines: lines.trim().to_owned() })
}

/// Returns the text of a configuration file; nothing if it does not exist.
///
/// # Errors
/// Returns an error if it cannot be read, or if other users can write it.
pub fn text_to_edit(path: &Path) -> Result<String, ConfigError> {
    if path.try_exists().is_ok_and(|exists| !exists) { Ok(String::new()) } else { file::text_of(path) }
}

/// Writes the file with the mode, owner and group that it has; a new one is readable only by its owner. Readers see the old text or the new one.
///
/// # Errors
/// Returns an error if it cannot be written; the old text is then unchanged.
pub fn write_edited(path: &Path, text: &str) -> io::Result<()> {
    let Ok(path) = path.canonicalize() else { return write_first(path, text) };
    let found = fs::metadata(&path)?;
    let mode = found.permissions().mode() & 0o777;
    let new = path.with_extension("toml.new");
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&new)?;
    // Root keeps the owner and the group, who may read the file; others own what they write.
    let _ = fchown(&file, Some(found.uid()), Some(found.gid()));
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).and_then(|()| fs::rename(&new, &path));
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const TEXT: &str =
        "# Mine.\nwork_slots = 2 # two\n\n# Mail.\n[class.\"mail.send\"]\nargv = [\"/bin/true\"] # fast\n";

    fn new(name: &str) -> NewClass {
        NewClass { name: name.to_owned(), argv: vec!["/bin/echo".to_owned(), "a b".to_owned()], ..NewClass::default() }
    }

    #[test]
    fn a_class_is_added_and_removed_with_comments_kept() {
        let path = Path::new("config.toml");
        let class = NewClass { timeout_secs: Some(60), user: Some("bot".to_owned()), ..new("a.b") };
        let added = with_class(path, TEXT, &class).unwrap();
        let lines = "[class.\"a.b\"]\nargv = [\"/bin/echo\", \"a b\"]\ntimeout_secs = 60\nuser = \"bot\"";
        assert_eq!((added.text.as_str(), added.lines.as_str()), (format!("{TEXT}\n{lines}\n").as_str(), lines));
        let removed = without_class(path, &added.text, "a.b").unwrap().unwrap();
        assert_eq!((removed.text.as_str(), removed.lines.as_str()), (TEXT, lines));
        assert_eq!(without_class(path, TEXT, "none").unwrap(), None);
        let replaced = with_class(path, TEXT, &new("mail.send")).unwrap();
        assert!(replaced.text.starts_with("# Mine.\nwork_slots = 2 # two\n") && !replaced.text.contains("/bin/true"));
        assert_eq!(with_class(path, "", &new("x")).unwrap().text, "[class.x]\nargv = [\"/bin/echo\", \"a b\"]\n");
    }

    #[test]
    fn a_class_that_could_not_be_read_is_refused() {
        let relative = NewClass { argv: vec!["echo".to_owned()], ..new("x") };
        assert!(with_class(Path::new("c"), TEXT, &relative).unwrap_err().message.contains("needs an absolute path"));
        assert!(with_class(Path::new("c"), TEXT, &new("a b")).is_err());
        assert!(with_class(Path::new("c"), "nonsense = 1\n", &new("x")).is_err());
    }
}
