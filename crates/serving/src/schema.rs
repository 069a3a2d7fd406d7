//! The tables of this domain.

use falaj_store::db::Migration;

pub static MIGRATIONS: &[Migration] = &[
    Migration { version: 1, name: "profiles", sql: crate::profile::store::SCHEMA },
    Migration { version: 2, name: "endpoints", sql: crate::endpoint::store::SCHEMA },
    Migration { version: 3, name: "predictions", sql: crate::predictions::SCHEMA },
    Migration { version: 4, name: "traffic", sql: crate::rollout::store::SCHEMA },
    Migration { version: 5, name: "answers later", sql: crate::later::SCHEMA },
];
