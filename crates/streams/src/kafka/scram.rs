//! Proving that one knows a password without sending it (SCRAM, RFC 5802 and 7677).
//!
//! Must hold: the server proves that it knows the password as well, or is not believed.

use std::num::NonZeroU32;

use aws_lc_rs::{constant_time, digest, hmac, pbkdf2};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// How often a password is stretched at most: a server must not keep us busy for long.
const MOST_ROUNDS: u32 = 1 << 20;

/// The hash that is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hash {
    Sha256,
    Sha512,
}

impl Hash {
    fn hmac(self) -> hmac::Algorithm {
        match self {
            Self::Sha256 => hmac::HMAC_SHA256,
            Self::Sha512 => hmac::HMAC_SHA512,
        }
    }

    fn digest(self) -> &'static digest::Algorithm {
        match self {
            Self::Sha256 => &digest::SHA256,
            Self::Sha512 => &digest::SHA512,
        }
    }

    fn stretch(self) -> pbkdf2::Algorithm {
        match self {
            Self::Sha256 => pbkdf2::PBKDF2_HMAC_SHA256,
            Self::Sha512 => pbkdf2::PBKDF2_HMAC_SHA512,
        }
    }

    fn sign(self, key: &[u8], what: &[u8]) -> hmac::Tag {
        hmac::sign(&hmac::Key::new(self.hmac(), key), what)
    }
}

/// One attempt to log in.
#[derive(Debug)]
pub(super) struct Scram {
    hash: Hash,
    nonce: String,
    bare: String,
}

/// What is said last, and what the server must say to it.
pub(super) struct Proof {
    pub(super) message: String,
    server: Vec<u8>,
}

impl Scram {
    /// `nonce` is random and never used again.
    pub(super) fn new(hash: Hash, user: &str, nonce: String) -> Self {
        let user = user.replace('=', "=3D").replace(',', "=2C");
        Self { hash, bare: format!("n={user},r={nonce}"), nonce }
    }

    pub(super) fn first(&self) -> String {
        format!("n,,{}", self.bare)
    }

    /// Answers the server's first words; takes as long as the server asks for.
    pub(super) fn prove(&self, password: &str, said: &str) -> Result<Proof, &'static str> {
        let part = |name: &str| said.split(',').find_map(|part| part.strip_prefix(name));
        let nonce = part("r=").ok_or("the server sent no nonce")?;
        if !nonce.starts_with(&self.nonce) || nonce.len() == self.nonce.len() {
            return Err("the server did not take up our nonce");
        }
        let salt = part("s=").and_then(|salt| STANDARD.decode(salt).ok());
        let salt = salt.ok_or("the server sent no salt")?;
        let rounds = part("i=").and_then(|rounds| rounds.parse::<u32>().ok());
        let rounds = rounds.filter(|rounds| *rounds <= MOST_ROUNDS).and_then(NonZeroU32::new);
        let rounds = rounds.ok_or("the server sent no number of rounds, or too many")?;
        let hash = self.hash;
        let mut salted = vec![0; hash.digest().output_len()];
        pbkdf2::derive(hash.stretch(), rounds, &salt, password.as_bytes(), &mut salted);
        let client = hash.sign(&salted, b"Client Key");
        let stored = digest::digest(hash.digest(), client.as_ref());
        let without = format!("c=biws,r={nonce}");
        let about = format!("{},{said},{without}", self.bare);
        let signature = hash.sign(stored.as_ref(), about.as_bytes());
        let proof: Vec<u8> =
            client.as_ref().iter().zip(signature.as_ref()).map(|(a, b)| a ^ b).collect();
        let server = hash.sign(hash.sign(&salted, b"Server Key").as_ref(), about.as_bytes());
        let message = format!("{without},p={}", STANDARD.encode(proof));
        Ok(Proof { message, server: server.as_ref().to_vec() })
    }
}

impl Proof {
    /// Whether the server knows the password as well.
    pub(super) fn holds(&self, said: &str) -> bool {
        let shown = said.split(',').find_map(|part| part.strip_prefix("v="));
        let shown = shown.and_then(|shown| STANDARD.decode(shown).ok());
        shown.is_some_and(|it| constant_time::verify_slices_are_equal(&it, &self.server).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 7677.
    #[test]
    fn it_is_what_the_standard_shows() {
        let scram = Scram::new(Hash::Sha256, "user", "rOprNGfwEbeRWgbNEkqO".to_owned());
        assert_eq!(scram.first(), "n,,n=user,r=rOprNGfwEbeRWgbNEkqO");
        let said = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                    s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
        let proof = scram.prove("pencil", said).unwrap();
        assert_eq!(
            proof.message,
            "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
             p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
        );
        assert!(proof.holds("v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="));
        assert!(!proof.holds("v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G5="));
        assert!(!proof.holds("e=invalid-proof"));
    }

    #[test]
    fn a_server_that_errs_is_not_answered() {
        let scram = Scram::new(Hash::Sha512, "a=b,c", "abc".to_owned());
        assert_eq!(scram.first(), "n,,n=a=3Db=2Cc,r=abc");
        for said in [
            "",
            "r=abc,s=AA==,i=1",
            "r=xyz,s=AA==,i=1",
            "r=abcd,i=1",
            "r=abcd,s=AA==",
            "r=abcd,s=AA==,i=0",
            "r=abcd,s=AA==,i=99999999",
        ] {
            assert!(scram.prove("pencil", said).is_err(), "{said}");
        }
        scram.prove("pencil", "r=abcd,s=AA==,i=1").unwrap();
    }
}
