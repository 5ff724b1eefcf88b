//! Writes a user's first configuration; never overwrites an existing one.

use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

/// Returns the text of a configuration with one class.
#[must_use]
pub fn first_configuration(class: &str, argv: &[String], database: Option<&str>) -> String {
    let database = match database {
        Some(url) => format!("database = {}\n", quoted(url)),
        None => "# database = \"postgres://taskqueue@db.example.org/taskqueue\"\n".to_owned(),
    };
    let argv: Vec<String> = argv.iter().map(|word| quoted(word)).collect();
    format!(
        "# The configuration of taskqueue; `taskqueue help configuration` lists every key. It decides what is executed:\n\
         # only its owner may be able to write it.\n\
         \n\
         # The database. Default: a SQLite store under ~/.local/state/taskqueue.\n\
         {database}\
         \n\
         # A class sets the program that handles its tasks. The program reads the data of a task, JSON, from standard input.\n\
         [class.{}]\n\
         argv = [{}]\n\
         # A run without an end or a report for this time times out, and is retried.\n\
         timeout_secs = 600\n",
        quoted(class),
        argv.join(", "),
    )
}

/// Quotes a string: a JSON string is also a TOML string.
pub(super) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Writes the file, readable only by its owner, and creates missing directories.
///
/// # Errors
/// Returns an error if the file exists or cannot be written; a partly written file is removed.
pub fn write_first(path: &Path, text: &str) -> io::Result<()> {
    if let Some(directory) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    if written.is_err() {
        // An incomplete configuration would be worse than none.
        let _ = std::fs::remove_file(path);
    }
    written
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::{Environment, load};
    use super::*;

    #[test]
    fn the_first_configuration_is_one_that_can_be_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a/b/config.toml");
        let argv = ["/bin/echo".to_owned(), "a \"b\" \\ c\n".to_owned()];
        let text = first_configuration("mail.send", &argv, Some("sqlite:///tmp/x.db"));
        write_first(&path, &text).unwrap();
        let config = load(Some(&path), &Environment::default()).unwrap();
        assert_eq!(config.database.as_deref(), Some("sqlite:///tmp/x.db"));
        assert_eq!(config.classes.find(&"mail.send".parse().unwrap()).unwrap().command.argv, argv);
        let again = write_first(&path, "").unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    }
}
