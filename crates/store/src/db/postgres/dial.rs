//! Connections to databases of others, for those who read there. Encrypted by the same rules as our
//! own.

use std::time::Duration;

use falaj_base::{Error, Result, code};
use tokio_postgres::{Client, NoTls};

use super::{pool, target};

/// Connects; what moves the bytes runs beside, until the client is dropped. `section` is that of the
/// settings, and `name` the database, for refusals: the address is a secret.
pub async fn dial(url: &str, ca_file: &str, section: &str, name: &str) -> Result<Client> {
    let (mut config, tls) = target(url, ca_file, section)?;
    config.application_name("falaj").connect_timeout(pool::WAIT);
    let away = |cause: Box<dyn std::error::Error + Send + Sync>| {
        let text = format!("the database `{name}` does not answer");
        Error::new(&code::UNAVAILABLE, text).retry_after(Duration::from_secs(5)).caused_by(cause)
    };
    let connecting = async {
        Ok::<_, tokio_postgres::Error>(match tls {
            None => {
                let (client, wire) = config.connect(NoTls).await?;
                drop(tokio::spawn(wire));
                client
            }
            Some(tls) => {
                let (client, wire) = config.connect(tls).await?;
                drop(tokio::spawn(wire));
                client
            }
        })
    };
    match tokio::time::timeout(pool::WAIT, connecting).await {
        Ok(connected) => connected.map_err(|error| away(error.into())),
        Err(late) => Err(away(late.into())),
    }
}
