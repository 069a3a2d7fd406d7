//! Comma-separated values: fields between commas, quoted where they hold one; `""` is a quote.

use crate::exit::{Failure, Result};

/// Reads a text whole: rows of fields, and whether each was quoted.
pub(super) fn read(text: &str) -> Result<Vec<Vec<(String, bool)>>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let (mut rows, mut row) = (Vec::new(), Vec::new());
    let (mut field, mut quoted, mut inside) = (String::new(), false, false);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if inside && chars.peek() == Some(&'"') => {
                chars.next();
                field.push('"');
            }
            '"' if inside => inside = false,
            '"' if field.is_empty() && !quoted => (inside, quoted) = (true, true),
            c if inside => field.push(c),
            ',' => row.push((std::mem::take(&mut field), std::mem::take(&mut quoted))),
            '\r' if chars.peek() == Some(&'\n') => {}
            '\n' => {
                row.push((std::mem::take(&mut field), std::mem::take(&mut quoted)));
                rows.push(std::mem::take(&mut row));
            }
            _ if quoted => {
                let line = rows.len() + 1;
                let text = format!("line {line} has something behind a quote that ends a field");
                return Err(Failure::usage(text));
            }
            c => field.push(c),
        }
    }
    if inside {
        return Err(Failure::usage("a quote is not closed".to_owned()));
    }
    if !field.is_empty() || quoted || !row.is_empty() {
        row.push((field, quoted));
        rows.push(row);
    }
    // A line with nothing on it is no row.
    rows.retain(|row| !matches!(row.as_slice(), [(only, false)] if only.is_empty()));
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Vec<Vec<String>> {
        let fields = |row: Vec<(String, bool)>| row.into_iter().map(|(field, _)| field).collect();
        read(text).unwrap().into_iter().map(fields).collect()
    }

    #[test]
    fn fields_are_read_as_others_write_them() {
        assert_eq!(texts("a,b\n1,2\n"), [["a", "b"], ["1", "2"]]);
        assert_eq!(texts("\u{feff}a,b\r\n\"x,\"\"y\"\"\n\",\r\n"), [["a", "b"], ["x,\"y\"\n", ""]]);
        assert_eq!(texts("a\n\n1\n\n"), [["a"], ["1"]]);
        assert_eq!(texts("a,b\n,"), [["a", "b"], ["", ""]]);
        assert!(texts("").is_empty());
        let rows = read("a\n\"\"\n").unwrap();
        assert_eq!(rows[1], [(String::new(), true)], "an empty text that was meant");
        for bad in ["a\n\"x", "a\n\"x\"y\n"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
