//! The first configuration of a user: written once, never over one that is there.

use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

/// A configuration with one class, as text.
#[must_use]
pub fn first_configuration(class: &str, argv: &[String], database: Option<&str>) -> String {
    let database = match database {
        Some(url) => format!("database = {}\n", quoted(url)),
        None => "# database = \"postgres://taskqueue@db.example.org/taskqueue\"\n".to_owned(),
    };
    let argv: Vec<String> = argv.iter().map(|word| quoted(word)).collect();
    format!(
        "# The configuration of taskqueue; docs/configuration.md lists every key. Nobody but its owner may be able to write it:\n\
         # it decides what is executed.\n\
         \n\
         # Where the tasks are. Without it: a SQLite store under ~/.local/state/taskqueue.\n\
         {database}\
         \n\
         # A class says which program handles its tasks. The data of a task, JSON, is on the standard input of the program.\n\
         [class.{}]\n\
         argv = [{}]\n\
         # After so long without end or report it times out, and is tried again.\n\
         timeout_secs = 600\n",
        quoted(class),
        argv.join(", "),
    )
}

/// A string of JSON is one of TOML, too.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Writes it, for its owner alone, with the directories that are missing.
///
/// # Errors
/// There is a file already, or it cannot be written; nothing is left then.
pub fn write_first(path: &Path, text: &str) -> io::Result<()> {
    if let Some(directory) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    if written.is_err() {
        // Half a configuration would be worse than none.
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
        assert_eq!(config.classes.find(&"mail.send".parse().unwrap()).unwrap().argv, argv);
        let again = write_first(&path, "").unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    }
}
