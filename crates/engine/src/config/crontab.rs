//! Turns a crontab into tables `[schedule.NAME]`.

use std::collections::{BTreeMap, BTreeSet};

use chrono::DateTime;

use super::first::quoted;
use taskqueue_domain::task::name::check_schedule_name;
use taskqueue_domain::time::recurrence::Recurrence;

/// What a crontab does not state.
#[derive(Clone, Debug, Default)]
pub struct CrontabContext {
    /// The time zone of the machine; `None` means UTC.
    pub zone: Option<String>,
    /// The directory in which its commands run.
    pub home: Option<String>,
    /// Whether a user is named between times and command, as in /etc/crontab and /etc/cron.d.
    pub has_users: bool,
}

/// Variables that mean something to cron only.
const OF_CRON: [&str; 4] = ["MAILTO", "MAILFROM", "RANDOM_DELAY", "CONTENT_TYPE"];
const LONGEST_NAME: usize = 60;

/// Returns the tables as TOML. What cannot be taken over becomes a comment that states why.
#[must_use]
pub fn from_crontab(text: &str, context: &CrontabContext) -> String {
    let mut reader = CrontabReader {
        context,
        zone: context.zone.clone().unwrap_or_else(|| "UTC".to_owned()),
        shell: "/bin/sh".to_owned(),
        directory: context.home.clone(),
        variables: BTreeMap::new(),
        names: BTreeSet::new(),
        toml: String::new(),
    };
    reader.comment(
        "From a crontab. cron starts a job even if the last one still runs; these schedules wait until it has ended.",
    );
    reader.comment("Tasks of the class exec: if others can queue, the configuration also needs [exec] enabled = true.");
    for line in text.lines() {
        reader.line(line.trim());
    }
    reader.toml
}

struct CrontabReader<'a> {
    context: &'a CrontabContext,
    zone: String,
    shell: String,
    directory: Option<String>,
    variables: BTreeMap<String, String>,
    names: BTreeSet<String>,
    toml: String,
}

impl CrontabReader<'_> {
    fn comment(&mut self, text: &str) {
        // A control character would end the comment, or not be TOML.
        let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        self.toml.push_str(&format!("# {text}\n"));
    }

    fn line(&mut self, line: &str) {
        if line.is_empty() {
            self.toml.push('\n');
        } else if let Some(text) = line.strip_prefix('#') {
            self.comment(text.trim());
        } else if let Some((name, value)) = variable(line) {
            self.variable(&name, value);
        } else if let Err(why) = self.job(line) {
            self.comment(&format!("not taken over, {why}: {line}"));
        }
    }

    fn variable(&mut self, name: &str, value: String) {
        match name {
            "CRON_TZ" => self.zone = value,
            "SHELL" => self.shell = value,
            "MAILTO" | "MAILFROM" => {
                self.comment(&format!(
                    "{name}={value}: taskqueue sends no mail; [notify] starts a program of yours instead"
                ));
            }
            _ if OF_CRON.contains(&name) => self.comment(&format!("not taken over: {name}={value}")),
            _ => {
                if name == "HOME" {
                    self.directory = Some(value.clone());
                }
                self.variables.insert(name.to_owned(), value);
            }
        }
    }

    fn job(&mut self, line: &str) -> Result<(), String> {
        let line = line.strip_prefix('-').unwrap_or(line);
        let (every, rest) = times(line)?;
        let (user, command) = match self.context.has_users {
            true => rest
                .split_once([' ', '\t'])
                .map(|(user, command)| (Some(user), command.trim()))
                .ok_or("it has no command")?,
            false => (None, rest),
        };
        if command.is_empty() {
            return Err("it has no command".to_owned());
        }
        let command = without_percent(command)?;
        let recurrence = Recurrence::parse(&every, &self.zone, "none")?;
        // An expression has no years, so that one without a time after this instant never has one.
        recurrence.next_after(DateTime::UNIX_EPOCH).ok_or("it matches no time")?;
        if let Some(user) = user {
            self.comment(&format!("Ran as {user}; a task of the class exec runs as the `user` of the configuration."));
        }
        let name = self.name(&command);
        let strings = |all: &[&str]| all.iter().map(|text| quoted(text)).collect::<Vec<_>>().join(", ");
        let mut data = format!("argv = [{}]", strings(&[&self.shell, "-c", &command]));
        if let Some(directory) = &self.directory {
            data.push_str(&format!(", cwd = {}", quoted(directory)));
        }
        if !self.variables.is_empty() {
            let all = self.variables.iter().map(|(name, value)| format!("{name} = {}", quoted(value)));
            data.push_str(&format!(", env = {{ {} }}", all.collect::<Vec<_>>().join(", ")));
        }
        self.toml.push_str(&format!(
            "[schedule.{name}]\nclass = \"exec\"\nevery = {}\ntz = {}\ncatch_up = \"none\"\ndata = {{ {data} }}\n",
            quoted(recurrence.every()),
            quoted(recurrence.zone()),
        ));
        Ok(())
    }

    /// Returns a new name, from the program of a command.
    fn name(&mut self, command: &str) -> String {
        let is_assignment = |word: &&str| variable(word).is_some();
        let program = command.split_whitespace().find(|word| !is_assignment(word)).unwrap_or_default();
        let program = program.rsplit('/').next().unwrap_or_default();
        let plain = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' };
        let base: String = program.chars().map(plain).take(LONGEST_NAME).collect();
        let base = Some(base.trim_matches('-')).filter(|base| !base.is_empty()).unwrap_or("job");
        // A program can have a name that a schedule must not have, such as `last` or `7-zip`'s `7`.
        let is_allowed =
            |name: &str| check_schedule_name(name).is_ok() && check_schedule_name(&format!("{name}-2")).is_ok();
        let base = if is_allowed(base) { base.to_owned() } else { format!("job-{base}") };
        let numbered = (2..).map(|number| format!("{base}-{number}"));
        let free = std::iter::once(base.clone()).chain(numbered).find(|name| !self.names.contains(name));
        let name = free.unwrap_or_default();
        self.names.insert(name.clone());
        name
    }
}

