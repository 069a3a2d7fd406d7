//! Secrets that jobs name: files of the server, each for some projects.

use std::collections::BTreeMap;
use std::io::Read;

use falaj_base::{Error, Result, Secret, code};
use falaj_governance::tenancy::Project;

use crate::Training;
use crate::job::Definition;

/// The longest secret.
const MOST: u64 = 64 << 10;

impl Training {
    /// The secrets that a definition names, if its project may have them. One that is not there and
    /// one that is not for the project are refused alike.
    pub(crate) fn secrets(
        &self,
        project: &Project,
        definition: &Definition,
    ) -> Result<BTreeMap<String, Secret>> {
        let whole = format!("{}/{}", project.tenant, project.name);
        let mut found = BTreeMap::new();
        for (variable, name) in &definition.secrets {
            let known = self.config().secret.iter().find(|secret| {
                let allowed = |place: &String| *place == whole || *place == project.tenant.as_str();
                secret.name == *name && secret.projects.iter().any(allowed)
            });
            let Some(known) = known else {
                let field = format!("secrets.{variable}");
                return Err(Error::invalid(field, name, "a secret that this project may use"));
            };
            let mut text = String::new();
            let read = std::fs::File::open(&known.file)
                .and_then(|file| file.take(MOST).read_to_string(&mut text));
            read.map_err(|error| {
                let text = format!("the secret `{name}` cannot be read now");
                Error::new(&code::UNAVAILABLE, text).caused_by(error)
            })?;
            found.insert(variable.clone(), Secret::new(text.trim_end_matches(['\n', '\r'])));
        }
        Ok(found)
    }
}
