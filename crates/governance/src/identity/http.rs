//! The routes of users, service accounts and tokens, and those that lead in.

use std::sync::Arc;

use axum::routing::{get, post};
use falaj_base::{Ctx, Page, PageQuery, Result, TokenId};
use falaj_web::{Created, Doc, Input, NoContent, Ok200, Routes};
use http::Method;
use schemars::JsonSchema;
use serde::Deserialize;

use super::actions::{
    SELF_PASSWORD, SELF_READ, SERVICE_ACCOUNT_CREATE, SERVICE_ACCOUNT_DELETE, SERVICE_ACCOUNT_READ,
    SERVICE_ACCOUNT_UPDATE, TOKEN_CREATE, TOKEN_READ, TOKEN_REVOKE, USER_CREATE, USER_DELETE,
    USER_READ, USER_UPDATE,
};
use super::front_door;
use super::own_password::OwnPassword;
use super::principal::{Account, Class};
use super::service::{
    Identity, NewServiceAccount, NewUser, ServiceAccountPatch, UserPatch, WhoAmI,
};
use super::token::service::TokenRequest;
use super::token::{NewToken, Token};

const FORM: Option<&str> = Some("application/x-www-form-urlencoded");
const HTML: Option<&str> = Some("text/html");
const JSON: Option<&str> = Some("application/json");

#[must_use]
pub fn routes(service: Arc<Identity>) -> Routes<Identity> {
    let (users, user) = ("/v1/users", "/v1/users/{name}");
    let (accounts, account) = ("/v1/service-accounts", "/v1/service-accounts/{name}");
    let (tokens, token) = ("/v1/tokens", "/v1/tokens/{id}");
    let routes = Routes::new(service.clone())
        .post(users, &USER_CREATE, "Add a user", create_user)
        .get(users, &USER_READ, "List users", list_users)
        .get(user, &USER_READ, "Show a user", read_user)
        .patch(user, &USER_UPDATE, "Change a user", update_user)
        .delete(user, &USER_DELETE, "Remove a user", delete_user)
        .post(accounts, &SERVICE_ACCOUNT_CREATE, "Add a service account", create_account)
        .get(accounts, &SERVICE_ACCOUNT_READ, "List service accounts", list_accounts)
        .get(account, &SERVICE_ACCOUNT_READ, "Show a service account", read_account)
        .patch(account, &SERVICE_ACCOUNT_UPDATE, "Change a service account", update_account)
        .delete(account, &SERVICE_ACCOUNT_DELETE, "Remove a service account", delete_account)
        .post(tokens, &TOKEN_CREATE, "Make an API token", create_token)
        .get(tokens, &TOKEN_READ, "List API tokens", list_tokens)
        .get(token, &TOKEN_READ, "Show an API token", read_token)
        .delete(token, &TOKEN_REVOKE, "Revoke an API token", revoke_token)
        .get("/v1/whoami", &SELF_READ, "Tell who the caller is", who_am_i)
        .post("/v1/me/password", &SELF_PASSWORD, "Change one's own password", own_password);
    front_routes(routes, service)
}

