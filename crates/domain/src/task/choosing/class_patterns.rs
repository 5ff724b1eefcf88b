//! A set of classes by names and patterns, as the configuration states it.

use std::fmt;

use crate::task::choosing::selection::ClassFilter;
use crate::task::task_class::check_class_pattern;

/// Names of classes, or patterns with `*` and `?`; at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassPatterns(Vec<ClassFilter>);

impl ClassPatterns {
    /// Returns the classes; `None` if the list is empty, which limits nothing.
    ///
    /// # Errors
    /// Returns which pattern can match no class.
    pub fn parse<P: AsRef<str>>(patterns: &[P]) -> Result<Option<Self>, String> {
        let filter = |pattern: &P| {
            let pattern = pattern.as_ref();
            check_class_pattern(pattern).map_err(|why| format!("class \"{pattern}\": {why}"))?;
            Ok::<_, String>(ClassFilter::new(pattern))
        };
        let filters: Vec<ClassFilter> = patterns.iter().map(filter).collect::<Result<_, _>>()?;
        Ok(if filters.is_empty() { None } else { Some(Self(filters)) })
    }

    /// Returns the names and patterns.
    pub fn patterns(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(ClassFilter::as_str)
    }

    /// Returns true if the class is one of these.
    #[must_use]
    pub fn contain(&self, class: &str) -> bool {
        self.0.iter().any(|filter| filter.matches(class))
    }

    /// Restricts the names and patterns of a claim to these classes; an empty list becomes all of these.
    ///
    /// # Errors
    /// Returns the first one that may match another class. A pattern must be one of these patterns.
    pub fn narrow(&self, wanted: Vec<String>) -> Result<Vec<String>, String> {
        if wanted.is_empty() {
            return Ok(self.patterns().map(str::to_owned).collect());
        }
        let is_within = |wanted: &str| {
            let is_same = self.patterns().any(|pattern| pattern == wanted);
            is_same || (ClassFilter::new(wanted).is_exact() && self.contain(wanted))
        };
        match wanted.iter().find(|wanted| !is_within(wanted)) {
            Some(outside) => Err(outside.clone()),
            None => Ok(wanted),
        }
    }
}

impl fmt::Display for ClassPatterns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.patterns().collect::<Vec<_>>().join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classes(patterns: &[&str]) -> ClassPatterns {
        ClassPatterns::parse(patterns).unwrap().unwrap()
    }

    #[test]
    fn an_empty_list_limits_nothing_and_a_wrong_pattern_is_an_error() {
        assert_eq!(ClassPatterns::parse::<&str>(&[]), Ok(None));
        assert!(ClassPatterns::parse(&["mail.*", "a b"]).unwrap_err().contains("a b"));
    }

    #[test]
    fn a_claim_is_narrowed_to_the_classes_and_refused_beyond_them() {
        let limited = classes(&["mail.*", "report"]);
        let narrow = |wanted: &[&str]| limited.narrow(wanted.iter().map(|&name| name.to_owned()).collect());
        assert_eq!(narrow(&[]).unwrap(), ["mail.*", "report"]);
        assert_eq!(narrow(&["mail.send", "mail.*"]).unwrap(), ["mail.send", "mail.*"]);
        for outside in ["*", "mail*", "other", "mail.?", "reports"] {
            assert_eq!(narrow(&["report", outside]), Err(outside.to_owned()));
        }
    }
}
