//! Listing a folder. There are no folders in the table, only paths: a folder is seen by what lies
//! in it, and the scan leaps over the rest of it.

use falaj_base::{ProjectId, Result};
use falaj_mlflow::error::refused;
use falaj_mlflow::{Call, page};
use falaj_store::db::Tx;

use super::artifact::FileInfo;
use super::owner::project_as_owner;
use super::path::ArtifactPath;
use super::store;
use crate::access::resource;
use crate::experiment::ExperimentId;
use crate::{RUN_READ, Tracking};

/// How many rows are read at a time: few after a folder was found, because the next may be one
/// too, and more and more while there are only files.
const FEWEST: usize = 16;
const MOST: usize = 1024;

/// Which part of a list is wanted. Without either field it is all of it, or a refusal.
#[derive(Clone, Debug, Default)]
pub struct Pages {
    pub size: Option<usize>,
    pub token: Option<String>,
}

/// A list, or a page of it.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    pub files: Vec<FileInfo>,
    /// Where the next page begins.
    pub next: Option<String>,
}

/// An entry as it was found.
#[derive(Debug)]
struct Child {
    name: String,
    size: Option<u64>,
    /// Of the first artifact in it.
    experiment: Option<ExperimentId>,
    /// Where the scan goes on.
    next: String,
}

impl Tracking {
    /// What lies in a folder, named from there; the whole project if there is none.
    pub async fn list_folder(
        &self,
        call: &Call,
        folder: Option<&ArtifactPath>,
        pages: Pages,
    ) -> Result<Listing> {
        let owner = match folder {
            Some(folder) => self.artifact_owner(call, folder, &RUN_READ).await?,
            None => project_as_owner(call, "", &RUN_READ).await?,
        };
        let most = self.config().artifact.max_list;
        let in_pages = pages.size.is_some() || pages.token.is_some();
        let want = pages.size.unwrap_or(most).clamp(1, most);
        let from = page::decode::<String>(pages.token.as_deref())?.unwrap_or_default();
        if from.contains('\0') {
            return Err(refused("Invalid page token").at("page_token"));
        }
        let (project, name) = (call.place.id, folder.map(ToString::to_string).unwrap_or_default());
        let read = move |tx: &mut Tx<'_>| children(tx, project, &name, from, want + 1);
        let mut found = self.db().read(read).await?;
        let more = found.len() > want;
        if more && !in_pages {
            let text = format!("The directory has more than {most} entries: list it in pages");
            return Err(refused(text).at("max_results"));
        }
        found.truncate(want);
        let next =
            found.last().filter(|_| more).map(|last| page::encode(&last.next)).transpose()?;
        // Outside of runs there may be folders of experiments that the caller may not read.
        let visible = |child: &Child| match child.experiment {
            Some(id) if owner.experiment != Some(id) => {
                call.ctx.allows(&RUN_READ, &resource(&call.place, id, false))
            }
            _ => true,
        };
        let mut files: Vec<FileInfo> =
            found.into_iter().filter(visible).map(FileInfo::from).collect();
        files.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        Ok(Listing { files, next })
    }

    /// The files in a folder at any depth, with their sizes: the first so many, in the order of
    /// their paths. Whoever asks has authorised it.
    pub(crate) async fn files_below(
        &self,
        project: ProjectId,
        folder: &ArtifactPath,
        limit: usize,
    ) -> Result<Vec<(String, u64)>> {
        let folder = folder.to_string();
        self.db()
            .read(move |tx| {
                let found = store::in_folder(tx, project, &folder, "", limit)?;
                Ok(found.into_iter().map(|file| (file.path.to_string(), file.size)).collect())
            })
            .await
    }

    /// What lies in a folder below `root`, named from the root.
    pub async fn list_below(
        &self,
        call: &Call,
        root: &ArtifactPath,
        below: Option<&str>,
        pages: Pages,
    ) -> Result<Listing> {
        let below = below.map(|below| below.trim_end_matches('/')).filter(|it| !it.is_empty());
        let Some(below) = below else { return self.list_folder(call, Some(root), pages).await };
        let mut listing = self.list_folder(call, Some(&root.join(below)?), pages).await?;
        for file in &mut listing.files {
            file.path = format!("{below}/{}", file.path);
        }
        Ok(listing)
    }
}

impl From<Child> for FileInfo {
    fn from(child: Child) -> Self {
        Self { path: child.name, is_dir: child.size.is_none(), file_size: child.size }
    }
}

/// The first entries of a folder at or after `from`.
fn children(
    tx: &mut Tx<'_>,
    project: ProjectId,
    folder: &str,
    mut from: String,
    want: usize,
) -> Result<Vec<Child>> {
    let skip = if folder.is_empty() { 0 } else { folder.len() + 1 };
    let (mut found, mut batch) = (Vec::new(), FEWEST);
    loop {
        let rows = store::in_folder(tx, project, folder, &from, batch)?;
        let (all, mut leapt) = (rows.len() < batch, false);
        for row in rows {
            let path = row.path.as_str();
            if path < from.as_str() {
                leapt = true;
                continue;
            }
            if found.len() == want {
                return Ok(found);
            }
            let (name, size) = match path[skip..].split_once('/') {
                None => (&path[skip..], Some(row.size)),
                Some((name, _)) => (name, None),
            };
            // Paths have no control characters, and `0` follows the slash.
            let end = if size.is_some() { '\u{1}' } else { '0' };
            from = format!("{}{name}{end}", &path[..skip]);
            let (name, next) = (name.to_owned(), from.clone());
            found.push(Child { name, size, experiment: row.experiment, next });
        }
        if all || found.len() == want {
            return Ok(found);
        }
        batch = if leapt { FEWEST } else { (batch * 2).min(MOST) };
    }
}
