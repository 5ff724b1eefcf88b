//! The command line as bash passes it. Bash also splits words at `=` and `:`, and replaces only the part after the last of
//! these. So this parses the line itself, and returns that part.

/// A command line up to the cursor.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CompletionLine {
    /// Its words without quotes; the last one is incomplete.
    pub(super) words: Vec<String>,
    /// How many bytes of the last word come before the part that bash replaces.
    kept: usize,
    /// The open quotation mark at that position.
    quote: Option<char>,
}

impl CompletionLine {
    /// Parses a line whose end bash will replace.
    pub(super) fn read(line: &str, replaced: &str) -> Self {
        let cut = line.strip_suffix(replaced).map(str::len);
        let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
        let mut at_cut = (0, None);
        let mut characters = line.char_indices();
        while let Some((at, c)) = characters.next() {
            if cut == Some(at) {
                at_cut = (word.as_ref().map_or(0, String::len), quote);
            }
            match (quote, c) {
                (None, ' ' | '\t' | '\n') => words.extend(word.take()),
                (None, '\'' | '"') => {
                    quote = Some(c);
                    word.get_or_insert_default();
                }
                (Some(open), c) if open == c => quote = None,
                (None | Some('"'), '\\') => {
                    let next = characters.next().map(|(_, next)| next);
                    word.get_or_insert_default().extend(unescaped(quote, next));
                }
                (_, c) => word.get_or_insert_default().push(c),
            }
        }
        if cut == Some(line.len()) {
            at_cut = (word.as_ref().map_or(0, String::len), quote);
        }
        words.push(word.unwrap_or_default());
        let (kept, quote) = at_cut;
        Self { words, kept, quote }
    }

    /// Returns the replacement that turns the last word into `value`.
    pub(super) fn replacement(&self, value: &str) -> Option<String> {
        let typed = self.words.last()?;
        let rest = value.strip_prefix(typed.get(..self.kept)?)?;
        Some(match self.quote {
            // A home directory typed as `~` is kept in that form.
            None if self.kept == 0 && typed.starts_with('~') => format!("~{}", escaped(rest.strip_prefix('~')?)),
            None => escaped(rest),
            // Inside double quotes, an interactive shell expands `!`, and a backslash before it would remain.
            Some('"') if rest.contains('!') => return None,
            Some('"') => {
                rest.chars().flat_map(|c| "\"\\$`".contains(c).then_some('\\').into_iter().chain([c])).collect()
            }
            Some(_) => rest.replace('\'', "'\\''"),
        })
    }
}

/// Returns what a backslash and the following character mean.
fn unescaped(quote: Option<char>, next: Option<char>) -> impl Iterator<Item = char> {
    let is_escape = quote.is_none() || next.is_some_and(|next| "\"\\$`".contains(next));
    let backslash = (!is_escape).then_some('\\');
    backslash.into_iter().chain(next)
}

fn escaped(text: &str) -> String {
    let is_plain = |c: char| !c.is_ascii() || c.is_ascii_alphanumeric() || "_-.,:=/@%+".contains(c);
    text.chars().flat_map(|c| (!is_plain(c)).then_some('\\').into_iter().chain([c])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        CompletionLine::read(line, "").words
    }

    #[test]
    fn a_line_is_read_as_bash_reads_it() {
        assert_eq!(words("taskqueue status "), ["taskqueue", "status", ""]);
        assert_eq!(
            words("taskqueue  queue 'a b' \"c \\\" \\d\" e\\ f"),
            ["taskqueue", "queue", "a b", "c \" \\d", "e f"]
        );
        assert_eq!(words("taskqueue --database=pg://a@b/c st"), ["taskqueue", "--database=pg://a@b/c", "st"]);
        assert_eq!(words("taskqueue status ''"), ["taskqueue", "status", ""]);
        assert_eq!(words("taskqueue status \"las"), ["taskqueue", "status", "las"]);
        assert_eq!(words("taskqueue status x\\"), ["taskqueue", "status", "x"]);
    }

    #[test]
    fn bash_gets_what_it_replaces_and_quotes_stay_as_they_are() {
        let becomes = |line: &str, replaced: &str, value: &str| CompletionLine::read(line, replaced).replacement(value);
        assert_eq!(becomes("taskqueue retry class=ma", "ma", "class=mail.send").unwrap(), "mail.send");
        assert_eq!(becomes("taskqueue retry cl", "cl", "class=").unwrap(), "class=");
        assert_eq!(becomes("taskqueue retry \"class=ma", "class=ma", "class=mail.send").unwrap(), "class=mail.send");
        assert_eq!(becomes("taskqueue retry class=", "", "class=App\\Mail").unwrap(), "App\\\\Mail");
        assert_eq!(becomes("taskqueue retry 'class=", "class=", "class=App\\Mail").unwrap(), "class=App\\Mail");
        assert_eq!(becomes("taskqueue retry class=App\\\\M", "App\\\\M", "class=App\\Mail").unwrap(), "App\\\\Mail");
        assert_eq!(becomes("taskqueue queue $(", "$(", "$(rm x)").unwrap(), "\\$\\(rm\\ x\\)");
        assert_eq!(becomes("taskqueue queue \"", "", "a\"$b").unwrap(), "a\\\"\\$b");
        assert_eq!(becomes("taskqueue queue '", "", "it's").unwrap(), "it'\\''s");
        assert_eq!(becomes("taskqueue --config ~/a", "~/a", "~/a b").unwrap(), "~/a\\ b");
        assert_eq!(becomes("taskqueue status 12", "12", "34"), Some("34".to_owned()));
        assert_eq!(becomes("taskqueue status a=1", "1", "34"), None);
    }
}