/// The routes that are open to everyone, since they are how one gets in and out.
fn front_routes(routes: Routes<Identity>, service: Arc<Identity>) -> Routes<Identity> {
    let auth = &service.auth;
    let sign_in = "Sign in with a user's password and get a token";
    routes
        .public(
            Method::POST,
            "/v1/login",
            Doc { summary: sign_in, takes: JSON, gives: JSON, ..Doc::default() },
            post(front_door::token).with_state(auth.clone()),
        )
        .public(
            Method::GET,
            "/login",
            Doc { summary: "The sign-in page", gives: HTML, ..Doc::default() },
            get(front_door::page).with_state(auth.clone()),
        )
        .public(
            Method::POST,
            "/auth/login",
            Doc { summary: "Sign a browser in", takes: FORM, status: 303, ..Doc::default() },
            post(front_door::form).with_state(auth.clone()),
        )
        .public(
            Method::POST,
            "/auth/logout",
            Doc { summary: "Sign a browser out", status: 303, ..Doc::default() },
            post(front_door::sign_out).with_state(auth.clone()),
        )
        .public(
            Method::GET,
            "/auth/oidc/start",
            Doc {
                summary: "Send a browser to an OIDC provider",
                status: 303,
                query: &[
                    ("provider", "The name of the provider"),
                    ("return_to", "The page to show afterwards"),
                ],
                ..Doc::default()
            },
            get(front_door::start).with_state(auth.clone()),
        )
        .public(
            Method::GET,
            "/auth/oidc/callback",
            Doc {
                summary: "Take a browser back from an OIDC provider",
                status: 303,
                query: &[
                    ("code", "What the provider gave"),
                    ("state", "What was sent along"),
                    ("iss", "Which provider it was"),
                ],
                ..Doc::default()
            },
            get(front_door::callback).with_state(auth.clone()),
        )
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ByName {
    /// The name, or the id.
    #[schemars(length(min = 1, max = 127))]
    name: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ById {
    id: TokenId,
}

type Service = Arc<Identity>;
type Listing = Input<(), PageQuery, ()>;

async fn create_user(s: Service, ctx: Ctx, i: Input<(), (), NewUser>) -> Result<Created<Account>> {
    s.create_user(&ctx, i.body).await.map(Created)
}

async fn list_users(s: Service, ctx: Ctx, i: Listing) -> Result<Ok200<Page<Account>>> {
    s.list(&ctx, Class::User, &i.query).await.map(Ok200)
}

async fn read_user(s: Service, ctx: Ctx, i: Input<ByName>) -> Result<Ok200<Account>> {
    s.read(&ctx, Class::User, &i.path.name).await.map(Ok200)
}

async fn update_user(
    s: Service,
    ctx: Ctx,
    i: Input<ByName, (), UserPatch>,
) -> Result<Ok200<Account>> {
    s.update_user(&ctx, &i.path.name, i.body).await.map(Ok200)
}

async fn delete_user(s: Service, ctx: Ctx, i: Input<ByName>) -> Result<NoContent> {
    s.delete(&ctx, Class::User, &i.path.name).await.map(|()| NoContent)
}

async fn create_account(
    s: Service,
    ctx: Ctx,
    i: Input<(), (), NewServiceAccount>,
) -> Result<Created<Account>> {
    s.create_service_account(&ctx, i.body).await.map(Created)
}

async fn list_accounts(s: Service, ctx: Ctx, i: Listing) -> Result<Ok200<Page<Account>>> {
    s.list(&ctx, Class::ServiceAccount, &i.query).await.map(Ok200)
}

async fn read_account(s: Service, ctx: Ctx, i: Input<ByName>) -> Result<Ok200<Account>> {
    s.read(&ctx, Class::ServiceAccount, &i.path.name).await.map(Ok200)
}

async fn update_account(
    s: Service,
    ctx: Ctx,
    i: Input<ByName, (), ServiceAccountPatch>,
) -> Result<Ok200<Account>> {
    s.update_service_account(&ctx, &i.path.name, i.body).await.map(Ok200)
}

async fn delete_account(s: Service, ctx: Ctx, i: Input<ByName>) -> Result<NoContent> {
    s.delete(&ctx, Class::ServiceAccount, &i.path.name).await.map(|()| NoContent)
}

async fn create_token(
    s: Service,
    ctx: Ctx,
    i: Input<(), (), TokenRequest>,
) -> Result<Created<NewToken>> {
    s.create_token(&ctx, i.body).await.map(Created)
}

async fn list_tokens(s: Service, ctx: Ctx, i: Listing) -> Result<Ok200<Page<Token>>> {
    s.list_tokens(&ctx, &i.query).await.map(Ok200)
}

async fn read_token(s: Service, ctx: Ctx, i: Input<ById>) -> Result<Ok200<Token>> {
    s.read_token(&ctx, i.path.id).await.map(Ok200)
}

async fn revoke_token(s: Service, ctx: Ctx, i: Input<ById>) -> Result<NoContent> {
    s.revoke_token(&ctx, i.path.id).await.map(|()| NoContent)
}

async fn own_password(
    s: Arc<Identity>,
    ctx: Ctx,
    input: Input<(), (), OwnPassword>,
) -> Result<NoContent> {
    s.change_own_password(&ctx, input.body).await.map(|()| NoContent)
}

async fn who_am_i(s: Service, ctx: Ctx, _: Input) -> Result<Ok200<WhoAmI>> {
    s.who_am_i(&ctx).await.map(Ok200)
}
