//! A strict parser of the text format of Prometheus: what only some readers accept fails.

use std::collections::{BTreeMap, BTreeSet};

/// A parsed text.
#[derive(Debug, Default)]
pub struct Exposition {
    /// The type of each name.
    pub types: BTreeMap<String, String>,
    /// Values by name and labels, as written.
    pub values: BTreeMap<String, f64>,
}

impl Exposition {
    #[track_caller]
    pub fn parse(text: &str) -> Self {
        assert!(text.ends_with('\n'), "no line break at the end: {text}");
        let mut found = Self::default();
        let mut current = String::new();
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            if let Some(help) = line.strip_prefix("# HELP ") {
                let (name, words) = help.split_once(' ').unwrap_or_else(|| panic!("{line}"));
                assert!(is_name(name) && words.ends_with('.') && !words.contains('\\'), "{line}");
                let kind = lines.next().and_then(|next| next.strip_prefix(&format!("# TYPE {name} ")));
                let kind = kind.unwrap_or_else(|| panic!("no type after {line}"));
                assert!(["counter", "gauge", "histogram"].contains(&kind), "{name}: {kind}");
                assert_eq!(kind == "counter", name.ends_with("_total"), "{name}: {kind}");
                assert_eq!(found.types.insert(name.to_owned(), kind.to_owned()), None, "{name} is described twice");
                name.clone_into(&mut current);
                continue;
            }
            let (key, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line:?}"));
            let (name, labels) = name_and_labels(key);
            let suffixes: &[&str] =
                if found.types[&current] == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
            assert!(
                suffixes.iter().any(|suffix| name == format!("{current}{suffix}")),
                "{line} stands under {current}"
            );
            assert_eq!(name.ends_with("_bucket"), labels.contains("le"), "{line}");
            let value: f64 = value.parse().unwrap_or_else(|_| panic!("{line}"));
            assert!(value >= 0.0 && value.is_finite(), "{line}");
            assert_eq!(found.values.insert(key.to_owned(), value), None, "{key} is there twice");
        }
        found.check_histograms(text);
        found
    }

    /// Returns the value of this name with these labels.
    #[track_caller]
    pub fn value(&self, key: &str) -> f64 {
        *self.values.get(key).unwrap_or_else(|| panic!("no {key} in {:#?}", self.values))
    }

    /// Checks that buckets grow, and that the last one equals the count.
    fn check_histograms(&self, text: &str) {
        let (mut last, mut of) = (0.0, String::new());
        for line in text.lines().filter(|line| line.contains("_bucket{le=")) {
            let (key, _) = line.rsplit_once(' ').unwrap();
            let (name, rest) = key.split_once("_bucket{le=\"").unwrap();
            let (bound, labels) = rest.split_once('"').unwrap();
            let labels = labels.trim_start_matches(',').trim_end_matches('}');
            let series = if labels.is_empty() { format!("{name}_count") } else { format!("{name}_count{{{labels}}}") };
            if series != of {
                (last, of) = (0.0, series.clone());
            }
            assert!(self.value(key) >= last, "{line}");
            last = self.value(key);
            if bound == "+Inf" {
                assert_eq!(last, self.value(&series), "{line}");
            }
        }
    }
}

fn is_name(text: &str) -> bool {
    text.starts_with("taskqueue_") && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
}

/// Returns the name, and the names of its labels.
#[track_caller]
fn name_and_labels(key: &str) -> (String, BTreeSet<String>) {
    let Some((name, rest)) = key.split_once('{') else {
        assert!(is_name(key), "{key}");
        return (key.to_owned(), BTreeSet::new());
    };
    assert!(is_name(name), "{key}");
    let (mut rest, mut labels) = (rest, BTreeSet::new());
    loop {
        let (label, value) = rest.split_once("=\"").unwrap_or_else(|| panic!("{key}"));
        assert!(!label.is_empty() && label.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{key}");
        assert!(labels.insert(label.to_owned()), "{key}: {label} is there twice");
        let end = end_of_value(value).unwrap_or_else(|| panic!("{key}: no end of a value"));
        rest = &value[end + 1..];
        match rest.strip_prefix(',') {
            Some(next) => rest = next,
            None => break,
        }
    }
    assert_eq!(rest, "}", "{key}");
    (name.to_owned(), labels)
}

/// Returns the position of the closing quotation mark.
fn end_of_value(text: &str) -> Option<usize> {
    let mut is_escaped = false;
    for (place, c) in text.char_indices() {
        match c {
            '\\' | '"' | 'n' if is_escaped => is_escaped = false,
            _ if is_escaped => return None,
            '\\' => is_escaped = true,
            '"' => return Some(place),
            _ => {}
        }
    }
    None
}
