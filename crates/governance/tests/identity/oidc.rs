//! A real OIDC provider: `tests/oidc-provider/server.mjs`. Every test has a realm of its own, so
//! that one may rotate keys or switch the provider off without the others noticing.

use std::collections::BTreeMap;
use std::time::Duration;

use falaj_base::{Role, Scope, Secret};
use falaj_governance::epoch::Epoch;
use falaj_governance::identity::config::{IdentityConfig, OidcProviderConfig};
use falaj_store::db::params;
use falaj_testkit::database::each_place;
use reqwest::{Client, Url, redirect};
use serde_json::{Value, json};

use crate::world::{ORIGIN, World, clock, config, cookie, open};

const AUDIENCE: &str = "urn:falaj:test";

/// One issuer at the tests' provider.
struct Realm {
    issuer: String,
    client: Client,
}

impl Realm {
    fn new() -> Option<Self> {
        let Ok(server) = std::env::var("FALAJ_TEST_OIDC_ISSUER") else {
            eprintln!("--- SKIPPED: FALAJ_TEST_OIDC_ISSUER is not set (make test)");
            return None;
        };
        let name = falaj_base::RequestId::new().as_uuid().simple().to_string();
        let client = Client::builder().redirect(redirect::Policy::none()).build().unwrap();
        Some(Self { issuer: format!("{server}/realm/{name}"), client })
    }

    fn config(&self) -> IdentityConfig {
        let mut config = config();
        config.oidc.providers = vec![OidcProviderConfig {
            name: "corp".to_owned(),
            issuer: self.issuer.clone(),
            client_id: Some("falaj-web".to_owned()),
            client_secret: Secret::new("web-secret"),
            audience: AUDIENCE.to_owned(),
            tenant: Some("a".to_owned()),
            ..OidcProviderConfig::default()
        }];
        config
    }

    async fn tell(&self, what: &str) {
        let url = format!("{}/test/{what}", self.issuer);
        assert_eq!(self.client.post(url).send().await.unwrap().status(), 204);
    }

    /// A machine's access token for `audience`.
    async fn access_token(&self, audience: &str) -> String {
        let form = [("grant_type", "client_credentials"), ("resource", audience), ("scope", "api")];
        let form = form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
        let request = self.client.post(format!("{}/token", self.issuer)).body(form);
        let reply = request
            .header("content-type", "application/x-www-form-urlencoded")
            .basic_auth("falaj-machine", Some("machine-secret"))
            .send()
            .await
            .unwrap();
        let body: Value = reply.json().await.unwrap();
        body["access_token"].as_str().unwrap_or_else(|| panic!("{body}")).to_owned()
    }

    /// Signs `user` in on the provider's pages, from `start` until it sends the browser back.
    async fn sign_in(&self, start: &str, user: &str) -> Url {
        let mut jar = BTreeMap::new();
        let mut url = Url::parse(start).unwrap();
        let mut form: Option<String> = None;
        for _ in 0..20 {
            if url.path() == "/auth/oidc/callback" {
                return url;
            }
            let cookies: Vec<_> =
                jar.iter().map(|(name, value)| format!("{name}={value}")).collect();
            let request = match form.take() {
                Some(form) => self
                    .client
                    .post(url.clone())
                    .header("content-type", "application/x-www-form-urlencoded")
                    .body(form),
                None => self.client.get(url.clone()),
            };
            let reply = request.header("cookie", cookies.join("; ")).send().await.unwrap();
            for line in reply.headers().get_all("set-cookie") {
                let pair = line.to_str().unwrap().split(';').next().unwrap();
                let (name, value) = pair.split_once('=').unwrap();
                jar.insert(name.to_owned(), value.to_owned());
            }
            if let Some(location) = reply.headers().get("location") {
                url = url.join(location.to_str().unwrap()).unwrap();
                continue;
            }
            let page = reply.text().await.unwrap();
            let prompt = if page.contains("value=\"login\"") { "login" } else { "consent" };
            let fields = [("prompt", prompt), ("login", user), ("password", "any")];
            form =
                Some(form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish());
            let action = page.split("action=\"").nth(1).and_then(|rest| rest.split('"').next());
            url = url.join(action.unwrap_or_else(|| panic!("no form in {page}"))).unwrap();
        }
        panic!("the provider never sent the browser back");
    }
}

/// Runs a test on a fresh platform on each engine, with a realm of its own.
async fn on_each<F>(test: F)
where
    F: AsyncFn(&World, &Realm),
{
    let Some(_) = Realm::new() else { return };
    each_place(async |database| {
        let realm = Realm::new().unwrap();
        let world = open(database, &clock(), realm.config()).await;
        test(&world, &realm).await;
    })
    .await;
}

async fn who(world: &World, token: &str) -> crate::world::Reply {
    world.call("GET", "/v1/whoami").bearer(token).send().await
}

