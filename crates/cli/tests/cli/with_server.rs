//! A newcomer's first hour, against a server of their own.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Stdio};

use serde_json::Value;

use crate::place::{Place, Run};

/// `falaj serve` on a free port, stopped when dropped.
struct Serving {
    place: Place,
    child: Child,
    url: String,
}

impl Serving {
    fn start() -> Self {
        let place = Place::new();
        let mut child = place
            .command()
            .args(["serve", "--data-dir", "data", "--listen", "127.0.0.1:0", "--output", "json"])
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(place.path("server.log")).unwrap())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let started: Value = serde_json::from_str(&line).unwrap_or_else(|error| {
            let log = std::fs::read_to_string(place.path("server.log")).unwrap();
            panic!("{error}: {line}\n{log}")
        });
        let url = started["url"].as_str().unwrap().to_owned();
        Self { place, child, url }
    }

    /// A server with its administrator signed in.
    fn signed_in() -> Self {
        let serving = Self::start();
        serving.run(&["login", "--url", &serving.url, "--token-file", "data/admin.token"]).ok();
        serving
    }

    fn run(&self, arguments: &[&str]) -> Run {
        self.place.run(arguments)
    }

    fn json(&self, arguments: &[&str]) -> Value {
        self.run(&[arguments, &["--output", "json"]].concat()).json()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_first_steps_work_as_the_guide_says() {
    let falaj = Serving::signed_in();
    assert_eq!(falaj.json(&["whoami"])["name"], "admin");
    assert_eq!(falaj.run(&["doctor", "--config", "/dev/null"]).code, 0);

    let tenant = falaj.json(&["tenant", "create", "acme", "--display-name", "Acme LLC"]);
    assert_eq!(tenant["name"], "acme");
    falaj.run(&["project", "create", "vision", "--tenant", "acme", "--tag", "a=b"]).ok();
    assert_eq!(falaj.json(&["project", "show", "vision", "-t", "acme"])["tags"]["a"], "b");
    let names = falaj.json(&["tenant", "list"]);
    assert!(names.as_array().unwrap().iter().any(|tenant| tenant["name"] == "acme"));
    let table = falaj.run(&["tenant", "list"]).ok().stdout;
    assert!(table.starts_with("NAME"), "{table}");

    assert_eq!(falaj.run(&["tenant", "create", "acme"]).code, 6);
    assert_eq!(falaj.run(&["tenant", "show", "nobody"]).code, 5);
    let refused = falaj.run(&["tenant", "create", "Not A Name"]);
    assert_eq!(refused.code, 1);
    assert!(refused.stderr.contains("field: name"), "{}", refused.stderr);
    assert_eq!(falaj.run(&["--token", "flj_bad", "whoami"]).code, 3);
}

#[test]
fn people_get_roles_and_policies_explain_themselves() {
    let falaj = Serving::signed_in();
    falaj.run(&["tenant", "create", "acme"]).ok();
    let mut create = falaj
        .place
        .command()
        .args(["user", "create", "mona", "--tenant", "acme", "--password-stdin"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    create.stdin.take().unwrap().write_all(b"correct horse battery\n").unwrap();
    assert!(create.wait().unwrap().success());

    let asked =
        ["policy", "test", "tenant:read", "tenant:acme", "-t", "acme", "--principal", "mona"];
    assert_eq!(falaj.run(&asked).code, 4);
    falaj.run(&["role", "grant", "mona", "viewer", "--tenant", "acme"]).ok();
    let allowed = falaj.run(&asked).ok().stdout;
    assert!(allowed.contains("allow"), "{allowed}");
    let bindings = falaj.json(&["role", "list", "--tenant", "acme", "--principal", "mona"]);
    let id = bindings[0]["id"].as_str().unwrap();
    falaj.run(&["role", "revoke", id]).ok();
    assert_eq!(falaj.run(&asked).code, 4);
    assert!(falaj.run(&["role", "matrix"]).ok().stdout.contains("tenant:create"));
    assert!(falaj.run(&["policy", "actions"]).ok().stdout.contains("tenant:create"));

    let given = |arguments: &[&str], lines: &str| {
        let mut command = falaj.place.command();
        let mut child = command.args(arguments).stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
        child.wait().unwrap().success()
    };
    let login = ["login", "--url", &falaj.url, "--user", "mona", "--password-stdin"];
    assert!(given(&login, "correct horse battery\n"));
    assert_eq!(falaj.json(&["whoami"])["name"], "mona");
    let change = ["user", "password", "--password-stdin"];
    assert!(!given(&change, "wrong\nsturdy camel stapler\n"));
    assert!(given(&change, "correct horse battery\nsturdy camel stapler\n"));
    assert_eq!(falaj.json(&["whoami"])["name"], "mona", "this sign-in goes on");
    assert!(!given(&login, "correct horse battery\n"));
    assert!(given(&login, "sturdy camel stapler\n"));
    assert_ne!(falaj.run(&["tenant", "create", "other"]).code, 0);
}

#[test]
fn a_token_lives_until_it_is_revoked() {
    let falaj = Serving::signed_in();
    let token = falaj.json(&["token", "create", "--role", "viewer", "--expires-in", "1h"]);
    let (id, secret) = (token["id"].as_str().unwrap(), token["secret"].as_str().unwrap());
    assert_eq!(falaj.run(&["--token", secret, "whoami"]).code, 0);
    falaj.run(&["token", "revoke", id]).ok();
    assert_eq!(falaj.run(&["--token", secret, "whoami"]).code, 3);
}

#[test]
fn the_audit_log_is_exported_verified_and_its_damage_noticed() {
    let falaj = Serving::signed_in();
    falaj.run(&["tenant", "create", "acme"]).ok();
    let found = falaj.json(&["audit", "search", "--action", "tenant:create"]);
    assert_eq!(found[0]["entry"]["actor"]["name"], "admin");

    // A checkpoint covers what was sealed before it, within a second of the change.
    let keep = |name: &str, arguments: &[&str]| {
        let text = falaj.run(arguments).ok().stdout;
        std::fs::write(falaj.place.path(name), text).unwrap();
    };
    falaj.run(&["audit", "export", "--out", "audit.jsonl"]).ok();
    keep("checkpoint.txt", &["audit", "checkpoint"]);
    keep("audit.key", &["audit", "key"]);
    // Taken after the checkpoint, an export holds all that it covers.
    falaj.run(&["audit", "export", "--out", "audit.jsonl"]).ok();
    let verify = [
        "audit",
        "verify",
        "--export",
        "audit.jsonl",
        "--checkpoint",
        "checkpoint.txt",
        "--key",
        "audit.key",
    ];
    let run = falaj.run(&verify).ok();
    assert!(run.stderr.contains("what the checkpoint signs is whole"), "{}", run.stderr);

    let text = std::fs::read_to_string(falaj.place.path("audit.jsonl")).unwrap();
    let changed = text.replacen("\"name\":\"admin\"", "\"name\":\"nobody\"", 1);
    assert_ne!(changed, text, "there is an entry to damage");
    std::fs::write(falaj.place.path("audit.jsonl"), changed).unwrap();
    let run = falaj.run(&verify);
    assert_eq!(run.code, 8, "{}", run.stderr);
    assert!(run.stderr.contains("entry"), "{}", run.stderr);
}

#[test]
fn events_and_zones_can_be_read() {
    let falaj = Serving::signed_in();
    falaj.run(&["zone", "create", "uae", "--jurisdiction", "AE"]).ok();
    falaj.run(&["zone", "create", "ksa", "--jurisdiction", "SA"]).ok();
    assert_eq!(falaj.run(&["zone", "check", "uae", "ksa"]).code, 4);
    falaj.run(&["zone", "allow", "uae", "ksa", "--basis", "adequacy"]).ok();
    falaj.run(&["zone", "check", "uae", "ksa"]).ok();
    assert!(falaj.run(&["zone", "show", "uae"]).ok().stdout.contains("ksa"));
    let events = falaj.run(&["events", "tail", "--type", "falaj.zone.", "--output", "json"]).ok();
    let kinds: Vec<Value> =
        events.stdout.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert!(kinds.iter().any(|event| event["type"] == "falaj.zone.created"), "{}", events.stdout);
    falaj.run(&["events", "subscribe", "billing", "--from-start"]).ok();
    let pulled = falaj.run(&["events", "pull", "billing", "--ack"]).ok();
    assert!(pulled.stdout.contains("falaj.zone.created"), "{}", pulled.stdout);
    assert!(falaj.run(&["events", "pull", "billing"]).ok().stdout.is_empty());
}

#[test]
fn a_lost_administrator_gets_back_in() {
    let mut falaj = Serving::start();
    // While the server holds the directory, nobody else may.
    let recover = ["token", "recover", "--data-dir", "data"];
    assert_eq!(falaj.run(&recover).code, 6);
    falaj.child.kill().unwrap();
    falaj.child.wait().unwrap();
    let token = falaj.run(&recover).ok().stdout;
    assert!(token.starts_with("flj_"), "{token}");
    assert_eq!(falaj.run(&["token", "recover", "--data-dir", "elsewhere"]).code, 2);
}

#[test]
fn objects_go_in_and_come_out_whole() {
    let falaj = Serving::signed_in();
    let content: Vec<u8> =
        (0..3_000_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    std::fs::write(falaj.place.path("in.bin"), &content).unwrap();
    let put = falaj.json(&["object", "put", "models/a b.bin", "in.bin", "--quiet"]);
    assert_eq!(put["size"], content.len());
    let read = |name: &str| std::fs::read(falaj.place.path(name)).unwrap();
    falaj.run(&["object", "get", "models/a b.bin", "out.bin"]).ok();
    assert_eq!(read("out.bin"), content);
    falaj.run(&["object", "get", "models/a b.bin", "part.bin", "--range", "10-19"]).ok();
    assert_eq!(read("part.bin"), &content[10..20]);
    let listed = falaj.json(&["object", "list", "--prefix", "models/"]);
    assert_eq!(listed[0]["name"], "models/a b.bin");
    assert_eq!(falaj.json(&["object", "stat", "models/a b.bin"])["sha256"], put["sha256"]);
    falaj.run(&["object", "rm", "models/a b.bin", "--yes"]).ok();
    assert_eq!(falaj.run(&["object", "get", "models/a b.bin", "gone.bin"]).code, 5);
    assert!(!falaj.place.path("gone.bin").exists());
    assert_eq!(falaj.run(&["object", "put", "../x", "in.bin"]).code, 2);
}

#[test]
fn keys_rotate_and_a_backup_comes_back() {
    let mut falaj = Serving::signed_in();
    std::fs::write(falaj.place.path("note.txt"), "kept").unwrap();
    falaj.run(&["object", "put", "note", "note.txt"]).ok();
    let first = falaj.json(&["key", "list"]);
    falaj.run(&["key", "rotate"]).ok();
    let second = falaj.json(&["key", "list"]);
    assert_eq!(second.as_array().unwrap().len(), first.as_array().unwrap().len() + 1);
    falaj.run(&["key", "root"]).ok();
    falaj.run(&["backup", "--out", "all.backup"]).ok();
    assert_eq!(falaj.run(&["backup", "--out", "all.backup"]).code, 2);
    falaj.child.kill().unwrap();
    falaj.child.wait().unwrap();

    let restore = ["restore", "--from", "all.backup", "--data-dir", "again", "--keyring"];
    let restored = falaj.json(&[&restore[..], &["data/keyring.json"]].concat());
    assert!(restored["rows"].as_u64().unwrap() > 0 && restored["objects"] == 1, "{restored}");
    // A place that holds something is refused.
    assert_eq!(falaj.run(&[&restore[..], &["data/keyring.json"]].concat()).code, 6);
}

#[test]
fn the_last_events_are_shown_and_followed_from_there() {
    let falaj = Serving::signed_in();
    for name in ["one", "two", "three"] {
        falaj.run(&["tenant", "create", name]).ok();
    }
    let tail = ["events", "tail", "--type", "falaj.tenant.created", "--limit", "2"];
    let shown = falaj.run(&tail).ok().stdout;
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines.len(), 2, "{shown}");
    assert!(lines[0].contains("name=two,") && lines[1].contains("name=three,"), "{shown}");
    let mut follow =
        falaj.place.command().args(tail).arg("--follow").stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(follow.stdout.take().unwrap()).lines();
    let mut next = || lines.next().unwrap().unwrap();
    assert!(next().contains("name=two,") && next().contains("name=three,"));
    falaj.run(&["tenant", "create", "four"]).ok();
    let fourth = next();
    follow.kill().unwrap();
    follow.wait().unwrap();
    assert!(fourth.contains("name=four,"), "{fourth}");
}

#[test]
fn routine_health_checks_are_not_in_the_log() {
    let falaj = Serving::signed_in();
    falaj.run(&["tenant", "list"]).ok();
    assert_eq!(falaj.run(&["doctor", "--config", "/dev/null"]).code, 0, "it asks for readiness");
    let log = std::fs::read_to_string(falaj.place.path("server.log")).unwrap();
    assert!(log.contains("/v1/tenants"), "{log}");
    assert!(!log.contains("/health/"), "{log}");
}

#[test]
fn events_are_followed_as_they_happen() {
    let falaj = Serving::signed_in();
    let past = falaj.run(&["events", "tail", "--limit", "1000", "--output", "json"]).ok().stdout;
    let last: Value = serde_json::from_str(past.lines().last().unwrap()).unwrap();
    // Beginning at a known place, it does not matter which of the two commands is faster.
    let mut follow = falaj
        .place
        .command()
        .args(["events", "tail", "--follow", "--after", last["sequence"].as_str().unwrap()])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    falaj.run(&["tenant", "create", "acme"]).ok();
    let mut lines = BufReader::new(follow.stdout.take().unwrap()).lines();
    let seen = lines.any(|line| line.unwrap().contains("falaj.tenant.created"));
    follow.kill().unwrap();
    follow.wait().unwrap();
    assert!(seen);
}
