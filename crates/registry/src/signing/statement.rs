//! The in-toto statement inside an envelope: which files, with which digests.

use serde::{Deserialize, Serialize};

use super::manifest::{Manifest, Sha256, UNSIGNED, is_safe, order, root_digest};
use super::refusal::Refusal;

const STATEMENT: &str = "https://in-toto.io/Statement/v1";
const PREDICATE: &str = "https://model_signing/signature/v1.0";
const METHOD: &str = "files";
const HASH: &str = "sha256";

// Each struct reads unknown fields without complaint, as the format asks of a verifier, and refuses
// a field given twice, which two readers could understand differently.

#[derive(Serialize, Deserialize)]
struct Statement {
    #[serde(rename = "_type")]
    kind: String,
    subject: Vec<Subject>,
    #[serde(rename = "predicateType")]
    predicate_type: String,
    predicate: Predicate,
}

#[derive(Serialize, Deserialize)]
struct Subject {
    name: String,
    digest: SubjectDigest,
}

#[derive(Serialize, Deserialize)]
struct SubjectDigest {
    sha256: String,
}

#[derive(Serialize, Deserialize)]
struct Predicate {
    serialization: Serialization,
    resources: Vec<Resource>,
}

#[derive(Serialize, Deserialize)]
struct Serialization {
    method: String,
    hash_type: String,
    allow_symlinks: bool,
    #[serde(default)]
    ignore_paths: Vec<String>,
}

#[derive(Serialize, Deserialize)]
struct Resource {
    name: String,
    algorithm: String,
    digest: String,
}

/// What a statement says, once its signature has been checked.
#[derive(Debug)]
pub(super) struct Signed {
    pub(super) name: String,
    /// Path and digest, in the manifest's order, each path once.
    pub(super) files: Vec<(String, Sha256)>,
    pub(super) ignored: Vec<String>,
}

/// The statement about a manifest, as JSON.
pub(super) fn write(manifest: &Manifest, name: &str) -> serde_json::Result<Vec<u8>> {
    serde_json::to_vec(&Statement {
        kind: STATEMENT.into(),
        subject: vec![Subject {
            name: name.into(),
            digest: SubjectDigest { sha256: manifest.digest().to_string() },
        }],
        predicate_type: PREDICATE.into(),
        predicate: Predicate {
            serialization: Serialization {
                method: METHOD.into(),
                hash_type: HASH.into(),
                allow_symlinks: false,
                ignore_paths: UNSIGNED.map(String::from).into(),
            },
            resources: manifest
                .signed()
                .map(|file| Resource {
                    name: file.path.clone(),
                    algorithm: HASH.into(),
                    digest: file.sha256.to_string(),
                })
                .collect(),
        },
    })
}

/// Reads a statement whose signature has been checked.
pub(super) fn read(payload: &[u8]) -> Result<Signed, Refusal> {
    let statement: Statement = serde_json::from_slice(payload).map_err(Refusal::malformed)?;
    let Statement { kind, subject, predicate_type, predicate } = statement;
    expect("the statement type", &kind, STATEMENT)?;
    expect("the predicate type", &predicate_type, PREDICATE)?;
    expect("the serialization method", &predicate.serialization.method, METHOD)?;
    expect("the hash", &predicate.serialization.hash_type, HASH)?;
    let [subject] = <[Subject; 1]>::try_from(subject)
        .map_err(|all| Refusal::malformed(format!("it has {} subjects, not one", all.len())))?;

    let mut files = Vec::with_capacity(predicate.resources.len());
    for resource in predicate.resources {
        expect("a file's hash", &resource.algorithm, HASH)?;
        if !is_safe(&resource.name) {
            return Err(Refusal::malformed(format!("it names the file {:?}", resource.name)));
        }
        let digest = Sha256::parse(&resource.digest)
            .ok_or_else(|| Refusal::malformed("a file's digest is not a SHA-256"))?;
        files.push((resource.name, digest));
    }
    // A signature over nothing would vouch for everything its excluded paths cover.
    if files.is_empty() {
        return Err(Refusal::malformed("it covers no file"));
    }
    let total = root_digest(files.iter().map(|(_, digest)| digest));
    if Sha256::parse(&subject.digest.sha256) != Some(total) {
        return Err(Refusal::Inconsistent);
    }
    files.sort_by(|(a, _), (b, _)| order(a, b));
    if let Some(pair) = files.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        return Err(Refusal::malformed(format!("it names the file {:?} twice", pair[0].0)));
    }
    let ignored = predicate.serialization.ignore_paths;
    Ok(Signed { name: subject.name, files, ignored })
}

fn expect(what: &str, value: &str, supported: &str) -> Result<(), Refusal> {
    if value == supported { Ok(()) } else { Err(Refusal::unsupported(what, value, supported)) }
}
