//! Cuts a filter into tokens, the way the original's SQL tokenizer would for what it accepts.
//!
//! Quotes are kept on the token: whether a double-quoted text is a key or a value is known later.
//! Nothing inside quotes is unescaped. A doubled quote and a quote behind a backslash do not end the
//! text they stand in, unless nothing else does.

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Token<'a> {
    pub(super) kind: Kind,
    pub(super) text: &'a str,
    /// Where it begins in the filter.
    pub(super) at: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Words and quoted keys joined by dots: `metrics."a b"`, `status`, `AND`, `"text"`.
    Name,
    /// A name run into signs that no name has, such as `metrics.a-b`.
    Odd,
    /// In single quotes.
    Text,
    Number,
    Sign,
    Open,
    Close,
    Comma,
    Semicolon,
}

/// The tokens, or where the text stops making sense.
pub(super) fn tokens(text: &str) -> Result<Vec<Token<'_>>, usize> {
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        if c.is_whitespace() {
            at += c.len_utf8();
            continue;
        }
        let (kind, end) = token(text, at, c).ok_or(at)?;
        tokens.push(Token { kind, text: &text[at..end], at });
        at = end;
    }
    Ok(tokens)
}

fn token(text: &str, at: usize, first: char) -> Option<(Kind, usize)> {
    let single = |kind| Some((kind, at + 1));
    match first {
        '(' => single(Kind::Open),
        ')' => single(Kind::Close),
        ',' => single(Kind::Comma),
        ';' => single(Kind::Semicolon),
        '\'' => Some((Kind::Text, quoted_end(text, at)?)),
        '<' | '>' | '=' | '!' | '~' => Some((Kind::Sign, run(text, at, is_sign))),
        '-' | '.' | '0'..='9' => match number_end(text, at) {
            Some(end) => Some((Kind::Number, end)),
            None => name(text, at),
        },
        _ => name(text, at),
    }
}

fn name(text: &str, at: usize) -> Option<(Kind, usize)> {
    let mut end = part_end(text, at, false)?;
    while text[end..].starts_with('.') {
        end = part_end(text, end + 1, true)?;
    }
    if text[end..].starts_with(is_odd) {
        let end = run(text, end, |c| is_word(c) || is_odd(c) || c == '.');
        return Some((Kind::Odd, end));
    }
    Some((Kind::Name, end))
}

/// The end of one part of a name: a word, or a text in backticks or quotes.
fn part_end(text: &str, at: usize, behind_dot: bool) -> Option<usize> {
    match text[at..].chars().next()? {
        '`' | '"' => quoted_end(text, at),
        '\'' if behind_dot => quoted_end(text, at),
        c if is_word(c) => Some(run(text, at, is_word)),
        _ => None,
    }
}

/// Where the text that opens with the quote at `at` ends. One pass, however many quotes there are.
fn quoted_end(text: &str, at: usize) -> Option<usize> {
    let bytes = text.as_bytes();
    let quote = *bytes.get(at)?;
    // A quote that was passed over as one of a pair: it ends the text if no other does.
    let mut passed = None;
    let mut at = at + 1;
    while let Some(&byte) = bytes.get(at) {
        let pair = bytes.get(at + 1) == Some(&quote);
        if byte == quote && !pair {
            return Some(at + 1);
        }
        if pair && byte == quote {
            passed = Some(at + 1);
            at += 2;
        } else if pair && byte == b'\\' && quote != b'`' {
            passed = Some(at + 2);
            at += 2;
        } else {
            at += 1;
        }
    }
    passed
}

/// Where a number ends; `None` if it is none, or runs into a word.
fn number_end(text: &str, at: usize) -> Option<usize> {
    let digits = |at| run(text, at, |c| c.is_ascii_digit());
    let after = |at: usize, signs: &[char]| {
        if text[at..].starts_with(signs) { at + 1 } else { at }
    };
    let start = after(at, &['-']);
    let whole = digits(start);
    let point = after(whole, &['.']);
    let mut end = digits(point);
    if whole == start && end == point {
        return None;
    }
    let exponent = after(end, &['e', 'E']);
    if exponent > end {
        let sign = after(exponent, &['-', '+']);
        if digits(sign) > sign {
            end = digits(sign);
        }
    }
    (!text[end..].starts_with(is_word)).then_some(end)
}

fn run(text: &str, at: usize, belongs: impl Fn(char) -> bool) -> usize {
    text[at..].find(|c| !belongs(c)).map_or(text.len(), |length| at + length)
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn is_sign(c: char) -> bool {
    matches!(c, '<' | '>' | '=' | '!' | '~')
}

/// What people do write in metric names, and must quote.
fn is_odd(c: char) -> bool {
    matches!(c, '-' | '/' | '@' | '+' | '%' | '^' | '&' | '|' | '#' | '*' | ':' | '$')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> Result<Vec<(Kind, &str)>, usize> {
        tokens(text).map(|tokens| tokens.iter().map(|t| (t.kind, t.text)).collect())
    }

    #[test]
    fn names_carry_their_quotes() {
        for name in [
            "metrics.acc",
            "metrics.`a b`",
            "metrics.\"a.b\"",
            "params.'acc'",
            "`metrics`.a",
            "tags.mlflow.source.type",
            "metrics.5fold",
            "metrics.5",
            "metrics.α",
            "_x",
            "\"status\"",
            "params.`a``b`",
            "params.\"a\"\"b\"",
        ] {
            assert_eq!(check(name), Ok(vec![(Kind::Name, name)]), "{name}");
        }
        assert_eq!(check("metrics.val-loss@5 "), Ok(vec![(Kind::Odd, "metrics.val-loss@5")]));
    }

    #[test]
    fn numbers() {
        for number in ["1", "-1", "1.5", ".5", "5.", "-.5", "1e5", "1E-5", "1.5e3", "1e+5"] {
            assert_eq!(check(number), Ok(vec![(Kind::Number, number)]), "{number}");
        }
        assert_eq!(check("1AND"), Ok(vec![(Kind::Name, "1AND")]));
        assert_eq!(check("0x10"), Ok(vec![(Kind::Name, "0x10")]));
        for broken in ["-", "- 1", "+1", ".", "-x"] {
            assert!(check(broken).is_err(), "{broken}");
        }
    }

    #[test]
    fn quotes_end_where_the_original_ends_them() {
        for (text, end) in [
            ("'a'", 3),
            ("''", 2),
            ("'it''s'", 7),
            (r"'a\'b'", 6),
            (r"'a\'", 4),
            ("'a' 'b'", 3),
            ("'a''", 3),
            ("'''", 2),
            (r"`a\`", 4),
        ] {
            assert_eq!(quoted_end(text, 0), Some(end), "{text}");
        }
        for text in ["'", "'a", "\"a'", "`a"] {
            assert_eq!(quoted_end(text, 0), None, "{text}");
            assert_eq!(check(text), Err(0), "{text}");
        }
    }

    #[test]
    fn a_comparison_needs_no_spaces() {
        let kinds = vec![
            (Kind::Name, "params.x"),
            (Kind::Sign, "!="),
            (Kind::Text, "'a'"),
            (Kind::Name, "AND"),
            (Kind::Name, "run_id"),
            (Kind::Name, "IN"),
            (Kind::Open, "("),
            (Kind::Text, "'b'"),
            (Kind::Comma, ","),
            (Kind::Close, ")"),
        ];
        assert_eq!(check("params.x!='a'AND\u{a0}run_id IN('b',)"), Ok(kinds));
    }
}
