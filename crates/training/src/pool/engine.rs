//! The executors of pools, made as the configuration says.

use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;

use falaj_base::{Error, Name, Result, Secret, code};
use falaj_executors::{
    Executor, ExecutorError, KubernetesExecutor, LocalExecutor, RayExecutor, RaySettings,
    SlurmExecutor, SlurmSettings,
};

use crate::config::{PoolKind, TrainingConfig};

/// Makes the executor of a pool. What it keeps lies below `data_dir` unless its pool says where. On engines that
/// several installations use, this one is known by its id.
pub(crate) fn make(
    config: &TrainingConfig,
    name: &Name,
    kind: PoolKind,
    (data_dir, installation): (&Path, &str),
) -> Result<Arc<dyn Executor>> {
    let pool = config.pool.iter().find(|pool| pool.name == *name);
    let own = || data_dir.join("training").join("pools").join(name.as_str());
    // Nodes of Kubernetes see nothing of what its executor keeps.
    let shared = pool.filter(|_| kind != PoolKind::Kubernetes).and_then(|pool| pool.folder.clone());
    let folder = shared.unwrap_or_else(own);
    // Nobody else may look into it, from its first moment on.
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder);
    made.map_err(|error| {
        let text = format!("{} cannot be made: {error}", folder.display());
        Error::new(&code::INVALID_CONFIG, text).at("training.pool")
    })?;
    if !matches!(kind, PoolKind::Local | PoolKind::Kubernetes) {
        apart(&folder, data_dir, name)?;
    }
    let failed = |error: ExecutorError| {
        let text = format!("pool `{name}` cannot be used: {error}");
        Error::new(&code::INVALID_CONFIG, text).at("training.pool")
    };
    Ok(match (kind, pool) {
        (PoolKind::Slurm, Some(pool)) => {
            let settings = SlurmSettings {
                conf: pool.conf.clone(),
                programs: pool.programs.clone(),
                partition: pool.partition.clone(),
                account: pool.account.clone(),
                qos: pool.qos.clone(),
                gpu_type: None,
            };
            Arc::new(SlurmExecutor::new(&folder, settings).map_err(failed)?)
        }
        (PoolKind::Ray, Some(pool)) => {
            let mut settings = RaySettings::default();
            settings.url = pool.url.clone().unwrap_or(settings.url);
            settings.python = pool.python.clone().unwrap_or(settings.python);
            settings.token = pool.token_file.as_deref().map(token).transpose()?;
            Arc::new(RayExecutor::new(&folder, settings).map_err(failed)?)
        }
        (PoolKind::Kubernetes, Some(pool)) => {
            let settings = pool.kubernetes.clone().unwrap_or_default();
            let settings = settings.settings(installation, name.as_str(), config.max_log.bytes());
            Arc::new(KubernetesExecutor::new(&folder, settings).map_err(failed)?)
        }
        _ => {
            let program = std::env::current_exe().map_err(Error::internal)?;
            let executor = LocalExecutor::new(&folder, program).map_err(failed)?;
            Arc::new(executor.keep_output(config.max_log.bytes()))
        }
    })
}

/// Refuses a folder that nodes of others would see our own data with.
fn apart(folder: &Path, data_dir: &Path, name: &Name) -> Result<()> {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let (real_folder, data) = (real(folder), real(data_dir));
    if real_folder.starts_with(&data) || data.starts_with(&real_folder) {
        let text = format!(
            "the folder of pool `{name}` is `{}`; one is needed that neither lies in the data folder, \
             `{}`, nor holds it: its nodes see all of it",
            folder.display(),
            data_dir.display()
        );
        return Err(Error::new(&code::INVALID_CONFIG, text).at("training.pool.folder"));
    }
    Ok(())
}

fn token(file: &Path) -> Result<Secret> {
    let text = std::fs::read_to_string(file).map_err(|error| {
        let text = format!("{} cannot be read: {error}", file.display());
        Error::new(&code::INVALID_CONFIG, text).at("training.pool.token_file")
    })?;
    Ok(Secret::new(text.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_nodes_see_has_nothing_of_ours_in_it() {
        let here = tempfile::tempdir().unwrap();
        let at = |name: &str| here.path().join(name);
        for folder in ["data/pools", "shared"] {
            std::fs::create_dir_all(at(folder)).unwrap();
        }
        std::os::unix::fs::symlink(at("data/pools"), at("link")).unwrap();
        let name = Name::new("hpc").unwrap();
        for (folder, fits) in
            [("shared", true), ("data", false), ("data/pools", false), ("link", false), ("", false)]
        {
            let outcome = apart(&at(folder), &at("data"), &name);
            assert_eq!(outcome.is_ok(), fits, "{folder}");
        }
    }
}
