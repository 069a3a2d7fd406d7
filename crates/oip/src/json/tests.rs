//! Against another reader of JSON, which must agree on what is JSON.

use proptest::prelude::*;
use serde_json::Value;

use super::Cursor;

fn is_json(text: &str) -> bool {
    let mut cursor = Cursor::new(text);
    cursor.skip().is_ok() && cursor.end().is_ok()
}

#[test]
fn both_agree_on_the_edges() {
    let yes = [
        "0",
        "-0",
        "1.5e+3",
        "\"\\u00e9\\\"\"",
        "[]",
        "{}",
        "[1,[{\"a\":null}]]",
        " true ",
        "\"é\u{7f}\"",
    ];
    let no = [
        "",
        "00",
        "01",
        "1.",
        ".5",
        "+1",
        "1e",
        "1e+",
        "-",
        "nul",
        "nulll",
        "tru",
        "[1,]",
        "[,1]",
        "{\"a\"}",
        "{\"a\":}",
        "{a:1}",
        "{\"a\":1,}",
        "[1 2]",
        "\"",
        "\"\\\"",
        "\"\n\"",
        "\"\\x\"",
        "\"\\ud800\"",
        "1 1",
        "]",
        "0x1",
        "'a'",
        "// c\n1",
        "\u{feff}1",
        "\u{a0}1",
    ];
    for (texts, wanted) in [(&yes[..], true), (&no[..], false)] {
        for text in texts {
            assert_eq!(is_json(text), wanted, "{text:?}");
            assert_eq!(serde_json::from_str::<Value>(text).is_ok(), wanted, "{text:?}");
        }
    }
    // Beyond JSON, on purpose.
    for text in ["NaN", "Infinity", "[-Infinity]", "1e999"] {
        assert!(is_json(text), "{text}");
    }
}

proptest! {
    #[test]
    fn both_agree(text in r#"(\{|\}|\[|\]|:|,|"a"|"|\\|\\n|u00e9|1|0|-|\+|\.|e|null|true|fals| ){0,12}"#) {
        let ours = is_json(&text);
        match serde_json::from_str::<Value>(&text) {
            Ok(_) => prop_assert!(ours, "{:?} is JSON", text),
            // The only numbers it refuses are those that are too large for it.
            Err(error) => prop_assert!(!ours || error.to_string().contains("out of range"), "{:?}: {}", text, error),
        }
    }
}
