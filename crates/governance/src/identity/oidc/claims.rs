//! What a provider's token says, and whether that is acceptable. Pure: the signature is checked
//! elsewhere, the time is an argument.

use std::time::Duration;

use falaj_base::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::identity::refusal::JwtRefusal;

/// The longest subject accepted; the OIDC standard allows no longer one.
const MAX_SUBJECT: usize = 255;
/// The longest group name accepted.
const MAX_GROUP: usize = 256;

/// The claims, not yet believed.
#[derive(Clone, Debug, Deserialize)]
pub struct Claims {
    pub iss: Option<String>,
    pub sub: Option<String>,
    pub aud: Option<Audience>,
    pub exp: Option<f64>,
    pub nbf: Option<f64>,
    pub azp: Option<String>,
    pub client_id: Option<String>,
    pub nonce: Option<String>,
    pub amr: Option<Value>,
    pub name: Option<Value>,
    pub preferred_username: Option<Value>,
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// One audience or several.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Audience {
    One(String),
    Many(Vec<String>),
}

impl Audience {
    fn contains(&self, wanted: &str) -> bool {
        match self {
            Self::One(one) => one == wanted,
            Self::Many(many) => many.iter().any(|one| one == wanted),
        }
    }
}

/// What a token must say to be taken.
#[derive(Clone, Copy, Debug)]
pub struct Expected<'a> {
    pub issuer: &'a str,
    pub audience: &'a str,
    /// For an ID token: what was sent along when the sign-in began.
    pub nonce: Option<&'a str>,
    pub groups_claim: &'a str,
    pub max_groups: usize,
    pub leeway: Duration,
    pub now: Timestamp,
}

/// Someone a provider vouches for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    pub subject: String,
    pub display_name: Option<String>,
    /// Whether it is a program that speaks for itself, not for a person.
    pub machine: bool,
    pub groups: Vec<String>,
    pub mfa: bool,
    /// When its word ends.
    pub until: Timestamp,
}

/// Checks every claim that decides who it is, whom it was made for and when it holds.
pub fn accept(claims: Claims, expected: &Expected<'_>) -> Result<Subject, JwtRefusal> {
    if claims.iss.as_deref() != Some(expected.issuer) {
        return Err(JwtRefusal::Issuer);
    }
    if !claims.aud.as_ref().is_some_and(|aud| aud.contains(expected.audience)) {
        return Err(JwtRefusal::Audience);
    }
    if let Some(nonce) = expected.nonce {
        if !claims.nonce.as_deref().is_some_and(|given| crate::identity::pepper::same(given, nonce))
        {
            return Err(JwtRefusal::Nonce);
        }
        // An ID token for several parties must say that it was made for us.
        let several = matches!(&claims.aud, Some(Audience::Many(many)) if many.len() > 1);
        let azp = claims.azp.as_deref();
        if azp.is_some_and(|azp| azp != expected.audience) || several && azp.is_none() {
            return Err(JwtRefusal::Audience);
        }
    }
    let until = moment(claims.exp.ok_or(JwtRefusal::NoExpiry)?).ok_or(JwtRefusal::NoExpiry)?;
    if until + expected.leeway <= expected.now {
        return Err(JwtRefusal::Expired);
    }
    if let Some(from) = claims.nbf {
        let from = moment(from).ok_or(JwtRefusal::NotYetValid)?;
        if from > expected.now + expected.leeway {
            return Err(JwtRefusal::NotYetValid);
        }
    }
    let groups = groups(claims.rest.get(expected.groups_claim), expected.max_groups)?;
    let subject = claims.sub.filter(|sub| is_plain(sub, MAX_SUBJECT)).ok_or(JwtRefusal::Subject)?;
    let machine = expected.nonce.is_none() && claims.client_id.as_ref() == Some(&subject);
    let display_name = [claims.name, claims.preferred_username]
        .into_iter()
        .flatten()
        .find_map(|name| name.as_str().filter(|name| is_plain(name, 200)).map(str::to_owned));
    let mfa = claims.amr.as_ref().and_then(Value::as_array);
    let mfa = mfa.is_some_and(|methods| methods.iter().any(|method| method == "mfa"));
    Ok(Subject { subject, display_name, machine, groups, mfa, until: until + expected.leeway })
}

/// Seconds since 1970 as the JWT standard writes them, fractions allowed.
fn moment(seconds: f64) -> Option<Timestamp> {
    let sane = seconds.is_finite() && (0.0..1e11).contains(&seconds);
    #[allow(clippy::cast_possible_truncation, reason = "the range was checked")]
    sane.then(|| Timestamp::from_micros((seconds * 1e6) as i64))
}

/// Too many groups refuse the token rather than being cut: the one cut off might be the one that
/// a policy forbids something to.
fn groups(claim: Option<&Value>, max: usize) -> Result<Vec<String>, JwtRefusal> {
    let list = match claim {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::String(one)) => vec![one.clone()],
        Some(Value::Array(many)) if many.len() <= max => {
            let text = |group: &Value| group.as_str().map(str::to_owned).ok_or(JwtRefusal::Groups);
            many.iter().map(text).collect::<Result<_, _>>()?
        }
        Some(_) => return Err(JwtRefusal::Groups),
    };
    if list.iter().all(|group| is_plain(group, MAX_GROUP)) {
        Ok(list)
    } else {
        Err(JwtRefusal::Groups)
    }
}

