//! `{class}` in a command line: allowed where a program gets it as an argument, refused where a program could interpret it.
//!
//! No list of interpreters is complete, so the first rule holds for every program: beside `{class}`, an argument has no
//! character that could make it more than one word of a script. The second rule is for known programs that start another one
//! or interpret a script: `{class}` comes after that.

use std::path::Path;

/// What is replaced by the name of the class.
const CLASS: &str = "{class}";

/// Long options that are followed by a script or a command.
const LONG_SCRIPTS: [&str; 7] =
    ["command", "session-command", "init-command", "split-string", "eval", "execute", "print"];
/// Long options whose value can be the next word.
const LONG_VALUES: [&str; 10] =
    ["rcfile", "init-file", "emulate", "user", "group", "unset", "chdir", "kill-after", "signal", "adjustment"];

/// The letter of the option with which `env` splits a word into several.
const SPLITS_WORDS: &str = "S";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Interprets a script, or the file of a script.
    Shell,
    /// The same for another language. Words after the script are not its own.
    Language,
    /// Starts the program in its arguments.
    Starter,
    /// Passes all its arguments to a shell.
    Joiner,
}

/// A program that starts another one or interprets a script.
struct Launcher {
    kind: Kind,
    names: &'static [&'static str],
    /// The letters of options that are followed by a value.
    values: &'static str,
    /// The letters of options that are followed by a script or a command.
    scripts: &'static str,
    /// How many operands precede the program or the script.
    operands: usize,
}

impl Launcher {
    const fn new(kind: Kind, names: &'static [&'static str], values: &'static str, scripts: &'static str) -> Self {
        Self { kind, names, values, scripts, operands: 0 }
    }

    const fn after(self, operands: usize) -> Self {
        Self { operands, ..self }
    }
}

const SHELLS: &[&str] = &[
    "ash", "bash", "csh", "dash", "elvish", "ksh", "lksh", "mksh", "nu", "oksh", "osh", "pdksh", "pwsh", "rbash",
    "rksh", "rzsh", "sash", "sh", "tcsh", "xonsh", "yash", "zsh",
];

const LAUNCHERS: &[Launcher] = &[
    Launcher::new(Kind::Shell, SHELLS, "oO", "cC"),
    Launcher::new(Kind::Shell, &["fish"], "oO", "cC"),
    Launcher::new(Kind::Language, &["python", "pypy"], "WX", "cm"),
    Launcher::new(Kind::Language, &["perl"], "I", "eE"),
    Launcher::new(Kind::Language, &["ruby"], "rIC", "e"),
    Launcher::new(Kind::Language, &["node", "nodejs", "bun", "deno"], "r", "ep"),
    Launcher::new(Kind::Language, &["php"], "cdzt", "rBRE"),
    Launcher::new(Kind::Language, &["lua", "luajit"], "l", "e"),
    Launcher::new(Kind::Starter, &["env"], "uCa", SPLITS_WORDS),
    Launcher::new(Kind::Starter, &["su", "sg"], "gGsw", "c").after(1),
    Launcher::new(Kind::Starter, &["runuser"], "ugGsw", "c"),
    Launcher::new(Kind::Starter, &["flock"], "wE", "c").after(1),
    Launcher::new(Kind::Starter, &["sudo", "doas"], "ugpCDRTrthU", ""),
    Launcher::new(Kind::Starter, &["timeout"], "ks", "").after(1),
    Launcher::new(Kind::Starter, &["chroot", "chrt", "taskset"], "", "").after(1),
    Launcher::new(Kind::Starter, &["nice", "ionice"], "nc", ""),
    Launcher::new(Kind::Starter, &["xargs"], "aEdILnPs", ""),
    Launcher::new(Kind::Starter, &["stdbuf", "time"], "ioef", ""),
    Launcher::new(Kind::Starter, &["busybox", "nohup", "setpriv", "setsid", "toybox"], "", ""),
    Launcher::new(Kind::Joiner, &["mosh", "parallel", "rsh", "screen", "script", "ssh", "tmux", "watch"], "", ""),
];

/// Checks every `{class}` in the arguments of a configured program.
pub(super) fn check_class_arguments(argv: &[String]) -> Result<(), String> {
    if let Some(at) = argv.iter().position(|word| !is_one_word(word)) {
        return Err(format!(
            "argument {at} has {CLASS} beside blanks, quotes or other characters that a shell interprets; make {CLASS} an \
             argument of its own, as in \"{CLASS}\" or \"--class={CLASS}\", or write \"$TASKQUEUE_CLASS\" in a script"
        ));
    }
    let (mut from, mut starts_program) = (0, true);
    while let Some((at, program, launcher)) = next_launcher(argv, from, starts_program) {
        let words = argv.get(at + 1..).unwrap_or_default();
        if let Some(index) = launcher.interpreted(words) {
            return Err(launcher.refusal(program, at + 1 + index));
        }
        starts_program = launcher.kind == Kind::Starter;
        // The word after the text of a script is its name, also if it is that of a shell.
        let script_and_name = match launcher.kind {
            Kind::Starter => 0,
            _ if launcher.has_script(words) => 2,
            _ => 1,
        };
        from = at + 1 + launcher.script_at(words) + script_and_name;
    }
    Ok(())
}

