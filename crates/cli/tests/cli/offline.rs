//! Commands that need no server, and what happens when there is none.

use std::os::unix::fs::PermissionsExt;

use crate::place::Place;

/// A port on which nobody listens: bound once, then freed.
fn silent_url() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

#[test]
fn exit_codes_mean_what_is_documented() {
    let place = Place::new();
    let url = silent_url();
    for (arguments, code) in [
        (vec!["version"], 0),
        (vec!["--help"], 0),
        (vec!["help", "exit-codes"], 0),
        (vec!["no-such-command"], 2),
        (vec!["tenant", "create"], 2),
        (vec!["--url", "nonsense", "whoami"], 2),
        (vec!["--url", "http://falaj.example", "--token", "t", "whoami"], 2),
        (vec!["--config", "/no/such/file", "config", "show"], 2),
        (vec!["--url", &url, "tenant", "delete", "acme"], 2),
        (vec!["--url", &url, "whoami"], 7),
    ] {
        let run = place.run(&arguments);
        assert_eq!(run.code, code, "{arguments:?}: {}", run.stderr);
    }
}

#[test]
fn an_error_is_readable_by_people_and_by_programs() {
    let place = Place::new();
    let url = silent_url();
    let run = place.run(&["--url", &url, "whoami"]);
    assert!(run.stdout.is_empty());
    assert!(run.stderr.starts_with("error: cannot reach http://"), "{}", run.stderr);
    assert!(run.stderr.contains("next: "), "{}", run.stderr);
    let run = place.run(&["--url", &url, "--output", "json", "whoami"]);
    let error: serde_json::Value = serde_json::from_str(&run.stderr).unwrap();
    assert_eq!(error["error"]["exit_code"], 7);
}

#[test]
fn init_writes_a_file_that_is_valid_and_never_overwrites() {
    let place = Place::new();
    place.run(&["init"]).ok();
    let mode = |name: &str| place.path(name).metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("falaj.toml"), mode("falaj-data")), (0o600, 0o700));
    assert_eq!(place.run(&["config", "check", "--output", "json"]).json()["valid"], true);
    assert_eq!(place.run(&["init"]).code, 2);
}

#[test]
fn configuration_mistakes_are_named() {
    let place = Place::new();
    std::fs::write(place.path("falaj.toml"), "[server]\nlisen = \"127.0.0.1:1\"\n").unwrap();
    let run = place.run(&["config", "check"]);
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("falaj.toml:2"), "{}", run.stderr);
    assert!(run.stderr.contains("`server.listen`"), "{}", run.stderr);
}

#[test]
fn the_reference_and_the_effective_values_are_printed() {
    let place = Place::new();
    let reference = place.run(&["config", "reference"]).ok().stdout;
    for part in ["### `server.listen`", "FALAJ_DATABASE_URL", "### `data_dir`"] {
        assert!(reference.contains(part), "{part}");
    }
    let shown = place
        .command()
        .args(["config", "show"])
        .env("FALAJ_DATABASE_URL", "postgres://u:hunter2@h/d")
        .output()
        .unwrap();
    let text = String::from_utf8(shown.stdout).unwrap();
    assert!(!text.contains("hunter2"));
    assert!(text.contains("url = \"(hidden)\"  # environment FALAJ_DATABASE_URL"), "{text}");
}

#[test]
fn doctor_says_what_is_missing() {
    let place = Place::new();
    let url = silent_url();
    let run = place.run(&["doctor", "--url", &url, "--output", "json"]);
    assert_eq!(run.code, 1);
    let findings: Vec<serde_json::Value> = serde_json::from_str(&run.stdout).unwrap();
    let of = |check: &str| findings.iter().find(|f| f["check"] == check).unwrap();
    assert_eq!(of("server")["status"], "fail");
    assert!(of("server")["fix"].as_str().unwrap().contains("falaj serve"));
    assert_eq!(of("data directory")["status"], "warn");
    assert_eq!(of("clock")["status"], "ok");
}

#[test]
fn completions_are_made_for_every_shell() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish"] {
        assert!(place.run(&["completions", shell]).ok().stdout.contains("service-account"));
    }
}

#[test]
fn a_closed_pipe_ends_quietly() {
    let place = Place::new();
    let mut child = place
        .command()
        .args(["config", "reference"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stderr.is_empty());
}
