//! Tokens that `falaj login` keeps, one for each server, in
//! `$XDG_CONFIG_HOME/falaj/credentials.toml`.
//!
//! Must hold: the file is never readable by others, not even while it is being written.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use falaj_base::Secret;
use serde::{Deserialize, Serialize};

use crate::exit::{Failure, Result, file_error};

/// What is remembered about one server.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Credential {
    pub(crate) token: Secret,
    pub(crate) user: Option<String>,
    pub(crate) expires_at: Option<String>,
}

/// The file: the server used last, and a credential for each.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Credentials {
    pub(crate) default: Option<String>,
    pub(crate) servers: BTreeMap<String, Credential>,
}

/// The form on disk, the only place where the token is written out.
#[derive(Serialize)]
struct OnDisk<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    default: Option<&'a str>,
    servers: BTreeMap<&'a str, Entry<'a>>,
}

#[derive(Serialize)]
struct Entry<'a> {
    token: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<&'a str>,
}

/// Where the file is: `XDG_CONFIG_HOME`, or `~/.config`.
pub(crate) fn path(env: impl Fn(&str) -> Option<String>) -> Result<PathBuf> {
    let set = |name: &str| env(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let folder = set("XDG_CONFIG_HOME").or_else(|| set("HOME").map(|home| home.join(".config")));
    folder.map(|folder| folder.join("falaj").join("credentials.toml")).ok_or_else(|| {
        Failure::usage("neither XDG_CONFIG_HOME nor HOME is set, so no credentials can be kept")
            .hint("set FALAJ_TOKEN instead")
    })
}

impl Credentials {
    /// Reads the file; no file is no credentials.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Self::default());
            }
            Err(error) => return Err(file_error("read", path)(error)),
        };
        let mode = fs::metadata(path).map_err(file_error("read", path))?.permissions().mode();
        if mode & 0o077 != 0 {
            let message = format!("{} can be read by others", path.display());
            return Err(Failure::usage(message).hint(format!("chmod 600 {}", path.display())));
        }
        // The parser's own text would quote the line, and with it the token.
        toml::from_str(&text).map_err(|error| {
            Failure::usage(format!("{} is not valid: {}", path.display(), error.message()))
                .hint("remove the file and run `falaj login` again")
        })
    }

    /// Writes the file whole or not at all.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let servers = self.servers.iter().map(|(url, credential)| {
            let Credential { token, user, expires_at } = credential;
            let (user, expires_at) = (user.as_deref(), expires_at.as_deref());
            (url.as_str(), Entry { token: token.expose(), user, expires_at })
        });
        let on_disk = OnDisk { default: self.default.as_deref(), servers: servers.collect() };
        let text = toml::to_string(&on_disk).map_err(|error| Failure::failed(error.to_string()))?;
        let folder = path.parent().unwrap_or(Path::new("."));
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .map_err(file_error("create", folder))?;
        let draft = path.with_extension(format!("toml.{}", std::process::id()));
        let save = || -> std::io::Result<()> {
            let mut options = OpenOptions::new();
            let mut file = options.write(true).create_new(true).mode(0o600).open(&draft)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&draft, path)
        };
        save().map_err(|error| {
            let _ = fs::remove_file(&draft);
            file_error("write", path)(error)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back_and_private() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("falaj/credentials.toml");
        assert!(Credentials::read(&path).unwrap().servers.is_empty());
        let mut kept = Credentials { default: Some("http://a".into()), ..Credentials::default() };
        let credential = Credential { token: Secret::new("s3cret"), user: None, expires_at: None };
        kept.servers.insert("http://a".into(), credential);
        kept.write(&path).unwrap();
        kept.write(&path).unwrap();
        let again = Credentials::read(&path).unwrap();
        assert_eq!(again.servers["http://a"].token.expose(), "s3cret");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o600);
        assert_eq!(mode(path.parent().unwrap()), 0o700);
        assert!(!format!("{again:?}").contains("s3cret"));
    }

    #[test]
    fn a_file_that_others_can_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("credentials.toml");
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(Credentials::read(&path).unwrap_err().text().contains("chmod 600"));
    }

    #[test]
    fn the_place_follows_the_environment() {
        let home = |name: &str| (name == "HOME").then(|| "/home/mona".to_owned());
        let expected = Path::new("/home/mona/.config/falaj/credentials.toml");
        assert_eq!(path(home).unwrap(), expected);
        let xdg = |name: &str| (name == "XDG_CONFIG_HOME").then(|| "/x".to_owned());
        assert_eq!(path(xdg).unwrap(), Path::new("/x/falaj/credentials.toml"));
        assert!(path(|_| None).is_err());
    }
}
