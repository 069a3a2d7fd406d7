//! What can be seen on this machine: the configuration and what it points to.

use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use falaj_base::Clock;
use falaj_server::Config;
use falaj_store::db::{Db, Location};
use falaj_store::keys::Provider;

use super::Finding;
use crate::context::Context;
use crate::output::progress::human;

/// Less free space than this is worth a word, and less than that is an alarm.
const LITTLE_SPACE: u64 = 5 << 30;
const NO_SPACE: u64 = 512 << 20;
/// No machine that runs this has a clock before this: 2026-01-01.
const BUILT: Duration = Duration::from_hours(490_896);

pub(super) async fn examine(ctx: &Context) -> Vec<Finding> {
    let mut findings = vec![clock()];
    let config = match ctx.load_config(Vec::new()) {
        Ok(loaded) => {
            findings.push(match &loaded.file {
                Some(path) => Finding::ok("config file", path.display().to_string()),
                None => Finding::ok("config file", "none; the defaults and the environment apply"),
            });
            loaded.value
        }
        Err(failure) => {
            let fix = "correct it; `falaj config reference` lists every key";
            findings.push(Finding::fail("config file", failure.message(), fix));
            return findings;
        }
    };
    findings.push(data_dir(&config.data_dir));
    findings.push(database(&config).await);
    findings.extend(keyrings(&config));
    findings.extend(object_roots(&config));
    if config.data_dir.exists() {
        findings.push(space(&config.data_dir));
    }
    findings.extend(providers(&config).await);
    if config.training.local.enabled {
        findings.push(gpus());
    }
    findings
}

/// A machine without GPUs is none the worse; one with some and without their library is.
fn gpus() -> Finding {
    let name = "GPUs";
    match falaj_executors::gpu::found() {
        Ok(found) => {
            let all = found.read();
            let names: Vec<_> = all.iter().map(|gpu| gpu.name.as_str()).collect();
            let text = format!("{} read by {}: {}", all.len(), found.source(), names.join(", "));
            Finding::ok(name, text)
        }
        Err(why) if Path::new("/proc/driver/nvidia").exists() => {
            let fix = "install the library that belongs to the driver: libnvidia-ml.so.1";
            Finding::warn(name, format!("there is a driver, and NVML is not read: {why}"), fix)
        }
        Err(why) => Finding::ok(name, format!("none: {why}")),
    }
}

fn clock() -> Finding {
    match SystemTime::now().duration_since(SystemTime::UNIX_EPOCH) {
        Ok(now) if now > BUILT => Finding::ok("clock", Clock::System.now().to_string()),
        _ => {
            let fix = "set the clock: tokens and certificates depend on it";
            Finding::fail("clock", "it is in the past", fix)
        }
    }
}

fn data_dir(path: &Path) -> Finding {
    let name = "data directory";
    let shown = path.display();
    match fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Finding::warn(name, format!("{shown} does not exist"), "`falaj serve` makes it")
        }
        Err(error) => Finding::fail(name, format!("{shown}: {error}"), "check who owns it"),
        Ok(facts) if !facts.is_dir() => {
            Finding::fail(name, format!("{shown} is not a directory"), "choose another data_dir")
        }
        Ok(facts) if facts.permissions().mode() & 0o077 != 0 => {
            Finding::fail(name, format!("{shown} is open to others"), format!("chmod 700 {shown}"))
        }
        Ok(_) if rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_err() => {
            let fix = "run as the user who owns it, or chown it";
            Finding::fail(name, format!("{shown} cannot be written"), fix)
        }
        Ok(_) => Finding::ok(name, format!("{shown}, private and writable")),
    }
}

async fn database(config: &Config) -> Finding {
    let name = "database";
    match config.database.location(&config.data_dir) {
        Location::Sqlite(path) => sqlite(&path),
        // The URL may hold a password: it is not shown.
        location @ Location::Postgres(_) => {
            let answer = match Db::open(&location, &config.database, Clock::System).await {
                Ok(db) => db.read(|tx| tx.query_one("SELECT 1 AS one", &[]).map(drop)).await,
                Err(error) => Err(error),
            };
            match answer {
                Ok(()) => Finding::ok(name, "PostgreSQL answers"),
                Err(error) => {
                    let fix = "check database.url, and that the server lets this user in";
                    Finding::fail(name, format!("PostgreSQL: {}", error.chain()), fix)
                }
            }
        }
    }
}

/// Looks at the file without opening it as a database: that would leave files behind, which may
/// then belong to the wrong user.
fn sqlite(path: &Path) -> Finding {
    let name = "database";
    let shown = path.display();
    let mut header = [0; 16];
    let read = fs::File::open(path).and_then(|mut file| file.read_exact(&mut header));
    match read {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let text = format!("SQLite at {shown} does not exist yet");
            Finding::warn(name, text, "`falaj serve` makes it")
        }
        Err(error) => Finding::fail(name, format!("{shown}: {error}"), "check who owns it"),
        Ok(()) if &header == b"SQLite format 3\0" => {
            Finding::ok(name, format!("SQLite at {shown}"))
        }
        Ok(()) => Finding::fail(
            name,
            format!("{shown} is not an SQLite database"),
            "restore a backup with `falaj restore`",
        ),
    }
}

