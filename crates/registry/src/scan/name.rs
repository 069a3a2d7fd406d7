//! What a file's name alone makes it: names that loaders unpickle or run, whatever is inside.
//!
//! A name never makes a file safe; it can only add suspicion.

use super::{Class, Found};

/// Suffixes of formats that run code while they are read, and what reads them so.
const OPAQUE: &[(&str, &str)] = &[
    ("pkl", "a pickle"),
    ("pickle", "a pickle"),
    ("pck", "a pickle"),
    ("pcl", "a pickle"),
    ("dill", "a dill pickle"),
    ("cloudpickle", "a cloudpickle"),
    ("joblib", "a joblib dump, which is a pickle"),
    ("pt", "a PyTorch file, which holds a pickle"),
    ("pth", "a PyTorch file, which holds a pickle"),
    ("ckpt", "a checkpoint, which PyTorch writes as a pickle"),
    ("mar", "a TorchServe archive, which holds code"),
    ("h5", "an HDF5 file; a Keras model in it may hold Lambda code"),
    ("hdf5", "an HDF5 file; a Keras model in it may hold Lambda code"),
    ("keras", "a Keras model, which may hold Lambda code"),
    ("pb", "a TensorFlow graph, which can read and write files when run"),
    ("pbtxt", "a TensorFlow graph, which can read and write files when run"),
    ("rds", "an R object, which runs code when read"),
    ("rda", "an R object, which runs code when read"),
    ("rdata", "an R object, which runs code when read"),
];

/// Suffixes of what is meant to be run.
const CODE: &[&str] = &[
    "py",
    "pyi",
    "pyx",
    "pyw",
    "pyc",
    "pyd",
    "ipynb",
    "whl",
    "egg",
    "so",
    "dll",
    "dylib",
    "exe",
    "com",
    "msi",
    "scr",
    "sh",
    "bash",
    "zsh",
    "fish",
    "bat",
    "cmd",
    "ps1",
    "vbs",
    "js",
    "mjs",
    "cjs",
    "ts",
    "jsx",
    "tsx",
    "wasm",
    "html",
    "htm",
    "xhtml",
    "svg",
    "jar",
    "war",
    "class",
    "java",
    "scala",
    "kt",
    "r",
    "rmd",
    "jl",
    "lua",
    "rb",
    "pl",
    "php",
    "c",
    "cc",
    "cpp",
    "cxx",
    "cu",
    "ptx",
    "cubin",
    "h",
    "hpp",
    "rs",
    "go",
    "swift",
    "o",
    "a",
    "ko",
    "app",
    "deb",
    "rpm",
    "apk",
    "dockerfile",
    "mk",
    "cmake",
    "sql",
    "jinja",
    "jinja2",
    "j2",
];

/// Whole names without a suffix.
const CODE_NAMES: &[&str] = &["dockerfile", "makefile", "containerfile", "jenkinsfile"];

/// Suffixes that only say how the bytes are packed; the one before them says what they are.
const PACKED: &[&str] = &["gz", "bz2", "xz", "lzma", "zst", "lz4", "z", "br", "gpg", "bak", "tmp"];

/// The most suffixes that are looked through.
const MAX_SUFFIXES: usize = 8;

/// What the name of the file at `path` says, if it says something.
pub(super) fn recognise(path: &str) -> Option<Found> {
    let name = last_part(path);
    if CODE_NAMES.contains(&name.as_str()) {
        return Some(Found::code(format!("named `{name}`: instructions to be run")));
    }
    suffixes(&name).find_map(|suffix| {
        if let Some((_, what)) = OPAQUE.iter().find(|(known, _)| *known == suffix) {
            return Some(Found::opaque(format!("named `.{suffix}`: {what}")));
        }
        CODE.contains(&suffix).then(|| Found::code(format!("named `.{suffix}`: code")))
    })
}

/// The class a name inside an archive has; its content is not looked at.
pub(super) fn class_inside(path: &str) -> Option<Class> {
    recognise(path).map(|found| found.class)
}

/// The suffix that decides what a file is taken for, in lower case.
pub(super) fn suffix(path: &str) -> Option<String> {
    let name = last_part(path);
    name.rsplit_once('.').map(|(_, suffix)| suffix.to_owned())
}

/// The last part of a path as a careless system would store it: folded to lower case, and without
/// the dots, spaces and invisible characters that such systems drop from the end.
pub(super) fn last_part(path: &str) -> String {
    let is_shown = |c: &char| !c.is_control() && !is_invisible(*c);
    let name = path.rsplit(['/', '\\']).find(|part| !part.trim().is_empty()).unwrap_or(path);
    let name: String = name.chars().filter(is_shown).flat_map(char::to_lowercase).collect();
    // A name such as `x.pkl::$DATA` opens `x.pkl` on Windows.
    let name = name.split("::$").next().unwrap_or_default();
    name.trim_end_matches(|c: char| c == '.' || c.is_whitespace()).to_owned()
}

/// Characters that change how a name looks, or do not look like anything.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// The last suffix, and those before it as long as they only say how the file is packed.
fn suffixes(name: &str) -> impl Iterator<Item = &str> {
    let mut more = true;
    name.split('.').skip(1).collect::<Vec<_>>().into_iter().rev().take(MAX_SUFFIXES).take_while(
        move |suffix| {
            let take = more;
            more = PACKED.contains(suffix);
            take
        },
    )
}
