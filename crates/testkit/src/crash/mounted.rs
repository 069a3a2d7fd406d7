//! File systems of the harness's own, mounted for a while. Needs root.

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

/// Whether this process may mount: it is root, and a mount really works (in a container, root may
/// still not).
pub fn possible() -> Result<(), String> {
    Mounted::tmpfs(1 << 20).map(drop).map_err(|error| format!("{error:#}"))
}

/// A mounted file system; dropping it unmounts it.
#[derive(Debug)]
pub struct Mounted {
    point: TempDir,
}

impl Mounted {
    /// Memory of this many bytes.
    pub fn tmpfs(bytes: u64) -> Result<Self> {
        let point = tempfile::Builder::new().prefix("falaj-mount-").tempdir()?;
        let size = format!("size={bytes},mode=0700");
        run("mount", ["-t", "tmpfs", "-o", &size, "tmpfs"].map(OsStr::new), Some(point.path()))?;
        Ok(Self { point })
    }

    /// An ext4 image, through a loop device that goes away with the mount.
    pub fn image(image: &Path) -> Result<Self> {
        let point = tempfile::Builder::new().prefix("falaj-mount-").tempdir()?;
        let options = ["-t", "ext4", "-o", "loop"].map(OsStr::new);
        let arguments = options.into_iter().chain([image.as_os_str()]);
        run("mount", arguments, Some(point.path()))?;
        Ok(Self { point })
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        self.point.path()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Lazily if it must be: a busy mount point left behind would outlive the run.
        let plain = run("umount", [self.point.path().as_os_str()], None);
        if plain.is_err() {
            let _ = run("umount", [OsStr::new("-l"), self.point.path().as_os_str()], None);
        }
    }
}

/// Makes a new ext4 image. Every cycle needs one of its own: a file used again can meet the loop
/// device of its former life.
pub fn make_image(path: &Path, bytes: u64) -> Result<()> {
    File::create_new(path)?.set_len(bytes)?;
    let quiet = ["-q", "-F", "-E", "lazy_itable_init=1,nodiscard"].map(OsStr::new);
    run("mkfs.ext4", quiet.into_iter().chain([path.as_os_str()]), None)
}

/// Copies an image as it is now, holes left as holes.
pub fn copy_image(from: &Path, to: &Path) -> Result<()> {
    let options = ["--sparse=always", "--reflink=auto"].map(OsStr::new);
    run("cp", options.into_iter().chain([from.as_os_str(), to.as_os_str()]), None)
}

/// Writes everything of a mounted file system to its image.
pub fn flush(mounted: &Path) -> Result<()> {
    run("sync", ["-f"].map(OsStr::new), Some(mounted))
}

fn run<'a>(
    program: &str,
    arguments: impl IntoIterator<Item = &'a OsStr>,
    last: Option<&Path>,
) -> Result<()> {
    // The tools of root are not always on the path of whoever became root.
    let found = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"]
        .map(|folder| PathBuf::from(folder).join(program))
        .into_iter()
        .find(|path| path.is_file())
        .with_context(|| format!("{program} is not installed"))?;
    let output = Command::new(found).args(arguments).args(last).output()?;
    let words = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program}: {}", words.trim());
    Ok(())
}