/// Gives everyone in a group of the realm a role on tenant `a`.
async fn map_group(world: &World, issuer: &str, group: &str, role: Role) {
    let (issuer, group, tenant) = (issuer.to_owned(), group.to_owned(), world.tenants["a"]);
    let write = move |tx: &mut falaj_store::db::Tx<'_>| {
        let scope = Scope::Tenant(tenant).to_string();
        tx.execute(
            "INSERT INTO group_role (id, tenant, issuer, grp, scope, role, created_at, created_by)
             VALUES ($1, $2, $3, $4, $5, $6, 0, $1)",
            &params![format!("{group}-{role}"), tenant, issuer, group, scope, role],
        )?;
        Epoch::bump(tx)
    };
    world.epoch.publish(world.db.write(write).await.unwrap());
}

#[tokio::test]
async fn a_machine_with_a_bearer_token_is_its_issuer_and_subject() {
    on_each(async |world, realm| {
        // A local account of the same name is somebody else, whatever it may do.
        let twin = json!({"name": "falaj-machine"});
        world.admin("POST", "/v1/service-accounts").json(twin).send().await.expect(201);
        let token = realm.access_token(AUDIENCE).await;
        let me = who(world, &token).await.expect(200).json();
        assert_eq!(me["name"], "corp:falaj-machine");
        assert_eq!((&me["kind"], &me["method"]), (&json!("service_account"), &json!("oidc")));
        assert_eq!((&me["tenant"], &me["groups"]), (&json!("a"), &json!(["machines"])));
        assert_eq!(me["roles"], json!([]));
        map_group(world, &realm.issuer, "machines", Role::Operator).await;
        map_group(world, "https://other.example", "machines", Role::Admin).await;
        map_group(world, &realm.issuer, "Machines", Role::Admin).await;
        let again = who(world, &realm.access_token(AUDIENCE).await).await.expect(200).json();
        assert_eq!(again["id"], me["id"]);
        assert_eq!(again["roles"].as_array().unwrap().len(), 1);
        assert_eq!(again["roles"][0]["role"], "operator");
        let path = format!("/v1/service-accounts/{}", me["id"].as_str().unwrap());
        let account = world.admin("GET", &path).send().await.expect(200);
        assert_eq!(
            (account.field("issuer"), account.field("subject")),
            (realm.issuer.clone(), "falaj-machine".into())
        );
        world.admin("PATCH", &path).json(json!({"disabled": true})).send().await.expect(200);
        who(world, &token).await.expect(401);
    })
    .await;
}

#[tokio::test]
async fn a_bearer_token_that_is_not_for_us_not_whole_or_not_current_is_refused() {
    on_each(async |world, realm| {
        let good = realm.access_token(AUDIENCE).await;
        let [header, payload, signature] = good.split('.').collect::<Vec<_>>()[..] else {
            panic!()
        };
        let swap = |text: &str| text.chars().rev().collect::<String>();
        let none = "eyJhbGciOiJub25lIiwidHlwIjoiSldUIn0";
        let hmac = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCIsImtpZCI6IngifQ";
        let elsewhere =
            Realm { issuer: format!("{}x", realm.issuer), client: realm.client.clone() };
        for (n, (token, reason)) in [
            (realm.access_token("urn:other:api").await, "jwt: wrong audience"),
            (elsewhere.access_token(AUDIENCE).await, "jwt: wrong issuer"),
            (format!("{header}.{payload}.{}", swap(signature)), "jwt: wrong signature"),
            (format!("{none}.{payload}.AA"), "jwt: header not understood"),
            (format!("{hmac}.{payload}.{signature}"), "jwt: algorithm not allowed"),
        ]
        .into_iter()
        .enumerate()
        {
            let call = world.call("GET", "/v1/whoami").bearer(&token);
            call.from(&format!("192.0.2.{}", 50 + n)).send().await.expect(401);
            let last = world.audit().await.pop().unwrap();
            assert!(last.contains(&format!("\"reason\":\"{reason}\"")), "{reason}: {last}");
        }
        who(world, &good).await.expect(200);
        // An hour, and the minute that clocks may differ.
        world.clock.advance(Duration::from_secs(3600 + 55));
        who(world, &good).await.expect(200);
        world.clock.advance(Duration::from_secs(30));
        who(world, &good).await.expect(401);
    })
    .await;
}

#[tokio::test]
async fn new_keys_are_fetched_but_not_too_often_and_old_ones_serve_through_an_outage() {
    on_each(async |world, realm| {
        let before = realm.access_token(AUDIENCE).await;
        who(world, &before).await.expect(200);
        realm.tell("rotate").await;
        let after = realm.access_token(AUDIENCE).await;
        // The provider was asked a moment ago; it is not asked again for every new key id.
        who(world, &after).await.expect(401);
        world.clock.advance(Duration::from_secs(31));
        who(world, &after).await.expect(200);
        who(world, &before).await.expect(200);

        let unseen = [realm.access_token(AUDIENCE).await, realm.access_token(AUDIENCE).await];
        realm.tell("outage?on=1").await;
        world.clock.advance(Duration::from_mins(15));
        who(world, &unseen[0]).await.expect(200);
        realm.tell("outage?on=0").await;
    })
    .await;
}

