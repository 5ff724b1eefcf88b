//! Every request and every answer of `/api/v1` in these tests fits docs/json/openapi.json, and no answer has characters that
//! control a terminal. The schemas are closed here: a key that they do not describe fails.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use jsonschema::Validator;
use serde_json::{Value, json};

use super::Reply;
use crate::cli::json::schemas::{close, walk};
use crate::cli::outside_text::harmful;

/// Returns the path of the document.
pub(super) fn file() -> PathBuf {
    Path::new(env!("REPOSITORY_DIR")).join("docs/json/openapi.json")
}

/// An operation of the document.
struct Operation {
    method: String,
    path: String,
    name: String,
    request: Option<Validator>,
    status: u16,
    /// `None` if its answer is no JSON.
    answer: Option<Validator>,
}

impl Operation {
    fn is_at(&self, method: &str, path: &str) -> bool {
        let (own, given): (Vec<&str>, Vec<&str>) = (self.path.split('/').collect(), path.split('/').collect());
        let fits = |(own, given): (&&str, &&str)| own == given || own.starts_with('{');
        self.method == method && own.len() == given.len() && own.iter().zip(&given).all(fits)
    }
}

struct Contract {
    operations: Vec<Operation>,
    problem: Validator,
}

static CONTRACT: LazyLock<Contract> = LazyLock::new(|| {
    let mut document: Value = serde_json::from_str(&std::fs::read_to_string(file()).unwrap()).unwrap();
    for schema in document["components"]["schemas"].as_object_mut().unwrap().values_mut() {
        walk(schema, &mut close);
    }
    let validator = |schema: &Value| {
        let mut whole = schema.clone();
        whole["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
        whole["components"] = document["components"].clone();
        jsonschema::options().should_validate_formats(true).build(&whole).unwrap()
    };
    let operations = document["paths"].as_object().unwrap().iter().flat_map(|(path, methods)| {
        methods.as_object().unwrap().iter().map(|(method, about)| {
            let (status, answer) =
                about["responses"].as_object().unwrap().iter().find(|(key, _)| *key != "default").unwrap();
            let json = |content: &Value| content["application/json"].get("schema").map(&validator);
            Operation {
                method: method.to_uppercase(),
                path: path.clone(),
                name: about["operationId"].as_str().unwrap().to_owned(),
                request: json(&about["requestBody"]["content"]),
                status: status.parse().unwrap(),
                answer: json(&answer["content"]),
            }
        })
    });
    let problem = validator(&json!({ "$ref": "#/components/schemas/problem" }));
    Contract { operations: operations.collect(), problem }
});

#[track_caller]
fn expect(validator: &Validator, what: &str, value: &Value) {
    let problems: Vec<String> =
        validator.iter_errors(value).map(|error| format!("{}: {error}", error.instance_path())).collect();
    assert!(problems.is_empty(), "{what}: {value}\n{}", problems.join("\n"));
}

/// Fails if this request or its answer is not as the document describes it. Returns the name of the operation if it succeeded.
#[track_caller]
pub(super) fn check(method: &str, path: &str, body: &str, reply: &Reply) -> Option<&'static str> {
    let path = path.split('?').next().unwrap();
    if !path.starts_with("/api/v1") {
        return None;
    }
    let what = format!("{method} {path}: {}", reply.status);
    assert_eq!(harmful(&reply.body), None, "{what}: {}", reply.body);
    if reply.status >= 400 {
        assert_eq!(reply.header("content-type"), Some("application/problem+json"), "{what}");
        expect(&CONTRACT.problem, &what, &reply.json());
        return None;
    }
    let operation = CONTRACT.operations.iter().find(|operation| operation.is_at(method, path));
    let operation = operation.unwrap_or_else(|| panic!("{what}: not in docs/json/openapi.json"));
    assert_eq!(reply.status, operation.status, "{what}");
    if let Some(answer) = &operation.answer {
        assert_eq!(reply.header("content-type"), Some("application/json"), "{what}");
        expect(answer, &what, &reply.json());
    }
    if let (Some(request), Ok(body)) = (&operation.request, serde_json::from_str::<Value>(body)) {
        expect(request, &what, &body);
    }
    Some(&operation.name)
}

/// Returns the names of all operations.
pub(super) fn operation_names() -> impl Iterator<Item = &'static str> {
    CONTRACT.operations.iter().map(|operation| operation.name.as_str())
}
