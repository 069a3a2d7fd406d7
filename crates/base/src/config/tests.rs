use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use super::*;
use crate::quantity::{ByteSize, HumanDuration};
use crate::secret::Secret;

/// Everything the tests configure.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Root {
    /// Where everything is kept.
    data_dir: PathBuf,
    server: Server,
    database: Database,
    oidc: Oidc,
    keys: Keys,
}

/// The listener.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Server {
    /// The address to listen on.
    listen: SocketAddr,
    /// How many connections at once.
    #[schemars(range(min = 1, max = 10000))]
    max_connections: u32,
    max_body: ByteSize,
    timeout: HumanDuration,
    hosts: Vec<String>,
    tls: Option<Tls>,
    mode: Mode,
    verbose: bool,
    share: f64,
}

#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Tls {
    certificate: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Mode {
    #[default]
    Fast,
    /// Slow, but sure.
    Safe,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Database {
    url: Option<Secret>,
}

impl PartialEq for Database {
    fn eq(&self, other: &Self) -> bool {
        let text = |url: &Option<Secret>| url.as_ref().map(|url| url.expose().to_owned());
        text(&self.url) == text(&other.url)
    }
}

#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Oidc {
    issuers: Vec<Issuer>,
    groups: BTreeMap<String, String>,
}

#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Issuer {
    url: String,
    audience: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "lowercase", deny_unknown_fields)]
enum Keys {
    Local { path: PathBuf },
    Vault { address: String },
}

impl Default for Keys {
    fn default() -> Self {
        Self::Local { path: "keyring.json".into() }
    }
}

impl Default for Server {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:7470".parse().unwrap(),
            max_connections: 100,
            max_body: ByteSize::mib(8),
            timeout: HumanDuration::from_secs(30),
            hosts: Vec::new(),
            tls: None,
            mode: Mode::Fast,
            verbose: false,
            share: 0.5,
        }
    }
}

struct Case {
    folder: tempfile::TempDir,
}

impl Case {
    fn file(text: &str) -> (Self, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("falaj.toml");
        std::fs::write(&path, text).unwrap();
        (Self { folder }, path)
    }
}

fn read(text: &str, env: &[(&str, &str)], flags: &[(&str, &str)]) -> Result<Loaded<Root>> {
    let (case, path) = Case::file(text);
    let own = |(name, text): &(&str, &str)| ((*name).to_owned(), (*text).to_owned());
    let result = load(Some(&path), env.iter().map(own), flags.iter().map(own).collect());
    // The folder's name differs from run to run; messages are compared without it.
    result.map_err(|error| {
        let place = format!("{}/", case.folder.path().display());
        Error::new(error.code(), error.message().replace(&place, ""))
    })
}

#[test]
fn later_layers_win() {
    let file = "[server]\nlisten = \"127.0.0.1:1\"\nmax_connections = 7\nmode = \"safe\"\n";
    let loaded = read(
        file,
        &[
            ("FALAJ_SERVER_LISTEN", "127.0.0.1:2"),
            ("FALAJ_SERVER_HOSTS", "a.example, b.example"),
            ("FALAJ_SERVER_MAX_BODY", "1GiB"),
            ("FALAJ_SERVER_TLS_CERTIFICATE", "/c.pem"),
            ("FALAJ_SERVER_MODE", ""),
            ("FALAJ_DATABASE_URL", "postgres://u:p@h/d"),
            ("FALAJ_URL", "http://elsewhere"),
            ("FALAJ_TEST_POSTGRES", "x"),
            ("HOME", "/root"),
        ],
        &[("server.listen", "127.0.0.1:3")],
    )
    .unwrap();
    let Root { server, database, .. } = &loaded.value;
    assert_eq!(server.listen.port(), 3);
    assert_eq!(server.max_connections, 7);
    assert_eq!(server.mode, Mode::Safe);
    assert_eq!(server.hosts, ["a.example", "b.example"]);
    assert_eq!(server.max_body, ByteSize::gib(1));
    assert_eq!(server.timeout, HumanDuration::from_secs(30));
    assert_eq!(server.tls.as_ref().unwrap().certificate, PathBuf::from("/c.pem"));
    assert_eq!(database.url.as_ref().unwrap().expose(), "postgres://u:p@h/d");
    assert_eq!(loaded.source("server.listen"), &Source::Flag("server.listen".into()));
    assert!(matches!(loaded.source("server.max_connections"), Source::File { line: 3, .. }));
    assert_eq!(loaded.source("server.timeout"), &Source::Default);
}

