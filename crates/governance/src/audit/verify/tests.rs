//! Every way of tampering with an export, and what the check says to it.

#![allow(clippy::cast_possible_truncation, reason = "small numbers")]

use proptest::prelude::*;

use super::*;
use crate::audit::checkpoint::SigningKey;
use crate::audit::export::{SEGMENT, Segmenter, write_entry, write_segment};

fn key() -> SigningKey {
    SigningKey::from_seed("falaj/test", &[7; 32]).unwrap()
}

fn entry(index: u64) -> String {
    let at = Timestamp::from_micros(1_700_000_000_000_000 + i64::try_from(index).unwrap());
    format!(r#"{{"action":"thing:make","at":"{at}","n":{index}}}"#)
}

fn root(entries: &[String]) -> Hash {
    let leaves = entries.iter().map(|entry| Hash::leaf(entry.as_bytes()));
    leaves.collect::<Frontier>().root()
}

/// An export of `entries` as the server writes it, line by line.
fn export(signer: &SigningKey, entries: &[String], visible: impl Fn(u64) -> bool) -> Vec<String> {
    let mut out = Vec::new();
    let mut segmenter = Segmenter::default();
    for (index, entry) in (0..).zip(entries) {
        segmenter.push(Hash::leaf(entry.as_bytes()), visible(index));
        if segmenter.is_due() || index + 1 == entries.len() as u64 {
            let note = signer.sign(index + 1, root(&entries[..=index as usize]));
            let segment = segmenter.cut(Some(note));
            write_segment(&mut out, &segment).unwrap();
            for shown in (segment.from..segment.to).filter(|shown| visible(*shown)) {
                write_entry(&mut out, shown, &entries[shown as usize]);
            }
        }
    }
    String::from_utf8(out).unwrap().lines().map(str::to_owned).collect()
}

struct Log {
    entries: Vec<String>,
    lines: Vec<String>,
    note: String,
}

fn log(size: u64) -> Log {
    let entries: Vec<_> = (0..size).map(entry).collect();
    let lines = export(&key(), &entries, |_| true);
    let note = key().sign(size, root(&entries));
    Log { entries, lines, note }
}

/// The line of the export that holds `index`, counting the segment lines before it.
fn at(index: u64) -> usize {
    usize::try_from(index + index / SEGMENT + 1).unwrap()
}

fn check(lines: &[String], note: &str) -> Result<Verified, Fault> {
    let text = lines.iter().fold(String::new(), |text, line| text + line + "\n");
    verify_bytes(text.as_bytes(), note.as_bytes(), key().verifier().to_string().as_bytes())
}

#[test]
fn a_sound_export_is_proven_to_its_last_entry() {
    for size in [0, 1, 2, SEGMENT - 1, SEGMENT, SEGMENT + 1, 2 * SEGMENT + 300] {
        let log = log(size);
        let verified = check(&log.lines, &log.note).unwrap();
        assert_eq!((verified.size, verified.entries, verified.omitted), (size, size, 0));
        assert_eq!(verified.root, root(&log.entries));
        let span = verified.first_at.zip(verified.last_at).map(|(a, b)| b.since(a).as_micros());
        assert_eq!(span, (size > 0).then(|| u128::from(size - 1)));
    }
}

#[test]
#[allow(clippy::too_many_lines, reason = "a table")]
fn each_tampering_is_told_and_the_first_bad_entry_named() {
    type Tamper = fn(&mut Vec<String>);
    let altered: Tamper = |lines| lines[at(1500)] = lines[at(1500)].replace("make", "fake");
    let table: &[(&str, Tamper, Problem, Option<u64>)] = &[
        ("a changed word", altered, Problem::Altered, Some(1500)),
        (
            "a changed first entry",
            |l| l[1] = l[1].replace("\"n\":0", "\"n\":1"),
            Problem::Altered,
            Some(0),
        ),
        (
            "an entry spaced out",
            |l| l[5] = l[5].replace("\"n\":", "\"n\": "),
            Problem::Altered,
            Some(4),
        ),
        ("a line torn", |l| l[at(9)].truncate(20), Problem::Altered, Some(9)),
        ("a line emptied", |l| l[at(9)].clear(), Problem::Altered, Some(9)),
        (
            "a wrong number",
            |l| l[at(9)] = l[at(9)].replace("\"index\":9", "\"index\":8"),
            Problem::Altered,
            Some(9),
        ),
        ("an entry removed", |l| drop(l.remove(at(77))), Problem::Missing, Some(77)),
        (
            "the last of a segment removed",
            |l| drop(l.remove(at(1023))),
            Problem::Missing,
            Some(1023),
        ),
        ("two entries swapped", |l| l.swap(at(3), at(4)), Problem::Reordered, Some(3)),
        ("far entries swapped", |l| l.swap(at(3), at(2000)), Problem::Reordered, Some(3)),
        (
            "contents swapped under their numbers",
            |l| {
                l.swap(at(3), at(4));
                l[at(3)] = l[at(3)].replace("\"index\":4", "\"index\":3");
                l[at(4)] = l[at(4)].replace("\"index\":3", "\"index\":4");
            },
            Problem::Reordered,
            Some(3),
        ),
        ("an entry twice", |l| l.insert(at(8), l[at(8)].clone()), Problem::Duplicated, Some(8)),
        (
            "the last entry twice",
            |l| l.push(l[l.len() - 1].clone()),
            Problem::Duplicated,
            Some(2347),
        ),
        (
            "an entry added",
            |l| l.push(r#"{"index":2348,"entry":{}}"#.into()),
            Problem::Uncovered,
            Some(2348),
        ),
        ("the end cut off", |l| l.truncate(at(2300)), Problem::Truncated, Some(2300)),
        ("a last segment cut off", |l| l.truncate(at(2047) + 1), Problem::Truncated, Some(2048)),
        ("everything cut off", Vec::clear, Problem::Truncated, Some(0)),
        ("a segment line removed", |l| drop(l.remove(at(1024) - 1)), Problem::Missing, Some(1024)),
        ("a first segment line removed", |l| drop(l.remove(0)), Problem::Missing, Some(0)),
        (
            "a segment removed whole",
            |l| drop(l.drain(at(1024) - 1..=at(2047))),
            Problem::Missing,
            Some(1024),
        ),
        ("a segment line twice", |l| l.insert(0, l[0].clone()), Problem::Duplicated, Some(0)),
        (
            "a segment from elsewhere",
            |l| l[0] = l[at(1024) - 1].clone(),
            Problem::Reordered,
            Some(0),
        ),
        (
            "another version",
            |l| l[0] = l[0].replace("\"version\":1", "\"version\":2"),
            Problem::Malformed,
            None,
        ),
        (
            "a hash in a segment line changed",
            |l| {
                let hash = Hash::leaf(entry(5).as_bytes()).to_string();
                l[0] = l[0].replace(&hash, &Hash([0; 32]).to_string());
            },
            Problem::Altered,
            Some(5),
        ),
        ("a segment checkpoint stripped", |l| strip_note(&mut l[0]), Problem::Uncovered, Some(0)),
        (
            "a segment checkpoint forged",
            |l| l[0] = l[0].replace("— falaj/test ", "— falaj/test A"),
            Problem::BadSignature,
            Some(0),
        ),
    ];
    let log = log(2 * SEGMENT + 300);
    for (what, tamper, problem, index) in table {
        let mut lines = log.lines.clone();
        tamper(&mut lines);
        let fault = check(&lines, &log.note).expect_err(what);
        assert_eq!((fault.problem, fault.index), (*problem, *index), "{what}: {fault}");
    }
}

fn strip_note(line: &mut String) {
    let Some(Line::Segment(mut segment)) = Line::parse(line.as_bytes()) else { panic!("{line}") };
    segment.note = None;
    let mut out = Vec::new();
    write_segment(&mut out, &segment).unwrap();
    *line = String::from_utf8(out).unwrap().trim_end().to_owned();
}

#[test]
fn whoever_rewrites_entry_and_hashes_fails_against_the_signatures() {
    let log = log(2 * SEGMENT + 300);
    let mut forged_entries = log.entries.clone();
    forged_entries[1500] = forged_entries[1500].replace("make", "fake");
    // With a key of the attacker's own, the first signature met is wrong.
    let stranger = SigningKey::from_seed("falaj/test", &[8; 32]).unwrap();
    let fault = check(&export(&stranger, &forged_entries, |_| true), &log.note).unwrap_err();
    assert_eq!((fault.problem, fault.index), (Problem::BadSignature, Some(0)));
    // With the true signatures kept, the stretch that was rewritten is known.
    let mut lines = export(&key(), &forged_entries, |_| true);
    for start in [0, 1, 2] {
        let line = at(start * SEGMENT) - 1;
        let Some(Line::Segment(mut forged)) = Line::parse(lines[line].as_bytes()) else { panic!() };
        let Some(Line::Segment(honest)) = Line::parse(log.lines[line].as_bytes()) else { panic!() };
        forged.note = honest.note;
        let mut out = Vec::new();
        write_segment(&mut out, &forged).unwrap();
        lines[line] = String::from_utf8(out).unwrap().trim_end().to_owned();
    }
    let fault = check(&lines, &log.note).unwrap_err();
    assert_eq!((fault.problem, fault.index), (Problem::Rewritten, Some(1024)), "{fault}");
    // Even a thief of the signing key cannot undo the checkpoint that the auditor holds.
    let fault = check(&export(&key(), &forged_entries, |_| true), &log.note).unwrap_err();
    assert_eq!(fault.problem, Problem::CheckpointMismatch, "{fault}");
}

#[test]
fn an_export_and_a_checkpoint_of_different_age() {
    let log = log(1500);
    for size in [0, 1, 1023, 1024, 1025, 1499, 1500] {
        let older = key().sign(size, root(&log.entries[..size as usize]));
        let verified = check(&log.lines, &older).unwrap();
        assert_eq!((verified.size, verified.entries, verified.beyond), (size, 1500, 1500 - size));
    }
    let fault = check(&log.lines, &key().sign(1501, Hash::leaf(b""))).unwrap_err();
    assert_eq!((fault.problem, fault.index), (Problem::Truncated, Some(1500)));
    let fault = check(&log.lines, &key().sign(700, Hash::leaf(b""))).unwrap_err();
    assert_eq!(fault.problem, Problem::CheckpointMismatch);
    let fault = check(&log.lines, &key().sign(0, Hash::leaf(b""))).unwrap_err();
    assert_eq!(fault.problem, Problem::CheckpointMismatch);
}

#[test]
fn an_overlong_line_is_refused_without_reading_it_whole() {
    let source = std::io::BufReader::new(std::io::repeat(b' '));
    let fault = verify(source, &log(1).note, &key().verifier().to_string()).unwrap_err();
    assert_eq!(fault.problem, Problem::Malformed);
}

/// Frozen: exports of earlier versions must verify for ever.
#[test]
fn an_export_kept_from_version_1_still_verifies() {
    let kept = include_bytes!("../testdata/export-v1.ndjson");
    let note = include_bytes!("../testdata/checkpoint-v1.txt");
    let public = include_bytes!("../testdata/key-v1.txt");
    let verified = verify_bytes(kept, note, public).unwrap();
    assert_eq!((verified.size, verified.entries, verified.omitted), (1030, 4, 1026));
    let written = export(&key(), &log(1030).entries, |n| n % 300 == 7);
    assert_eq!(String::from_utf8_lossy(kept), written.join("\n") + "\n");
}

proptest! {
    #[test]
    fn what_is_left_out_does_not_weaken_the_proof(
        size in 1u64..2500, every in 1u64..700, offset in 0u64..700, pick in any::<prop::sample::Index>(),
    ) {
        let entries: Vec<_> = (0..size).map(entry).collect();
        let shown = |index: u64| index % every == offset % every;
        let mut lines = export(&key(), &entries, shown);
        let note = key().sign(size, root(&entries));
        let verified = check(&lines, &note).unwrap();
        let count = (0..size).filter(|index| shown(*index)).count() as u64;
        prop_assert_eq!((verified.entries, verified.omitted), (count, size - count));
        // Now one shown entry is changed.
        let of_entry = |line: &&mut String| line.starts_with("{\"index\"");
        let candidates: Vec<_> = lines.iter_mut().filter(of_entry).collect();
        if let Some(line) = (count > 0).then(|| candidates.into_iter().nth(pick.index(count as usize)).unwrap()) {
            let Some(Line::Entry { index, .. }) = Line::parse(line.as_bytes()) else { panic!() };
            *line = line.replace("thing:make", "thing:fake");
            let fault = check(&lines, &note).unwrap_err();
            prop_assert_eq!((fault.problem, fault.index), (Problem::Altered, Some(index)));
        }
    }

    #[test]
    fn one_flipped_bit_never_passes(at in any::<prop::sample::Index>(), bit in 0u8..8) {
        let log = log(40);
        let mut bytes = (log.lines.join("\n") + "\n").into_bytes();
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        let result = verify_bytes(&bytes, log.note.as_bytes(), key().verifier().to_string().as_bytes());
        // White space between tokens is no content: a line feed may become another blank.
        if let Ok(verified) = result {
            prop_assert_eq!(verified.entries, 40);
            prop_assert!(bytes[at].is_ascii_whitespace());
        }
    }

    #[test]
    fn any_bytes_are_survived(export in prop::collection::vec(any::<u8>(), 0..200), text in "\\PC{0,60}") {
        let note = log(3).note;
        let key = key().verifier().to_string();
        prop_assert!(verify_bytes(&export, note.as_bytes(), key.as_bytes()).is_err());
        let _ = verify_bytes(text.as_bytes(), text.as_bytes(), text.as_bytes());
    }
}
