//! What is wrong with a number, in the place of the words of the parser.

use std::error::Error as _;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, Error};

/// Lets every option and argument take a negative number as its value, so that the error is about the number. Otherwise `-1` would
/// be an unknown option.
pub(crate) fn with_negative_numbers(command: Command) -> Command {
    command
        .mut_args(|arg| if arg.get_action().takes_values() { arg.allow_negative_numbers(true) } else { arg })
        .mut_subcommands(with_negative_numbers)
}

/// Replaces the reason of an error about a value that is no number, or not one of those that are allowed.
pub(crate) fn with_plain_reason(error: Error) -> Error {
    if error.kind() != ErrorKind::ValueValidation {
        return error;
    }
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let (Some(value), Some(argument)) = (context(ContextKind::InvalidValue), context(ContextKind::InvalidArg)) else {
        return error;
    };
    let Some(reason) = error.source().and_then(|cause| reason(&cause.to_string())) else { return error };
    let text = format!("invalid value '{value}' for '{argument}': {reason}\n\nFor more information, try '--help'.\n");
    Error::raw(ErrorKind::ValueValidation, text)
}

fn reason(cause: &str) -> Option<String> {
    match cause {
        "invalid digit found in string" | "cannot parse integer from empty string" => {
            Some("it must be a whole number".to_owned())
        }
        "number too large to fit in target type" => Some("it is too large".to_owned()),
        "number too small to fit in target type" => Some("it is too small".to_owned()),
        _ => {
            let (low, high) = cause.split_once(" is not in ")?.1.split_once("..")?;
            Some(match high.strip_prefix('=') {
                Some(high) => format!("it must be {low} to {high}"),
                None => format!("it must be {low} or more"),
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::{Arg, value_parser};

    use super::*;

    fn error_of(line: &str) -> String {
        let command = Command::new("t")
            .arg(Arg::new("any").long("any").value_parser(value_parser!(u32)))
            .arg(Arg::new("some").long("some").value_parser(value_parser!(u16).range(1..=9)))
            .arg(Arg::new("more").long("more").value_parser(value_parser!(u32).range(5..)));
        let command = with_negative_numbers(command);
        with_plain_reason(command.try_get_matches_from(["t"].into_iter().chain(line.split(' '))).unwrap_err())
            .to_string()
    }

    #[test]
    fn what_is_wrong_with_a_number_is_said_in_plain_words() {
        for (line, expected) in [
            ("--any=high", "invalid value 'high' for '--any <any>': it must be a whole number"),
            ("--any=1.5", "invalid value '1.5' for '--any <any>': it must be a whole number"),
            ("--any=-1", "invalid value '-1' for '--any <any>': it must be 0 to 4294967295"),
            ("--more -1", "invalid value '-1' for '--more <more>': it must be 5 to 4294967295"),
            ("--any=99999999999999999999", "invalid value '99999999999999999999' for '--any <any>': it is too large"),
            ("--some=0", "invalid value '0' for '--some <some>': it must be 1 to 9"),
            ("--more=4", "invalid value '4' for '--more <more>': it must be 5 to 4294967295"),
        ] {
            let error = error_of(line);
            assert!(error.starts_with(&format!("error: {expected}\n")), "{line}: {error}");
        }
    }
}