#[test]
fn a_default_of_one_variant_does_not_leak_into_another() {
    let loaded = read("[keys]\ntype = \"vault\"\naddress = \"https://vault\"\n", &[], &[]).unwrap();
    assert_eq!(loaded.value.keys, Keys::Vault { address: "https://vault".into() });
    let loaded = read("", &[("FALAJ_KEYS_PATH", "/k")], &[]).unwrap();
    assert_eq!(loaded.value.keys, Keys::Local { path: "/k".into() });
}

#[test]
fn mistakes_are_named_precisely() {
    let check = |text: &str, env: &[(&str, &str)], flags: &[(&str, &str)], expected: &str| {
        let error = read(text, env, flags).unwrap_err();
        assert_eq!(error.code(), &code::INVALID_CONFIG);
        assert_eq!(error.message(), expected);
    };
    check(
        "[server]\nlisen = \"127.0.0.1:1\"\n",
        &[],
        &[],
        "falaj.toml:2: there is no key `server.lisen`; the nearest known key is `server.listen`",
    );
    check(
        "\nlisten = \"127.0.0.1:1\"\n",
        &[],
        &[],
        "falaj.toml:2: there is no key `listen`; the nearest known key is `server.listen`",
    );
    check(
        "[[oidc.issuers]]\nurl = \"x\"\naudence = \"y\"\n",
        &[],
        &[],
        "falaj.toml:3: there is no key `oidc.issuers[0].audence`; \
         the nearest known key is `oidc.issuers[].audience`",
    );
    check(
        "",
        &[("FALAJ_SERVER_LISEN", "x")],
        &[],
        "there is no variable FALAJ_SERVER_LISEN; the nearest known one is FALAJ_SERVER_LISTEN",
    );
    check(
        "",
        &[],
        &[("server.moed", "1")],
        "there is no key `server.moed`; the nearest known key is `server.mode`",
    );
    check(
        "[server]\nmax_connections = 0\n",
        &[],
        &[],
        "`server.max_connections` is 0 (falaj.toml:2); allowed: a whole number from 1 to 10000",
    );
    check(
        "",
        &[("FALAJ_SERVER_MAX_CONNECTIONS", "many")],
        &[],
        "`server.max_connections` is \"many\" (environment FALAJ_SERVER_MAX_CONNECTIONS); \
         allowed: a whole number from 1 to 10000",
    );
    check(
        "[server]\nmode = \"quick\"\n",
        &[],
        &[],
        "`server.mode` is \"quick\" (falaj.toml:2); allowed: fast, safe",
    );
    check(
        "[server]\ntimeout = 30\n",
        &[],
        &[],
        "`server.timeout` is 30 (falaj.toml:2); \
         allowed: a time such as 250ms, 30s, 5m, 1h30m or 7d",
    );
    check(
        "[server]\nlisten = \"nowhere\"\n",
        &[],
        &[],
        "`server.listen` is \"nowhere\" (falaj.toml:2): invalid socket address syntax",
    );
    check("server = 5\n", &[], &[], "`server` is 5 (falaj.toml:1); allowed: a table");
    check(
        "",
        &[("FALAJ_OIDC_ISSUERS", "x")],
        &[],
        "`oidc.issuers` (environment FALAJ_OIDC_ISSUERS) is a table: \
         it can only be set in the file",
    );
    check("[server\n", &[], &[], "falaj.toml:1 is not valid TOML: unclosed table, expected `]`");
}

