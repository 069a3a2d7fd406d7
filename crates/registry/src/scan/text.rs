//! Text formats: known by name, believed only if the content is text.

use std::ops::Range;

use bytes::Bytes;
use falaj_base::Result;
use serde::de::IgnoredAny;

use super::{Found, Probe, name};

/// YAML can name Python objects anywhere, so a document is looked through up to this size.
const MAX_YAML: u64 = 1 << 20;

/// How a YAML document asks an unsafe reader to build a Python object.
const PYTHON_TAGS: [&str; 3] = ["!!python/", "!python/", "tag:yaml.org,2002:python"];

enum Format {
    Json,
    JsonLines,
    Yaml,
    Plain(&'static str),
}

/// What the file is if it is text; `None` if nothing is known about its kind.
pub(super) async fn examine<R, F>(probe: &Probe<'_>, read: &mut R) -> Result<Option<Found>>
where
    R: FnMut(Range<u64>) -> F,
    F: Future<Output = Result<Bytes>>,
{
    let is_text = is_plain(probe.head, !probe.is_whole());
    let Some(format) = format(probe.path) else {
        return Ok(is_text.then(|| Found::unknown("text, of a kind that is not known")));
    };
    if !is_text {
        return Ok(Some(Found::unknown("named like text, but its content is not")));
    }
    Ok(Some(match format {
        Format::Plain(what) => Found::safe(what),
        Format::Json => json(probe, &['{', '[']),
        Format::JsonLines => json_lines(probe),
        Format::Yaml if probe.is_whole() => yaml(probe.head),
        Format::Yaml if probe.size > MAX_YAML => {
            Found::unknown("YAML, too long to look through for Python objects")
        }
        Format::Yaml => yaml(&read(0..probe.size).await?),
    }))
}

fn format(path: &str) -> Option<Format> {
    let whole = name::last_part(path);
    match whole.as_str() {
        "mlmodel" => return Some(Format::Yaml),
        "license" | "licence" | "notice" | "readme" | "version" | "authors" | "changelog" => {
            return Some(Format::Plain("text"));
        }
        ".gitattributes" | ".gitignore" | ".amlignore" => return Some(Format::Plain("text")),
        _ => {}
    }
    match name::suffix(path)?.as_str() {
        "json" => Some(Format::Json),
        "jsonl" | "ndjson" => Some(Format::JsonLines),
        "yaml" | "yml" => Some(Format::Yaml),
        "csv" | "tsv" => Some(Format::Plain("a table as text")),
        "txt" | "text" | "md" | "markdown" | "rst" | "log" => Some(Format::Plain("text")),
        "toml" | "ini" | "cfg" | "properties" => Some(Format::Plain("settings as text")),
        "vocab" | "labels" | "names" => Some(Format::Plain("a list as text")),
        _ => None,
    }
}

/// A whole document is read (and not kept); of a longer one, its first character must fit.
fn json(probe: &Probe<'_>, first: &[char]) -> Found {
    let fits = if probe.is_whole() {
        serde_json::from_slice::<IgnoredAny>(probe.head).is_ok()
    } else {
        String::from_utf8_lossy(probe.head).trim_start().starts_with(first)
    };
    if fits { Found::safe("JSON") } else { Found::unknown("named `.json`, but not JSON") }
}

fn json_lines(probe: &Probe<'_>) -> Found {
    let text = String::from_utf8_lossy(probe.head);
    let cut = usize::from(!probe.is_whole());
    let lines: Vec<&str> = text.lines().collect();
    let whole = &lines[..lines.len().saturating_sub(cut)];
    let is_json =
        |line: &&str| line.trim().is_empty() || serde_json::from_str::<IgnoredAny>(line).is_ok();
    if whole.iter().all(is_json) && text.trim_start().starts_with(['{', '[', '"']) {
        Found::safe("JSON, line by line")
    } else {
        Found::unknown("named like JSON lines, but not JSON")
    }
}

fn yaml(document: &[u8]) -> Found {
    let Ok(text) = std::str::from_utf8(document) else {
        return Found::unknown("named like YAML, but its content is not text");
    };
    match PYTHON_TAGS.iter().find(|tag| text.contains(**tag)) {
        Some(tag) => Found::opaque(format!("YAML that builds Python objects (`{tag}`)")),
        None => Found::safe("YAML"),
    }
}

/// Whether bytes are UTF-8 without control characters; `cut` allows the last character to be torn.
pub(super) fn is_plain(bytes: &[u8], cut: bool) -> bool {
    let is_shown = |text: &str| {
        !text.chars().any(|c| c.is_control() && !matches!(c, '\t' | '\n' | '\r' | '\x0c'))
    };
    match std::str::from_utf8(bytes) {
        Ok(text) => is_shown(text),
        Err(error) if cut && error.error_len().is_none() => {
            std::str::from_utf8(&bytes[..error.valid_up_to()]).is_ok_and(is_shown)
        }
        Err(_) => false,
    }
}
