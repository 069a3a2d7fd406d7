//! Where the library of ONNX Runtime may lie.

use std::io::Read;
use std::path::{Path, PathBuf};

use falaj_base::{Error, Result};

/// Where to look, in this order.
#[derive(Clone, Debug, Default)]
pub struct Search {
    /// The path that the operator named; then nothing else is looked at.
    pub named: Option<PathBuf>,
    /// Folders that may hold it: the binary's own, the data directory.
    pub folders: Vec<PathBuf>,
    /// Python environments, most of which in machine learning have the package `onnxruntime`.
    pub environments: Vec<PathBuf>,
}

impl Search {
    /// The places of this machine: beside the binary, the data directory given and where `falaj
    /// engine install` puts the library in it, the active environments.
    #[must_use]
    pub fn here(named: Option<PathBuf>, data: Option<PathBuf>) -> Self {
        let beside = std::env::current_exe().ok();
        let beside = beside.and_then(|binary| binary.parent().map(Path::to_owned));
        let active = ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(std::env::var_os);
        let local = std::env::var_os("HOME").map(|home| Path::new(&home).join(".local"));
        let system = ["/usr/local", "/usr"].map(PathBuf::from);
        Self {
            named,
            folders: beside.into_iter().chain(data.into_iter().flat_map(in_data)).collect(),
            environments: active.map(PathBuf::from).chain(local).chain(system).collect(),
        }
    }

    /// Where tests find it: `FALAJ_TEST_ONNXRUNTIME` names it, or it lies in the environment of
    /// `FALAJ_TEST_PYTHON`.
    #[must_use]
    pub fn of_tests() -> Self {
        let python = std::env::var_os("FALAJ_TEST_PYTHON").map(PathBuf::from);
        let environment = python.and_then(|python| Some(python.parent()?.parent()?.to_owned()));
        Self {
            named: std::env::var_os("FALAJ_TEST_ONNXRUNTIME").map(PathBuf::from),
            folders: Vec::new(),
            environments: environment.into_iter().collect(),
        }
    }

    /// Where a library would be found, in the order in which it is looked for.
    #[must_use]
    pub fn places(&self) -> Vec<PathBuf> {
        if let Some(named) = &self.named {
            return vec![named.clone()];
        }
        let packages = self
            .environments
            .iter()
            .map(|root| root.join("lib/python3*/site-packages/onnxruntime/capi"));
        self.folders.iter().cloned().chain(packages).collect()
    }

    /// The first library found. A path that was named must be there.
    pub fn first(&self) -> Result<Option<PathBuf>> {
        if let Some(named) = &self.named {
            if named.is_file() {
                return Ok(Some(named.clone()));
            }
            let allowed = "the path of libonnxruntime.so";
            return Err(Error::invalid("onnxruntime", named.display(), allowed));
        }
        let packages = self.environments.iter().flat_map(|root| python_packages(root));
        Ok(self.folders.iter().cloned().chain(packages).find_map(|folder| newest(&folder)))
    }
}

/// The folder of a data directory that holds what `falaj engine install` fetched.
pub const INSTALLED: &str = "engine";

fn in_data(data: PathBuf) -> [PathBuf; 2] {
    [data.join(INSTALLED), data]
}

/// The version of a library: from the name of its file, or else from the name of its symbols.
pub(super) fn version(library: &Path) -> Option<String> {
    let real = std::fs::canonicalize(library).unwrap_or_else(|_| library.to_owned());
    let name = real.file_name()?.to_string_lossy().into_owned();
    let named = name.strip_prefix("libonnxruntime.so.").map(ToOwned::to_owned);
    named.filter(|version| version.contains('.')).or_else(|| stamped(&real))
}

/// The version in `VERS_1.23.2`, the symbols' own, which stands near the beginning.
fn stamped(library: &Path) -> Option<String> {
    const MARK: &[u8] = b"VERS_";
    let mut beginning = Vec::new();
    std::fs::File::open(library).ok()?.take(1 << 20).read_to_end(&mut beginning).ok()?;
    let place = beginning.windows(MARK.len()).position(|bytes| bytes == MARK)?;
    let version = beginning[place + MARK.len()..].iter();
    let version = version.take_while(|byte| byte.is_ascii_digit() || **byte == b'.');
    let version: String = version.map(|&byte| char::from(byte)).take(20).collect();
    (!version.is_empty()).then_some(version)
}

