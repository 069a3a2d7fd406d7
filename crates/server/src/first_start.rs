//! What a fresh installation finds when it wakes up: a zone, a tenant with a project, and one
//! administrator whose token is in a file that only the server's user can read.
//!
//! Must hold: whenever the server dies on the way, the next start finishes the job.

use falaj_base::{Result, Secret};
use falaj_governance::identity::{first_admin, recover_admin_token};

use crate::config::Config;
use crate::data_dir::DataDir;
use crate::services::{Services, token_pepper};

/// Makes what is missing. Returns the administrator's token if it was made just now.
pub(crate) async fn prepare(
    config: &Config,
    services: &Services,
    data_dir: &DataDir,
) -> Result<Option<Secret>> {
    let home = services.keys.home().clone();
    services.residency.ensure(home, config.zone.jurisdiction.clone()).await?;
    services.tenancy.ensure_default().await?;
    admin_token(services, data_dir).await
}

async fn admin_token(services: &Services, data_dir: &DataDir) -> Result<Option<Secret>> {
    let pepper = token_pepper(&services.keys)?;
    let interrupted = data_dir.expect_admin()?;
    let token = match first_admin(&services.db, &pepper).await? {
        Some(token) => Some(token),
        // It was made, and the server died before anyone could read it.
        None if interrupted && !data_dir.admin_token_path().exists() => {
            Some(recover_admin_token(&services.db, &pepper).await?)
        }
        None => None,
    };
    data_dir.keep_admin_token(token.as_ref())?;
    Ok(token)
}
