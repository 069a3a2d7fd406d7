//! `falaj engine install`: the library of ONNX Runtime out of its Python package.
//!
//! What must hold: a library is put in place only after its bytes were found to be those that the
//! package lists, and after it was loaded here; until then whatever was in place stays.

use std::fs;
use std::io::Read;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use aws_lc_rs::digest::{Context as Digest, SHA256};
use clap::Args;
use falaj_inference::runtime::{INSTALLED, OnnxRuntime};
use serde_json::json;
use tokio::process::Command;

use super::Place;
use super::wheel::{Entry, Wheel};
use crate::context::Context;
use crate::exit::{Exit, Failure, Result, file_error};

/// The versions that are taken unless one is named: the oldest that works, the newest tested.
const VERSIONS: &str = "onnxruntime>=1.20,<=1.31.1";

/// Licences that the package brings and that must stay with the library.
const NOTICES: [&str; 2] = ["LICENSE", "ThirdPartyNotices.txt"];

/// Fetch the library of ONNX Runtime into the data directory
///
/// Large networks, and operators that the built-in kernels lack, are computed by ONNX Runtime. Its
/// library is part of the Python package `onnxruntime`, which pip downloads from the index that it
/// is configured for; nothing of it is executed as Python. A package that was downloaded elsewhere
/// is given with --from. The bytes of the library must be those that the package lists.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    falaj engine install --data-dir ./data\n  \
    falaj engine install --from onnxruntime-1.31.1-cp311-cp311-manylinux_2_28_x86_64.whl")]
pub(super) struct Install {
    #[command(flatten)]
    place: Place,
    /// A package (`.whl`) that is here already, instead of downloading one.
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    /// The version to download; the newest that was tested if absent.
    #[arg(long, value_name = "VERSION", conflicts_with = "from")]
    version: Option<String>,
    /// The SHA-256 that the package must have, in hexadecimal.
    #[arg(long, value_name = "HEX", value_parser = hexadecimal)]
    sha256: Option<String>,
    /// The Python whose pip downloads.
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    python: PathBuf,
    /// Do nothing if a library is found already, wherever it lies.
    #[arg(long)]
    if_missing: bool,
}

fn hexadecimal(text: &str) -> Result<String, String> {
    if text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        Ok(text.to_ascii_lowercase())
    } else {
        Err("64 hexadecimal digits are wanted".to_owned())
    }
}

impl Install {
    pub(super) async fn run(self, ctx: &Context) -> Result<()> {
        let (data, search) = self.place.search(ctx)?;
        if self.if_missing
            && let Some(library) = search.first()?
        {
            let facts = json!({"library": library, "installed": false});
            let sentence = format!("ONNX Runtime is there already: {}", library.display());
            return ctx.output.done(&facts, &sentence);
        }
        let folder = data.join(INSTALLED);
        make_private(&folder)?;
        // Beside its place: what is renamed into it must not cross a file system.
        let work = Work::new(&folder)?;
        let package = match &self.from {
            Some(package) => package.clone(),
            None => self.download(ctx, work.path()).await?,
        };
        if let Some(wanted) = &self.sha256 {
            let found = sum(&package)?;
            if found != *wanted {
                let shown = package.display();
                return Err(mismatch(format!("{shown} has the SHA-256 {found}, not {wanted}")));
            }
        }
        let library = place(&package, work.path(), &folder, |library| {
            Ok(OnnxRuntime::open(library).map(drop)?)
        })?;
        let facts = json!({"library": library, "installed": true});
        let shown = library.display();
        ctx.output.done(&facts, &format!("installed {shown}; a server takes it when it starts"))
    }

    /// Has pip download the package, and finds it.
    async fn download(&self, ctx: &Context, folder: &Path) -> Result<PathBuf> {
        let wanted = match &self.version {
            Some(version) => format!("onnxruntime=={version}"),
            None => VERSIONS.to_owned(),
        };
        ctx.output.say(&format!("downloading {wanted} with pip"));
        let elsewhere = "download the package where that works, and give it with --from";
        let mut pip = Command::new(&self.python);
        pip.args(["-m", "pip", "download", "--quiet", "--disable-pip-version-check"])
            .args(["--no-deps", "--only-binary=:all:", "--retries", "1", "--dest"])
            .arg(folder)
            .arg(&wanted)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let done = pip.output().await.map_err(|error| {
            Failure::failed(format!("cannot run {}: {error}", self.python.display()))
                .hint(elsewhere)
        })?;
        if !done.status.success() {
            let said = String::from_utf8_lossy(&done.stderr);
            let lines: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).collect();
            let last = lines[lines.len().saturating_sub(3)..].join("; ");
            return Err(Failure::new(
                Exit::Unavailable,
                format!("pip did not download it: {last}"),
            )
            .hint(elsewhere));
        }
        let files = fs::read_dir(folder).map_err(file_error("read", folder))?;
        let mut paths = files.filter_map(|file| Some(file.ok()?.path()));
        let is_wheel = |path: &PathBuf| path.extension().is_some_and(|end| end == "whl");
        paths.find(is_wheel).ok_or_else(|| {
            Failure::failed("pip said nothing and downloaded no package").hint(elsewhere)
        })
    }
}