/// Not empty, not too long, and nothing in it that could forge a line in a log.
fn is_plain(text: &str, max: usize) -> bool {
    (1..=max).contains(&text.len()) && !text.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: i64 = 1_800_000_000;

    fn expected() -> Expected<'static> {
        Expected {
            issuer: "https://id.example",
            audience: "falaj",
            nonce: None,
            groups_claim: "groups",
            max_groups: 3,
            leeway: Duration::from_mins(1),
            now: Timestamp::from_micros(NOW * 1_000_000),
        }
    }

    /// A good token with some claims replaced; `null` removes one.
    fn check(changes: Value, expected: &Expected<'_>) -> Result<Subject, JwtRefusal> {
        let mut claims = json!({
            "iss": "https://id.example", "aud": "falaj", "sub": "mona", "exp": NOW + 300,
            "groups": ["staff"],
        });
        let map = claims.as_object_mut().unwrap();
        for (key, value) in changes.as_object().unwrap() {
            if value.is_null() {
                map.remove(key)
            } else {
                map.insert(key.clone(), value.clone())
            };
        }
        let claims = serde_json::from_value(claims).map_err(|_| JwtRefusal::Malformed)?;
        accept(claims, expected)
    }

    #[test]
    fn every_claim_that_matters_is_checked() {
        use JwtRefusal as R;
        let long = "x".repeat(256);
        for (changes, refusal) in [
            (json!({"iss": null}), R::Issuer),
            (json!({"iss": "https://id.example/"}), R::Issuer),
            (json!({"iss": "https://ID.example"}), R::Issuer),
            (json!({"iss": ["https://id.example"]}), R::Malformed),
            (json!({"aud": null}), R::Audience),
            (json!({"aud": "Falaj"}), R::Audience),
            (json!({"aud": []}), R::Audience),
            (json!({"aud": ["other"]}), R::Audience),
            (json!({"aud": 7}), R::Malformed),
            (json!({"exp": null}), R::NoExpiry),
            (json!({"exp": NOW - 60}), R::Expired),
            (json!({"exp": -1}), R::NoExpiry),
            (json!({"exp": 1e300}), R::NoExpiry),
            (json!({"exp": "soon"}), R::Malformed),
            (json!({"nbf": NOW + 61}), R::NotYetValid),
            (json!({"nbf": -1e300}), R::NotYetValid),
            (json!({"sub": null}), R::Subject),
            (json!({"sub": ""}), R::Subject),
            (json!({"sub": long}), R::Subject),
            (json!({"sub": "mona\nroot"}), R::Subject),
            (json!({"groups": ["a", "b", "c", "d"]}), R::Groups),
            (json!({"groups": ["a", 7]}), R::Groups),
            (json!({"groups": [""]}), R::Groups),
            (json!({"groups": {"a": 1}}), R::Groups),
        ] {
            assert_eq!(check(changes.clone(), &expected()).unwrap_err(), refusal, "{changes}");
        }
    }

    #[test]
    fn a_good_token_names_its_subject_exactly() {
        let mona = check(json!({}), &expected()).unwrap();
        assert_eq!(
            (mona.subject.as_str(), mona.groups.as_slice()),
            ("mona", &["staff".to_owned()][..])
        );
        assert!(!mona.machine && !mona.mfa);
        for good in [
            json!({"aud": ["other", "falaj"]}),
            json!({"exp": NOW - 59}),
            json!({"exp": 1_800_000_000.5}),
            json!({"nbf": NOW + 60}),
            json!({"groups": null}),
            json!({"groups": "staff"}),
        ] {
            assert!(check(good.clone(), &expected()).is_ok(), "{good}");
        }
        // Names that look alike stay different.
        for (a, b) in
            [("mona", "Mona"), ("mona", "mona "), ("mona", "mоna"), ("mona", "mo\u{200b}na")]
        {
            let of = |sub: &str| check(json!({"sub": sub, "groups": [sub]}), &expected()).unwrap();
            assert_ne!(of(a).subject, of(b).subject);
            assert_ne!(of(a).groups, of(b).groups);
        }
        let machine = check(json!({"client_id": "mona"}), &expected()).unwrap();
        assert!(machine.machine);
        let mfa = check(json!({"amr": ["pwd", "mfa"], "name": "Mona"}), &expected()).unwrap();
        assert!(mfa.mfa);
        assert_eq!(mfa.display_name.as_deref(), Some("Mona"));
    }

    #[test]
    fn an_id_token_must_answer_our_question() {
        let with_nonce = Expected { nonce: Some("n-1"), ..expected() };
        for (changes, refusal) in [
            (json!({}), JwtRefusal::Nonce),
            (json!({"nonce": "n-2"}), JwtRefusal::Nonce),
            (json!({"nonce": "n-1", "azp": "other"}), JwtRefusal::Audience),
            (json!({"nonce": "n-1", "aud": ["falaj", "other"]}), JwtRefusal::Audience),
        ] {
            assert_eq!(check(changes.clone(), &with_nonce).unwrap_err(), refusal, "{changes}");
        }
        assert!(check(json!({"nonce": "n-1"}), &with_nonce).is_ok());
        let several = json!({"nonce": "n-1", "aud": ["falaj", "other"], "azp": "falaj"});
        assert!(check(several, &with_nonce).is_ok());
    }
}
