//! What a request offers as proof of who sends it. Pure: nothing is checked here beyond its form.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use falaj_base::Secret;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use zeroize::Zeroizing;

use super::refusal::Refusal;
use super::session::cookie;
use super::token::text::{PREFIX, TokenText};

/// The longest `Authorization` header looked at.
const MAX_AUTHORIZATION: usize = 16 * 1024;
/// The longest password looked at: hashing must not become a way to burn memory.
pub const MAX_PASSWORD: usize = 1024;
/// The longest sign-in name looked at.
const MAX_USER: usize = 127;

/// One credential.
#[derive(Clone)]
pub enum Credential {
    Token(TokenText),
    /// A bearer token of an OIDC provider.
    Jwt(Secret),
    Password {
        user: String,
        password: Secret,
    },
    Session(Secret),
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Token(_) => "Token",
            Self::Jwt(_) => "Jwt",
            Self::Password { .. } => "Password",
            Self::Session(_) => "Session",
        })
    }
}

impl Credential {
    /// The only credential of a request. Two are refused even if both are good: it would not be
    /// clear who acts.
    pub fn of(headers: &HeaderMap) -> Result<Self, Refusal> {
        let session = cookie::read(headers, cookie::SESSION).map_err(|_| Refusal::Several)?;
        let mut values = headers.get_all(AUTHORIZATION).iter();
        match (values.next(), values.next(), session) {
            (None, _, None) => Err(Refusal::Missing),
            (None, _, Some(id)) => Self::session(id).ok_or(Refusal::Malformed),
            (Some(value), None, None) => {
                let text = value.to_str().map_err(|_| Refusal::Malformed)?;
                Self::authorization(text).ok_or(Refusal::Malformed)
            }
            _ => Err(Refusal::Several),
        }
    }

    /// Reads the value of an `Authorization` header.
    #[must_use]
    pub fn authorization(text: &str) -> Option<Self> {
        if text.len() > MAX_AUTHORIZATION {
            return None;
        }
        let (scheme, rest) = text.split_once(' ')?;
        let rest = rest.trim_matches(' ');
        if scheme.eq_ignore_ascii_case("bearer") {
            Self::bearer(rest)
        } else if scheme.eq_ignore_ascii_case("basic") {
            Self::basic(rest)
        } else {
            None
        }
    }

    fn bearer(text: &str) -> Option<Self> {
        if text.starts_with(PREFIX) {
            return TokenText::parse(text).map(Self::Token);
        }
        let part = |part: &str| {
            !part.is_empty()
                && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        };
        let is_jwt = text.split('.').count() == 3 && text.split('.').all(part);
        is_jwt.then(|| Self::Jwt(Secret::new(text)))
    }

    fn basic(text: &str) -> Option<Self> {
        let bytes = Zeroizing::new(STANDARD.decode(text).ok()?);
        let (user, password) = std::str::from_utf8(&bytes).ok()?.split_once(':')?;
        // Stock clients that only speak Basic send a token as the password; who they say they are
        // does not matter then, the token knows.
        if password.starts_with(PREFIX) {
            return TokenText::parse(password).map(Self::Token);
        }
        Self::password(user, password)
    }

    /// A sign-in name and password, from Basic or from a sign-in form.
    #[must_use]
    pub fn password(user: &str, password: &str) -> Option<Self> {
        let fits = (1..=MAX_USER).contains(&user.len()) && password.len() <= MAX_PASSWORD;
        fits.then(|| Self::Password { user: user.to_owned(), password: Secret::new(password) })
    }

    fn session(id: &str) -> Option<Self> {
        let decoded = Zeroizing::new(URL_SAFE_NO_PAD.decode(id).ok()?);
        (decoded.len() == 32).then(|| Self::Session(Secret::new(id)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(pairs: &[(&'static str, String)]) -> String {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        match Credential::of(&headers) {
            Ok(credential) => format!("{credential:?}"),
            Err(refusal) => format!("{refusal:?}"),
        }
    }

    #[test]
    fn exactly_one_well_formed_credential_is_taken() {
        let token = TokenText::generate().unwrap().expose().expose().to_owned();
        let session = URL_SAFE_NO_PAD.encode([9; 32]);
        let bearer = |text: &str| ("authorization", format!("Bearer {text}"));
        let basic = |text: &str| ("authorization", format!("Basic {}", STANDARD.encode(text)));
        let cookie = |id: &str| ("cookie", format!("__Host-falaj-session={id}"));
        let table = [
            (vec![], "Missing"),
            (vec![bearer(&token)], "Token"),
            (vec![("authorization", format!("bEARER  {token}"))], "Token"),
            (vec![basic(&format!("anyone:{token}"))], "Token"),
            (vec![basic(&format!(":{token}"))], "Token"),
            (vec![basic("mona:correct horse:battery")], "Password"),
            (vec![bearer("aa.bb.cc")], "Jwt"),
            (vec![cookie(&session)], "Session"),
            (vec![bearer(&token), bearer(&token)], "Several"),
            (vec![bearer(&token), cookie(&session)], "Several"),
            (vec![cookie(&session), cookie(&session)], "Several"),
            (vec![bearer("")], "Malformed"),
            (vec![bearer(&token[..79])], "Malformed"),
            (vec![bearer("aa.bb")], "Malformed"),
            (vec![bearer("aa.bb.cc.dd")], "Malformed"),
            (vec![bearer("aa..cc")], "Malformed"),
            (vec![bearer("aa.b=.cc")], "Malformed"),
            (vec![basic("mona")], "Malformed"),
            (vec![basic(":secret")], "Malformed"),
            (vec![basic(&format!("m:{}", "x".repeat(1025)))], "Malformed"),
            (vec![basic("mona:flj_short")], "Malformed"),
            (vec![("authorization", "Basic %%%".into())], "Malformed"),
            (vec![("authorization", token.clone())], "Malformed"),
            (vec![("authorization", format!("Digest {token}"))], "Malformed"),
            (vec![bearer(&"a".repeat(20_000))], "Malformed"),
            (vec![cookie("short")], "Malformed"),
            (vec![cookie("")], "Malformed"),
        ];
        for (headers, expected) in table {
            assert_eq!(read(&headers), expected, "{headers:?}");
        }
    }

    proptest! {
        #[test]
        fn no_header_makes_it_panic(text in "((Bearer|Basic) )?.{0,200}") {
            let _ = Credential::authorization(&text);
        }
    }
}
