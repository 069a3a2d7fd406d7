//! Files on this machine.

use std::path::Path;
use std::time::UNIX_EPOCH;

use bytes::Bytes;
use futures::stream::{self, BoxStream};
use tokio::io::{AsyncReadExt, Take};

use super::{File, boxed};
use crate::error::{Error, Result};

/// How much is read at a time.
const PIECE: usize = 256 << 10;

pub(super) fn files(folder: &Path) -> Result<Vec<File>> {
    let mut found = Vec::new();
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
            if kind.is_dir() {
                open.push((format!("{prefix}{name}/"), entry.path()));
            } else if kind.is_file() {
                let about = entry.metadata().map_err(Error::reading(&folder))?;
                let path = format!("{prefix}{name}");
                found.push(File { path, size: about.len(), modified: modified(&about) });
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
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
