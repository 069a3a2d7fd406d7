//! Which database this is, for stores outside it whose rows it numbers.

use falaj_base::Result;
use falaj_online::Home;
use falaj_store::db::{Db, Tx, params};
use uuid::Uuid;

/// The installation goes into backups and comes back from them; the generation does not, so that a
/// database that was restored has another one.
pub(crate) const SCHEMA: &str = "
    CREATE TABLE feature_home (id INTEGER PRIMARY KEY, installation TEXT NOT NULL);
    CREATE TABLE feature_generation (id INTEGER PRIMARY KEY, generation TEXT NOT NULL);";

/// The home of rows that this database numbers; made when it is first asked for.
pub(crate) async fn home(db: &Db) -> Result<Home> {
    if let Some(home) = db.read(find).await? {
        return Ok(home);
    }
    db.write(|tx| {
        tx.lock("feature-home")?;
        for (table, column) in TABLES {
            let sql = format!(
                "INSERT INTO {table} (id, {column}) VALUES (1, $1) ON CONFLICT (id) DO NOTHING"
            );
            tx.execute(&sql, &params![Uuid::now_v7().simple().to_string()])?;
        }
        find(tx)?.ok_or_else(|| falaj_base::Error::internal("a home that was made is not there"))
    })
    .await
}

const TABLES: [(&str, &str); 2] =
    [("feature_home", "installation"), ("feature_generation", "generation")];

fn find(tx: &mut Tx<'_>) -> Result<Option<Home>> {
    let row = tx.query_opt(
        "SELECT h.installation, g.generation FROM feature_home AS h, feature_generation AS g
         WHERE h.id = 1 AND g.id = 1",
        &[],
    )?;
    let read = |row: falaj_store::db::Row| {
        Ok(Home { installation: row.get("installation")?, generation: row.get("generation")? })
    };
    row.map(read).transpose()
}
