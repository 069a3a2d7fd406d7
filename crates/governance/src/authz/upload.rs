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
/// How many operators, dots and indexes one statement may have, for the same reason. Cedar's
/// checker quietly gives up on what is too deep for its stack; this is far below that.
const STEPS: usize = 200;
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
        AsRef::<str>::as_ref(policy.id()).trim_start_matches("policy").parse().unwrap_or(usize::MAX)
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
            b'(' | b'{' => depth += 1,
            b'[' => (depth, steps) = (depth + 1, steps + 1),
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            b'.' | b'!' | b'-' | b'+' | b'*' | b'<' | b'>' => steps += 1,
            b'&' | b'|' | b'=' => {
                steps += 1;
                let _ = rest.next_if(|(_, next)| *next == byte);
            }
            b'i' if source.as_bytes()[at..].starts_with(b"if") => steps += 1,
            b';' => steps = 0,
            _ => {}
        }
        let over = if depth > DEPTH {
            format!("brackets nest over {DEPTH} deep")
        } else if steps > STEPS {
            format!("the statement has over {STEPS} operators; split it")
        } else {
            continue;
        };
        let (line, column) = position(source, at);
        return Err(refused(format!("line {line}, column {column}: {over}")));
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
        if is(literal.type_name(), "Platform") {
            return Err(refused("a policy cannot name the Platform; it holds inside its tenant"));
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

#[cfg(test)]
mod tests {
    use falaj_base::{Action, Role};

    use super::*;

    static READ: Action = Action::read("thing:read", Role::Viewer, "");
    static AUDIT: Action = Action::read("audit:read", Role::Auditor, "");

    fn refusal(source: &str) -> String {
        let engine = Engine::new(&[&READ, &AUDIT]).unwrap();
        let error = check(&engine, source, 20_000).expect_err(source);
        assert!(error.message().len() < 2_500 && !error.message().contains('\n'));
        error.message().to_owned()
    }

    #[test]
    fn a_refusal_says_where_and_what() {
        for (source, said) in [
            ("permit (principal, action, resource)", "line 1, column 37"),
            ("permit (principal, action, resource);\n  permit (", "line 2, column"),
            ("", "no statement"),
            ("// nothing", "no statement"),
            ("permit (principal == ?principal, action, resource);", "slots"),
            (
                "permit (principal, action, resource)\nwhen { resource.zone == \"ae\" };",
                "line 2, column 8",
            ),
            ("permit (principal, action == Action::\"thing:raed\", resource);", "thing:raed"),
            ("permit (principal, action, resource) when { resource.owner == principal };", "owner"),
            ("permit (principal, action, resource) when { 1 == \"a\" };", "line 1"),
            (
                "permit (principal in Role::\"platform/admin\", action, resource);",
                "cannot name a Role",
            ),
            ("permit (principal, action, resource in Platform::\"platform\");", "cannot name the"),
            ("forbid (principal, action == Action::\"audit:read\", resource);", "no say over"),
            ("permit (principal, action, resource) when { principal == Role::\"x\" };", "Role"),
            ("permit (principal, action, resource) when { false };", "line 1"),
            (
                "permit (principal, action, resource) when { principal.name == \"say\u{202e}\" };",
                "line 1",
            ),
            ("permit (principal is Tenant, action, resource);", "line 1"),
        ] {
            let message = refusal(source);
            assert!(message.contains(said), "{source:?}\ngave {message:?}\nwithout {said:?}");
        }
    }

    /// On the stack of a server thread, none of these may overflow, and each is quick.
    #[test]
    fn a_hostile_text_is_refused_and_not_felt() {
        let wrap =
            |inner: String| format!("permit (principal, action, resource) when {{ {inner} }};");
        let deep = |open: &str, close: &str, n: usize| {
            wrap(format!("{}true{}", open.repeat(n), close.repeat(n)))
        };
        let cases = [
            deep("(", ")", 2_000),
            deep("[", "]", 2_000),
            deep("{a:", "}", 2_000),
            deep("!", "", 2_000),
            deep("-", "", 2_000),
            deep("if true then true else ", "", 700),
            wrap(vec!["true"; 2_500].join("&&")),
            wrap(vec!["true"; 190].join("&&")),
            wrap(vec!["true"; 190].join("||")),
            wrap(format!("{} == 1", vec!["1"; 190].join("+"))),
            wrap(format!("1{} == 1", "*1".repeat(190))),
            deep("if true then true else ", "", 190),
            "permit (principal, action, resource);".repeat(500),
            "@a(\"x\")".repeat(2_000),
            "\"".repeat(10_001),
            "\u{0}".repeat(100),
            "\u{feff}permit".to_owned(),
            "x".repeat(20_001),
        ];
        let run = move || {
            let engine = Engine::new(&[&READ, &AUDIT]).unwrap();
            // As deep as is taken, and wrong: the checker must still have the stack to see it.
            for wrong in [".zone".repeat(199), "[\"zone\"]".repeat(199)] {
                let wrong = wrap(format!("resource{wrong}"));
                let error = check(&engine, &wrong, 20_000).expect_err("wrong and deep");
                assert!(error.message().contains("zone"), "{error}");
            }
            for case in cases {
                let started = std::time::Instant::now();
                let outcome = check(&engine, &case, 20_000);
                let shown: String = case.chars().take(60).collect();
                if let Err(error) = &outcome {
                    assert!(error.message().len() < 2_500, "{shown}");
                }
                println!("{shown}: {} in {:?}", outcome.is_ok(), started.elapsed());
            }
        };
        std::thread::Builder::new().stack_size(2 << 20).spawn(run).unwrap().join().unwrap();
    }

    #[test]
    fn positions_count_lines_and_characters_from_one() {
        let text = "aé\nb\u{1f600}c";
        assert_eq!(position(text, 0), (1, 1));
        assert_eq!(position(text, 3), (1, 3));
        assert_eq!(position(text, 4), (2, 1));
        assert_eq!(position(text, text.len()), (2, 4));
        assert_eq!(position(text, 10_000), (2, 4));
        assert_eq!(position(text, 6), (2, 2), "inside a character");
    }
}