/// Returns true if the argument is one word for every shell, whatever the class.
fn is_one_word(argument: &str) -> bool {
    let is_harmless = |c: char| c.is_alphanumeric() || "-_./\\:=,@%+".contains(c);
    !argument.contains(CLASS) || argument.replace(CLASS, "").chars().all(is_harmless)
}

/// Returns the next known program, and where it is. A word with such a name is often only an argument: it counts if the first word
/// is a program, if it is a path and an option follows, or if an option for a script follows.
fn next_launcher(argv: &[String], from: usize, starts_program: bool) -> Option<(usize, &str, &'static Launcher)> {
    argv.iter().enumerate().skip(from).find_map(|(at, word)| {
        let launcher = known(word)?;
        let option = argv.get(at + 1).filter(|next| next.starts_with('-'));
        let is_started = option.is_some_and(|option| word.contains('/') || launcher.is_script_option(option));
        let counts = is_started || (starts_program && at == from);
        counts.then_some((at, word.as_str(), launcher))
    })
}

/// Returns the launcher with this name, without a version at its end.
fn known(program: &str) -> Option<&'static Launcher> {
    let name = Path::new(program).file_name()?.to_str()?;
    let name =
        name.strip_suffix("-static").unwrap_or(name).trim_end_matches(|c: char| c.is_ascii_digit() || ".-".contains(c));
    LAUNCHERS.iter().find(|launcher| launcher.names.contains(&name))
}

impl Launcher {
    /// Returns the first of its words that has `{class}` and that it interprets, or that it could start as a program.
    fn interpreted(&self, words: &[String]) -> Option<usize> {
        let (script_at, has_script) = (self.script_at(words), self.has_script(words));
        let joins_words = self.kind == Kind::Joiner || (has_script && self.scripts == SPLITS_WORDS);
        let mut follows_option = false;
        words.iter().enumerate().position(|(at, word)| {
            let is_option = self.is_script_option(word) && (at <= script_at || self.reads_options_everywhere());
            let is_script = follows_option || is_option;
            follows_option = is_option;
            let can_be_file = at < script_at || (self.kind != Kind::Starter && !has_script);
            let is_interpreted = joins_words || is_script || (at <= script_at && !(can_be_file && is_path(word)));
            word.contains(CLASS) && is_interpreted
        })
    }

    /// Returns true if it reads its options also after its operands.
    fn reads_options_everywhere(&self) -> bool {
        ["su", "runuser", "fish"].iter().any(|name| self.names.contains(name))
    }

    /// Returns true if one of the options before the script makes it text instead of a file.
    fn has_script(&self, words: &[String]) -> bool {
        words.iter().take(self.script_at(words)).any(|word| self.is_script_option(word))
    }

    /// Returns the index of the program or the script: the operand after the options and the operands that precede it.
    fn script_at(&self, words: &[String]) -> usize {
        let mut before = self.operands;
        let (mut is_value, mut may_be_value) = (false, false);
        for (at, word) in words.iter().enumerate() {
            let is_used = is_value || (may_be_value && !word.starts_with('/'));
            let is_operand = !is_used && !word.starts_with(['-', '+']) && !is_assignment(word);
            is_value = !is_used && self.takes_value(word);
            // No list of long options is complete.
            may_be_value = self.kind == Kind::Starter && !is_used && word.starts_with("--") && !word.contains('=');
            if is_operand && before == 0 {
                return at;
            }
            before -= usize::from(is_operand);
        }
        words.len()
    }

    /// Returns true if the word is an option whose value is the next word.
    fn takes_value(&self, word: &str) -> bool {
        match (word.strip_prefix("--"), word.strip_prefix(['-', '+'])) {
            (Some(name), _) => LONG_VALUES.contains(&name),
            (None, Some(letters)) => {
                letters.find(|c| self.values.contains(c)).is_some_and(|at| at + 1 == letters.len())
            }
            (None, None) => false,
        }
    }

