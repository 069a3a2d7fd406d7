//! What the original accepts, refuses and means, as tables; then what we add.

mod eval;
mod grammar;
mod kinds;
mod order;
mod print;
mod property;

use super::*;

/// A filter, read and printed back in the one normal form.
fn shown(text: &str, schema: &Schema) -> String {
    match parse(text, schema) {
        Ok(Some(expr)) => print::expr(&expr),
        Ok(None) => String::new(),
        Err(error) => panic!("{text}: {}", error.message()),
    }
}

fn check(schema: &Schema, cases: &[(&str, &str)]) {
    for (text, expected) in cases {
        assert_eq!(shown(text, schema), *expected, "{text}");
    }
}

fn check_refused(schema: &Schema, cases: &[(&str, &str)]) {
    for (text, beginning) in cases {
        match parse(text, schema) {
            Ok(expr) => panic!("{text:?} was read as {expr:?}"),
            Err(error) => {
                assert!(error.message().contains(beginning), "{text:?}: {}", error.message());
                assert_eq!(error.kind(), falaj_base::ErrorKind::InvalidInput, "{text:?}");
            }
        }
    }
}
