//! The Sigstore bundle: an envelope, its signature, and the name of the key.

use std::cmp::Ordering;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use falaj_base::{Error, error::Result};
use serde::{Deserialize, Serialize};

use super::key::{PublicKey, SigningKey};
use super::manifest::{Manifest, is_ignored, order};
use super::refusal::Refusal;
use super::statement::{self, Signed};

const MEDIA_TYPE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";
const PAYLOAD_TYPE: &str = "application/vnd.in-toto+json";

/// The largest bundle that is read: a manifest of the most files, with room to spare.
pub const MAX_BUNDLE_BYTES: usize = 64 << 20;

/// The longest name of a model inside a signature, in bytes.
const MAX_NAME: usize = 1024;

/// A signature, ready to be stored and handed out as `model.sig`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bundle(String);

impl Bundle {
    #[must_use]
    pub fn json(&self) -> &str {
        &self.0
    }

    #[must_use]
    pub fn into_json(self) -> String {
        self.0
    }
}

/// What a checked signature says beyond "these are the files".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// The name the signer gave the model: information, not proof.
    pub name: String,
    /// Files of the model that the signer excluded by path, and that nobody vouches for.
    pub unsigned: Vec<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire {
    media_type: String,
    verification_material: Material,
    dsse_envelope: Envelope,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Material {
    public_key: Option<KeyHint>,
    #[serde(default)]
    tlog_entries: Vec<serde_json::Value>,
}

#[derive(Serialize, Deserialize)]
struct KeyHint {
    hint: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope {
    payload: String,
    payload_type: String,
    signatures: Vec<Signature>,
}

#[derive(Serialize, Deserialize)]
struct Signature {
    sig: String,
    keyid: Option<String>,
}

/// Signs a manifest. `name` is what verifiers show as the model's name.
///
/// Git's own files (`.git`, `.gitattributes`, `.github`, `.gitignore`) are left out and listed as
/// excluded, as the stock tool does by default.
pub fn sign(manifest: &Manifest, key: &SigningKey, name: &str) -> Result<Bundle> {
    if name.is_empty() || name.len() > MAX_NAME {
        return Err(Error::invalid("name", name, format!("1 to {MAX_NAME} bytes")));
    }
    if manifest.signed().next().is_none() {
        return Err(Error::invalid("files", "an empty model", "at least one file to sign"));
    }
    let payload = statement::write(manifest, name).map_err(Error::internal)?;
    let signature = key.sign(&signed_bytes(&payload))?;
    let wire = Wire {
        media_type: MEDIA_TYPE.into(),
        verification_material: Material {
            public_key: Some(KeyHint { hint: Some(key.public_key().id().to_string()) }),
            tlog_entries: Vec::new(),
        },
        dsse_envelope: Envelope {
            payload: STANDARD.encode(payload),
            payload_type: PAYLOAD_TYPE.into(),
            signatures: vec![Signature {
                sig: STANDARD.encode(signature),
                keyid: Some(String::new()),
            }],
        },
    };
    serde_json::to_string(&wire).map(Bundle).map_err(Error::internal)
}

/// Checks that `bundle` was made with `key` and that the model is exactly what was signed.
pub fn verify(manifest: &Manifest, bundle: &str, key: &PublicKey) -> Result<Verified, Refusal> {
    let signed = open(bundle, key)?;
    let unsigned = compare(manifest, &signed)?;
    Ok(Verified { name: signed.name, unsigned })
}

/// Checks the signature, and only then reads what it is over.
fn open(bundle: &str, key: &PublicKey) -> Result<Signed, Refusal> {
    if bundle.len() > MAX_BUNDLE_BYTES {
        return Err(Refusal::malformed(format!("it is over {MAX_BUNDLE_BYTES} bytes")));
    }
    let wire: Wire = serde_json::from_str(bundle).map_err(Refusal::malformed)?;
    let Wire { media_type, verification_material, dsse_envelope } = wire;
    if media_type != MEDIA_TYPE {
        return Err(Refusal::unsupported("the media type", &media_type, MEDIA_TYPE));
    }
    if dsse_envelope.payload_type != PAYLOAD_TYPE {
        let found = &dsse_envelope.payload_type;
        return Err(Refusal::unsupported("the payload type", found, PAYLOAD_TYPE));
    }
    let Some(named) = verification_material.public_key else {
        return Err(Refusal::unsupported("the key", "a certificate", "a P-256 public key"));
    };
    if named.hint.is_some_and(|hint| !hint.is_empty() && hint != key.id().to_string()) {
        return Err(Refusal::OtherKey);
    }
    let [signature] = dsse_envelope.signatures.as_slice() else {
        let count = dsse_envelope.signatures.len();
        return Err(Refusal::malformed(format!("it has {count} signatures, not one")));
    };
    let payload = decode("the payload", &dsse_envelope.payload)?;
    let signature = decode("the signature", &signature.sig)?;
    if !key.is_valid(&signed_bytes(&payload), &signature) {
        return Err(Refusal::BadSignature);
    }
    statement::read(&payload)
}

fn decode(what: &str, text: &str) -> Result<Vec<u8>, Refusal> {
    STANDARD.decode(text).map_err(|_| Refusal::malformed(format!("{what} is not base64")))
}

/// What is signed: DSSE's encoding of a payload together with its type and both lengths, so that
/// neither can be taken for the other.
fn signed_bytes(payload: &[u8]) -> Vec<u8> {
    let header = format!("DSSEv1 {} {PAYLOAD_TYPE} {} ", PAYLOAD_TYPE.len(), payload.len());
    [header.as_bytes(), payload].concat()
}

/// Walks both sorted lists together and stops at the first path where they part. Returns the files
/// that the signer excluded.
fn compare(manifest: &Manifest, signed: &Signed) -> Result<Vec<String>, Refusal> {
    let mut unsigned = Vec::new();
    let mut signed_files = signed.files.iter().peekable();
    for file in manifest.files() {
        let next = signed_files.peek();
        let place = next.map_or(Ordering::Greater, |(path, _)| order(path, &file.path));
        match (next, place) {
            (Some((path, _)), Ordering::Less) => {
                return Err(Refusal::Missing { path: path.clone() });
            }
            (Some((path, digest)), Ordering::Equal) => {
                if *digest != file.sha256 {
                    return Err(Refusal::Differs { path: path.clone() });
                }
                signed_files.next();
            }
            _ if is_ignored(&file.path, &signed.ignored) => unsigned.push(file.path.clone()),
            _ => return Err(Refusal::Extra { path: file.path.clone() }),
        }
    }
    match signed_files.next() {
        Some((path, _)) => Err(Refusal::Missing { path: path.clone() }),
        None => Ok(unsigned),
    }
}
