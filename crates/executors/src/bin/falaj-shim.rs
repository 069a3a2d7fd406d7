//! The shim without the rest of `falaj`: `falaj-shim shim FOLDER`.

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    match (arguments.next(), arguments.next()) {
        (Some(word), Some(folder)) if word == "shim" => {
            falaj_executors::shim::main(folder.as_ref())
        }
        _ => ExitCode::from(2),
    }
}
