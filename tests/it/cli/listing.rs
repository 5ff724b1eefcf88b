//! `--output`, `--columns` and `--no-header` of every verb that prints a list.

use serde_json::{Value, json};

use super::{ECHO, error_and_hint, shell_class};
use crate::each_engine;
use crate::support::TestDb;

/// Every verb that prints a list, and the key that identifies a line.
const LISTS: [(&[&str], Option<&str>); 11] = [
    (&["status"], Some("id")),
    (&["status", "status=failed"], Some("id")),
    (&["status", "--runs"], Some("id")),
    (&["status", "--runners"], Some("id")),
    (&["schedule"], Some("id")),
    (&["class", "list"], Some("name")),
    (&["limit", "list"], Some("class")),
    (&["setting", "list"], Some("name")),
    (&["events"], Some("id")),
    (&["failures"], None),
    (&["runner"], Some("id")),
];

fn fill(db: &TestDb) {
    db.configure(&[ECHO.to_owned(), shell_class(db, "bad", "echo 'a, \"b\"' >&2; exit 65")].concat());
    db.cli().run(&["queue", "echo", "{\"to\":\"a, b\"}"]).ok();
    db.cli().run(&["queue", "bad"]).ok();
    db.cli().run(&["queue", "echo", "--every", "daily 3:00"]).ok();
    db.cli().run(&["tick"]).ok();
    db.cli().run(&["limit", "set", "echo", "--running", "2"]).ok();
}

each_engine! {
    fn every_list_has_the_same_records_in_every_format(db) {
        fill(db);
        for (verb, id) in LISTS {
            let print = |options: &[&str]| db.cli().run(&[verb, options].concat()).ok();
            let lines: Vec<Value> =
                print(&["--output", "jsonl"]).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            let array: Value = serde_json::from_str(&print(&["-o", "json"])).unwrap();
            if verb != ["runner"] {
                assert!(!lines.is_empty(), "{verb:?}");
            }
            // The silence of a runner changes.
            let names = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
            let keys: Vec<_> = lines.iter().map(names).collect();
            assert_eq!(array.as_array().unwrap().iter().map(names).collect::<Vec<_>>(), keys, "{verb:?}");
            let csv = print(&["--output", "csv"]);
            let columns: Vec<&str> = csv.lines().next().unwrap().split(',').collect();
            for column in columns.iter().filter(|_| !lines.is_empty()) {
                let has = |line: &Value| column.split('.').try_fold(line, |value, key| value.get(key)).is_some();
                assert!(lines.iter().any(has) || verb[0] == "limit", "{verb:?}: {column}");
            }
            let bare = print(&["--output", "csv", "--no-header"]);
            assert_eq!(bare, csv.split_once('\n').map_or("", |(_, rows)| rows), "{verb:?}");
            let Some(id) = id else {
                let (error, hint) = error_and_hint(&db.cli().run(&[verb, &["--output", "id"]].concat()).fails(2));
                assert!(error.contains("have no id") && hint.contains("csv"), "{error}");
                continue;
            };
            let ids: Vec<String> =
                lines.iter().map(|line| line[id].as_str().map_or_else(|| line[id].to_string(), str::to_owned)).collect();
            assert_eq!(print(&["--output", "id"]), ids.join("\n"), "{verb:?}");
            assert_eq!(print(&["--output", "csv", "--no-header", "--columns", id]), ids.join("\n"), "{verb:?}");
            let table = print(&["--columns", id, "--no-header"]);
            assert_eq!(table.lines().map(str::trim).collect::<Vec<_>>(), ids, "{verb:?}");
            assert!(ids.is_empty() || print(&["--columns", id]).contains(&id.to_uppercase()), "{verb:?}");
        }
    }

    fn columns_are_chosen_by_name_and_a_wrong_one_is_refused(db) {
        fill(db);
        let print = |args: &[&str]| db.cli().run(args).ok();
        assert_eq!(
            print(&["status", "2", "1", "-o", "csv", "--columns", "id,class,data,why.reason,last_run.error_code"]),
            "id,class,data,why.reason,last_run.error_code\n\
             2,bad,{},exhausted,exit:65\n1,echo,\"{\"\"to\"\":\"\"a, b\"\"}\",done,"
        );
        let line: Value = serde_json::from_str(&print(&["status", "1", "-o", "jsonl", "--columns", "status,id"])).unwrap();
        assert_eq!(line, json!({ "status": "success", "id": 1 }));
        // The usual table without the names of its columns.
        let table = print(&["schedule", "--no-header"]);
        assert!(!table.contains("SCHEDULE") && table.contains("0 3 * * *"), "{table}");
        let (error, hint) = error_and_hint(&db.cli().run(&["status", "--columns", "id,clas"]).fails(2));
        assert!(error.contains("there is no column \"clas\"; did you mean \"class\"") && hint.contains("class"), "{error}");
        for (args, why) in [
            (&["status", "--json", "-o", "csv"][..], "--json cannot be combined"),
            (&["schedule", "-o", "csv", "show", "1"], "apply only to lists"),
            (&["status", "-o", "id", "--columns", "id"], "cannot be combined with --output id"),
            (&["events", "--follow", "-o", "json"], "--follow never ends"),
        ] {
            let ended = db.cli().run(args).fails(2);
            assert!(ended.contains(why), "{args:?}: {ended}");
        }
        // An error is JSON if the list is.
        let error: Value = serde_json::from_str(&db.cli().run(&["status", "99", "-o", "jsonl"]).fails(3)).unwrap();
        assert_eq!(error["error"]["code"], "not_found");
        assert_eq!(print(&["schedule", "--output", "csv"]).lines().count(), 2);
        db.cli().run(&["schedule", "remove", "3"]).ok();
        assert_eq!(print(&["schedule", "--output", "json"]), "[]");
        assert_eq!(print(&["schedule", "--output", "csv", "--columns", "id,every"]), "id,every");
    }
}
