//! Images, sound and whatever else a run leaves at each step: a convention over its artifacts.
//!
//! ```text
//! media/<key>/<step>[anything].<extension>                    ours; the key may have slashes
//! images/<key>+step+<step>+timestamp+<ms>+<uuid>.png          mlflow.log_image, also with %
//! ```
//!
//! Not here: the bytes. They are artifacts, and are read as such.

use std::sync::Arc;

use falaj_base::{Ctx, Error, Result};
use falaj_mlflow::Call;
use falaj_web::{Endpoint, Input, Ok200, Routes};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::artifact::{ArtifactPath, proxied_path};
use crate::native::{Native, RUN_MEDIA, RunPath};
use crate::{RUN_READ, Tracking};

/// The most items that are shown, and looked through.
const MOST: usize = 10_000;

pub(crate) fn routes(native: &Arc<Native>) -> Vec<Endpoint> {
    Routes::new(native.clone())
        .get(RUN_MEDIA, &RUN_READ, "List a run's media by key and step", list)
        .into()
}

/// A file of one key at one step.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
pub(crate) struct Item {
    key: String,
    step: i64,
    /// Milliseconds since 1970, where the name tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    timestamp: Option<i64>,
    /// The artifact, as the run's own path.
    path: String,
    size: u64,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct MediaQuery {
    /// Only this key.
    #[schemars(length(max = 1024))]
    key: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Media {
    /// By key, then by step.
    items: Vec<Item>,
}

async fn list(n: Arc<Native>, ctx: Ctx, input: Input<RunPath, MediaQuery>) -> Result<Ok200<Media>> {
    let call = n.call(&ctx, &input.path.tenant, &input.path.project).await?;
    let items = n.tracking().media(&call, &input.path.run, input.query.key.as_deref()).await?;
    Ok(Ok200(Media { items }))
}

impl Tracking {
    /// What a run has under the convention, by key and step.
    pub(crate) async fn media(
        &self,
        call: &Call,
        run: &str,
        key: Option<&str>,
    ) -> Result<Vec<Item>> {
        let found = self.run(call, run).await?;
        let Some(root) = proxied_path(&found.info.artifact_uri) else { return Ok(Vec::new()) };
        let root = ArtifactPath::new(root)?;
        let project = call.place.id;
        let mut items = Vec::new();
        for folder in ["media", "images"] {
            let below = root.join(folder)?;
            let files = self.files_below(project, &below, MOST).await?;
            if files.len() >= MOST {
                let text = format!(
                    "the run has more than {MOST} files in {folder}: list them as artifacts"
                );
                return Err(Error::new(&falaj_base::code::TOO_LARGE, text));
            }
            let skip = root.as_str().len() + 1;
            items.extend(files.iter().filter_map(|(path, size)| read(&path[skip..], *size)));
        }
        items.retain(|item| key.is_none_or(|key| item.key == key));
        items.sort_unstable();
        Ok(items)
    }
}

/// What a path says under the convention, if anything.
fn read(path: &str, size: u64) -> Option<Item> {
    let (folder, rest) = path.split_once('/')?;
    let (key, step, timestamp) = match folder {
        "media" => {
            let (key, name) = rest.rsplit_once('/')?;
            (key.to_owned(), leading_number(name)?, None)
        }
        "images" => image(rest)?,
        _ => return None,
    };
    Some(Item { key, step, timestamp, path: path.to_owned(), size })
}

/// The name that `mlflow.log_image` gives. A slash in the key is written as `#`.
fn image(name: &str) -> Option<(String, i64, Option<i64>)> {
    for mark in ['+', '%'] {
        let (step_mark, time_mark) =
            (format!("{mark}step{mark}"), format!("{mark}timestamp{mark}"));
        let Some((key, rest)) = name.split_once(&step_mark) else { continue };
        let Some((step, rest)) = rest.split_once(&time_mark) else { continue };
        let time = rest.split(mark).next().and_then(|time| time.parse().ok());
        return Some((key.replace('#', "/"), step.parse().ok()?, time));
    }
    None
}

/// `00012.png`, `12-a.png` and `-3.wav` begin with a step.
fn leading_number(name: &str) -> Option<i64> {
    let sign = usize::from(name.starts_with('-'));
    let digits = name[sign..].bytes().take_while(u8::is_ascii_digit).count();
    name[..sign + digits].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_key_and_step() {
        for (path, expected) in [
            ("media/samples/0001.png", Some(("samples", 1, None))),
            ("media/a/b/12-x.wav", Some(("a/b", 12, None))),
            ("media/a/-3.txt", Some(("a", -3, None))),
            ("media/12.png", None),
            ("media/a/x12.png", None),
            ("media/a/.png", None),
            ("images/dogs+step+5+timestamp+1700+ab-cd.png", Some(("dogs", 5, Some(1700)))),
            ("images/a#b%step%7%timestamp%9%u.webp", Some(("a/b", 7, Some(9)))),
            ("images/plain.png", None),
            ("other/a/1.png", None),
        ] {
            let found = read(path, 1);
            let found = found.as_ref().map(|item| (item.key.as_str(), item.step, item.timestamp));
            assert_eq!(found, expected, "{path}");
        }
    }
}
