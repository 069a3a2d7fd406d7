//! The checks a tenant's policy passes before it is kept.
//!
//! Must hold: what passes evaluates without type errors, within bounded time and stack, and can
//! neither name nor touch what the built-in policies guard. A refusal says where in the text.

use std::str::FromStr;

use cedar_policy::ffi::DetailedError;
use cedar_policy::{Effect, EntityTypeName, Policy, PolicySet, ValidationMode};
use falaj_base::{Error, Result, code};

use super::engine::Engine;
use super::question::RESERVED_NOUNS;
use super::schema::noun;

/// How deep brackets may nest. Parsing, checking and dropping a policy recurse on them.
const DEPTH: usize = 24;
/// The longest run of operators, dots and keywords in one text, for the same reason.
const STEPS: usize = 1_000;
/// How many mistakes one refusal lists.
const LISTED: usize = 5;

/// A policy text that passed: its statements, in order.
#[derive(Debug)]
pub struct Checked {
    pub statements: Vec<Policy>,
}

impl Checked {
    /// How many statements permit, and how many forbid.
    #[must_use]
    pub fn effects(&self) -> (usize, usize) {
        let permits = self.statements.iter().filter(|p| p.effect() == Effect::Permit).count();
        (permits, self.statements.len() - permits)
    }
}

/// Checks `source` from end to end.
pub fn check(engine: &Engine, source: &str, limit: usize) -> Result<Checked> {
    if source.len() > limit {
        let text = format!("the policy has {} bytes; at most {limit} are allowed", source.len());
        return Err(Error::new(&code::TOO_LARGE, text).at("source"));
    }
    check_shape(source)?;
    let set = parse(source)?;
    if set.num_of_templates() > 0 {
        return Err(refused("a policy must not have slots such as ?principal"));
    }
    if set.is_empty() {
        return Err(refused("the text has no statement: write `permit (…)` or `forbid (…)`"));
    }
    for policy in set.policies() {
        check_literals(policy)?;
    }
    validate(engine, &set, source)?;
    Ok(Checked { statements: in_order(&set) })
}

/// Reads a text that was checked when it was stored.
pub(super) fn parse(source: &str) -> Result<PolicySet> {
    PolicySet::from_str(source).map_err(|errors| {
        let detailed: Vec<_> = errors.iter().map(DetailedError::from).collect();
        refused_at(source, &detailed)
    })
}

/// Cedar numbers the statements of a text `policy0`, `policy1` and so on.
pub(super) fn in_order(set: &PolicySet) -> Vec<Policy> {
    let number = |policy: &Policy| -> usize {
        AsRef::<str>::as_ref(policy.id())
            .trim_start_matches("policy")
            .parse()
            .unwrap_or(usize::MAX)
    };
    let mut policies: Vec<Policy> = set.policies().cloned().collect();
    policies.sort_by_key(number);
    policies
}

/// Bounds the recursion that the text can cause, before a parser sees it.
fn check_shape(source: &str) -> Result<()> {
    let (mut depth, mut steps) = (0_usize, 0_usize);
    let mut rest = source.bytes().enumerate().peekable();
    while let Some((at, byte)) = rest.next() {
        match byte {
            b'"' => {
                // A string ends at the first quote that no backslash precedes.
                while let Some((_, inner)) = rest.next() {
                    match inner {
                        b'\\' => drop(rest.next()),
                        b'"' => break,
                        _ => {}
                    }
                }
            }
            b'/' if rest.peek().is_some_and(|(_, next)| *next == b'/') => {
                while rest.next_if(|(_, byte)| *byte != b'\n').is_some() {}
            }
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            b'.' | b'!' | b'-' | b'+' | b'*' | b'&' | b'|' | b'<' | b'>' | b'=' => steps += 1,
            b'i' if source[at..].starts_with("if") => steps += 1,
            _ => {}
        }
        if depth > DEPTH {
            let (line, column) = position(source, at);
            let text = format!("line {line}, column {column}: brackets nest over {DEPTH} deep");
            return Err(refused(text));
        }
    }
    if steps > STEPS {
        return Err(refused(format!("the text has {steps} operators; at most {STEPS} are allowed")));
    }
    Ok(())
}

/// Keeps a policy to what it may speak about.
fn check_literals(policy: &Policy) -> Result<()> {
    let is = |kind: &EntityTypeName, name: &str| kind.to_string() == name;
    for literal in policy.entity_literals() {
        let id: &str = literal.id().as_ref();
        if is(literal.type_name(), "Role") {
            return Err(refused(
                "a policy cannot name a Role; write `principal in resource.viewers` (or \
                 contributors, operators, admins, auditors)",
            ));
        }
        let reserved = RESERVED_NOUNS.contains(&noun(id));
        if is(literal.type_name(), "Action") && reserved {
            return Err(refused(format!(
                "Action::{id:?} is decided by the built-in policies alone; a tenant's policy has \
                 no say over {}",
                RESERVED_NOUNS.join(", "),
            )));
        }
    }
    Ok(())
}

fn validate(engine: &Engine, set: &PolicySet, source: &str) -> Result<()> {
    let result = engine.validator().validate(set, ValidationMode::Strict);
    let errors = result.validation_errors().map(DetailedError::from);
    // A warning is a statement that can never apply, or text that reads as something it is not.
    let warnings = result.validation_warnings().map(DetailedError::from);
    let found: Vec<_> = errors.chain(warnings).collect();
    if found.is_empty() { Ok(()) } else { Err(refused_at(source, &found)) }
}

fn refused(text: impl Into<String>) -> Error {
    Error::new(&code::INVALID_POLICY, text).at("source")
}

fn refused_at(source: &str, found: &[DetailedError]) -> Error {
    let mut lines: Vec<String> = found.iter().map(|error| sentence(source, error)).collect();
    lines.sort_unstable();
    lines.dedup();
    let more = lines.len().saturating_sub(LISTED);
    lines.truncate(LISTED);
    if more > 0 {
        lines.push(format!("and {more} more"));
    }
    refused(lines.join("; "))
}

/// One mistake as `line 3, column 7: what; help`, on one line and bounded.
fn sentence(source: &str, error: &DetailedError) -> String {
    let mut text = String::new();
    if let Some(label) = error.source_locations.first() {
        let (line, column) = position(source, label.loc.start);
        text = format!("line {line}, column {column}: ");
    }
    let help = error.help.as_deref().map(|help| format!(" ({help})")).unwrap_or_default();
    let said = format!("{}{help}", error.message);
    text.extend(said.chars().map(|c| if c.is_control() { ' ' } else { c }).take(300));
    text
}

/// The line and the column, from 1, of a byte of the text.
fn position(source: &str, byte: usize) -> (usize, usize) {
    let end = (0..=byte.min(source.len())).rev().find(|end| source.is_char_boundary(*end));
    let before = &source[..end.unwrap_or(0)];
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}
