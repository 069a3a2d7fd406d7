//! The object format against the Python `tink` package, in both directions.

use std::io::Write;
use std::process::{Command, Stdio};

use falaj_base::hex;
use falaj_store::seal::{Buffer, DataKey, Opener, Sealer};
use falaj_testkit::Random;

const NAME: &[u8] = b"falaj/oracle";

fn tink(python: &str, verb: &str, key: &DataKey, input: &[u8]) -> Option<Vec<u8>> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tink_oracle.py");
    let mut child = Command::new(python)
        .args([script, verb, &hex(key.expose()), &hex(NAME)])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let (mut stdin, input) = (child.stdin.take().unwrap(), input.to_vec());
    let feeder = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().unwrap();
    // A script that refuses its input may close it early.
    let _ = feeder.join().unwrap();
    output.status.success().then_some(output.stdout)
}

fn sealed(key: &DataKey, plaintext: &[u8]) -> Vec<u8> {
    let (mut sealer, mut out) = (Sealer::new(key, NAME).unwrap(), Buffer::default());
    sealer.push(plaintext, &mut out).unwrap();
    sealer.finish(&mut out).unwrap();
    out.to_vec()
}

fn opened(key: &DataKey, sealed: &[u8]) -> falaj_base::Result<Vec<u8>> {
    let (mut opener, mut out) = (Opener::new(key, NAME), Buffer::default());
    opener.push(sealed, &mut out)?;
    opener.finish(&mut out)?;
    Ok(out.to_vec())
}

#[test]
fn tink_reads_what_we_write_and_writes_what_we_read() {
    let Ok(python) = std::env::var("FALAJ_TEST_PYTHON") else {
        eprintln!("--- oracle: tink SKIPPED: FALAJ_TEST_PYTHON is not set (make test)");
        return;
    };
    let key = DataKey::generate().unwrap();
    for len in [0, 1, 65_479, 65_480, 65_481, 131_000, 131_001, 500_000] {
        let plaintext = Random::new(len as u64).bytes(len);
        let ours = sealed(&key, &plaintext);
        assert_eq!(tink(&python, "open", &key, &ours).as_ref(), Some(&plaintext), "ours, {len}");
        let theirs = tink(&python, "seal", &key, &plaintext).expect("tink seals");
        assert_eq!(theirs.len(), ours.len(), "the same length, {len}");
        assert_eq!(opened(&key, &theirs).unwrap(), plaintext, "theirs, {len}");
    }
    let mut cut = sealed(&key, &Random::new(9).bytes(200_000));
    cut.truncate(131_072);
    assert_eq!(tink(&python, "open", &key, &cut), None, "tink finds the cut too");
    assert!(opened(&key, &cut).is_err());
}
