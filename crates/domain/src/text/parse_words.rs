//! Rephrases parser errors for authors of JSON or TOML, who do not know what an `i64` is.

use super::nearest::nearest_names;

/// Rust types as parsers name them, and the words for them.
const TYPES: [(&str, &str); 8] = [
    ("i64", "a whole number"),
    ("i32", "a whole number"),
    ("u64", "a whole number of 0 or more"),
    ("u32", "a whole number of 0 or more"),
    ("usize", "a whole number of 0 or more"),
    ("a boolean", "true or false"),
    ("a sequence", "a list"),
    ("unit", "null"),
];
const EXPECTED: &str = "expected ";

/// The start of a parser error about a number that does not fit its type.
const TOO_LARGE_OR_SMALL: &str = "invalid value: integer ";

/// Returns a parser error in plain words. `object` is the word for a struct or a map: an object, a table.
#[must_use]
pub fn plain(problem: &str, object: &str) -> String {
    let problem = match problem.strip_prefix(TOO_LARGE_OR_SMALL) {
        Some(rest) => format!("out of range: integer {rest}"),
        None => problem.replacen("EOF while parsing", "it ends in the middle of", 1),
    };
    // The last occurrence: the part before it quotes the input.
    let Some(at) = problem.rfind(EXPECTED) else { return problem };
    let (before, wanted) = problem.split_at(at + EXPECTED.len());
    if wanted.starts_with("struct ") {
        return format!("{before}{object}{}", &wanted[wanted.find(" at line ").unwrap_or(wanted.len())..]);
    }
    for (name, words) in TYPES.into_iter().chain([("a map", object)]) {
        if let Some(rest) = wanted.strip_prefix(name).filter(|rest| !rest.starts_with(char::is_alphanumeric)) {
            return format!("{before}{words}{rest}");
        }
    }
    problem
}

/// Returns the error for an unknown key in place of that of the parser: with the most similar key, or with all.
#[must_use]
pub fn unknown_key(key: &str, message: &str) -> String {
    // Every second part is between backquotes.
    let known: Vec<String> = message.split('`').skip(3).step_by(2).map(str::to_owned).collect();
    let longer: Vec<String> = known.iter().filter(|name| name.starts_with(&format!("{key}_"))).cloned().collect();
    let nearest = if longer.is_empty() { nearest_names(key, known.iter().cloned()) } else { longer };
    let quoted = |names: &[String]| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>();
    if nearest.is_empty() {
        return format!("unknown key `{key}`; the keys here are {}", quoted(&known).join(", "));
    }
    format!("unknown key `{key}`; did you mean {}?", quoted(&nearest).join(" or "))
}

/// Returns the same for JSON that is one line of a file. The caller adds the line number, so only the column is kept.
#[must_use]
pub fn json_line_problem(error: &serde_json::Error) -> String {
    let text = plain(&error.to_string(), "an object");
    match text.strip_suffix(&format!(" at line {} column {}", error.line(), error.column())) {
        Some(problem) if problem.starts_with("unknown field `") => {
            unknown_key(problem.split('`').nth(1).unwrap_or_default(), problem)
        }
        Some(problem) => format!("{problem} at column {}", error.column()),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_has_to_know_the_types_of_this_program() {
        for (said, plainly) in [
            ("invalid type: string \"x\", expected i64", "invalid type: string \"x\", expected a whole number"),
            ("invalid type: integer `1`, expected a sequence", "invalid type: integer `1`, expected a list"),
            ("invalid length 0, expected struct Line with 18 elements", "invalid length 0, expected an object"),
            (
                "invalid type: integer `1`, expected struct Line at line 1 column 1",
                "invalid type: integer `1`, expected an object at line 1 column 1",
            ),
            (
                "invalid type: string \"expected i64\", expected a string",
                "invalid type: string \"expected i64\", expected a string",
            ),
            (
                "invalid value: integer `-1`, expected u32",
                "out of range: integer `-1`, expected a whole number of 0 or more",
            ),
            ("invalid value: string \"x\", expected a map", "invalid value: string \"x\", expected an object"),
            ("missing field `class`", "missing field `class`"),
        ] {
            assert_eq!(plain(said, "an object"), plainly);
        }
        let in_toml = plain("invalid type: integer `5`, expected a map", "a table");
        assert_eq!(in_toml, "invalid type: integer `5`, expected a table");
    }

    #[test]
    fn an_unknown_key_of_a_line_is_named_with_the_nearest_one() {
        #[derive(Debug, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Line {
            #[serde(rename = "class")]
            _class: Option<String>,
            #[serde(rename = "priority")]
            _priority: Option<i64>,
        }
        let problem = |line| json_line_problem(&serde_json::from_str::<Line>(line).unwrap_err());
        assert_eq!(problem("{\"prioritty\":1}"), "unknown key `prioritty`; did you mean `priority`?");
        assert_eq!(problem("{\"x\":1}"), "unknown key `x`; the keys here are `class`, `priority`");
    }

    #[test]
    fn of_a_line_only_the_column_is_told() {
        let error = serde_json::from_str::<Vec<i64>>("[1, 2").unwrap_err();
        assert_eq!(json_line_problem(&error), "it ends in the middle of a list at column 5");
        let error = serde_json::from_str::<Vec<i64>>("[true]").unwrap_err();
        assert!(
            json_line_problem(&error).starts_with("invalid type: boolean `true`, expected a whole number at column ")
        );
    }
}
