//! The shim and its nursery without the rest of `falaj`.

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    match (arguments.next(), arguments.next()) {
        (Some(word), None) if word == "nursery" => falaj_executors::nursery::main(),
        _ => ExitCode::from(2),
    }
}
