use std::os::unix::fs::PermissionsExt as _;

use super::*;
use taskqueue_domain::task::task_class::TaskClass;

fn class(name: &str) -> TaskClass {
    name.parse().unwrap()
}

struct Files {
    directory: tempfile::TempDir,
}

impl Files {
    fn new(main: &str) -> Self {
        let files = Self { directory: tempfile::tempdir().unwrap() };
        files.write("config.toml", main);
        files
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.directory.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn load(&self) -> Result<Config, ConfigError> {
        load(Some(&self.directory.path().join("config.toml")), &Environment::default())
    }
}

const MAIL: &str = "[class.\"mail.send\"]\nargv = [\"/bin/true\"]\n";

#[test]
fn a_class_has_sensible_defaults() {
    let config = Files::new(MAIL).load().unwrap();
    let mail = config.classes.find(&class("mail.send")).unwrap();
    assert_eq!(mail.command.argv, ["/bin/true"]);
    assert_eq!(mail.command.kill_grace.as_secs(), 10);
    assert_eq!(mail.command.output_limit_bytes, 131_072);
    assert!(mail.timeout.is_none());
    assert!(config.classes.find(&class("mail.receive")).is_none());
}

#[test]
fn a_pattern_matches_what_no_exact_name_matches() {
    let files = Files::new(
        "[class.\"App\\\\Tasks\\\\*\"]\nargv = [\"/usr/bin/php\", \"/srv/run.php\", \"{class}\"]\n\
         [class.\"App\\\\Tasks\\\\Mail\\\\*\"]\nargv = [\"/bin/true\"]\n\
         [class.\"App\\\\Tasks\\\\Resize\"]\nargv = [\"/bin/false\"]\n",
    );
    let classes = files.load().unwrap().classes;
    assert_eq!(classes.find(&class("App\\Tasks\\Import")).unwrap().command.argv[0], "/usr/bin/php");
    assert_eq!(classes.find(&class("App\\Tasks\\Mail\\Send")).unwrap().command.argv[0], "/bin/true");
    assert_eq!(classes.find(&class("App\\Tasks\\Resize")).unwrap().command.argv[0], "/bin/false");
    assert!(classes.find(&class("Other\\Import")).is_none());
}

#[test]
fn files_of_conf_d_add_classes_in_the_order_of_their_names() {
    let files = Files::new(MAIL);
    files.write("conf.d/10-b.toml", "[class.b]\nargv = [\"/bin/true\"]\n");
    files.write("conf.d/README", "not read");
    assert!(files.load().unwrap().classes.find(&class("b")).is_some());
    files.write("conf.d/20-c.toml", MAIL);
    let error = files.load().unwrap_err().to_string();
    assert!(error.contains("20-c.toml") && error.contains("defined already"), "{error}");
}

#[test]
fn what_is_wrong_is_named_with_file_and_line() {
    let cases = [
        ("databse = \"x\"\n", "line 1, column 1: unknown key `databse`; did you mean `database`?"),
        (
            "\n[class.a]\nargv = [\"/bin/true\"]\ntimeout = 5\n",
            "line 4, column 1: class \"a\": unknown key `timeout`; did you mean `timeout_secs`?",
        ),
        ("[class.a]\nargv = \"/bin/true\"\n", "line 2, column 8: class \"a\": argv is a string; it must be a list"),
        ("[class.a]\nargv = []\n", "argv is empty"),
        ("[class.a]\nargv = [\"true\"]\n", "needs an absolute path"),
        ("[class.a]\nargv = [\"/opt/{class}\"]\n", "must not choose the program"),
        ("[class.a]\nargv = [\"/bin/true\"]\ntimeout_secs = 1.5\n", "line 3"),
        ("[class.a]\nargv = [\"/bin/true\"]\ntimeout_secs = 99999999999999999999\n", "line 3"),
        ("[class.a]\nargv = [\"/bin/true\"]\nexit = { retry = [300] }\n", "0 to 255"),
        ("[class.a]\nargv = [\"/bin/true\"]\nexit = { retry = [3], hold = [\"1-5\"] }\n", "are listed under both"),
        ("[class.a]\nargv = [\"/bin/true\"]\nbackoff = \"10s\"\n", "class \"a\": \"10s\" is not a backoff"),
        ("[class.a]\nargv = [\"/bin/true\"]\ncwd = \"here\"\n", "cwd must be an absolute path"),
        (
            "[class.a]\nargv = [\"/bin/true\"]\nenv = { TASKQUEUE_RUN_TOKEN = \"x\" }\n",
            "class \"a\": the variable TASKQUEUE_RUN_TOKEN",
        ),
        (
            "[class.a]\nargv = [\"/bin/true\"]\npass_env = [\"TASKQUEUE_EVENTS_FD\"]\n",
            "the variable TASKQUEUE_EVENTS_FD cannot be set",
        ),
        ("[class.\"a b\"]\nargv = [\"/bin/true\"]\n", "a class name cannot contain ' '"),
        ("[class.\"a..b\"]\nargv = [\"/bin/true\"]\n", "two dots"),
        ("[class.a]\nargv = [\"/bin/true\"]\nmay_queue = [\"-b\"]\n", "may_queue, \"-b\": the task class starts with"),
        ("[class.exec]\nargv = [\"/bin/true\"]\n", "built in"),
        ("[class.a\n", "line 1"),
        ("metrics = \"9790\"\n", "metrics: \"9790\" is not an address to listen at"),
        ("work_slots = 0\n", "work_slots is 0; it must be 1 to 10000"),
        ("user = \"\"\n", "\"\" is not the name of a user"),
        ("[class.a]\nargv = [\"/bin/true\"]\nuser = \"a:b\"\n", "\"a:b\" is not the name of a user"),
        ("[class.a]\nargv = [\"/bin/true\"]\numask = \"22\"\n", "umask is \"22\"; it must be three octal digits"),
        ("[class.a]\nargv = [\"/bin/true\"]\numask = \"089\"\n", "\"000\" to \"777\""),
        ("[class.a]\nargv = [\"/bin/true\"]\numask = \"1000\"\n", "\"000\" to \"777\""),
        ("[class.a]\nargv = [\"/bin/true\"]\nprotocol = \"fcgi\"\n", "it must be \"one-shot\" or \"coprocess\""),
        ("[class.a]\nargv = [\"/bin/true\"]\nmax_runs = 5\n", "max_runs is for a program that is kept running"),
        ("[class.a]\nargv = [\"/bin/true\"]\nprotocol = \"one-shot\"\nmax_rss_bytes = 5\n", "protocol = \"coprocess\""),
        ("[class.a]\nargv = [\"/bin/true\"]\nlimits = { core = 1 }\n", "unknown key `core`"),
    ];
    for (text, expected) in cases {
        let error = Files::new(text).load().unwrap_err().to_string();
        assert!(error.contains("config.toml") && error.contains(expected), "{text}: {error}");
        assert!(!error.contains('\n'), "{error}");
    }
}

#[test]
fn several_mistakes_are_shown_at_once_each_with_its_place() {
    let text = "work_slots = 0\nuser = 5\n\n[class.a]\nargv = [\"/bin/true\"]\ntimout_secs = 5\nkeep = 30\n\n[class.b]\n\
                argv = [\"true\"]\ntimeout_secs = \"10m\"\n[class.b.limits]\nmemory_bytes = \"200M\"\n";
    let error = Files::new(text).load().unwrap_err();
    let path = error.path.display();
    let places = [
        ("line 1, column 14: work_slots is 0; it must be 1 to 10000", "  1 | work_slots = 0\n    |              ^"),
        ("line 2, column 8: user is the number 5; it must be a string", "  2 | user = 5\n    |        ^"),
        (
            "line 6, column 1: class \"a\": unknown key `timout_secs`; did you mean `timeout_secs` or `start_timeout_secs`?",
            "  6 | timout_secs = 5\n    | ^^^^^^^^^^^",
        ),
        (
            "line 7, column 8: class \"a\": keep is the number 30; it must be a string with a unit: keep = \"30s\" for seconds, \
             \"30d\" for days",
            "  7 | keep = 30\n    |        ^^",
        ),
        (
            "line 10, column 8: class \"b\": the program \"true\" needs an absolute path, because cron uses another PATH",
            "  10 | argv = [\"true\"]\n     |        ^^^^^^^^",
        ),
        (
            "line 11, column 16: class \"b\": timeout_secs is a string; it must be a whole number of seconds: timeout_secs = 600",
            "  11 | timeout_secs = \"10m\"\n     |                ^^^^^",
        ),
        (
            "line 13, column 16: class \"b\": memory_bytes is a string; it must be a whole number of bytes: memory_bytes = \
             209715200",
            "  13 | memory_bytes = \"200M\"\n     |                ^^^^^^",
        ),
    ];
    let report = places.map(|(said, excerpt)| format!("{path}: {said}\n{excerpt}")).join("\n");
    assert_eq!(error.report.join("\n"), report);
    assert_eq!(error.headline.unwrap(), format!("7 mistakes in {path}"));
    assert_eq!(error.message, format!("7 mistakes: {}", places.map(|(said, _)| said).join("; ")));
    let two = Files::new("a = = 1\nb = 2\nc = [1\n").load().unwrap_err();
    assert!(two.message.contains("line 1, column ") && two.message.contains(": this is not TOML: "), "{two}");
}

#[test]
fn no_line_that_may_contain_a_secret_is_quoted() {
    let text =
        "database = 5\n[class.a]\nargv = [\"/bin/true\"]\nenv = { KEY = 7 }\n[class.a.exit]\nx = \"http://u:p@h\"\n";
    let error = Files::new(text).load().unwrap_err();
    assert_eq!(error.report.iter().filter(|line| line.contains('|')).count(), 0, "{:?}", error.report);
}

#[test]
fn a_number_outside_its_range_is_named_with_class_key_and_range() {
    for (key, low, high) in [
        ("timeout_secs", 1, 31_536_000),
        ("kill_grace_secs", 0, 3_600),
        ("output_limit_bytes", 0, 16_777_216),
        ("crash_limit", 1, 1_000_000),
    ] {
        let load = |value: i64| Files::new(&format!("{MAIL}{key} = {value}\n")).load();
        assert!(load(low).is_ok() && load(high).is_ok(), "{key}");
        for bad in [i64::MIN, low - 1, high + 1, 999_999_999_999, i64::MAX] {
            let error = load(bad).unwrap_err().to_string();
            let expected = format!("class \"mail.send\": {key} is {bad}; it must be {low} to {high}");
            assert!(error.ends_with(&expected), "{error}");
        }
    }
}

#[test]
fn a_class_configures_a_coprocess_and_how_long_it_is_kept() {
    assert_eq!(Files::new(MAIL).load().unwrap().classes.find(&class("mail.send")).unwrap().protocol, Protocol::OneShot);
    let protocol = |keys: &str| {
        let config = Files::new(&format!("{MAIL}protocol = \"coprocess\"\n{keys}")).load()?;
        Ok::<_, ConfigError>(config.classes.find(&class("mail.send")).unwrap().protocol)
    };
    let secs = std::time::Duration::from_secs;
    let plain = CoprocessConfig { start_timeout: secs(30), max_runs: None, max_age: None, max_rss_bytes: None };
    assert_eq!(protocol("").unwrap(), Protocol::Coprocess(plain));
    let keys = "start_timeout_secs = 5\nmax_runs = 1000\nmax_age_secs = 3600\nmax_rss_bytes = 268435456\n";
    let whole = CoprocessConfig {
        start_timeout: secs(5),
        max_runs: Some(1000),
        max_age: Some(secs(3600)),
        max_rss_bytes: Some(256 << 20),
    };
    assert_eq!(protocol(keys).unwrap(), Protocol::Coprocess(whole));
    for (key, low, high) in [
        ("start_timeout_secs", 1, 3_600),
        ("max_runs", 1, 1_000_000_000),
        ("max_age_secs", 1, 31_536_000),
        ("max_rss_bytes", 1 << 20, 1 << 50),
    ] {
        let load = |value: i64| protocol(&format!("{key} = {value}\n"));
        assert!(load(low).is_ok() && load(high).is_ok(), "{key}");
        for bad in [i64::MIN, low - 1, high + 1, i64::MAX] {
            let error = load(bad).unwrap_err().to_string();
            assert!(error.ends_with(&format!("{key} is {bad}; it must be {low} to {high}")), "{error}");
        }
    }
}

#[test]
fn a_limit_outside_its_range_is_named_with_class_key_and_range() {
    for (key, low, high) in [
        ("cpu_secs", 1, 31_536_000),
        ("memory_bytes", 16_777_216, 1 << 50),
        ("open_files", 8, 1_048_576),
        ("processes", 1, 4_194_304),
        ("file_size_bytes", 0, 1 << 50),
    ] {
        let load = |value: i64| Files::new(&format!("{MAIL}limits = {{ {key} = {value} }}\n")).load();
        assert!(load(low).is_ok() && load(high).is_ok(), "{key}");
        for bad in [i64::MIN, low - 1, high + 1, i64::MAX] {
            let error = load(bad).unwrap_err().to_string();
            let expected = format!("class \"mail.send\": limits: {key} is {bad}; it must be {low} to {high}");
            assert!(error.ends_with(&expected), "{error}");
        }
    }
}

#[test]
fn the_user_at_the_top_applies_to_classes_without_one_also_in_parts() {
    let files =
        Files::new(&format!("user = \"bot\"\n{MAIL}user = \"mail\"\numask = \"027\"\nno_new_privileges = false\n"));
    files.write("conf.d/b.toml", "[class.b]\nargv = [\"/bin/true\"]\n");
    let config = files.load().unwrap();
    let rights = |name: &str| config.classes.find(&class(name)).unwrap().command.confinement.clone();
    assert_eq!((rights("mail.send").user.as_deref(), rights("b").user.as_deref()), (Some("mail"), Some("bot")));
    assert_eq!((rights("mail.send").umask, rights("b").umask), (0o027, 0o077));
    assert_eq!((rights("mail.send").no_new_privileges, rights("b").no_new_privileges), (false, true));
    assert_eq!(config.user.as_deref(), Some("bot"));
    files.write("conf.d/b.toml", "user = \"x\"\n");
    assert!(files.load().unwrap_err().to_string().contains("unknown key `user`; the keys here are `class`"));
}

#[test]
fn an_error_does_not_repeat_a_password_of_the_file() {
    let error = Files::new("database = \"postgres://u:s3cr3t@h/d\" x\n").load().unwrap_err().to_string();
    assert!(!error.contains("s3cr3t"), "{error}");
}

#[test]
fn a_file_that_everybody_may_write_is_refused() {
    let files = Files::new(MAIL);
    let path = files.directory.path().join("config.toml");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
    assert!(files.load().unwrap_err().to_string().contains("can be written by everybody"));
}

#[test]
fn a_named_file_must_exist_but_no_file_is_needed() {
    assert!(load(Some(Path::new("/nonexistent/config.toml")), &Environment::default()).is_err());
    let directory = tempfile::tempdir().unwrap();
    let environment = Environment { config_home: Some(directory.path().to_owned()), ..Environment::default() };
    assert_eq!(environment.own_config_path(), directory.path().join("taskqueue/config.toml"));
    assert_eq!(Environment::default().own_config_path(), Path::new("/etc/taskqueue/config.toml"));
    if !Path::new("/etc/taskqueue/config.toml").exists() {
        let config = load(None, &environment).unwrap();
        assert!(!config.exists && config.path.ends_with("taskqueue/config.toml"), "{config:?}");
    }
}
