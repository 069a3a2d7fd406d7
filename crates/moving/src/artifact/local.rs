//! Files on this machine.

use std::path::Path;
use std::time::UNIX_EPOCH;

use bytes::Bytes;
use futures::stream::{self, BoxStream};
use tokio::io::{AsyncReadExt, Take};

use super::{File, Listing, boxed};
use crate::error::{Error, Result};

/// How much is read at a time.
const PIECE: usize = 256 << 10;

/// The bin of a store of files.
const TRASH: &str = ".trash";

/// Every file below a folder, hidden ones as well: they were logged like the others. Only counted
/// are the bin that a store keeps, and what is hidden at the top of a shared folder: there lie other
/// people's things (`.git`, `.ssh`), and a store that is not ours could name such a folder.
pub(super) fn list(folder: &Path, shared: bool) -> Result<Listing> {
    let (mut found, mut hidden) = (Vec::new(), 0);
    let mut open = vec![(String::new(), folder.to_owned())];
    while let Some((prefix, folder)) = open.pop() {
        let entries = match std::fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(gone) if gone.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(Error::reading(&folder)(error)),
        };
        for entry in entries {
            let entry = entry.map_err(Error::reading(&folder))?;
            let kind = entry.file_type().map_err(Error::reading(&folder))?;
            let name = entry.file_name();
            let name = name.to_str().ok_or_else(|| {
                Error::malformed(entry.path().display(), "the name of this file is not text")
            })?;
            let at_top = shared && prefix.is_empty();
            if name == TRASH || (at_top && name.starts_with('.')) {
                hidden += 1;
            } else if kind.is_dir() {
                open.push((format!("{prefix}{name}/"), entry.path()));
            } else if kind.is_file() {
                let about = entry.metadata().map_err(Error::reading(&folder))?;
                let path = format!("{prefix}{name}");
                found.push(File { path, size: about.len(), modified: modified(&about) });
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(Listing { files: found, hidden })
}

fn modified(about: &std::fs::Metadata) -> i64 {
    let since = about.modified().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    since.and_then(|since| i64::try_from(since.as_micros()).ok()).unwrap_or_default()
}

pub(super) async fn read(folder: &Path, file: &File) -> Result<BoxStream<'static, Result<Bytes>>> {
    let path = folder.join(&file.path);
    // What was a file when it was found may be a link by now.
    let real = tokio::fs::canonicalize(&path).await.map_err(Error::reading(&path))?;
    let root = tokio::fs::canonicalize(folder).await.map_err(Error::reading(folder))?;
    if !real.starts_with(&root) {
        let why = format!("it leads out of {}", folder.display());
        return Err(Error::malformed(path.display(), why));
    }
    let opened = tokio::fs::File::open(&real).await.map_err(Error::reading(&path))?;
    // It may have grown meanwhile; what was added comes another time.
    let opened = opened.take(file.size);
    let next = move |mut open: Take<tokio::fs::File>| {
        let path = path.clone();
        async move {
            let mut piece = bytes::BytesMut::with_capacity(PIECE);
            match open.read_buf(&mut piece).await {
                Ok(0) => None,
                Ok(_) => Some((Ok(piece.freeze()), open)),
                Err(error) => Some((Err(Error::reading(&path)(error)), open)),
            }
        }
    };
    Ok(boxed(stream::unfold(opened, next)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_hidden_comes_along_unless_it_is_somebody_elses() {
        let world = tempfile::tempdir().unwrap();
        for file in ["a.txt", "deep/.env", ".git/config", ".hidden", ".trash/1/x", "..odd"] {
            let path = world.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, file).unwrap();
        }
        for (shared, wanted, without) in [
            (false, &["..odd", ".git/config", ".hidden", "a.txt", "deep/.env"][..], 1),
            (true, &["a.txt", "deep/.env"], 4),
        ] {
            let Listing { files, hidden } = list(world.path(), shared).unwrap();
            let paths: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
            assert_eq!((paths.as_slice(), hidden), (wanted, without));
        }
        assert!(list(&world.path().join("nothing"), false).unwrap().files.is_empty());
    }
}
