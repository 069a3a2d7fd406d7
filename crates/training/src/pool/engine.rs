//! The executors of pools, made as the configuration says.

use std::path::Path;
use std::sync::Arc;

use falaj_base::{Error, Name, Result, Secret, code};
use falaj_executors::{
    Executor, ExecutorError, LocalExecutor, RayExecutor, RaySettings, SlurmExecutor, SlurmSettings,
};

use crate::config::{PoolKind, TrainingConfig};

/// Makes the executor of a pool. What it keeps lies below `data_dir` unless its pool says where.
pub(crate) fn make(
    config: &TrainingConfig,
    name: &Name,
    kind: PoolKind,
    data_dir: &Path,
) -> Result<Arc<dyn Executor>> {
    let pool = config.pool.iter().find(|pool| pool.name == *name);
    let own = || data_dir.join("training").join("pools").join(name.as_str());
    let folder = pool.and_then(|pool| pool.folder.clone()).unwrap_or_else(own);
    std::fs::create_dir_all(&folder).map_err(|error| {
        let text = format!("{} cannot be made: {error}", folder.display());
        Error::new(&code::INVALID_CONFIG, text).at("training.pool")
    })?;
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
        _ => {
            let program = std::env::current_exe().map_err(Error::internal)?;
            let executor = LocalExecutor::new(&folder, program).map_err(failed)?;
            Arc::new(executor.keep_output(config.max_log.bytes()))
        }
    })
}

fn token(file: &Path) -> Result<Secret> {
    let text = std::fs::read_to_string(file).map_err(|error| {
        let text = format!("{} cannot be read: {error}", file.display());
        Error::new(&code::INVALID_CONFIG, text).at("training.pool.token_file")
    })?;
    Ok(Secret::new(text.trim()))
}
