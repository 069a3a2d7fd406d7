//! The text of an API token: `flj_<32 hex digits>_<43 characters>`.
//!
//! The prefix lets secret scanners and people recognise one; the digits are the token's public
//! id, by which it is looked up; the rest is 256 random bits. Parsing is pure and accepts exactly
//! one spelling of each token.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use falaj_base::{Result, Secret, TokenId};
use zeroize::Zeroizing;

use crate::identity::pepper::random;

/// What every token begins with.
pub const PREFIX: &str = "flj_";
const ID_LENGTH: usize = 32;
const SECRET_LENGTH: usize = 43;
const LENGTH: usize = PREFIX.len() + ID_LENGTH + 1 + SECRET_LENGTH;

/// A token as its holder presents it.
#[derive(Clone, PartialEq, Eq)]
pub struct TokenText {
    pub id: TokenId,
    secret: Zeroizing<[u8; 32]>,
}

impl TokenText {
    /// A new token with a new id.
    pub fn generate() -> Result<Self> {
        Ok(Self { id: TokenId::new(), secret: random()? })
    }

    /// Reads a token; anything but its one canonical spelling is none.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() != LENGTH || !text.is_ascii() {
            return None;
        }
        let (digits, rest) = text.strip_prefix(PREFIX)?.split_at_checked(ID_LENGTH)?;
        let secret_text = rest.strip_prefix('_')?;
        let id = format!("{}_{digits}", TokenId::PREFIX).parse().ok()?;
        let decoded = Zeroizing::new(URL_SAFE_NO_PAD.decode(secret_text).ok()?);
        let mut secret = Zeroizing::new([0; 32]);
        if decoded.len() != secret.len() {
            return None;
        }
        secret.copy_from_slice(&decoded);
        Some(Self { id, secret })
    }

    /// The secret half: only ever fed into the MAC.
    #[must_use]
    pub fn secret(&self) -> &[u8] {
        self.secret.as_slice()
    }

    /// The whole text, to be shown to its maker once.
    #[must_use]
    pub fn expose(&self) -> Secret {
        let secret = Zeroizing::new(URL_SAFE_NO_PAD.encode(self.secret.as_slice()));
        Secret::new(format!("{PREFIX}{}_{}", self.id.as_uuid().simple(), *secret))
    }
}

impl fmt::Debug for TokenText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TokenText").field(&self.id).finish()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_token_survives_its_text_and_hides_its_secret() {
        let token = TokenText::generate().unwrap();
        let text = token.expose();
        assert_eq!(text.expose().len(), 80);
        assert!(TokenText::parse(text.expose()) == Some(token.clone()));
        assert!(!format!("{token:?}").contains(&text.expose()[37..]));
    }

    #[test]
    fn near_misses_are_refused() {
        let text = TokenText::generate().unwrap().expose().expose().to_owned();
        let with = |at: usize, c: &str| format!("{}{c}{}", &text[..at], &text[at + 1..]);
        for bad in [
            String::new(),
            "flj_".to_owned(),
            text[..79].to_owned(),
            format!("{text}A"),
            format!(" {text}"),
            format!("{text}\n"),
            with(0, "F"),
            with(4, "A"),
            with(4, "g"),
            with(36, "-"),
            with(40, "+"),
            with(40, "="),
            // The last character carries four bits; the two others must be zero.
            with(79, "B"),
            with(40, "é")[..80].to_owned(),
        ] {
            assert!(TokenText::parse(&bad).is_none(), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn parsing_never_panics_and_what_parses_is_canonical(text in "(flj_)?[0-9a-f]{0,33}_?.{0,50}") {
            if let Some(token) = TokenText::parse(&text) {
                let again = token.expose();
                prop_assert_eq!(again.expose(), text.as_str());
            }
        }

        #[test]
        fn every_change_of_one_byte_is_another_token_or_none(at in 0usize..80, byte in 0x20u8..0x7f) {
            let token = TokenText::generate().unwrap();
            let text = token.expose().expose().to_owned();
            let mut changed = text.clone().into_bytes();
            changed[at] = byte;
            let changed = String::from_utf8(changed).unwrap();
            prop_assert_eq!(TokenText::parse(&changed) == Some(token), changed == text);
        }
    }
}
