//! Files on this machine.

use std::path::Path;

use bytes::Bytes;
use futures::stream::{self, BoxStream};
use tokio::io::AsyncReadExt;

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
                let size = entry.metadata().map_err(Error::reading(&folder))?.len();
                found.push(File { path: format!("{prefix}{name}"), size });
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

pub(super) async fn read(folder: &Path, file: &str) -> Result<BoxStream<'static, Result<Bytes>>> {
    let path = folder.join(file);
    let opened = tokio::fs::File::open(&path).await.map_err(Error::reading(&path))?;
    let next = move |mut open: tokio::fs::File| {
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