    fn is_script_option(&self, word: &str) -> bool {
        match (word.strip_prefix("--"), word.strip_prefix('-')) {
            (Some(long), _) => {
                // GNU programs accept the beginning of a name.
                let name = long.split('=').next().unwrap_or_default();
                !self.scripts.is_empty() && !name.is_empty() && LONG_SCRIPTS.iter().any(|known| known.starts_with(name))
            }
            (None, Some(letters)) => {
                let mut own = letters.chars().take_while(|letter| !self.values.contains(*letter));
                own.any(|letter| self.scripts.contains(letter))
            }
            (None, None) => false,
        }
    }

    fn refusal(&self, program: &str, at: usize) -> String {
        let start = format!("argument {at} has {CLASS} where \"{program}\"");
        if self.kind == Kind::Joiner {
            return format!(
                "{start} passes it to a shell; start a script instead, which checks \"$TASKQUEUE_CLASS\" and then starts \
                 this program"
            );
        }
        format!(
            "{start} expects an option, a script or a program; write \"$TASKQUEUE_CLASS\" in the script, or pass {CLASS} as \
             an argument after it"
        )
    }
}

/// Returns true if `{class}` can only choose a file in a directory of the configuration.
fn is_path(word: &str) -> bool {
    !word.starts_with('-') && word.split(CLASS).next().is_some_and(|start| start.contains('/'))
}