#[test]
fn a_secret_stays_out_of_errors_and_out_of_show() {
    let error = read("[database]\nurl = 12345\n", &[], &[]).unwrap_err();
    assert!(!error.message().contains("12345"), "{error}");
    let error = read("[database]\nurl = \"(hidden)\"\n", &[], &[]).unwrap_err();
    assert!(error.message().contains("the secret itself"), "{error}");
    let error = read("[database]\nurl = \"hunter2\n", &[], &[]).unwrap_err();
    assert!(!error.message().contains("hunter2"), "{error}");
    let loaded = read("[database]\nurl = \"hunter2\"\n", &[], &[]).unwrap();
    let text = show(&loaded).unwrap();
    assert!(text.contains("url = \"(hidden)\"") && !text.contains("hunter2"), "{text}");
}

#[test]
fn show_says_where_a_value_came_from() {
    let loaded = read("[server]\nverbose = true\n", &[("FALAJ_DATA_DIR", "/d")], &[]).unwrap();
    let text = show(&loaded).unwrap();
    assert!(text.contains("data_dir = \"/d\"  # environment FALAJ_DATA_DIR\n"), "{text}");
    assert!(text.contains("falaj.toml:2\n"), "{text}");
    assert!(text.contains("max_connections = 100\n"), "{text}");
}

#[test]
fn the_reference_holds_every_key() {
    let page = reference::<Root>().unwrap();
    for part in [
        "### `server.listen`\n\nThe address to listen on.\n",
        "- Default: `\"127.0.0.1:7470\"`\n- Environment: `FALAJ_SERVER_LISTEN`",
        "a whole number from 1 to 10000",
        "## `[[oidc.issuers]]`",
        "### `oidc.issuers[].url`",
        "one of `fast`, `safe`",
        "one of `local`, `vault`",
        "a secret text; never shown",
    ] {
        assert!(page.contains(part), "{part:?} is not in\n{page}");
    }
}

#[test]
fn the_template_loads_as_the_defaults_and_what_was_set() {
    let text = template::<Root>(&[("data_dir", "/var/lib/falaj".into())]).unwrap();
    let loaded = read(&text, &[], &[]).unwrap();
    let expected = Root { data_dir: "/var/lib/falaj".into(), ..Root::default() };
    assert_eq!(loaded.value, expected, "{text}");
    assert!(text.contains("# How many connections at once.\n# max_connections = 100\n"), "{text}");
}

#[test]
fn a_missing_file_is_an_error() {
    let error = load::<Root>(Some(Path::new("/no/such/file")), std::iter::empty(), vec![]);
    assert!(error.unwrap_err().message().contains("/no/such/file"));
}

prop_compose! {
    fn server()(
        port: u16,
        max_connections in 1u32..=10000,
        body: u64,
        timeout in 0u64..1 << 50,
        hosts in prop::collection::vec(".*", 0..4),
        certificate in prop::option::of("[^\0]*"),
        safe: bool,
        verbose: bool,
        share in -1e9f64..1e9,
    ) -> Server {
        Server {
            listen: SocketAddr::from(([127, 0, 0, 1], port)),
            max_connections,
            max_body: ByteSize::from_bytes(body),
            timeout: HumanDuration::from_millis(timeout),
            hosts,
            tls: certificate.map(|path| Tls { certificate: path.into() }),
            mode: if safe { Mode::Safe } else { Mode::Fast },
            verbose,
            share,
        }
    }
}

prop_compose! {
    fn root()(
        data_dir in ".*",
        server in server(),
        issuers in prop::collection::vec((".*", prop::option::of(".*")), 0..3),
        groups in prop::collection::btree_map(".*", ".*", 0..3),
        vault in prop::option::of(".*"),
    ) -> Root {
        Root {
            data_dir: data_dir.into(),
            server,
            database: Database::default(),
            oidc: Oidc {
                issuers: issuers.into_iter().map(|(url, audience)| Issuer { url, audience }).collect(),
                groups,
            },
            keys: vault.map_or_else(Keys::default, |address| Keys::Vault { address }),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_shown_loads_as_the_same(value in root()) {
        let loaded = Loaded { value, file: None, origins: Origins::default() };
        let text = show(&loaded).unwrap();
        let again = read(&text, &[], &[]).map_err(|error| TestCaseError::fail(format!("{error}\n{text}")))?;
        prop_assert_eq!(again.value, loaded.value);
    }

    #[test]
    fn no_file_panics_the_loader(text in ".*") {
        let _ = read(&text, &[], &[]);
    }
}
