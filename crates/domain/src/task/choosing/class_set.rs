//! The task classes that a claim accepts, so that a scan of waiting class names can skip all others.

use std::ops::Bound;

use crate::task::task_class::TaskClass;

/// A set of classes that a predicate accepts. The spans limit where their names can be in sorted order.
pub struct ClassSet<'a> {
    spans: Vec<Span>,
    contains: &'a dyn Fn(&TaskClass) -> bool,
}

/// One name, or all names with this prefix.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Span {
    name: String,
    is_prefix: bool,
}

impl Span {
    /// Returns the span of a pattern: with `*` and `?`, its prefix is the text before the first of these.
    fn of(pattern: &str) -> Self {
        let end = pattern.find(['*', '?']);
        Self { name: pattern[..end.unwrap_or(pattern.len())].to_owned(), is_prefix: end.is_some() }
    }

    fn contains(&self, name: &str) -> bool {
        if self.is_prefix { name.starts_with(&self.name) } else { name == self.name }
    }

    /// Returns the names that are in both.
    fn common(&self, other: &Self) -> Option<Self> {
        let is_within =
            |inner: &Self, outer: &Self| outer.contains(&inner.name) && (outer.is_prefix || !inner.is_prefix);
        [(self, other), (other, self)]
            .into_iter()
            .find(|(inner, outer)| is_within(inner, outer))
            .map(|(inner, _)| inner.clone())
    }
}

impl<'a> ClassSet<'a> {
    /// Returns the classes that the predicate accepts and that match one of these names or patterns with `*` and `?`.
    pub fn of<N: AsRef<str>>(patterns: impl IntoIterator<Item = N>, contains: &'a dyn Fn(&TaskClass) -> bool) -> Self {
        let mut spans: Vec<Span> = patterns.into_iter().map(|pattern| Span::of(pattern.as_ref())).collect();
        spans.sort();
        spans.dedup();
        Self { spans, contains }
    }

    /// Returns the classes that the predicate accepts, with any name.
    #[must_use]
    pub fn any(contains: &'a dyn Fn(&TaskClass) -> bool) -> Self {
        Self::of(["*"], contains)
    }

    /// Restricts the set to classes that also match one of these names or patterns; an empty list restricts nothing.
    #[must_use]
    pub fn within<N: AsRef<str>>(self, patterns: &[N]) -> Self {
        if patterns.is_empty() {
            return self;
        }
        let others: Vec<Span> = patterns.iter().map(|pattern| Span::of(pattern.as_ref())).collect();
        let common = |span: &Span| others.iter().filter_map(|other| span.common(other)).collect::<Vec<_>>();
        let mut spans: Vec<Span> = self.spans.iter().flat_map(common).collect();
        spans.sort();
        spans.dedup();
        Self { spans, contains: self.contains }
    }

    /// Returns true if the set contains the class.
    #[must_use]
    pub fn contains(&self, class: &TaskClass) -> bool {
        (self.contains)(class)
    }

    /// Returns the first position from here on where the name of a class of the set can be; `None` if there is none.
    #[must_use]
    pub fn seek(&self, from: Bound<String>) -> Option<Bound<String>> {
        let (name, is_after) = match &from {
            Bound::Included(name) => (name.as_str(), false),
            Bound::Excluded(name) => (name.as_str(), true),
            Bound::Unbounded => ("", false),
        };
        if self.spans.iter().any(|span| span.is_prefix && span.contains(name)) {
            return Some(if is_after { from } else { Bound::Included(name.to_owned()) });
        }
        let next = self.spans.iter().find(|span| span.name.as_str() > name || (!is_after && span.name == name));
        next.map(|span| Bound::Included(span.name.clone()))
    }
}

/// Returns the position after all names with this prefix; `None` if no name can follow them.
#[must_use]
pub fn after_prefix(prefix: &str) -> Option<Bound<String>> {
    let mut next = prefix.to_owned();
    let last = next.pop()?;
    // Class names are ASCII: this character sorts after every name with this prefix.
    let behind = char::from_u32(u32::from(last) + 1).filter(char::is_ascii)?;
    next.push(behind);
    Some(Bound::Included(next))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the waiting names at which a scan stops to ask the predicate.
    fn met(classes: &ClassSet<'_>, waiting: &[&str]) -> Vec<String> {
        let (mut met, mut place) = (Vec::new(), classes.seek(Bound::Unbounded));
        while let Some(from) = place {
            let is_later = |name: &&&str| match &from {
                Bound::Included(from) => **name >= from.as_str(),
                Bound::Excluded(from) => **name > from.as_str(),
                Bound::Unbounded => true,
            };
            let Some(found) = waiting.iter().find(is_later) else { break };
            met.push((*found).to_owned());
            place = classes.seek(Bound::Excluded((*found).to_owned()));
        }
        met
    }

    const WAITING: [&str; 9] = ["a", "b", "c", "mail", "mail.a", "mail.b", "mailer", "x", "y"];

    #[test]
    fn every_name_is_met_where_any_class_is_taken() {
        assert_eq!(met(&ClassSet::any(&|_| true), &WAITING), WAITING);
    }

    #[test]
    fn names_between_those_that_are_taken_are_passed_over() {
        assert_eq!(met(&ClassSet::of(["mail.*", "b"], &|_| true), &WAITING), ["b", "mail.a", "mail.b", "mailer"]);
        assert_eq!(met(&ClassSet::of(["mail", "y"], &|_| true), &WAITING), ["mail", "y"]);
        assert_eq!(met(&ClassSet::of(["ma?l"], &|_| true), &WAITING), ["mail", "mail.a", "mail.b", "mailer", "x"]);
        assert_eq!(met(&ClassSet::of([""; 0], &|_| true), &WAITING), [""; 0]);
    }

    #[test]
    fn of_two_lists_of_patterns_only_what_is_in_both_is_met() {
        let both = |known: &[&str], only: &[&str]| met(&ClassSet::of(known, &|_| true).within(only), &WAITING);
        assert_eq!(both(&["*"], &["mail.b", "y"]), ["mail.b", "y"]);
        assert_eq!(both(&["mail.b", "y"], &["m*"]), ["mail.b"]);
        assert_eq!(both(&["mail*"], &["mail.*"]), ["mail.a", "mail.b", "mailer"]);
        assert_eq!(both(&["a"], &["b"]), [""; 0]);
        assert_eq!(both(&["mail"], &["mail*"]), ["mail"]);
        assert_eq!(both(&["b"], &[]), ["b"]);
    }

    #[test]
    fn the_names_with_a_prefix_end_before_the_next_character() {
        assert_eq!(after_prefix("mail."), Some(Bound::Included("mail/".to_owned())));
        assert_eq!(after_prefix(""), None);
    }
}
