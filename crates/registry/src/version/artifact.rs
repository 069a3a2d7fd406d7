//! The files of a version, readable by whoever may read the model.

use falaj_base::Result;
use falaj_mlflow::Call;
use falaj_mlflow::error::refused;
use falaj_tracking::artifact::{Artifact, ArtifactPath, Content};

use crate::access::resource;
use crate::{MODEL_READ, Registry};

impl Registry {
    /// A file of a version, ready to be read. The right to read the model is what it takes: that
    /// its files may be shown under it was decided when the version was registered.
    pub async fn open_version_file(
        &self,
        call: &Call,
        (name, number): (&str, i64),
        path: &str,
    ) -> Result<(Artifact, Content)> {
        let version = self.version(&call.ctx, &call.place, name, number).await?;
        let folder = version.files.ok_or_else(|| {
            let text = "The artifacts of this model version are not kept by this server";
            refused(format!("{text}: {}", version.location))
        })?;
        let path = ArtifactPath::new(folder)?.join(path)?;
        let resource = resource(&call.place, name, false);
        self.tracking().open_artifact_as(call, &path, &MODEL_READ, &resource).await
    }
}
