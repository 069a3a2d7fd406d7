//! What kind of content a file holds, told by its name as MLflow does; what the sender said counts
//! where the name says nothing.

use http::{HeaderMap, header};

/// The longest content type that is kept.
const LONGEST: usize = 255;

/// What is shown as text whatever it is written in.
const TEXT: &[&str] = &[
    "txt",
    "log",
    "err",
    "cfg",
    "conf",
    "cnf",
    "cf",
    "ini",
    "properties",
    "prop",
    "hocon",
    "toml",
    "yaml",
    "yml",
    "xml",
    "json",
    "js",
    "py",
    "py3",
    "csv",
    "tsv",
    "md",
    "rst",
    "MLmodel",
    "mlproject",
];

const KNOWN: &[(&str, &str)] = &[
    ("png", "image/png"),
    ("jpg", "image/jpeg"),
    ("jpeg", "image/jpeg"),
    ("gif", "image/gif"),
    ("svg", "image/svg+xml"),
    ("webp", "image/webp"),
    ("bmp", "image/bmp"),
    ("tif", "image/tiff"),
    ("tiff", "image/tiff"),
    ("pdf", "application/pdf"),
    ("html", "text/html"),
    ("htm", "text/html"),
    ("css", "text/css"),
    ("zip", "application/zip"),
    ("tar", "application/x-tar"),
    ("mp3", "audio/mpeg"),
    ("wav", "audio/x-wav"),
    ("mp4", "video/mp4"),
    ("webm", "video/webm"),
    ("h5", "application/x-hdf5"),
    ("pkl", ANY),
    ("pickle", ANY),
    ("bin", ANY),
];

pub(super) const ANY: &str = "application/octet-stream";

/// What a file of this name mostly is.
pub(crate) fn guessed_type(file_name: &str) -> String {
    content_type(file_name, &HeaderMap::new())
}

/// The content type to keep with a file of this name.
pub(super) fn content_type(file_name: &str, sent: &HeaderMap) -> String {
    if let Some(known) = by_name(file_name) {
        return known.to_owned();
    }
    let sent = sent.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let usable = |text: &&str| {
        let printable = text.bytes().all(|byte| (0x20..0x7f).contains(&byte));
        text.contains('/') && text.len() <= LONGEST && printable
    };
    sent.filter(usable).unwrap_or(ANY).to_owned()
}

fn by_name(file_name: &str) -> Option<&'static str> {
    let extension = match file_name.rsplit_once('.') {
        Some((stem, extension)) if !stem.is_empty() && !extension.is_empty() => extension,
        _ => file_name,
    };
    if TEXT.contains(&extension) {
        return Some("text/plain");
    }
    let lower = extension.to_ascii_lowercase();
    KNOWN.iter().find(|(known, _)| *known == lower).map(|(_, kind)| *kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_tells_and_else_the_sender() {
        let mut sent = HeaderMap::new();
        for (name, expected) in [
            ("a.txt", "text/plain"),
            ("b.pkl", ANY),
            ("c.png", "image/png"),
            ("C.PNG", "image/png"),
            ("d.pdf", "application/pdf"),
            ("MLmodel", "text/plain"),
            ("mlproject", "text/plain"),
            ("conda.yaml", "text/plain"),
            ("x.json", "text/plain"),
            (".hidden", ANY),
            ("noname", ANY),
            ("x.", ANY),
        ] {
            assert_eq!(content_type(name, &sent), expected, "{name}");
        }
        sent.insert(header::CONTENT_TYPE, "application/x-thing".parse().unwrap());
        assert_eq!(content_type("a.thing", &sent), "application/x-thing");
        assert_eq!(content_type("a.png", &sent), "image/png");
        sent.insert(header::CONTENT_TYPE, "x".repeat(300).parse().unwrap());
        assert_eq!(content_type("a.thing", &sent), ANY);
    }
}
