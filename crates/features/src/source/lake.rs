//! Tables of others as sources: which files they have, and the rows of each.

use std::sync::Arc;

use falaj_base::{Error, Result};
use falaj_lake::{Limits, Place, Rows, delta, iceberg};

use super::history::Piece;
use super::open::{Found, Hash};
use super::rows_of::RowsOf;
use crate::definition::form::Origin;

/// Opens the files of a table. The path begins with the name of the root.
pub(super) fn open(
    place: &Arc<dyn Place>,
    origin: &Origin,
    known: Option<&String>,
    most: usize,
) -> Result<Vec<Found>> {
    let limits = Limits { files: most, ..Limits::default() };
    let below = |path: &str| path.split_once('/').map_or("", |(_, below)| below).to_owned();
    let (path, snapshot) = match origin {
        Origin::Delta { path, version, timestamp } => {
            let pin = match (version, timestamp) {
                (Some(version), _) => delta::Pin::Version(*version),
                (None, Some(time)) => delta::Pin::At(*time),
                (None, None) => delta::Pin::Latest,
            };
            (path, delta::snapshot(&**place, &below(path), pin, &limits)?)
        }
        Origin::Iceberg { path, metadata, snapshot, reference, timestamp } => {
            let pin = match (snapshot, reference, timestamp) {
                (Some(id), ..) => iceberg::Pin::Snapshot(*id),
                (None, Some(name), _) => iceberg::Pin::Reference(name.clone()),
                (None, None, Some(time)) => iceberg::Pin::At(*time),
                (None, None, None) => iceberg::Pin::Latest,
            };
            let metadata = metadata.as_deref();
            (path, iceberg::snapshot(&**place, &below(path), metadata, &pin, &limits)?)
        }
        _ => return Ok(Vec::new()),
    };
    let mut found = vec![Found::Version { name: path.clone(), version: snapshot.version.clone() }];
    for evidence in &snapshot.evidence {
        let (name, hash) = (evidence.name.clone(), Hash::Blake3(evidence.blake3.clone()));
        found.push(Found::Evidence { name, hash });
    }
    for data in &snapshot.files {
        let file = place.open(&data.path)?.ok_or_else(|| {
            let allowed = "files that the table has";
            Error::invalid(place.shown(&data.path), "absent", allowed)
        })?;
        let hash = Hash::Blake3(file.blake3()?);
        let rows = RowsOf::Lake(Rows::open(&snapshot, data, &file, &limits)?);
        let (name, known) = (file.name().to_owned(), known.cloned());
        let piece = Piece::Table { name, table: rows, known, file: Some(file), spool: None };
        found.push(Found::Rows { piece, hash });
    }
    Ok(found)
}
