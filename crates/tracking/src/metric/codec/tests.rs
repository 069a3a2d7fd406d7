//! Round trips, frozen bytes, and bytes that are not ours.

use falaj_base::{code, hex};
use proptest::prelude::*;

use super::*;

fn decode_chunk(bytes: &[u8]) -> Result<Vec<Point>> {
    let mut points = Vec::new();
    chunk(bytes)?.decode_into(&mut points);
    Ok(points)
}

fn decode_log_row(bytes: &[u8]) -> Result<Vec<(i64, Vec<Point>)>> {
    log_row(bytes)?
        .map(|section| {
            let (key, series) = section?;
            let mut points = Vec::new();
            series.decode_into(&mut points);
            assert_eq!(points.len(), series.len());
            Ok((key, points))
        })
        .collect()
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
        .collect()
}

/// Version 1, one example per feature of the layout. These bytes are on people's disks.
fn frozen() -> Vec<(&'static str, Vec<Point>)> {
    let at = 1_700_000_000_000;
    let (low, high) = (i64::MIN + 1, i64::MAX);
    vec![
        ("81014080a0abfef9620e0000003f", vec![Point::new(at, 7, 0.5)]),
        ("81010080a0abfef9620d9a9999999999b93f", vec![Point::new(at, -7, 0.1)]),
        (
            "81034180a0abfef96200c80102000a0000803f000000400000c07f",
            vec![
                Point::new(at, 0, 1.0),
                Point::new(at + 100, 1, 2.0),
                Point::new(at + 210, 2, f64::NAN),
            ],
        ),
        (
            "81033f00fdffffffffffffffff01ffffffffffffffffff01fdffffffffffffffff01ffffffffffffffff\
             0000000000000000fdffffffffffff7f0000000000000000ffffffffffffef7fffffffffffffefff\
             0000000000000000",
            vec![
                Point::new(0, low, f64::INFINITY),
                Point::new(high, high, f64::NEG_INFINITY),
                Point::new(-1, 0, 0.0),
            ],
        ),
    ]
}

#[test]
fn version_1_is_written_and_read_as_it_always_was() {
    for (text, points) in frozen() {
        assert_eq!(hex(&encode_chunk(&points)), text);
        assert_eq!(decode_chunk(&unhex(text)).unwrap(), points, "{text}");
    }
    let row = "010601406464000040400e02405f5f0202000080400000a040c4040140fc9fabfef962030000803f";
    let sections = vec![
        (3, vec![Point::new(50, 50, 3.0)]),
        (10, vec![Point::new(2, 2, 4.0), Point::new(3, 3, 5.0)]),
        (300, vec![Point::new(1_700_000_000_000, 0, 1.0)]),
    ];
    let borrowed = sections.iter().map(|(key, points)| (*key, points.as_slice()));
    assert_eq!(hex(&encode_log_row(borrowed)), row);
    assert_eq!(decode_log_row(&unhex(row)).unwrap(), sections);
}

#[test]
fn regular_series_are_small() {
    let size = |points: Vec<Point>| encode_chunk(&points).len();
    let regular: Vec<_> = (0..4096).map(|n| Point::new(100 * n, n, 0.25)).collect();
    assert!(size(regular) < 4096 * 4 + 32, "four bytes a point: the value");
    let jittery = |n: i32| Point::new((1000 * n + n % 97).into(), n.into(), f64::from(n).sqrt());
    assert!(
        size((0..4096).map(jittery).collect()) < 4096 * 9 + 32,
        "nine: the value and the jitter"
    );
    assert!(encode_log_row([(7, &[Point::new(1_700_000_000_000, 3, 0.1)][..])]).len() <= 20);
}

#[test]
fn foreign_bytes_are_an_integrity_error() {
    for text in [
        "",
        "00",
        "01",                               // a log row in place of a chunk
        "82014080a0abfef9620e0000003f",     // another version
        "8100",                             // no points
        "8101",                             // no shape
        "8101c000000000003f",               // a reserved bit
        "81014080a0abfef9620e0000003f00",   // bytes after the end
        "81ffffffffffffffffff014000000000", // more points than the bytes could hold
        "81ffffffffffffffffff013f0000000000",
    ] {
        let error = decode_chunk(&unhex(text)).expect_err(text);
        assert_eq!(error.code(), &code::INTEGRITY, "{text}");
    }
    assert_eq!(decode_log_row(&unhex("01")).unwrap(), [], "a log row may be empty");
    let after_a_failure = unhex("010600060140646400004040");
    assert_eq!(log_row(&after_a_failure).unwrap().filter(Result::is_err).count(), 1);
}

fn any_points(max: usize) -> impl Strategy<Value = Vec<Point>> {
    let value = prop_oneof![
        any::<f64>(),
        any::<f32>().prop_map(f64::from),
        Just(f64::NAN),
        Just(f64::INFINITY),
    ];
    // From close together to anywhere, so that every width of a column occurs.
    let wild = (any::<i64>(), any::<i64>(), value);
    (0_u32..64, 0_u32..64, prop::collection::vec(wild, 1..max)).prop_map(|(time, step, points)| {
        points.into_iter().map(|(t, s, v)| Point::new(t >> time, s >> step, v)).collect()
    })
}

proptest! {
    #[test]
    fn points_come_back(points in any_points(300)) {
        prop_assert_eq!(decode_chunk(&encode_chunk(&points)).unwrap(), points);
    }

    #[test]
    fn log_rows_come_back(
        sections in prop::collection::vec((any::<i64>(), any_points(5)), 0..20),
    ) {
        let borrowed = sections.iter().map(|(key, points)| (*key, points.as_slice()));
        prop_assert_eq!(decode_log_row(&encode_log_row(borrowed)).unwrap(), sections);
    }

    #[test]
    fn damaged_bytes_never_panic_nor_grow(
        points in any_points(50),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in any::<prop::sample::Index>(),
    ) {
        let row = encode_log_row([(1, points.as_slice()), (2, points.as_slice())]);
        for mut bytes in [encode_chunk(&points), row] {
            for (at, byte) in &damage {
                let at = at.index(bytes.len());
                bytes[at] = *byte;
            }
            bytes.truncate(1 + cut.index(bytes.len()));
            let whole = decode_chunk(&bytes).map_or(0, |points| points.len());
            let rows = decode_log_row(&bytes).unwrap_or_default();
            let in_rows: usize = rows.iter().map(|(_, points)| points.len()).sum();
            prop_assert!(whole.max(in_rows) <= bytes.len() / 4);
        }
    }

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        for tag in [LOG_ROW, CHUNK] {
            let bytes: Vec<_> = std::iter::once(tag).chain(bytes.iter().copied()).collect();
            let _ = decode_chunk(&bytes);
            let _ = decode_log_row(&bytes);
        }
    }
}