/// Where a Python environment keeps the library of the package `onnxruntime`.
fn python_packages(root: &Path) -> Vec<PathBuf> {
    let versions = ["lib", "lib64"].into_iter().flat_map(|lib| entries(&root.join(lib), "python3"));
    let sites = versions.flat_map(|python| {
        ["site-packages", "dist-packages"].map(|site| python.join(site).join("onnxruntime/capi"))
    });
    sites.collect()
}

/// The library in a folder; of several the one with the highest version.
fn newest(folder: &Path) -> Option<PathBuf> {
    entries(folder, "libonnxruntime.so").into_iter().filter(|path| path.is_file()).max_by_key(
        |path| {
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
            let numbers = name.unwrap_or_default();
            numbers.split('.').filter_map(|part| part.parse::<u32>().ok()).collect::<Vec<_>>()
        },
    )
}

/// What lies in a folder under a name that begins like this; nothing if it cannot be read.
fn entries(folder: &Path, prefix: &str) -> Vec<PathBuf> {
    let Ok(listing) = std::fs::read_dir(folder) else { return Vec::new() };
    let paths = listing.filter_map(|entry| Some(entry.ok()?.path()));
    let begins = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix))
    };
    paths.filter(begins).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_place_and_the_highest_version_win() {
        let root = tempfile::tempdir().unwrap();
        let beside = root.path().join("bin");
        let capi = root.path().join("venv/lib/python3.12/site-packages/onnxruntime/capi");
        for folder in [&beside, &capi] {
            std::fs::create_dir_all(folder).unwrap();
        }
        let search = Search {
            named: None,
            folders: vec![beside.clone(), root.path().join("absent")],
            environments: vec![root.path().join("venv")],
        };
        assert_eq!(search.first().unwrap(), None);
        for name in ["libonnxruntime.so.1.9.0", "libonnxruntime.so.1.31.1", "libonnxruntime_x.so"] {
            std::fs::write(capi.join(name), "").unwrap();
        }
        assert_eq!(search.first().unwrap(), Some(capi.join("libonnxruntime.so.1.31.1")));
        std::fs::write(beside.join("libonnxruntime.so"), "").unwrap();
        assert_eq!(search.first().unwrap(), Some(beside.join("libonnxruntime.so")));
        let named = Search { named: Some("/nowhere/lib.so".into()), ..search };
        assert!(named.first().unwrap_err().message().contains("/nowhere/lib.so"));
    }

    #[test]
    fn the_version_is_in_the_name_or_among_the_symbols() {
        let root = tempfile::tempdir().unwrap();
        let write = |name: &str, content: &[u8]| {
            std::fs::write(root.path().join(name), content).unwrap();
            version(&root.path().join(name))
        };
        assert_eq!(write("libonnxruntime.so.1.31.1", b"").as_deref(), Some("1.31.1"));
        assert_eq!(write("libonnxruntime.so", b"\0VERS_1.20.1\0x").as_deref(), Some("1.20.1"));
        assert_eq!(write("libonnxruntime.so.1", b"\0VERS_1.23.2\0x").as_deref(), Some("1.23.2"));
        assert_eq!(write("other.so", b"nothing"), None);
        let link = root.path().join("link.so");
        std::os::unix::fs::symlink(root.path().join("libonnxruntime.so.1.31.1"), &link).unwrap();
        assert_eq!(version(&link).as_deref(), Some("1.31.1"));
    }

    #[test]
    fn a_data_directory_has_a_folder_for_what_was_installed() {
        let root = tempfile::tempdir().unwrap();
        let installed = root.path().join(INSTALLED);
        std::fs::create_dir_all(&installed).unwrap();
        std::fs::write(installed.join("libonnxruntime.so.1.31.1"), "").unwrap();
        let search =
            Search { environments: Vec::new(), ..Search::here(None, Some(root.path().to_owned())) };
        assert_eq!(search.first().unwrap(), Some(installed.join("libonnxruntime.so.1.31.1")));
        assert!(search.places().contains(&installed));
    }

    #[test]
    fn what_is_no_library_is_refused_with_its_path() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("libonnxruntime.so");
        std::fs::write(&path, "not a library").unwrap();
        let error = crate::runtime::OnnxRuntime::open(&path).unwrap_err();
        assert!(error.message().contains(&*path.to_string_lossy()), "{error}");
    }
}
