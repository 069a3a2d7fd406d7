//! Packages a model declares: `requirements.txt` and `conda.yaml`, read line by line.
//!
//! Both files are only text here: nothing they point to is opened, and addresses in them (which may
//! carry passwords) are not repeated.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// More packages than any environment has.
pub const MAX_REQUIREMENTS: usize = 10_000;

/// The longest name, version or range that is believed.
const MAX_TEXT: usize = 256;

/// Who publishes a package.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ecosystem {
    Pypi,
    Conda,
}

/// One declared package.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    pub ecosystem: Ecosystem,
    /// In the ecosystem's canonical spelling.
    pub name: String,
    /// The version, where exactly one is allowed.
    pub version: Option<String>,
    /// What is allowed, as written, such as `>=1.2,<2`.
    pub specifier: Option<String>,
}

impl Requirement {
    /// The package's address in the way inventories write it.
    #[must_use]
    pub fn purl(&self) -> String {
        let kind = match self.ecosystem {
            Ecosystem::Pypi => "pypi",
            Ecosystem::Conda => "conda",
        };
        let mut purl = format!("pkg:{kind}/{}", self.name);
        if let Some(version) = &self.version {
            purl.push('@');
            for byte in version.bytes() {
                if byte.is_ascii_alphanumeric() || b".-_~".contains(&byte) {
                    purl.push(char::from(byte));
                } else {
                    let _ = write!(purl, "%{byte:02X}");
                }
            }
        }
        purl
    }
}

/// Each package once, sorted; a pinned mention wins over an open one, then the first.
pub(super) fn merged(all: &[Requirement]) -> Vec<Requirement> {
    let mut by_name: BTreeMap<(Ecosystem, &str), &Requirement> = BTreeMap::new();
    for requirement in all.iter().take(MAX_REQUIREMENTS) {
        let key = (requirement.ecosystem, requirement.name.as_str());
        let known = by_name.entry(key).or_insert(requirement);
        if known.version.is_none() && requirement.version.is_some() {
            *known = requirement;
        }
    }
    by_name.into_values().cloned().collect()
}

/// The packages that a `requirements.txt` names. Options, paths and bare addresses are passed over.
#[must_use]
pub fn requirements_txt(text: &str) -> Vec<Requirement> {
    // A backslash at the end of a line continues it.
    let text = text.replace("\\\r\n", " ").replace("\\\n", " ");
    text.lines().filter_map(pip).take(MAX_REQUIREMENTS).collect()
}

/// The packages that a conda environment names: its own, and those it leaves to pip.
///
/// Only the block style that conda itself writes is understood.
#[must_use]
pub fn conda_yaml(text: &str) -> Vec<Requirement> {
    let mut found = Vec::new();
    let mut is_inside = false;
    // How far the `- pip:` entry is indented, while inside its list.
    let mut pip_indent = None;
    for line in text.lines().map(without_comment) {
        let content = line.trim();
        if content.is_empty() {
            continue;
        }
        let indent = line.len() - line.trim_start().len();
        let Some(entry) = content.strip_prefix("- ").map(unquoted) else {
            if indent == 0 {
                is_inside = content == "dependencies:";
                pip_indent = None;
            }
            continue;
        };
        if !is_inside || found.len() >= MAX_REQUIREMENTS {
            continue;
        }
        if pip_indent.is_some_and(|outer| indent <= outer) {
            pip_indent = None;
        }
        if entry == "pip:" {
            pip_indent = Some(indent);
        } else if pip_indent.is_some() {
            found.extend(pip(entry));
        } else {
            found.extend(conda(entry));
        }
    }
    found
}

/// One line in pip's language: a name, extras, a range, a condition, options.
fn pip(line: &str) -> Option<Requirement> {
    let line = without_comment(line).trim();
    let (name, rest) = split_name(line)?;
    // Where a package is fetched from may hold a password, and says nothing about its version.
    let rest = rest.trim_start();
    let rest = match rest.strip_prefix('[') {
        Some(extras) => extras.split_once(']')?.1.trim_start(),
        None => rest,
    };
    let rest = rest.split(';').next()?.split(" --").next()?.trim();
    if rest.starts_with('@') {
        return requirement(Ecosystem::Pypi, canonical(name), "", None);
    }
    let range = rest.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')).unwrap_or(rest);
    if !range.is_empty() && !range.starts_with(['=', '<', '>', '!', '~']) {
        return None;
    }
    let pinned = range.strip_prefix("===").or_else(|| range.strip_prefix("=="));
    requirement(Ecosystem::Pypi, canonical(name), range, pinned)
}

/// One entry in conda's language: `channel::name=version=build`, or a name and a range.
fn conda(entry: &str) -> Option<Requirement> {
    let entry = entry.rsplit("::").next()?;
    let (name, rest) = split_name(entry)?;
    let range = rest.trim();
    let pinned = range
        .strip_prefix("==")
        .or_else(|| range.strip_prefix('='))
        .map(|version| version.split('=').next().unwrap_or(version));
    requirement(Ecosystem::Conda, name.to_lowercase(), range, pinned)
}

fn requirement(
    ecosystem: Ecosystem,
    name: String,
    range: &str,
    pinned: Option<&str>,
) -> Option<Requirement> {
    let is_short = |text: &&str| !text.is_empty() && text.len() <= MAX_TEXT;
    let is_one =
        |text: &&str| text.chars().all(|c| c.is_ascii_alphanumeric() || ".+-_!".contains(c));
    Some(Requirement {
        ecosystem,
        name: Some(name).filter(|name| name.len() <= MAX_TEXT)?,
        version: pinned.map(str::trim).filter(is_short).filter(is_one).map(String::from),
        specifier: Some(range).filter(is_short).map(String::from),
    })
}

/// Splits off a package's name: letters and digits, with `.`, `-` and `_` between them.
fn split_name(line: &str) -> Option<(&str, &str)> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let end = line.find(|c| !is_name(c)).unwrap_or(line.len());
    let (name, rest) = line.split_at(end);
    let edges_fit = name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.ends_with(|c: char| c.is_ascii_alphanumeric());
    // `dir/x.whl` and `https://…` are not names.
    (edges_fit && !rest.starts_with(['/', ':', '\\'])).then_some((name, rest))
}

/// The spelling by which `PyPI` compares names: small letters, and one `-` for any run of `.-_`.
fn canonical(name: &str) -> String {
    let parts = name.split(['.', '-', '_']).filter(|part| !part.is_empty());
    parts.map(str::to_lowercase).collect::<Vec<_>>().join("-")
}

fn without_comment(line: &str) -> &str {
    if line.trim_start().starts_with('#') {
        return "";
    }
    let start = line.find(" #").or_else(|| line.find("\t#"));
    start.map_or(line, |at| &line[..at])
}

fn unquoted(text: &str) -> &str {
    let text = text.trim();
    let inside = |quote: char| text.strip_prefix(quote)?.strip_suffix(quote);
    inside('\'').or_else(|| inside('"')).unwrap_or(text)
}
