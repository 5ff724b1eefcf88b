//! The schemas of docs/json, closed, and the forms of a document that each has.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use jsonschema::{Registry, Validator};
use serde_json::{Value, json};

use crate::support::Cli;
use crate::support::cli::listed_verbs;

/// Schemas that other schemas include, of the HTTP interface, and of the output on standard error.
const NO_VERBS: [&str; 3] = ["common", "error", "http"];
/// Verbs without output: a handler sends a report to its runner.
const WITHOUT_FACTS: [&str; 1] = ["result"];

/// Returns every schema by its name, unchanged.
fn files() -> BTreeMap<String, Value> {
    let directory = Path::new(env!("REPOSITORY_DIR")).join("docs/json");
    let read = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().strip_suffix(".schema.json")?.to_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        Some((name, serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))))
    };
    std::fs::read_dir(directory).unwrap().filter_map(read).collect()
}

/// Applies `act` to a schema and all its parts, except conditions, which only repeat names.
pub(crate) fn walk(schema: &mut Value, act: &mut dyn FnMut(&mut Value)) {
    act(schema);
    let Some(object) = schema.as_object_mut() else { return };
    for (key, value) in object.iter_mut() {
        match (key.as_str(), value) {
            ("properties" | "$defs", Value::Object(members)) => {
                for member in members.values_mut() {
                    walk(member, act);
                }
            }
            ("anyOf" | "prefixItems", Value::Array(parts)) => {
                for part in parts {
                    walk(part, act);
                }
            }
            ("items" | "additionalProperties", part) => walk(part, act),
            _ => {}
        }
    }
}

/// Closes a schema, so that additions of a later version do not fit.
pub(crate) fn close(schema: &mut Value) {
    let Some(object) = schema.as_object_mut() else { return };
    if object.contains_key("properties") {
        object.insert("additionalProperties".to_owned(), json!(false));
    }
    if let Some(known) = object.remove("x-known-values") {
        object.insert("enum".to_owned(), known);
    }
}

/// Returns true if a key of this name may contain any JSON.
pub(super) fn can_be_anything(key: &str) -> bool {
    ["data", "details", "results"].contains(&key)
}

/// What a verb prints in one case.
struct Form {
    name: String,
    place: usize,
    validator: Validator,
    is_used: bool,
}

/// All forms.
pub(super) struct Forms(Vec<Form>);

impl Forms {
    pub(super) fn read() -> Self {
        let mut files = files();
        files.values_mut().for_each(|schema| walk(schema, &mut close));
        let resources = files.values().map(|schema| (schema["$id"].as_str().unwrap(), schema.clone()));
        let registry = Registry::new().extend(resources).unwrap().prepare().unwrap();
        let mut forms = Vec::new();
        for (name, schema) in files.iter().filter(|(_, schema)| schema["anyOf"].is_array()) {
            for place in 0..schema["anyOf"].as_array().unwrap().len() {
                let part =
                    json!({ "$schema": schema["$schema"], "$ref": format!("urn:taskqueue:1:{name}#/anyOf/{place}") });
                let options = jsonschema::options().with_registry(&registry).should_validate_formats(true);
                let validator = options.build(&part).unwrap_or_else(|error| panic!("{name}: {error}"));
                forms.push(Form { name: name.clone(), place, validator, is_used: false });
            }
        }
        Self(forms)
    }

    /// Returns true if the verb may print this document.
    pub(super) fn fits(&self, name: &str, document: &Value) -> bool {
        self.0.iter().any(|form| form.name == name && form.validator.is_valid(document))
    }

    /// Fails with the errors of each form if the document fits none.
    #[track_caller]
    pub(super) fn check(&mut self, name: &str, document: &Value) {
        let mut problems = Vec::new();
        let mut fits = false;
        for form in self.0.iter_mut().filter(|form| form.name == name) {
            if form.validator.is_valid(document) {
                (form.is_used, fits) = (true, true);
            } else {
                let errors = form.validator.iter_errors(document);
                problems.extend(errors.map(|error| format!("form {}, {}: {error}", form.place, error.instance_path())));
            }
        }
        assert!(fits, "docs/json/{name}.schema.json: {document}\n{}", problems.join("\n"));
    }

    /// Returns the forms that no document had.
    pub(super) fn unused(&self) -> Vec<String> {
        self.0.iter().filter(|form| !form.is_used).map(|form| format!("{}, form {}", form.name, form.place)).collect()
    }
}

#[test]
fn every_verb_has_a_schema_or_prints_no_facts() {
    let home = tempfile::tempdir().unwrap();
    let help = |args: &[&str]| Cli::new(home.path()).run(&[args, &["--help"]].concat()).ok();
    let text = Cli::new(home.path()).run(&["help", "all"]).ok();
    let groups = ["worker", "report"];
    let below = groups.map(|group| help(&[group]));
    let mut verbs: BTreeSet<&str> =
        below.iter().flat_map(|text| listed_verbs(text)).filter(|verb| *verb != "help").collect();
    verbs.extend(listed_verbs(&text).into_iter().filter(|verb| !groups.contains(verb)));
    assert!(verbs.contains("queue") && verbs.contains("claim"), "{text}");
    let help_of = |verb: &str| {
        let group = groups.iter().zip(&below).find(|(_, text)| listed_verbs(text).contains(&verb));
        group.map_or_else(|| help(&[verb]), |(group, _)| help(&[group, verb]))
    };
    let files = files();
    for verb in verbs.iter().filter(|verb| help_of(verb).contains("--json")) {
        let has_one = files.contains_key(*verb);
        assert_ne!(has_one, WITHOUT_FACTS.contains(verb), "{verb}: docs/json/{verb}.schema.json");
    }
    let of_nobody: Vec<&String> =
        files.keys().filter(|name| !verbs.contains(name.as_str()) && !NO_VERBS.contains(&name.as_str())).collect();
    assert_eq!(of_nobody, Vec::<&String>::new());
}

#[test]
fn every_schema_says_what_it_is_of_and_what_each_key_means() {
    for (name, mut schema) in files() {
        assert!(jsonschema::meta::is_valid(&schema), "{name}");
        assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema", "{name}");
        assert_eq!(schema["$id"], format!("urn:taskqueue:1:{name}"), "{name}");
        assert!(schema["title"].is_string() && schema["description"].is_string(), "{name}");
        walk(&mut schema, &mut |part| {
            let Some(properties) = part["properties"].as_object() else { return };
            assert!(part["required"].is_array(), "{name}: {part}");
            assert!(part.get("additionalProperties").is_none(), "{name} is closed for later versions: {part}");
            for (key, property) in properties {
                assert!(property["description"].is_string() || property["$ref"].is_string(), "{name}: {key}");
            }
        });
    }
}
