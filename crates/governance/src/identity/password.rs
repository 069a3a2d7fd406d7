//! Passwords of local users: argon2id, kept as PHC strings.
//!
//! Must hold:
//! - A hash takes a core and memory, so only a few run at a time and only so many wait; sign-in
//!   cannot be used to starve the rest of the server.
//! - An unknown user costs as much time as a wrong password.

use std::fmt;
use std::sync::Arc;

use argon2::password_hash::phc::PasswordHash;
use argon2::{Algorithm, Argon2, Params, PasswordHasher, PasswordVerifier, Version};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use falaj_base::{Error, Result, Secret, code};
use tokio::sync::Semaphore;

use super::config::PasswordConfig;
use super::credential::MAX_PASSWORD;
use super::pepper::random;

/// Hashes and verifies, a few at a time.
pub(super) struct Passwords {
    config: PasswordConfig,
    params: Params,
    /// Held while hashing.
    slots: Arc<Semaphore>,
    /// Held while hashing or waiting to.
    queue: Arc<Semaphore>,
    /// The hash of no password at all: what an unknown user's attempt is compared with.
    nobody: String,
}

impl fmt::Debug for Passwords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Passwords").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Passwords {
    pub(super) fn new(config: PasswordConfig) -> Result<Self> {
        let kib = u32::try_from(config.memory.bytes() / 1024).unwrap_or(u32::MAX);
        let params = Params::new(kib, config.passes, 1, Some(32)).map_err(internal)?;
        let salt = STANDARD_NO_PAD.encode(random::<16>()?.as_slice());
        let output = STANDARD_NO_PAD.encode(random::<32>()?.as_slice());
        let nobody = format!("$argon2id$v=19$m={kib},t={},p=1${salt}${output}", config.passes);
        Ok(Self {
            params,
            slots: Arc::new(Semaphore::new(config.concurrent)),
            queue: Arc::new(Semaphore::new(config.concurrent + config.waiting)),
            nobody,
            config,
        })
    }

    /// Hashes a new password for `user`, if it is good enough to be one.
    pub(super) async fn hash(&self, user: &str, password: &Secret) -> Result<String> {
        check_strength(user, password.expose(), self.config.min_length)?;
        let password = password.clone();
        let argon = Argon2::new(Algorithm::Argon2id, Version::V0x13, self.params.clone());
        self.with_slot(move || {
            let salt = random::<16>()?;
            let hash = argon.hash_password_with_salt(password.expose().as_bytes(), salt.as_slice());
            Ok(hash.map_err(internal)?.to_string())
        })
        .await
    }

    /// Whether `password` is the one behind `stored`. Without a stored hash the work is done all
    /// the same, and the answer is no.
    pub(super) async fn verify(&self, password: &Secret, stored: Option<String>) -> Result<bool> {
        let known = stored.is_some();
        let stored = stored.unwrap_or_else(|| self.nobody.clone());
        let password = password.clone();
        self.with_slot(move || {
            let hash = PasswordHash::new(&stored).map_err(internal)?;
            let matches = Argon2::default().verify_password(password.expose().as_bytes(), &hash);
            Ok(matches.is_ok() && known)
        })
        .await
    }

    async fn with_slot<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let busy = || {
            Error::new(&code::OVERLOADED, "too many sign-ins at the same time")
                .retry_after(std::time::Duration::from_secs(1))
        };
        let place = self.queue.clone().try_acquire_owned().map_err(|_| busy())?;
        let slot =
            tokio::time::timeout(self.config.max_wait.get(), self.slots.clone().acquire_owned())
                .await
                .map_err(|_| busy())?
                .map_err(Error::internal)?;
        // The permits move into the work: a caller that gives up does not free a slot that is
        // still busy.
        tokio::task::spawn_blocking(move || {
            let result = work();
            drop((slot, place));
            result
        })
        .await
        .map_err(Error::internal)?
    }
}

fn internal(error: impl fmt::Display) -> Error {
    Error::internal(format!("password hashing failed: {error}"))
}

/// Words that make up the passwords everyone tries first. A password that is one of them, however
/// often repeated and whatever digits or signs stand around it, is refused.
const COMMON: [&str; 34] = [
    "password",
    "passwort",
    "passw",
    "passwd",
    "motdepasse",
    "qwerty",
    "qwertyuiop",
    "qwertz",
    "azerty",
    "asdfgh",
    "asdfghjkl",
    "zxcvbn",
    "zxcvbnm",
    "abc",
    "abcdef",
    "abcdefgh",
    "admin",
    "administrator",
    "root",
    "user",
    "guest",
    "default",
    "changeme",
    "letmein",
    "welcome",
    "iloveyou",
    "secret",
    "master",
    "dragon",
    "monkey",
    "football",
    "sunshine",
    "correcthorsebatterystaple",
    "falaj",
];

