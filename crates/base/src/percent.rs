//! Percent signs in addresses.

/// A text with its percent signs resolved, once. One that no two hexadecimal digits follow stands
/// for itself, and what is no text then is replaced by `U+FFFD`.
#[must_use]
pub fn percent_decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let hex = bytes.get(at + 1..at + 3).filter(|_| *byte == b'%');
        let hex = hex.filter(|hex| hex.iter().all(u8::is_ascii_hexdigit));
        let hex = hex.and_then(|hex| std::str::from_utf8(hex).ok());
        let value = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok());
        plain.push(value.unwrap_or(*byte));
        at += if value.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&plain).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs() {
        for (text, plain) in [
            ("", ""),
            ("a%20b", "a b"),
            ("%2e%2E", ".."),
            ("%252e", "%2e"),
            ("%", "%"),
            ("%4", "%4"),
            ("%zz%+f", "%zz%+f"),
            ("%C3%BC", "ü"),
            ("ü%ff", "ü\u{fffd}"),
        ] {
            assert_eq!(percent_decoded(text), plain, "{text}");
        }
    }
}
