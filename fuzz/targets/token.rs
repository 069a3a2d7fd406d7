//! API tokens: one token, one text.
#![no_main]

use falaj_governance::identity::token::text::TokenText;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Some(token) = TokenText::parse(text) {
        assert_eq!(token.expose().expose(), text);
    }
});
