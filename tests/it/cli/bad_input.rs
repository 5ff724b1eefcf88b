//! Refused input: a clear error, a hint if there is a next step, the right exit status, and no partial change.

use super::output::redirected;
use super::{ECHO, count_tasks, error_and_hint, printed, process, write};
use crate::each_engine;
use crate::support::TestDb;

/// Checks that input is refused: exit status 2, nothing on standard output, no task. Returns error and hint.
#[track_caller]
fn refused(db: &TestDb, args: &[&str]) -> (String, String) {
    let before = count_tasks(db);
    let both = error_and_hint(&db.cli().run(args).fails(2));
    assert_eq!(count_tasks(db), before);
    both
}

each_engine! {
    fn an_unknown_class_is_refused_with_the_nearest_names(db) {
        db.configure("[class.\"mail.send\"]\nargv = [\"/bin/cat\"]\n[class.\"mail.sort\"]\nargv = [\"/bin/cat\"]\n[class.resize]\nargv = [\"/bin/cat\"]\n");
        let (error, hint) = refused(db, &["queue", "mail.sned"]);
        assert_eq!(error, "error: the task class \"mail.sned\" is not known here");
        assert!(hint.starts_with("hint: did you mean \"mail.send\" or ") && hint.contains("--any-class"), "{hint}");
        let (_, hint) = refused(db, &["queue", "xyzzy"]);
        assert!(!hint.contains("did you mean") && hint.contains("`taskqueue class`"), "{hint}");
        assert_eq!(db.cli().run(&["queue", "mail.sned", "--any-class"]).ok(), "1");
    }

    fn a_name_that_is_no_class_name_is_refused_even_for_another_host(db) {
        let long = "x".repeat(191);
        for bad in ["", "a b", "mäil", "a;b", "a/b", "a\nb", "$(id)", long.as_str()] {
            let (error, _) = refused(db, &["queue", "--any-class", bad]);
            assert!(error.contains("the task class"), "{bad}: {error}");
        }
        let _ = db.cli().run(&["queue", "--any-class", "-rf"]).fails(2);
        assert!(refused(db, &["queue", "--any-class", "--", "-rf"]).0.contains("hyphen"));
    }

    fn data_that_is_not_json_is_refused_with_the_place(db) {
        db.configure(ECHO);
        for (bad, place) in [("{\"a\":}", "column 6"), ("", "EOF"), ("{} {}", "trailing"), ("{'a':1}", "column 2"), ("hello", "column 1"), ("NaN", "column")] {
            let (error, _) = refused(db, &["queue", "echo", bad]);
            assert!(error.starts_with("error: the data is not JSON: ") && error.contains(place), "{bad}: {error}");
        }
        for (input, why) in [(&b"\"\xff\""[..], "not UTF-8"), (b"", "not JSON"), (b"\"a\0\"", "not JSON")] {
            let stderr = db.cli().stdin(input).run(&["queue", "echo", "-"]).fails(2);
            assert!(error_and_hint(&stderr).0.contains(why), "{stderr}");
        }
        assert_eq!(count_tasks(db), 0);
    }

    fn data_that_one_engine_could_not_store_is_refused_on_every_engine(db) {
        db.configure(ECHO);
        let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        let too_deep = nested(32);
        for bad in ["\"\\ud800\"", "\"a\\u0000\"", "[1e999]", too_deep.as_str()] {
            let (error, _) = refused(db, &["queue", "echo", bad]);
            assert!(error.contains("not every engine can store"), "{bad}: {error}");
        }
        for good in ["\"\\ud83d\\ude00\\u0001\u{7f}😀\"", "[1e308,-0,12345678901234567890123]", "{\"a\":1,\"a\":2}", nested(31).as_str()] {
            assert_eq!(printed(&process(db, "echo", good), "stdout"), good);
        }
    }

    fn data_is_refused_beyond_one_mebibyte_or_what_is_configured(db) {
        db.configure(ECHO);
        let json = |bytes: usize| format!("\"{}\"", "x".repeat(bytes - 2));
        let queue = |bytes: usize| db.cli().stdin(json(bytes)).run(&["queue", "echo", "-"]);
        let (error, _) = error_and_hint(&queue((1 << 20) + 1).fails(2));
        assert_eq!(error, "error: the data has 1048577 bytes; at most 1048576 are allowed");
        assert_eq!(queue(1 << 20).ok(), "1");
        db.cli().run(&["setting", "set", "TaskQueueMaxDataBytes", "8388608"]).ok();
        assert_eq!(queue(8 << 20).ok(), "2");
        assert!(queue((8 << 20) + 1).fails(2).contains("at most 8388608 are allowed"));
        // Also from a file; how much too large it is does not matter.
        let file = write(db, "huge.json", json(10 << 20));
        let (error, _) = refused(db, &["queue", "echo", &format!("@{}", file.display())]);
        assert!(error.contains("at most 8388608"), "{error}");
        db.cli().run(&["setting", "set", "TaskQueueMaxDataBytes", "10"]).ok();
        assert!(queue(11).fails(2).contains("at most 10"));
    }

    fn a_text_without_its_quotes_is_refused_with_the_command_that_would_do(db) {
        db.configure(ECHO);
        for (text, word) in [("Ann", "'\"Ann\"'"), ("", "'\"\"'"), ("it's", "'\"it'\\''s\"'"), ("-5x", "'\"-5x\"'")] {
            let (_, hint) = refused(db, &["queue", "echo", "--", text]);
            assert_eq!(hint, format!("hint: a JSON string needs double quotes: taskqueue queue echo {word}"));
        }
        let class = r"App\Tasks\Resize";
        let (_, hint) = refused(db, &["queue", "--any-class", class, "Ann"]);
        assert_eq!(hint, format!("hint: a JSON string needs double quotes: taskqueue queue '{class}' '\"Ann\"'"));
        assert!(refused(db, &["queue", "echo", "{'a':1}"]).1.contains("double quotes"));
        let (_, hint) = refused(db, &["queue", "echo", "@no file"]);
        assert_eq!(hint, "hint: @FILE reads the data from a file; write a JSON string that begins with @ as '\"@no file\"'");
        let unreadable = redirected(&db.cli(), "</", &["queue", "echo", "-"]).fails(2);
        assert_eq!(unreadable.trim_end(), "error: cannot read standard input: Is a directory (os error 21)");
    }

    fn a_misspelt_option_of_queue_is_not_taken_for_data(db) {
        db.configure(ECHO);
        for args in [&["--prority", "5"][..], &["--prority=5"], &["--rnu"], &["--dry-run"]] {
            let stderr = db.cli().run(&[&["queue", "echo"], args].concat()).fails(2);
            let option = args[0].split('=').next().unwrap();
            assert!(stderr.contains(&format!("unexpected argument '{option}")), "{args:?}: {stderr}");
        }
        assert_eq!(db.cli().run(&["queue", "echo", "-5.5"]).ok(), "1");
        assert_eq!(count_tasks(db), 1);
    }

    fn a_file_of_data_that_cannot_be_read_is_named(db) {
        db.configure(ECHO);
        let (error, _) = refused(db, &["queue", "echo", "@/no/such/file"]);
        assert!(error.contains("/no/such/file: No such file"), "{error}");
        let (error, _) = refused(db, &["queue", "echo", "@/usr"]);
        assert!(error.contains("/usr: Is a directory"), "{error}");
        for verb in [&["queue", "--batch"][..], &["import"]] {
            let (error, hint) = refused(db, &[verb, &["/no/such/file"]].concat());
            assert!(error.contains("/no/such/file: No such file"), "{verb:?}: {error}");
            assert!(hint.contains("check the path and its permissions"), "{verb:?}: {hint}");
        }
    }

    fn times_that_are_ambiguous_or_out_of_range_are_refused_and_never_guessed(db) {
        db.configure(ECHO);
        for (bad, why) in [
            ("4/1", "day/month"), ("04/05/2026", "2026-11-21"), ("30", "no unit"), ("1700000000", "no unit"), ("", "empty"),
            ("soonish", "not a time"), ("2026-13-01 10:00", "not a time"), ("2027-02-30 10:00", "not a time"), ("25:99", "not a time"),
            ("1999-12-31T23:59:59Z", "2000 to 9999"), ("+99999999d", "ten years"), ("+-5m", "not a duration"), ("+5", "no unit"),
            ("2036-12-31T23:59:60Z", "not a time"),
        ] {
            let (error, _) = refused(db, &["queue", "echo", "--at", bad]);
            assert!(error.contains(why), "{bad}: {error}");
        }
        let line = "{\"class\":\"echo\",\"at\":\"2036-12-31T23:59:60Z\"}";
        assert!(db.cli().stdin(line).run(&["queue", "--batch", "-"]).fails(2).contains("is not a time"));
        for bad in ["5", "-5m", "", "1e3s", "11years", "soon"] {
            let (error, _) = refused(db, &["queue", "echo", &format!("--in={bad}")]);
            assert!(error.starts_with("error: --in: "), "{bad}: {error}");
        }
        assert!(db.cli().run(&["queue", "echo", "--in", "1h", "--at", "tomorrow 03:00"]).fails(2).contains("cannot be used with"));
    }

    fn a_local_time_that_happens_twice_or_not_at_all_is_refused(db) {
        db.configure(ECHO);
        let berlin = db.cli().env("TZ", "Europe/Berlin");
        let (error, _) = error_and_hint(&berlin.run(&["queue", "echo", "--at", "2027-10-31 02:30"]).fails(2));
        assert!(error.contains("happens twice") && error.contains("2027-10-31T00:30:00") && error.contains("2027-10-31T01:30:00"), "{error}");
        let (error, _) = error_and_hint(&berlin.run(&["queue", "echo", "--at", "2027-03-28 02:30"]).fails(2));
        assert!(error.contains("does not exist"), "{error}");
        assert_eq!(count_tasks(db), 0);
    }

    fn negative_and_huge_numbers_are_refused_with_their_range(db) {
        db.configure(ECHO);
        for (option, value, range) in [
            ("--max-retries", "0", "1 to 1000000"), ("--max-retries", "-1", "1 to 1000000"), ("--max-retries", "1000001", "1 to 1000000"),
            ("--priority", "1001", "-1000 to 1000"), ("--priority", "-1001", "-1000 to 1000"),
            ("--timeout", "0s", "1 to 31536000"), ("--timeout", "400d", "1 to 31536000"), ("--timeout", "1500ms", "whole seconds"),
            ("--timeout", "90", "no unit; write 90s"),
        ] {
            let (error, _) = refused(db, &["queue", "echo", option, value]);
            assert!(error.contains(range), "{option} {value}: {error}");
        }
        for option in ["--max-retries", "--priority"] {
            for bad in ["99999999999999999999", "x", "1.5", ""] {
                assert!(db.cli().run(&["queue", "echo", option, bad]).fails(2).starts_with("error: invalid value"), "{bad}");
            }
        }
        let long = "x".repeat(191);
        assert!(refused(db, &["queue", "echo", "--by", &long]).0.contains("190"));
        assert_eq!(count_tasks(db), 0);
    }

    fn options_of_tasks_are_refused_beside_a_batch(db) {
        let (error, hint) = refused(db, &["queue", "--batch", "-", "--priority", "5"]);
        assert!(error.contains("cannot be combined with --batch") && hint.contains("\"priority\":5"), "{error} {hint}");
        assert!(db.cli().run(&["queue", "echo", "--batch", "-"]).fails(2).contains("cannot be used with"));
        let _ = db.cli().run(&["queue"]).fails(2);
    }

    fn errors_are_json_on_standard_error_when_json_is_asked_for(db) {
        for (args, code, kind) in [
            (&["queue", "nobody"][..], 2, "class_unknown"), (&["queue", "--any-class", "x", "{"], 2, "usage"),
            (&["status", "99"], 3, "not_found"), (&["process-run", "99"], 3, "not_found"), (&["queue"], 2, "usage"),
            (&["status", "--frobnicate"], 2, "usage"), (&["setting", "get", "x"], 2, "usage"),
        ] {
            let stderr = db.cli().run(&[&["--json"], args].concat()).fails(code);
            let error: serde_json::Value = serde_json::from_str(&stderr).unwrap_or_else(|_| panic!("{args:?}: {stderr}"));
            assert_eq!((&error["error"]["code"], &error["error"]["exit_status"]), (&kind.into(), &code.into()), "{stderr}");
            assert!(error["error"]["message"].as_str().unwrap().len() > 5 && error["error"].get("hint").is_some(), "{stderr}");
            // An error about arguments names the command that lists them.
            let hint = error["error"]["hint"].as_str().unwrap_or_default();
            let is_about_arguments = args.len() == 1 || args.contains(&"--frobnicate");
            assert_eq!(hint == format!("`taskqueue {} --help` lists the options", args[0]), is_about_arguments, "{stderr}");
            assert_eq!(stderr.lines().count(), 1);
        }
    }
}
