//! The OpenAPI document: what the server has, docs/json has, and every answer fits it.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::contract::file;
use super::pages::fill;
use super::{WebServer, send};
use crate::each_engine;
use crate::support::{EngineUnderTest, db};

/// Calls `act` with every object in a value.
fn objects(value: &Value, act: &mut dyn FnMut(&serde_json::Map<String, Value>)) {
    match value {
        Value::Object(members) => {
            act(members);
            members.values().for_each(|member| objects(member, act));
        }
        Value::Array(parts) => parts.iter().for_each(|part| objects(part, act)),
        _ => {}
    }
}

/// Returns each operation with its method and its path.
fn operations(document: &Value) -> Vec<(&str, &str, &Value)> {
    let paths = document["paths"].as_object().unwrap().iter();
    paths
        .flat_map(|(path, methods)| {
            methods.as_object().unwrap().iter().map(move |(method, about)| (method.as_str(), path.as_str(), about))
        })
        .collect()
}

/// Returns the keys that a body of this operation may have, as its refusal of another key names them.
fn parsed_keys(server: &WebServer, scope: &str, path: &str) -> BTreeSet<String> {
    let refused = server.ask(scope, "POST", &path.replace("{id}", "1"), "{\"no-such-key\":1}").json();
    let detail = refused["detail"].as_str().unwrap();
    let (_, known) = detail.split_once("`no-such-key`").unwrap_or_else(|| panic!("{path}: {detail}"));
    known.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn the_document_of_the_server_is_the_one_in_docs() {
    db::on(EngineUnderTest::Sqlite, |db| {
        db.configure(crate::cli::ECHO);
        let server = WebServer::start(db, &[]);
        let token = format!("Authorization: Bearer {}", server.token("read"));
        // Not checked against the file, which may be older.
        let served = send(&server.address, "GET", "/api/v1/openapi.json", &[&token], "").json();
        let text = format!("{}\n", serde_json::to_string_pretty(&served).unwrap());
        if std::env::var_os("TASKQUEUE_WRITE_API").is_some() {
            std::fs::write(file(), &text).unwrap();
        }
        let is_listed = std::fs::read_to_string(file()).unwrap() == text;
        assert!(is_listed, "if the change is meant, write docs/json/openapi.json with TASKQUEUE_WRITE_API=yes");
    });
}

#[test]
fn the_openapi_document_is_complete_and_valid() {
    let document: Value = serde_json::from_str(&std::fs::read_to_string(file()).unwrap()).unwrap();
    let keys: Vec<&String> = document.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["openapi", "info", "servers", "paths", "components"]);
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1.") && document["info"]["version"].is_string());
    objects(&document, &mut |object| {
        if let Some(reference) = object.get("$ref") {
            let pointer = reference.as_str().unwrap().strip_prefix('#').unwrap();
            assert!(document.pointer(pointer).is_some_and(Value::is_object), "{reference}");
        }
        if let Some(schema) = object.get("schema").filter(|_| !object.contains_key("const")) {
            assert!(jsonschema::meta::is_valid(schema), "{schema}");
        }
    });
    for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
        assert!(schema.is_object() && jsonschema::meta::is_valid(schema), "{name}");
        assert!(schema["description"].is_string(), "{name}");
    }
    let mut names = BTreeSet::new();
    for (method, path, about) in operations(&document) {
        assert!(names.insert(about["operationId"].as_str().unwrap()), "{path}: its name is not its own");
        let token = document["components"]["securitySchemes"]["token"]["scheme"].as_str();
        assert!(token == Some("bearer") && about["security"][0]["token"][0].is_string(), "{method} {path}");
        assert!(about["summary"].as_str().is_some_and(|text| !text.is_empty()), "{method} {path}");
        assert_eq!(about["responses"]["default"]["$ref"], "#/components/responses/problem", "{method} {path}");
        let in_path: Vec<&str> = path.split(['{', '}']).skip(1).step_by(2).collect();
        let parameters = about["parameters"].as_array().unwrap();
        let declared: Vec<&str> = parameters
            .iter()
            .filter(|parameter| parameter["in"] == "path" && parameter["required"] == true)
            .map(|parameter| parameter["name"].as_str().unwrap())
            .collect();
        assert_eq!(declared, in_path, "{method} {path}");
        assert!(method != "get" || about["requestBody"].is_null(), "{method} {path}");
    }
}