/// Puts the library of a package, and its licences, into a folder; gives its path.
fn place(
    package: &Path,
    work: &Path,
    folder: &Path,
    works: impl FnOnce(&Path) -> Result<()>,
) -> Result<PathBuf> {
    let mut wheel = Wheel::open(package)?;
    let library = wheel.library()?;
    let name = library.file_name().to_owned();
    extract(&mut wheel, &library, &work.join(&name))?;
    works(&work.join(&name))?;
    for notice in NOTICES {
        if let Some(entry) = wheel.entry(&format!("onnxruntime/{notice}")) {
            let kept = format!("onnxruntime-{notice}");
            extract(&mut wheel, &entry, &work.join(&kept))?;
            rename(&work.join(&kept), &folder.join(&kept))?;
        }
    }
    rename(&work.join(&name), &folder.join(&name))?;
    // The highest version found is the one that is loaded: others would hide this one.
    for old in fs::read_dir(folder).map_err(file_error("read", folder))?.flatten() {
        let old_name = old.file_name();
        let is_library = old_name.to_string_lossy().starts_with("libonnxruntime.so");
        if is_library && old_name.to_string_lossy() != name {
            fs::remove_file(old.path()).map_err(file_error("remove", &old.path()))?;
        }
    }
    Ok(folder.join(name))
}

fn extract(wheel: &mut Wheel, entry: &Entry, to: &Path) -> Result<()> {
    let mut options = fs::OpenOptions::new();
    let file = options.write(true).create_new(true).mode(0o600).open(to);
    let mut file = file.map_err(file_error("write", to))?;
    wheel.copy(entry, &mut file)?;
    file.sync_all().map_err(file_error("write", to))
}

fn rename(from: &Path, to: &Path) -> Result<()> {
    fs::rename(from, to).map_err(file_error("write", to))
}

fn make_private(folder: &Path) -> Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true).mode(0o700).create(folder).map_err(file_error("create", folder))
}

/// The SHA-256 of a file, in hexadecimal.
fn sum(path: &Path) -> Result<String> {
    let mut file = fs::File::open(path).map_err(file_error("read", path))?;
    let (mut digest, mut buffer) = (Digest::new(&SHA256), vec![0; 1 << 16]);
    loop {
        match file.read(&mut buffer).map_err(file_error("read", path))? {
            0 => break,
            read => digest.update(&buffer[..read]),
        }
    }
    let bytes = digest.finish();
    Ok(falaj_base::hex(bytes.as_ref()))
}

pub(super) fn mismatch(text: String) -> Failure {
    Failure::new(Exit::Verification, text).hint("nothing was installed; get the package again")
}

/// A folder that goes away with what is in it.
struct Work(PathBuf);

impl Work {
    fn new(beside: &Path) -> Result<Self> {
        let path = beside.join(format!(".install-{}", uuid::Uuid::now_v7().simple()));
        make_private(&path)?;
        Ok(Self(path))
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::super::wheel::tests::{Packed, wheel};
    use super::*;

    const LIBRARY: &str = "onnxruntime/capi/libonnxruntime.so.1.31.1";

    fn files() -> Vec<Packed> {
        vec![
            Packed::new(LIBRARY, b"a library of some bytes, some bytes, some bytes").deflated(),
            Packed::new("onnxruntime/LICENSE", b"MIT"),
            Packed::new("onnxruntime/capi/libonnxruntime_providers_shared.so", b"another"),
        ]
    }

    /// A package, and the folder that it is to be installed into.
    fn prepared(files: &[Packed]) -> (tempfile::TempDir, PathBuf, PathBuf) {
        let root = tempfile::tempdir().unwrap();
        let package = root.path().join("onnxruntime-1.31.1-cp311.whl");
        fs::write(&package, wheel(files)).unwrap();
        let folder = root.path().join("engine");
        make_private(&folder).unwrap();
        (root, package, folder)
    }

    fn names(folder: &Path) -> Vec<String> {
        let files = fs::read_dir(folder).unwrap();
        let mut names: Vec<_> =
            files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn the_library_is_put_in_place_with_its_licence_and_older_ones_go() {
        let (_root, package, folder) = prepared(&files());
        fs::write(folder.join("libonnxruntime.so.1.40.0"), "newer").unwrap();
        let work = Work::new(&folder).unwrap();
        let tried = std::cell::RefCell::new(PathBuf::new());
        let library = place(&package, work.path(), &folder, |library| {
            *tried.borrow_mut() = library.to_owned();
            Ok(())
        });
        assert_eq!(library.unwrap(), folder.join("libonnxruntime.so.1.31.1"));
        assert!(tried.into_inner().starts_with(work.path()), "it is tried before it is in place");
        drop(work);
        assert_eq!(names(&folder), ["libonnxruntime.so.1.31.1", "onnxruntime-LICENSE"]);
        let content = fs::read(folder.join("libonnxruntime.so.1.31.1")).unwrap();
        assert_eq!(content, b"a library of some bytes, some bytes, some bytes");
    }

    #[test]
    fn what_does_not_load_or_verify_changes_nothing() {
        let damaged = |file: Packed| file.claiming(b"other bytes");
        let mut changed = files();
        changed[0] = damaged(changed.remove(0));
        let cases = [(files(), false, "does not load"), (changed, true, "SHA-256")];
        for (files, loads, reason) in cases {
            let (_root, package, folder) = prepared(&files);
            fs::write(folder.join("libonnxruntime.so.1.20.0"), "good").unwrap();
            let work = Work::new(&folder).unwrap();
            let failure = place(&package, work.path(), &folder, |_| {
                if loads { Ok(()) } else { Err(Failure::failed("it does not load")) }
            });
            assert!(failure.unwrap_err().text().contains(reason));
            drop(work);
            assert_eq!(names(&folder), ["libonnxruntime.so.1.20.0"], "{reason}");
        }
    }

    #[test]
    fn a_sum_is_sixty_four_digits() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("empty");
        fs::write(&path, "").unwrap();
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(sum(&path).unwrap(), empty);
        assert_eq!(hexadecimal(&empty.to_uppercase()).unwrap(), empty);
        assert!(hexadecimal("e3b0").is_err());
    }
}