#[tokio::test]
async fn stale_keys_are_not_trusted_for_ever_and_a_dead_provider_lets_nobody_in() {
    let Some(_) = Realm::new() else { return };
    each_place(async |database| {
        let realm = Realm::new().unwrap();
        let mut config = realm.config();
        config.oidc.max_stale = falaj_base::HumanDuration::from_mins(30);
        let world = open(database, &clock(), config).await;
        let tokens = [realm.access_token(AUDIENCE).await, realm.access_token(AUDIENCE).await];
        realm.tell("outage?on=1").await;
        let dead = who(&world, &tokens[0]).await.expect(503);
        assert!(dead.headers.contains_key("retry-after"));
        realm.tell("outage?on=0").await;
        world.clock.advance(Duration::from_secs(31));
        who(&world, &tokens[0]).await.expect(200);
        realm.tell("outage?on=1").await;
        world.clock.advance(Duration::from_mins(31));
        who(&world, &tokens[1]).await.expect(503);
        realm.tell("outage?on=0").await;
    })
    .await;
}

#[tokio::test]
async fn a_person_signs_in_at_the_provider_and_gets_a_session() {
    on_each(async |world, realm| {
        map_group(world, &realm.issuer, "staff", Role::Contributor).await;
        let page = world.call("GET", "/login?return_to=/ui").send().await.expect(200);
        assert!(page.text.contains("/auth/oidc/start?provider=corp&amp;return_to=%2Fui"));
        let begin = async || {
            let path = "/auth/oidc/start?provider=corp&return_to=/ui";
            let started = world.call("GET", path).send().await.expect(303);
            let (login, line) = cookie(&started, "__Host-falaj-login");
            assert!(line.contains("; HttpOnly") && line.contains("; Secure"));
            (started.headers["location"].to_str().unwrap().to_owned(), login)
        };
        let finish = async |back: &Url, cookies: &str| {
            let path = format!("/auth/oidc/callback?{}", back.query().unwrap());
            world.call("GET", &path).header("cookie", cookies).send().await
        };
        let (location, login) = begin().await;
        assert!(location.contains("code_challenge_method=S256") && location.contains("nonce="));
        let back = realm.sign_in(&location, "mona+staff+red").await;
        assert!(back.as_str().starts_with(&format!("{ORIGIN}/auth/oidc/callback?")));
        let done = finish(&back, &login).await.expect(303);
        assert_eq!(done.headers["location"], "/ui");
        let (session, _) = cookie(&done, "__Host-falaj-session");
        let me = world.call("GET", "/v1/whoami").header("cookie", &session).send().await;
        let me = me.expect(200).json();
        assert_eq!((&me["name"], &me["kind"]), (&json!("corp:mona+staff+red"), &json!("user")));
        assert_eq!((&me["groups"], &me["mfa"]), (&json!(["staff", "red"]), &json!(false)));
        assert_eq!(me["roles"][0]["role"], "contributor");
        assert_eq!(me["display_name"], "mona+staff+red by name");

        // The code is spent; and a callback that this browser did not begin leads nowhere.
        finish(&back, &login).await.expect(401);
        let (location, other_login) = begin().await;
        let back = realm.sign_in(&location, "omar").await;
        finish(&back, &login).await.expect(401);
        finish(&back, "x=y").await.expect(401);
        let mut wrong_iss = back.clone();
        let pairs: Vec<_> = back.query_pairs().into_owned().collect();
        wrong_iss.query_pairs_mut().clear().extend_pairs(
            pairs.iter().map(|(key, value)| {
                (key, if key == "iss" { "https://evil.example" } else { value })
            }),
        );
        finish(&wrong_iss, &other_login).await.expect(401);
        // Not one of these attempts used up the real one.
        finish(&back, &other_login).await.expect(303);
    })
    .await;
}

#[tokio::test]
async fn a_sign_in_that_takes_too_long_or_names_no_provider_leads_nowhere() {
    on_each(async |world, realm| {
        for path in ["/auth/oidc/start", "/auth/oidc/start?provider=nobody"] {
            world.call("GET", path).send().await.expect(404);
        }
        world.call("GET", "/auth/oidc/callback").send().await.expect(401);
        let started = world.call("GET", "/auth/oidc/start?provider=corp").send().await.expect(303);
        let (login, _) = cookie(&started, "__Host-falaj-login");
        let back = realm.sign_in(started.headers["location"].to_str().unwrap(), "mona").await;
        world.clock.advance(Duration::from_mins(11));
        let path = format!("/auth/oidc/callback?{}", back.query().unwrap());
        world.call("GET", &path).header("cookie", &login).send().await.expect(401);
    })
    .await;
}
