//! Why a credential was not taken. The reason goes to the audit log; the caller reads one constant
//! sentence, whatever the reason, so that an answer never helps to guess.

use falaj_base::{Error, code};

/// The reason, as the audit log names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    Missing,
    Several,
    Malformed,
    UnknownToken,
    WrongTokenSecret,
    TokenRevoked,
    TokenExpired,
    PrincipalGone,
    PrincipalDisabled,
    UnknownUser,
    WrongPassword,
    NoPassword,
    UnknownSession,
    SessionExpired,
    RateLimited,
    UnknownLogin,
    LoginAborted,
    NoTenant,
    Jwt(JwtRefusal),
}

/// What was wrong with a token of an OIDC provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JwtRefusal {
    Malformed,
    Header,
    Type,
    Algorithm,
    Issuer,
    Audience,
    Expired,
    NotYetValid,
    NoExpiry,
    UnknownKey,
    Signature,
    Subject,
    Groups,
    Nonce,
}

impl Refusal {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Missing => "no credential",
            Self::Several => "more than one credential",
            Self::Malformed => "malformed credential",
            Self::UnknownToken => "unknown token",
            Self::WrongTokenSecret => "wrong token secret",
            Self::TokenRevoked => "token revoked",
            Self::TokenExpired => "token expired",
            Self::PrincipalGone => "principal gone",
            Self::PrincipalDisabled => "principal disabled",
            Self::UnknownUser => "unknown user",
            Self::WrongPassword => "wrong password",
            Self::NoPassword => "no password set",
            Self::UnknownSession => "unknown session",
            Self::SessionExpired => "session expired",
            Self::RateLimited => "too many failures from this source",
            Self::UnknownLogin => "unknown or expired sign-in",
            Self::LoginAborted => "sign-in refused by the provider",
            Self::NoTenant => "the provider's tenant does not exist",
            Self::Jwt(reason) => reason.as_str(),
        }
    }
}

impl JwtRefusal {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Malformed => "jwt: malformed",
            Self::Header => "jwt: header not understood",
            Self::Type => "jwt: wrong type",
            Self::Algorithm => "jwt: algorithm not allowed",
            Self::Issuer => "jwt: wrong issuer",
            Self::Audience => "jwt: wrong audience",
            Self::Expired => "jwt: expired",
            Self::NotYetValid => "jwt: not yet valid",
            Self::NoExpiry => "jwt: no expiry",
            Self::UnknownKey => "jwt: unknown key",
            Self::Signature => "jwt: wrong signature",
            Self::Subject => "jwt: unusable subject",
            Self::Groups => "jwt: unusable groups",
            Self::Nonce => "jwt: wrong nonce",
        }
    }
}

/// Not let in: refused for a reason, or we could not tell because something of ours failed.
#[derive(Debug)]
pub enum Denied {
    Refused(Refusal),
    Failed(Error),
}

impl From<Error> for Denied {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<Refusal> for Denied {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<JwtRefusal> for Denied {
    fn from(refusal: JwtRefusal) -> Self {
        Self::Refused(Refusal::Jwt(refusal))
    }
}

/// The one answer to every refusal.
#[must_use]
pub(super) fn unauthenticated() -> Error {
    Error::new(&code::UNAUTHENTICATED, "give one valid token, session or password")
}
