//! Versions of registered models: what was registered, from where, and the stage it is in.

mod artifact;
mod by_id;
pub(crate) mod http;
mod keeper;
mod origin;
mod pattern;
mod search;
mod service;
mod source;
mod stage;
pub(crate) mod store;
mod transition;
#[allow(clippy::module_inception, reason = "the noun of this folder")]
mod version;

pub use http::ask_versions;
pub(crate) use keeper::Versions;
pub(crate) use origin::check_prompt;
pub use pattern::SourcePattern;
pub use search::VersionSearch;
pub use service::NewVersion;
pub use stage::Stage;
pub use version::Version;
pub(crate) use version::parse_number;
