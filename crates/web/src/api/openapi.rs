//! `GET /api/v1/openapi.json`: the OpenAPI document, made from the table of operations and the schemas of docs/json.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use crate::api::operations::{OPERATIONS, Operation};
use taskqueue_domain::limits::scope::Scope;

const SCHEMAS: [&str; 7] = [
    include_str!("../../../../docs/json/http.schema.json"),
    include_str!("../../../../docs/json/common.schema.json"),
    include_str!("../../../../docs/json/claim.schema.json"),
    include_str!("../../../../docs/json/explain.schema.json"),
    include_str!("../../../../docs/json/failures.schema.json"),
    include_str!("../../../../docs/json/queue.schema.json"),
    include_str!("../../../../docs/json/status.schema.json"),
];

static DOCUMENT: LazyLock<String> = LazyLock::new(|| openapi().to_string());

pub(crate) fn document() -> &'static str {
    &DOCUMENT
}

fn openapi() -> Value {
    let mut schemas = Schemas::read();
    let mut paths = json!({});
    for operation in OPERATIONS {
        paths[operation.route.path][operation.route.method.to_lowercase()] = describe(operation, &mut schemas);
    }
    let problem = json!({
        "description": "The request failed",
        "content": { "application/problem+json": { "schema": schemas.named("problem") } },
    });
    // The events of a stream.
    schemas.named("event");
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "taskqueue",
            "version": "1",
            "description": "The HTTP interface of `taskqueue web`. docs/web.md describes its use, docs/json.md what stays the same in later versions.",
        },
        "servers": [{ "url": "/" }],
        "paths": paths,
        "components": {
            "schemas": schemas.components,
            "responses": { "problem": problem },
            "securitySchemes": {
                "token": { "type": "http", "scheme": "bearer", "description": "A token of `taskqueue web token add`" },
            },
        },
    })
}

fn describe(operation: &Operation, schemas: &mut Schemas) -> Value {
    let scope = operation.route.may.map_or("", Scope::as_str);
    let limited = if operation.route.checks_class { " A login that is limited to classes may use it." } else { "" };
    let (status, kind, schema) = operation.answer;
    let mut answers = json!({ "default": { "$ref": "#/components/responses/problem" } });
    answers[status.to_string()] =
        json!({ "description": "The answer", "content": { kind: { "schema": schemas.named(schema) } } });
    let mut described = json!({
        "operationId": operation.name,
        "summary": operation.summary,
        "description": format!("Needs the scope `{scope}`.{limited}"),
        // The roles of a bearer token are scopes here.
        "security": [{ "token": [scope] }],
        "parameters": parameters(operation, schemas),
        "responses": answers,
    });
    if !operation.bodies.is_empty() {
        let contents: Map<String, Value> = operation
            .bodies
            .iter()
            .map(|(kind, schema)| ((*kind).to_owned(), json!({ "schema": schemas.named(schema) })))
            .collect();
        described["requestBody"] = json!({ "required": true, "content": contents });
    }
    described
}

/// Returns the parameters: ids in the path, those of the query, and headers.
fn parameters(operation: &Operation, schemas: &Schemas) -> Vec<Value> {
    let parameter = |place: &str, name: &str, schema: &Value| {
        json!({
            "name": name, "in": place, "required": place == "path",
            "description": schema["description"], "schema": schema,
        })
    };
    let subject = if operation.route.path.contains("/runs/") { "run" } else { "task" };
    let about = format!("The id of the {subject}");
    let id = json!({ "type": "integer", "format": "int64", "minimum": 1, "description": about });
    let in_path = operation.route.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let properties = |schema: Option<&'static str>| {
        schema.and_then(|name| schemas.definition(name)["properties"].as_object()).into_iter().flatten()
    };
    in_path
        .map(|name| parameter("path", name, &id))
        .chain(properties(operation.query).map(|(name, schema)| parameter("query", name, schema)))
        .chain(properties(operation.headers).map(|(name, schema)| parameter("header", name, schema)))
        .collect()
}

/// The schemas of docs/json by their `$id`, and those that the document uses by their names.
struct Schemas {
    files: BTreeMap<String, Value>,
    components: Map<String, Value>,
}

impl Schemas {
    fn read() -> Self {
        let parsed = SCHEMAS.iter().filter_map(|text| serde_json::from_str::<Value>(text).ok());
        let files = parsed.map(|file| (file["$id"].as_str().unwrap_or_default().to_owned(), file)).collect();
        Self { files, components: Map::new() }
    }

    /// Returns the address of a definition: the interface has its own, and shares the others with the verbs.
    fn address(&self, name: &str) -> String {
        let own = format!("urn:taskqueue:1:http#/$defs/{name}");
        if self.at(&own).is_null() { format!("urn:taskqueue:1:common#/$defs/{name}") } else { own }
    }

    fn at(&self, address: &str) -> &Value {
        let (file, pointer) = address.split_once('#').unwrap_or((address, ""));
        self.files.get(file).and_then(|file| file.pointer(pointer)).unwrap_or(&Value::Null)
    }

    fn definition(&self, name: &str) -> &Value {
        self.at(&self.address(name))
    }

    /// Adds the definition with this name, and returns a reference to it.
    fn named(&mut self, name: &str) -> Value {
        self.refer(&self.address(name))
    }

    /// Returns a reference to a definition, or the schema itself if it is part of another one.
    fn refer(&mut self, address: &str) -> Value {
        let target = self.at(address).clone();
        let Some((_, name)) = address.split_once("#/$defs/").filter(|(_, name)| !name.contains('/')) else {
            return self.resolved(target);
        };
        if !self.components.contains_key(name) {
            // Before its own parts, which may refer to it.
            self.components.insert(name.to_owned(), Value::Null);
            let schema = self.resolved(target);
            self.components.insert(name.to_owned(), schema);
        }
        json!({ "$ref": format!("#/components/schemas/{name}") })
    }

    /// Returns the schema with references into the document. Its own keys win over those of a schema that it includes. Titles are
    /// left out, because generated clients name their types after them.
    fn resolved(&mut self, schema: Value) -> Value {
        match schema {
            Value::Object(mut members) => {
                let reference = members.remove("$ref");
                members.retain(|key, value| key != "title" || !value.is_string());
                let mut members: Map<String, Value> =
                    members.into_iter().map(|(key, value)| (key, self.resolved(value))).collect();
                if let Some(Value::Object(included)) =
                    reference.as_ref().and_then(Value::as_str).map(|at| self.refer(at))
                {
                    for (key, value) in included {
                        members.entry(key).or_insert(value);
                    }
                }
                Value::Object(members)
            }
            Value::Array(parts) => parts.into_iter().map(|part| self.resolved(part)).collect(),
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_schema_is_read_and_every_reference_leads_to_one() {
        assert_eq!(Schemas::read().files.len(), SCHEMAS.len());
        let document = openapi();
        let schemas = document["components"]["schemas"].as_object().into_iter().flatten();
        let missing: Vec<&String> = schemas.filter(|(_, schema)| !schema.is_object()).map(|(name, _)| name).collect();
        assert!(missing.is_empty(), "{missing:?}");
        for name in OPERATIONS.iter().flat_map(|operation| [operation.query, operation.headers]).flatten() {
            assert!(Schemas::read().definition(name)["properties"].is_object(), "{name}");
        }
    }
}
