//! What an endpoint is.

use falaj_base::{EndpointId, Name, Resource, Timestamp};
use falaj_governance::tenancy::Project;
use falaj_registry::model::RegisteredId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::spec::Spec;

/// A name under which models answer.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Endpoint {
    #[serde(skip)]
    #[schemars(skip)]
    pub(crate) id: EndpointId,
    pub name: Name,
    /// Grows with every change.
    pub revision: i64,
    pub spec: Spec,
    /// What answers now, variant by variant.
    pub running: Vec<Running>,
    /// Whether it answers nothing until it is loaded again.
    pub paused: bool,
    pub created_at: Timestamp,
    pub created_by: String,
    pub updated_at: Timestamp,
    pub updated_by: String,
}

/// What a variant runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Running {
    pub variant: Name,
    #[serde(default, skip_serializing_if = "RegisteredId::is_none")]
    #[schemars(with = "Option<String>")]
    pub(crate) model: RegisteredId,
    /// The registered version; 0 for a model on another server.
    pub version: i64,
    /// What answers of a model on another server call its version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<String>,
    /// Whether requests may share a run.
    pub batches: bool,
    pub since: Timestamp,
    /// The part of the requests that the endpoint's strategy gives it now; without one its weight
    /// decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
    /// The columns of a frame in the model's order, as its signature names them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<String>,
    /// Why the version that its alias points at does not run here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_back: Option<String>,
}

impl Running {
    /// The version, as clients read it.
    pub(crate) fn version(&self) -> String {
        self.remote.clone().unwrap_or_else(|| self.version.to_string())
    }
}

impl Endpoint {
    /// What everything about it is authorised on.
    pub(crate) fn resource(&self, project: &Project) -> Resource {
        resource(project, self.name.as_str(), false)
    }

    /// What events say of it.
    pub(crate) fn shown(&self) -> serde_json::Value {
        let running: Vec<_> = self
            .running
            .iter()
            .map(|running| {
                let version = running.version();
                json!({ "variant": running.variant, "version": version, "share": running.share })
            })
            .collect();
        json!({
            "name": self.name, "revision": self.revision, "paused": self.paused,
            "variants": self.spec.variants, "running": running,
        })
    }

    /// The part of the requests that each variant gets now; shadows get none.
    pub(crate) fn shares(&self) -> Vec<(Name, f64)> {
        let mut shares = self.spec.weights();
        for (name, share) in &mut shares {
            let running = self.running.iter().find(|running| running.variant == *name);
            *share = running.and_then(|running| running.share).unwrap_or(*share);
        }
        let sum: f64 = shares.iter().map(|(_, share)| share).sum();
        if sum > 0.0 {
            for (_, share) in &mut shares {
                *share /= sum;
            }
        }
        shares
    }

    /// The variant of this name, as asked for.
    pub(crate) fn variant(&self, name: &Name) -> Option<&super::spec::Variant> {
        self.spec.variants.iter().find(|variant| variant.name == *name)
    }
}

/// What an endpoint of this name is authorised on, there or not.
pub(crate) fn resource(project: &Project, name: &str, absent: bool) -> Resource {
    let id = format!("{}/{name}", project.id);
    let resource = if absent {
        Resource::absent("endpoint", id, project.scope())
    } else {
        Resource::new("endpoint", id, project.scope())
    };
    resource.with(project.attributes()).shown_as(name)
}