fn keyrings(config: &Config) -> Vec<Finding> {
    let manager = |manager: &falaj_store::keys::ManagerConfig| {
        let name = format!("keys of {}", manager.zone);
        if manager.provider == Provider::Transit {
            let address = &manager.transit.address;
            return if address.is_empty() {
                Finding::fail(name, "no transit server is set", "set keys.transit.address")
            } else {
                Finding::ok(name, format!("transit engine at {address}"))
            };
        }
        private_file(name, &manager.keyring_path(&config.data_dir))
    };
    config.keys.managers().iter().map(manager).collect()
}

/// A file of secrets: there, readable by us, and by nobody else.
fn private_file(name: String, path: &Path) -> Finding {
    let shown = path.display();
    match fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Finding::warn(name, format!("{shown} does not exist yet"), "`falaj serve` makes it")
        }
        Err(error) => Finding::fail(name, format!("{shown}: {error}"), "check who owns it"),
        Ok(facts) if facts.permissions().mode() & 0o077 != 0 => {
            Finding::fail(name, format!("others can read {shown}"), format!("chmod 600 {shown}"))
        }
        Ok(_) => match fs::File::open(path) {
            Ok(_) => Finding::ok(name, format!("{shown}, private; keep a copy elsewhere")),
            Err(error) => Finding::fail(name, format!("{shown}: {error}"), "check who owns it"),
        },
    }
}

fn object_roots(config: &Config) -> Vec<Finding> {
    let root = |root: &falaj_store::objects::RootConfig| {
        let name = format!("objects {}", root.name);
        if !root.url.is_empty() {
            return Finding::ok(name, format!("{} in zone {}", root.url, root.zone));
        }
        let path = config.data_dir.join(&root.path);
        let shown = path.display();
        if !path.exists() {
            let text = format!("{shown} does not exist yet");
            return Finding::warn(name, text, "`falaj serve` makes it");
        }
        if rustix::fs::access(&path, rustix::fs::Access::WRITE_OK).is_err() {
            return Finding::fail(name, format!("{shown} cannot be written"), "check who owns it");
        }
        Finding::ok(name, format!("{shown} in zone {}", root.zone))
    };
    config.objects.roots.iter().map(root).collect()
}

#[allow(clippy::cast_precision_loss, reason = "a size for people needs three digits")]
fn space(path: &Path) -> Finding {
    let name = "disk space";
    let free = match rustix::fs::statvfs(path) {
        Ok(facts) => facts.f_bavail.saturating_mul(facts.f_frsize),
        Err(error) => return Finding::warn(name, format!("not known: {error}"), "look with `df`"),
    };
    let text = format!("{} free at {}", human(free as f64), path.display());
    match free {
        ..NO_SPACE => Finding::fail(name, text, "free some: writes fail when it is full"),
        NO_SPACE..LITTLE_SPACE => Finding::warn(name, text, "free some before it is full"),
        _ => Finding::ok(name, text),
    }
}

/// Whether each identity provider publishes its description where it should.
async fn providers(config: &Config) -> Vec<Finding> {
    let mut findings = Vec::new();
    for provider in &config.identity.oidc.providers {
        let name = format!("provider {}", provider.name);
        let url =
            format!("{}/.well-known/openid-configuration", provider.issuer.trim_end_matches('/'));
        let answer = async {
            let client = reqwest::Client::builder()
                .redirect(reqwest::redirect::Policy::none())
                .timeout(config.identity.oidc.timeout.get())
                .build()?;
            client.get(&url).send().await?.error_for_status()
        };
        findings.push(match answer.await {
            Ok(_) => Finding::ok(name, format!("{} answers", provider.issuer)),
            Err(error) => {
                let fix = "check the issuer's address, and that this machine can reach it";
                Finding::fail(name, format!("{url}: {error}"), fix)
            }
        });
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::Status;
    use super::*;

    fn with_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn an_open_directory_and_an_open_keyring_fail() {
        let folder = tempfile::tempdir().unwrap();
        with_mode(folder.path(), 0o755);
        assert_eq!(data_dir(folder.path()).status, Status::Fail);
        with_mode(folder.path(), 0o700);
        assert_eq!(data_dir(folder.path()).status, Status::Ok);
        assert_eq!(data_dir(&folder.path().join("absent")).status, Status::Warn);

        let keyring = folder.path().join("keyring.json");
        assert_eq!(private_file("keys".into(), &keyring).status, Status::Warn);
        fs::write(&keyring, "{}").unwrap();
        with_mode(&keyring, 0o640);
        assert_eq!(private_file("keys".into(), &keyring).status, Status::Fail);
        with_mode(&keyring, 0o600);
        assert_eq!(private_file("keys".into(), &keyring).status, Status::Ok);
    }

    #[test]
    fn a_damaged_database_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("falaj.db");
        assert_eq!(sqlite(&path).status, Status::Warn);
        fs::write(&path, [0; 4096]).unwrap();
        assert_eq!(sqlite(&path).status, Status::Fail);
        fs::write(&path, b"SQLite format 3\0 and more").unwrap();
        assert_eq!(sqlite(&path).status, Status::Ok);
    }

    #[test]
    fn free_space_is_told() {
        let finding = space(Path::new("/"));
        assert!(finding.text.contains("free at /"), "{}", finding.text);
    }
}
