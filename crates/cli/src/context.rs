//! What every command is given: where the server is, who asks, and how to print.

use std::path::{Path, PathBuf};

use falaj_base::config::{self, Loaded};

use crate::cli::Global;
use crate::client::{Client, DEFAULT_URL, Target};
use crate::credentials::{self, Credentials};
use crate::exit::Result;
use crate::output::Output;

/// The file that is read if it exists and no other is named.
const LOCAL_CONFIG: &str = "falaj.toml";

#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) output: Output,
    pub(crate) config: Option<PathBuf>,
    target: Target,
    /// Why there are no kept credentials, if the file could not be read: told only when needed.
    credentials: Result<Credentials>,
}

impl Context {
    pub(crate) fn new(global: &Global) -> Self {
        let env = |name: &str| std::env::var(name).ok();
        let kept = credentials::path(env).and_then(|path| Credentials::read(&path));
        let set = |url: &&String| !url.is_empty();
        let url = global.url.as_ref().filter(set).cloned();
        let url = url.or_else(|| kept.as_ref().ok()?.default.clone());
        let url = url.map_or_else(|| DEFAULT_URL.to_owned(), |url| normal(&url));
        let given = global.token.clone().filter(|token| !token.is_empty());
        let token = given.or_else(|| Some(kept.as_ref().ok()?.servers.get(&url)?.token.clone()));
        Self {
            output: global.output(),
            config: global.config.clone(),
            target: Target {
                url,
                token,
                cacert: global.cacert.clone(),
                timeout: global.timeout.get(),
                allow_http: global.allow_http,
            },
            credentials: kept,
        }
    }

    /// A client for the server, with the token if there is one.
    pub(crate) fn client(&self) -> Result<Client> {
        if self.target.token.is_none()
            && let Err(failure) = &self.credentials
        {
            self.output.say(&format!("warning: {}", failure.message()));
        }
        Client::new(&self.target, self.output)
    }

    pub(crate) fn target(&self) -> &Target {
        &self.target
    }

    /// The server's configuration: the named file, else `falaj.toml` here if there is one, then
    /// the environment, then `flags`.
    pub(crate) fn load_config(
        &self,
        flags: Vec<(String, String)>,
    ) -> Result<Loaded<falaj_server::Config>> {
        Ok(config::load(self.config_file().as_deref(), environment(), flags)?)
    }

    /// The configuration file that applies, if any.
    pub(crate) fn config_file(&self) -> Option<PathBuf> {
        let local = || Some(PathBuf::from(LOCAL_CONFIG)).filter(|path| Path::exists(path));
        self.config.clone().or_else(local)
    }
}

/// The environment as text. A variable that is not valid UTF-8 cannot be one of ours.
fn environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .filter_map(|(name, text)| Some((name.into_string().ok()?, text.into_string().ok()?)))
}

/// One spelling for each server, so that a trailing slash does not lose its token.
pub(crate) fn normal(url: &str) -> String {
    url.trim_end_matches('/').to_owned()
}
