//! Environment variables and flags, as text, against a real component's configuration.
#![no_main]

use falaj_base::config;
use falaj_store::db::DatabaseConfig;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: (&str, &str, &str, &str)| {
    let (name, value, key, flag) = data;
    let env = [(format!("FALAJ_{name}"), value.to_owned())];
    let flags = vec![(key.to_owned(), flag.to_owned())];
    match config::load::<DatabaseConfig>(None, env.into_iter(), flags) {
        Ok(loaded) => drop(config::show(&loaded)),
        Err(error) => assert!(error.message().len() < 4096, "{}", error.message().len()),
    }
});
