//! Filters and orderings of every kind: read or refused, and what is read can be run.
#![no_main]

use std::borrow::Cow;

use falaj_mlflow::filter::{
    EXPERIMENTS, Field, LOGGED_MODELS, Like, MODEL_VERSIONS, REGISTERED_MODELS, RUNS, Row, TRACES,
    logged_model_order, parse, parse_order,
};
use libfuzzer_sys::fuzz_target;

/// A row, and a span, whose every field is the same.
struct Same<'a>(&'a str);

impl Row for Same<'_> {
    fn number(&self, _: &Field) -> Option<f64> {
        self.0.parse().ok()
    }

    fn text(&self, _: &Field) -> Option<Cow<'_, str>> {
        (!self.0.is_empty()).then_some(Cow::Borrowed(self.0))
    }

    fn any_span(&self, accept: &mut dyn FnMut(&dyn Row) -> bool) -> bool {
        accept(self)
    }
}

fuzz_target!(|data: (&str, &str)| {
    let (text, value) = data;
    for schema in
        [&RUNS, &EXPERIMENTS, &REGISTERED_MODELS, &MODEL_VERSIONS, &LOGGED_MODELS, &TRACES]
    {
        match parse(text, schema) {
            Ok(Some(mut filter)) => {
                let before = filter.matches(&Same(value));
                filter.decide(&mut |key| key == value);
                assert_eq!(before, filter.matches(&Same(value)), "every field is the same");
            }
            Ok(None) => assert!(text.is_empty()),
            Err(error) => assert!(error.message().len() < 4096),
        }
        if let Err(error) = parse_order(&[text.to_owned()], schema) {
            assert!(error.message().len() < 4096);
        }
    }
    drop(logged_model_order(text, true));
    if let Ok(like) = Like::new(text, false)
        && like.matches(value)
    {
        assert!(Like::new(text, true).is_ok_and(|like| like.matches(value)));
    }
});
