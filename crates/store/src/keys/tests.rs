//! The keyring file: its mode, its atomicity, its frozen format.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use falaj_base::code;

use super::{KeyManager, LocalKeyring, RootVersion, Wrapped};
use crate::seal::DataKey;

const NAME: &str = "falaj/key/1/frozen";

fn mode(path: &std::path::Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn the_first_start_makes_a_private_file_and_the_second_reads_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keyring.json");
    let key = DataKey::generate().unwrap();
    let wrapped = LocalKeyring::open(&path).unwrap().wrap(NAME, &key).await.unwrap();
    assert_eq!(mode(&path), 0o600);
    assert_eq!(wrapped.by.to_string(), "local:1");
    let again = LocalKeyring::open(&path).unwrap().unwrap(NAME, &wrapped).await.unwrap();
    assert_eq!(again.expose(), key.expose());
    let left: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "only the keyring is left: {left:?}");
}

#[test]
fn a_file_that_others_may_read_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keyring.json");
    LocalKeyring::open(&path).unwrap();
    for wider in [0o640, 0o604, 0o644, 0o660, 0o610] {
        fs::set_permissions(&path, fs::Permissions::from_mode(wider)).unwrap();
        let error = LocalKeyring::open(&path).unwrap_err();
        assert_eq!(error.code(), &code::INVALID_CONFIG, "{wider:o}");
        assert!(error.message().contains("0600"), "{error}");
    }
}

#[test]
fn a_damaged_file_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keyring.json");
    let short =
        r#"{"format":1,"roots":[{"version":1,"created_at":"2026-01-01T00:00:00Z","key":"AA=="}]}"#;
    for text in
        ["", "{}", "rubbish", r#"{"format":1,"roots":[]}"#, r#"{"format":99,"roots":[]}"#, short]
    {
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let error = LocalKeyring::open(&path).unwrap_err();
        assert_eq!(error.code(), &code::INVALID_CONFIG, "{text}");
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }
}

#[tokio::test]
async fn servers_that_share_the_file_see_each_others_rotations() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keyring.json");
    let (one, two) = (LocalKeyring::open(&path).unwrap(), LocalKeyring::open(&path).unwrap());
    assert_eq!(one.rotate().await.unwrap().version, 2);
    assert_eq!(two.rotate().await.unwrap().version, 3, "not a second version 2");
    assert_eq!(mode(&path), 0o600);
    let key = DataKey::generate().unwrap();
    let wrapped = two.wrap(NAME, &key).await.unwrap();
    assert_eq!(one.unwrap(NAME, &wrapped).await.unwrap().expose(), key.expose());
}

#[tokio::test]
async fn another_providers_key_is_named_as_such() {
    let folder = tempfile::tempdir().unwrap();
    let keyring = LocalKeyring::open(&folder.path().join("keyring.json")).unwrap();
    let by: RootVersion = "transit/falaj:7".parse().unwrap();
    let foreign = Wrapped { by, bytes: b"vault:v7:AAAA".to_vec() };
    let error = keyring.unwrap(NAME, &foreign).await.unwrap_err();
    assert_eq!(error.code(), &code::INVALID_CONFIG);
    assert!(error.message().contains("transit/falaj:7"));
    assert!("local".parse::<RootVersion>().is_err());
}

/// The file was written once and may never change: a keyring made years ago must open.
#[tokio::test]
async fn the_frozen_keyring_opens() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keyring.json");
    fs::write(&path, include_bytes!("../../tests/sealed/keyring-1.json")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let keyring = LocalKeyring::open(&path).unwrap();
    assert_eq!(keyring.current().await.unwrap().to_string(), "local:2");
    let bytes = include_bytes!("../../tests/sealed/wrapped-1.bin").to_vec();
    let wrapped = Wrapped { by: "local:1".parse().unwrap(), bytes };
    let key = keyring.unwrap(NAME, &wrapped).await.unwrap();
    assert_eq!(key.expose(), &[7; 32]);
    let rewrapped = keyring.rewrap(NAME, &wrapped).await.unwrap();
    assert_eq!(rewrapped.by.to_string(), "local:2");
    assert_eq!(keyring.unwrap(NAME, &rewrapped).await.unwrap().expose(), &[7; 32]);
}