/// The document is written by hand where a body is parsed: both must know the same keys.
#[test]
fn the_document_names_the_keys_that_the_server_accepts() {
    db::on(EngineUnderTest::Sqlite, |db| {
        db.configure(crate::cli::ECHO);
        let server = WebServer::start(db, &[]);
        let document = server.get("/api/v1/openapi.json").json();
        let (mut bodies, mut headers) = (0, 0);
        for (method, path, about) in operations(&document) {
            let scope = about["security"][0]["token"][0].as_str().unwrap();
            let body = &about["requestBody"]["content"]["application/json"]["schema"]["$ref"];
            if let Some(reference) = body.as_str() {
                let schema = document.pointer(&reference[1..]).unwrap();
                let described: BTreeSet<String> = schema["properties"].as_object().unwrap().keys().cloned().collect();
                assert_eq!(described, parsed_keys(&server, scope, path), "{path}");
                bodies += 1;
            }
            let queried = about["parameters"].as_array().unwrap().iter().filter(|parameter| parameter["in"] == "query");
            let described: BTreeSet<String> =
                queried.map(|parameter| parameter["name"].as_str().unwrap().to_owned()).collect();
            if method == "get" && !described.is_empty() {
                let refused = server.get(&format!("{}?no-such-key=1", path.replace("{id}", "1"))).json();
                let known = refused["detail"].as_str().unwrap().split('`').skip(3).step_by(2).map(str::to_owned);
                let known: BTreeSet<String> = known.collect();
                assert_eq!(known, described, "{path}: {refused}");
            }
            for header in about["parameters"].as_array().unwrap().iter().filter(|parameter| parameter["in"] == "header")
            {
                let (name, token) = (header["name"].as_str().unwrap(), server.token(scope));
                let lines = [format!("Authorization: Bearer {token}"), format!("{name}: no number")];
                let refused = server.send(&method.to_uppercase(), path, &[&lines[0], &lines[1]], "");
                assert!(refused.status == 400 && refused.body.contains(name), "{path}: {refused:?}");
                headers += 1;
            }
        }
        assert!(bodies >= 5 && headers == 1, "{bodies} {headers}");
    });
}

each_engine! {
    fn every_operation_answers_as_the_document_describes(db) {
        fill(db);
        let server = WebServer::start(db, &[]);
        let document = server.get("/api/v1/openapi.json").json();
        let post = |path: &str, body: &Value| server.ask("admin", "POST", &format!("/api/v1/{path}"), &body.to_string());
        for data in [json!({ "a": 1 }), json!(null), json!("text")] {
            assert_eq!(post("tasks", &json!({ "class": "echo", "data": data, "tag": "new" })).status, 201);
        }
        let newest = server.get("/api/v1/tasks?q=tag%3Dnew").json()["tasks"][0]["task"]["id"].clone();
        for verb in ["cancel", "retry"] {
            assert_eq!(post(&format!("tasks/{newest}/{verb}"), &json!({})).status, 200, "{verb}");
        }
        let claimed = post("claims", &json!({ "count": 2 })).json()["runs"].clone();
        for (run, end) in claimed.as_array().unwrap().iter().zip(["resolve", "release"]) {
            let token = json!({ "token": run["token"] });
            for verb in ["heartbeat", end] {
                assert_eq!(post(&format!("runs/{}/{verb}", run["run_id"]), &token).status, 200, "{verb}");
            }
        }
        for (_, path, _) in operations(&document).iter().filter(|(method, path, _)| *method == "get" && !path.ends_with("/stream")) {
            assert_eq!(server.get(&path.replace("{id}", "2")).status, 200, "{path}");
        }
        assert_eq!(server.unused_operations(), ["follow_events"]);
    }
}