fn check_strength(user: &str, password: &str, min_length: usize) -> Result<()> {
    // The value itself must never appear in the message.
    let refuse = |what: &str, allowed: String| Err(Error::invalid("password", what, allowed));
    let length = password.chars().count();
    if length < min_length {
        return refuse("too short", format!("at least {min_length} characters"));
    }
    if password.len() > MAX_PASSWORD {
        return refuse("too long", format!("at most {MAX_PASSWORD} bytes"));
    }
    let lower = password.to_lowercase();
    let letters: String = lower.chars().filter(|c| c.is_alphabetic()).collect();
    let is_common = |word: &str| !word.is_empty() && letters.replace(word, "").is_empty();
    let distinct = lower.chars().collect::<std::collections::HashSet<_>>().len();
    if COMMON.into_iter().any(is_common) || letters.is_empty() && distinct < 6 || distinct < 4 {
        return refuse("too common", "something nobody else would choose".to_owned());
    }
    let name = user.split('@').next().unwrap_or(user).to_lowercase();
    if name.len() >= 3 && lower.contains(&name) {
        return refuse("made of the user name", "something that does not contain it".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use falaj_base::{ByteSize, HumanDuration};

    use super::*;

    fn passwords(change: impl Fn(&mut PasswordConfig)) -> Passwords {
        let mut config =
            PasswordConfig { memory: ByteSize::mib(8), passes: 1, ..Default::default() };
        change(&mut config);
        Passwords::new(config).unwrap()
    }

    #[test]
    fn weak_passwords_are_refused_without_repeating_them() {
        for good in ["violet-otter-7-canal", "mXk29!slw-qq", "كلمةسرطويلةجدا", "correct horse palm"]
        {
            check_strength("mona", good, 12).unwrap();
        }
        for bad in [
            "",
            "short",
            "password1234",
            "Password!2026",
            "passwordpassword",
            "administrator",
            "qwertyuiop123",
            "Changeme-2026!",
            "111111111111",
            "123123123123",
            "aaaaaaaaaaaa",
            "the-mona-lisa-smile",
            "correcthorsebatterystaple",
            &"x9".repeat(600),
        ] {
            let error = check_strength("mona@example.ae", bad, 12).unwrap_err();
            assert_eq!(error.field(), Some("password"), "{bad}");
            assert!(bad.len() < 6 || !error.message().contains(bad), "{bad}");
        }
    }

    #[tokio::test]
    async fn a_hash_is_salted_argon2id_and_verifies() {
        let passwords = passwords(|_| ());
        let secret = Secret::new("violet-otter-7-canal");
        let first = passwords.hash("mona", &secret).await.unwrap();
        assert!(first.starts_with("$argon2id$v=19$m=8192,t=1,p=1$"), "{first}");
        assert_ne!(first, passwords.hash("mona", &secret).await.unwrap());
        assert!(passwords.verify(&secret, Some(first.clone())).await.unwrap());
        assert!(
            !passwords.verify(&Secret::new("violet-otter-8-canal"), Some(first)).await.unwrap()
        );
    }

    #[tokio::test]
    async fn an_unknown_user_costs_a_whole_hash() {
        let passwords = passwords(|_| ());
        assert!(PasswordHash::new(&passwords.nobody).is_ok());
        assert!(!passwords.verify(&Secret::new("anything"), None).await.unwrap());
    }

    #[tokio::test]
    async fn a_full_queue_turns_away_at_once_and_a_long_wait_ends() {
        let full = passwords(|c| c.waiting = 0);
        let held = full.queue.clone().acquire_many_owned(2).await.unwrap();
        let error = full.verify(&Secret::new("x"), None).await.unwrap_err();
        assert_eq!(error.code(), &code::OVERLOADED);
        assert!(error.wait().is_some());
        drop(held);
        assert!(!full.verify(&Secret::new("x"), None).await.unwrap());

        let slow = passwords(|c| c.max_wait = HumanDuration::from_millis(1));
        let _held = slow.slots.clone().acquire_many_owned(2).await.unwrap();
        let error = slow.verify(&Secret::new("x"), None).await.unwrap_err();
        assert_eq!(error.code(), &code::OVERLOADED);
    }
}
