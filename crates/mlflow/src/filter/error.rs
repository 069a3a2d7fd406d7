//! The sentences of refusal. Clients and MLflow's own tests match on them, so their beginnings are
//! the original's, word for word; what they repeat of the caller's text is bounded.

use falaj_base::{Error, code};

use super::comparator::Comparator;
use super::schema::{Schema, Style};
use super::syntax::Refusal;
use super::{MAX_COMPARISONS, MAX_DEPTH, MAX_TEXT};

/// The most characters of the caller's text that an error repeats.
const ECHO_LIMIT: usize = 200;

pub(super) fn refuse(message: impl Into<String>) -> Error {
    Error::new(&code::INVALID_INPUT, message)
}

/// The caller's text, bounded and on one line.
pub(super) fn echo(text: &str) -> String {
    let mut shown = String::new();
    for (count, c) in text.chars().enumerate() {
        if count == ECHO_LIMIT {
            shown.push('…');
            break;
        }
        if c.is_control() {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// A text that is no filter at all.
pub(super) fn syntax(refusal: &Refusal<'_>, text: &str, schema: &Schema) -> Error {
    refuse(match refusal {
        Refusal::TooLong => {
            format!("The filter string has {} bytes; at most {MAX_TEXT} are allowed", text.len())
        }
        Refusal::Blank => format!("Invalid filter '{}'. Could not be parsed.", echo(text)),
        Refusal::Several => format!(
            "Search filter contained multiple expression '{}'. Provide AND-ed expression list.",
            echo(text)
        ),
        Refusal::Clause(_) if schema.style == Style::LoggedModels => format!(
            "Invalid filter string: '{}'. Expected a list of comparisons separated by 'AND' \
             (e.g. 'metrics.loss > 0.1 AND params.lr = 0.01').",
            echo(text)
        ),
        Refusal::Clause(clause) => {
            format!("Invalid clause(s) in filter string: '{}'", echo(clause))
        }
        Refusal::NotAName(found) => format!(
            "Invalid comparison clause. Expected 'Identifier' found '{}'. A key with other \
             characters than letters, digits, '_' and '.' is written in backticks.",
            echo(found)
        ),
        Refusal::TooDeep => {
            format!("Invalid filter string: nested more than {MAX_DEPTH} levels deep")
        }
        Refusal::TooMany => {
            format!("Invalid filter string: more than {MAX_COMPARISONS} comparisons")
        }
    })
}

pub(super) fn comparator(found: &str, accepted: &[Comparator]) -> Error {
    let accepted = set(accepted.iter().map(|comparator| comparator.text()));
    refuse(format!("Invalid comparator '{}' not one of '{accepted}'", echo(found)))
}

/// Names as Python prints a set of them, which is how the original lists what is valid.
pub(super) fn set<'a>(names: impl Iterator<Item = &'a str>) -> String {
    format!("{{{}}}", quoted(names))
}

/// Names as Python prints a list of them.
pub(super) fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    format!("[{}]", quoted(names))
}

fn quoted<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ")
}