/// Parses `NAME = value`, with quotes around both or not.
fn variable(line: &str) -> Option<(String, String)> {
    let (name, value) = line.split_once('=')?;
    let bare = |text: &str| {
        let text = text.trim();
        let inner = |quote| text.strip_prefix(quote).and_then(|text: &str| text.strip_suffix(quote));
        inner('"').or_else(|| inner('\'')).unwrap_or(text).to_owned()
    };
    let name = bare(name);
    let is_name = !name.starts_with(|c: char| c.is_ascii_digit())
        && !name.is_empty()
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    is_name.then(|| (name, bare(value)))
}

/// Splits a job into its times and what follows them.
fn times(line: &str) -> Result<(String, &str), String> {
    if line.starts_with('@') {
        let (name, rest) = line.split_once([' ', '\t']).ok_or("it has no command")?;
        let every = match name {
            "@reboot" => return Err("taskqueue does not know when the machine starts".to_owned()),
            "@midnight" => "@daily",
            "@every_minute" => "* * * * *",
            other => other,
        };
        return Ok((every.to_owned(), rest.trim()));
    }
    let mut rest = line;
    let mut fields = [""; 5];
    for field in &mut fields {
        (*field, rest) = rest.split_once([' ', '\t']).ok_or("it has no command")?;
        rest = rest.trim_start();
    }
    let [minute, hour, day, month, weekday] = fields;
    // If one of them starts with a star, cron runs on days that match both; the library does so only after a plus.
    let has_star = [day, weekday].iter().any(|field| field.starts_with('*'));
    let plus = if has_star && day != "*" && weekday != "*" { "+" } else { "" };
    Ok((format!("{minute} {hour} {day} {month} {plus}{weekday}"), rest))
}