/// Returns true for `NAME=VALUE`, as in the arguments of `env`.
fn is_assignment(word: &str) -> bool {
    let is_name = |name: &str| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    word.split_once('=').is_some_and(|(name, _)| is_name(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(argv: &[&str]) -> Result<(), String> {
        check_class_arguments(&argv.iter().map(|element| (*element).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn beside_the_class_no_argument_has_characters_of_a_script() {
        for argument in [
            "echo {class}",
            "'{class}'",
            "\"{class}\"",
            "${class}",
            "{class};id",
            "{class}&",
            "a|{class}",
            "<{class}>",
            "`{class}`",
            "({class})",
            "{class}*",
            "{class}\n",
            "{class}\u{a0}",
            "{{class}}",
            "#{class}",
            "~{class}",
        ] {
            for argv in [&["/srv/any-program", argument][..], &["/srv/any-program", "-c", "--", argument]] {
                let error = check(argv).unwrap_err();
                assert!(error.contains("$TASKQUEUE_CLASS") && error.contains("\"{class}\""), "{argv:?}: {error}");
            }
        }
        for argument in ["{class}", "--class={class}", "/var/lib/x/{class}.json", "App\\{class}", "{class}@{class}:1"] {
            assert_eq!(check(&["/srv/any-program", argument]), Ok(()), "{argument}");
        }
    }

    #[test]
    fn the_class_is_no_part_of_a_script() {
        for argv in [
            &["/bin/sh", "-c", "echo {class}"][..],
            &["/bin/sh", "-c", "-e", "echo {class}"],
            &["/bin/sh", "-c", "--", "echo {class}"],
            &["/bin/bash", "-euc", "echo {class}"],
            &["/bin/bash", "-e", "-u", "-c", "run {class}"],
            &["/usr/bin/env", "-S", "sh -c \"echo {class}\""],
            &["/usr/bin/env", "X=1", "dash", "-c", "echo {class}"],
            &["/bin/rbash", "-c", "echo {class}"],
            &["/usr/bin/watch", "echo {class}"],
            &["/usr/bin/fish", "--init-command", "echo {class}"],
            &["/usr/bin/ssh", "host", "run {class}"],
            &["/bin/su", "bot", "-c", "run {class}"],
            &["/bin/su", "bot", "--command=run {class}"],
        ] {
            let error = check(argv).unwrap_err();
            assert!(error.contains("$TASKQUEUE_CLASS"), "{argv:?}: {error}");
        }
    }

    #[test]
    fn the_class_alone_is_no_script_and_no_program() {
        for argv in [
            &["/bin/sh", "-c", "{class}"][..],
            &["/bin/sh", "-c", "-e", "{class}"],
            &["/bin/sh", "-c", "--", "{class}"],
            &["/bin/bash", "-o", "pipefail", "-c", "{class}"],
            &["/bin/bash", "+e", "-ceo", "pipefail", "{class}"],
            &["/bin/sh", "{class}"],
            &["/bin/sh", "-c", "/srv/{class}"],
            &["/bin/bash", "--rcfile", "/etc/rc", "-c", "{class}"],
            &["/bin/zsh5", "-c", "{class}"],
            &["/opt/zsh-5.9", "-c", "{class}"],
            &["/usr/bin/fish", "-C", "{class}", "/srv/run.fish"],
            &["/usr/bin/fish", "-c", "true", "-c", "{class}"],
            &["/usr/bin/env", "{class}"],
            &["/usr/bin/env", "-i", "X=1", "{class}"],
            &["/usr/bin/env", "LD_PRELOAD={class}", "/srv/run"],
            &["/usr/bin/env", "-S", "sh -c", "{class}"],
            &["/usr/bin/env", "--split-string={class}"],
            &["/usr/bin/env", "sh", "-c", "{class}"],
            &["/srv/wrapper", "x", "sh", "-c", "{class}"],
            &["/usr/bin/setpriv", "--reuid", "bot", "sh", "-c", "{class}"],
            &["/usr/bin/sudo", "-u", "bot", "{class}"],
            &["/usr/bin/sudo", "-u", "bot", "sh", "-c", "{class}"],
            &["/usr/bin/nice", "-n", "5", "{class}"],
            &["/usr/bin/timeout", "5", "{class}"],
            &["/usr/bin/flock", "/run/lock/x", "{class}"],
            &["/usr/bin/flock", "/run/lock/x", "-c", "{class}"],
            &["/usr/bin/flock", "/run/lock/x", "--command", "{class}"],
            &["/bin/su", "bot", "-c", "{class}"],
            &["/bin/su", "bot", "-c{class}"],
            &["/bin/su", "bot", "--session-command={class}"],
            &["/bin/su", "bot", "--comm={class}"],
            &["/bin/su", "-c", "/srv/{class}", "bot"],
            &["/sbin/runuser", "-u", "bot", "--", "{class}"],
            &["/sbin/runuser", "bot", "-c", "{class}"],
            &["/usr/bin/script", "-qc", "{class}"],
            &["/usr/bin/ssh", "host", "run", "{class}"],
            &["/usr/bin/watch", "/srv/run", "{class}"],
            &["/usr/bin/perl", "-e", "{class}"],
            &["/usr/bin/python3.11", "-c", "{class}"],
            &["/usr/bin/python3", "-m", "{class}"],
            &["/usr/bin/php", "-d", "x=1", "-r", "{class}"],
            &["/usr/bin/node", "--eval={class}"],
            &["/bin/busybox", "sh", "-c", "{class}"],
            &["/usr/bin/setpriv", "--reuid", "bot", "{class}"],
            &["/usr/bin/ionice", "--class", "2", "{class}"],
            &["/usr/bin/flock", "--timeout", "5", "/run/lock/x", "{class}"],
            &["/usr/bin/stdbuf", "--output", "L", "{class}"],
            &["/usr/bin/xargs", "--max-args", "1", "{class}"],
            &["/usr/bin/env", "-a", "x", "{class}"],
        ] {
            let error = check(argv).unwrap_err();
            assert!(error.contains("$TASKQUEUE_CLASS"), "{argv:?}: {error}");
        }
    }

    #[test]
    fn the_class_is_an_argument_after_a_script_or_a_program() {
        for argv in [
            &["/bin/sh", "-c", "echo \"$1\"", "sh", "{class}"][..],
            &["/bin/bash", "-euo", "pipefail", "-c", "echo \"$1\"", "sh", "--class={class}"],
            &["/bin/sh", "/srv/run.sh", "{class}"],
            &["/bin/sh", "/srv/tasks/{class}.sh"],
            &["/usr/bin/env", "X=1", "/srv/run", "--class={class}"],
            &["/usr/bin/env", "sh", "-c", "echo \"$1\"", "sh", "{class}"],
            &["/usr/bin/timeout", "60", "/srv/run", "{class}"],
            &["/usr/bin/flock", "-w", "5", "/run/lock/{class}", "/srv/run", "{class}"],
            &["/sbin/runuser", "-u", "bot", "--", "/srv/run", "{class}"],
            &["/bin/su", "bot", "-c", "run \"$1\"", "--", "sh", "{class}"],
            &["/usr/bin/php", "-c", "/etc/php.ini", "/srv/run.php", "{class}"],
            &["/usr/bin/php", "/srv/run.php", "-c", "{class}"],
            &["/usr/bin/php", "/srv/tasks/{class}.php"],
            &["/usr/bin/python3", "-m", "app", "{class}"],
            &["/srv/run", "bash", "{class}"],
            &["/usr/bin/flock", "/run/lock/x", "/srv/run", "-c", "{class}"],
            &["/usr/bin/env", "--ignore-environment", "/srv/run", "-S", "{class}"],
            &["/bin/sh", "/srv/run.sh", "--execute", "{class}"],
            &["/usr/bin/npm", "run", "watch", "--", "{class}"],
            &["/srv/app", "time", "--class", "{class}"],
            &["/srv/app", "--shell", "bash", "--class={class}"],
        ] {
            assert_eq!(check(argv), Ok(()), "{argv:?}");
        }
    }
}