/// Returns the command as cron starts it: `\%` is a percent sign. After a bare one follows standard input.
fn without_percent(command: &str) -> Result<String, String> {
    let escaped = command.replace("\\%", "\u{0}");
    if escaped.contains('%') {
        return Err("the text after % would be its standard input, which is the data of the task".to_owned());
    }
    Ok(escaped.replace('\u{0}', "%"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn tables(text: &str, has_users: bool) -> (String, toml::Table) {
        let context =
            CrontabContext { zone: Some("Europe/Berlin".to_owned()), home: Some("/home/ann".to_owned()), has_users };
        let toml = from_crontab(text, &context);
        let table: toml::Table = toml.parse().unwrap_or_else(|error| panic!("{toml}: {error}"));
        (toml, table)
    }

    #[test]
    fn each_job_becomes_a_table_with_its_shell_and_its_variables() {
        let (_, read) = tables(
            "PATH=/usr/bin\n# nightly\n0 3 * * 1-5  /srv/backup.sh --all > \"/tmp/a b\" 2>&1\n@midnight X=1 /srv/backup.sh \\%d\n",
            false,
        );
        let [first, second] = ["backup-sh", "backup-sh-2"].map(|name| read["schedule"][name].clone());
        assert_eq!(first["every"].as_str(), Some("0 3 * * 1-5"));
        assert_eq!((first["tz"].as_str(), first["catch_up"].as_str()), (Some("Europe/Berlin"), Some("none")));
        assert_eq!(first["data"]["argv"][2].as_str(), Some("/srv/backup.sh --all > \"/tmp/a b\" 2>&1"));
        assert_eq!(first["data"]["env"]["PATH"].as_str(), Some("/usr/bin"));
        assert_eq!(first["data"]["cwd"].as_str(), Some("/home/ann"));
        assert_eq!(
            (second["every"].as_str(), second["data"]["argv"][2].as_str()),
            (Some("@daily"), Some("X=1 /srv/backup.sh %d"))
        );
    }

    #[test]
    fn each_job_has_a_name_that_a_schedule_may_have() {
        let (_, read) = tables("* * * * * /opt/7\n* * * * * /opt/7\n* * * * * last\n* * * * * 5-6\n", false);
        let names: Vec<&String> = read["schedule"].as_table().unwrap().keys().collect();
        assert_eq!(names, ["job-5-6", "job-7", "job-7-2", "job-last"]);
    }

    #[test]
    fn what_cannot_be_taken_over_is_a_comment_with_the_reason() {
        for (line, why) in [
            ("MAILTO=ann", "sends no mail"),
            ("@reboot /bin/true", "when the machine starts"),
            ("0 3 * * * mail ann%hello", "standard input"),
            ("61 3 * * * /bin/true", "not a cron expression"),
            ("0 3 * *", "no command"),
            ("0 0 30 2 * /bin/never", "matches no time"),
        ] {
            let (toml, read) = tables(line, false);
            assert!(read.is_empty() && toml.contains(why), "{toml}");
        }
    }

    #[test]
    fn two_day_fields_are_combined_as_cron_combines_them() {
        for (times, every) in [
            // A field that starts with a star: the day must match both.
            ("0 0 1-7 * */7", "0 0 1-7 * +*/7"),
            ("0 0 */2 * 1", "0 0 */2 * +1"),
            ("0 0 */2 * */2", "0 0 */2 * +*/2"),
            ("0 0 */1 * mon", "0 0 */1 * +mon"),
            // Otherwise one of them is enough, or only one restricts the day.
            ("0 0 1-7 * 1", "0 0 1-7 * 1"),
            ("0 0 * * */2", "0 0 * * */2"),
            ("0 0 */2 * *", "0 0 */2 * *"),
        ] {
            let (toml, read) = tables(&format!("{times} /bin/job"), false);
            assert_eq!(read["schedule"]["job"]["every"].as_str(), Some(every), "{toml}");
        }
    }

    #[test]
    fn a_system_crontab_names_users() {
        let (toml, read) =
            tables("CRON_TZ=Asia/Tokyo\n17 *\t* * *\troot    cd / && run-parts /etc/cron.hourly\n", true);
        assert!(toml.contains("# Ran as root;"), "{toml}");
        assert_eq!(read["schedule"]["cd"]["tz"].as_str(), Some("Asia/Tokyo"));
        assert_eq!(read["schedule"]["cd"]["data"]["argv"][2].as_str(), Some("cd / && run-parts /etc/cron.hourly"));
    }
}
