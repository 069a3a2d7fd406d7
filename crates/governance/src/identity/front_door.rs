//! The routes open to everyone: how one gets in and out.
//!
//! The server puts a `RequestInfo` into every request before it comes here; one without it (in a
//! test) counts as coming from nowhere.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{FromRequest, Request, State};
use axum::response::{IntoResponse, Response};
use falaj_base::{Error, RequestInfo, Result, Secret, code};
use falaj_web::{http_status, problem_response};
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde::Deserialize;

use super::authenticate::Authenticator;
use super::csrf;
use super::oidc::flow::{Callback, local_path};
use super::page;
use super::session::cookie;

/// The largest body of a sign-in.
const MAX_BODY: usize = 16 * 1024;

type Auth = State<Arc<Authenticator>>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Login {
    user: String,
    password: Secret,
}

/// `POST /v1/login`: a token for a password.
pub(super) async fn token(State(auth): Auth, request: Request) -> Response {
    let answer = async {
        let info = info(&request);
        if !has_type(request.headers(), "application/json") {
            let text = "the body must be application/json";
            return Err(Error::new(&code::UNSUPPORTED_MEDIA, text).at("content-type"));
        }
        let body = body(request).await?;
        let login: Login = serde_json::from_slice(&body).map_err(|error| {
            // The parser quotes names of fields, and values only of the wrong type.
            let text = if error.is_data() { error.to_string() } else { "not JSON".to_owned() };
            Error::new(&code::INVALID_INPUT, text).at("body")
        })?;
        auth.sign_in_for_token(&login.user, login.password.expose(), &info).await
    };
    match answer.await {
        Ok(signed_in) => no_store(Json(signed_in).into_response()),
        Err(error) => problem_response(&error),
    }
}

/// `GET /login`: the page.
pub(super) async fn page(State(auth): Auth, request: Request) -> Response {
    let return_to = local_path(parameter(request.uri().query(), "return_to").as_deref());
    show(&auth, StatusCode::OK, &return_to, None)
}

/// `POST /auth/login`: the page's form.
pub(super) async fn form(State(auth): Auth, request: Request) -> Response {
    let (info, headers) = (info(&request), request.headers().clone());
    let host = host(&request).map(str::to_owned);
    let mut return_to = local_path(None);
    let answer = async {
        csrf::same_origin(host.as_deref(), &headers, auth.public_origin())?;
        if !has_type(&headers, "application/x-www-form-urlencoded") {
            let text = "the body must be a form";
            return Err(Error::new(&code::UNSUPPORTED_MEDIA, text).at("content-type"));
        }
        let body = body(request).await?;
        let form = std::str::from_utf8(&body).ok();
        let field = |name: &str| parameter(form, name);
        return_to = local_path(field("return_to").as_deref());
        let user = field("user").unwrap_or_default();
        let password = Secret::new(field("password").unwrap_or_default());
        auth.sign_in_for_session(&user, password.expose(), &headers, &info).await
    };
    match answer.await {
        Ok(set_cookie) => redirect(&return_to, &[set_cookie]),
        Err(error) => failed(&auth, &return_to, &error),
    }
}

/// `POST /auth/logout`.
pub(super) async fn sign_out(State(auth): Auth, request: Request) -> Response {
    let info = info(&request);
    let ours = csrf::same_origin(host(&request), request.headers(), auth.public_origin());
    let (parts, _) = request.into_parts();
    let answer = async {
        ours?;
        auth.sign_out(&parts.headers, &info).await
    };
    match answer.await {
        Ok(()) => redirect("/login", &[cookie::clear(cookie::SESSION)]),
        Err(error) => problem_response(&error),
    }
}

/// `GET /auth/oidc/start`.
pub(super) async fn start(State(auth): Auth, request: Request) -> Response {
    let query = request.uri().query();
    let provider = parameter(query, "provider").unwrap_or_default();
    let return_to = parameter(query, "return_to");
    match auth.start_at_provider(&provider, return_to.as_deref()).await {
        Ok(started) => redirect(&started.location, &[cookie::set(cookie::LOGIN, &started.cookie)]),
        Err(error) => failed(&auth, "/", &error),
    }
}

/// `GET /auth/oidc/callback`.
pub(super) async fn callback(State(auth): Auth, request: Request) -> Response {
    let query = request.uri().query();
    let callback = Callback {
        code: parameter(query, "code"),
        state: parameter(query, "state"),
        iss: parameter(query, "iss"),
    };
    match auth.finish_at_provider(request.headers(), &callback, &info(&request)).await {
        Ok(welcome) => {
            let cookies = [welcome.set_cookie, cookie::clear(cookie::LOGIN)];
            redirect(&welcome.return_to, &cookies)
        }
        Err(error) => failed(&auth, "/", &error),
    }
}

fn info(request: &Request) -> RequestInfo {
    request.extensions().get::<RequestInfo>().cloned().unwrap_or_else(RequestInfo::internal)
}

/// What the request was sent to: as the server noted it, or the HTTP/2 authority, or `Host`.
fn host(request: &Request) -> Option<&str> {
    let noted = request.extensions().get::<Authority>().or_else(|| request.uri().authority());
    let header = || request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    noted.map(Authority::as_str).or_else(header)
}

fn has_type(headers: &HeaderMap, wanted: &str) -> bool {
    let given = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let media = given.and_then(|value| value.split(';').next());
    media.is_some_and(|media| media.trim().eq_ignore_ascii_case(wanted))
}

async fn body(request: Request) -> Result<Bytes> {
    let too_large = || {
        Error::new(&code::TOO_LARGE, format!("a sign-in is at most {MAX_BODY} bytes")).at("body")
    };
    let declared = request.headers().get(header::CONTENT_LENGTH).and_then(|n| n.to_str().ok());
    if declared.and_then(|n| n.parse::<usize>().ok()).is_some_and(|length| length > MAX_BODY) {
        return Err(too_large());
    }
    let (parts, body) = request.into_parts();
    let limited = axum::body::to_bytes(body, MAX_BODY).await.map_err(|_| too_large())?;
    Bytes::from_request(Request::from_parts(parts, limited.into()), &())
        .await
        .map_err(|_| too_large())
}

/// The only value of a parameter; one that is given twice is none.
fn parameter(text: Option<&str>, name: &str) -> Option<String> {
    let mut values = form_urlencoded::parse(text?.as_bytes()).filter(|(key, _)| key == name);
    let value = values.next()?.1.into_owned();
    values.next().is_none().then_some(value)
}

fn redirect(location: &str, cookies: &[String]) -> Response {
    let mut response = StatusCode::SEE_OTHER.into_response();
    let Ok(location) = HeaderValue::from_str(location) else {
        return problem_response(&Error::internal("a redirect goes to no valid address"));
    };
    response.headers_mut().insert(header::LOCATION, location);
    for cookie in cookies {
        match HeaderValue::from_str(cookie) {
            Ok(value) => response.headers_mut().append(header::SET_COOKIE, value),
            Err(error) => return problem_response(&Error::internal(error)),
        };
    }
    no_store(response)
}

/// The page again, with what went wrong in one sentence.
fn failed(auth: &Authenticator, return_to: &str, error: &Error) -> Response {
    // For its log line and its Retry-After; people get the page instead of the body.
    let problem = problem_response(error);
    let mut response = show(auth, http_status(error.kind()), return_to, Some(error.message()));
    if let Some(wait) = problem.headers().get(header::RETRY_AFTER) {
        response.headers_mut().insert(header::RETRY_AFTER, wait.clone());
    }
    response
}

fn show(
    auth: &Authenticator,
    status: StatusCode,
    return_to: &str,
    error: Option<&str>,
) -> Response {
    let providers = auth.providers.for_people().map(|provider| provider.config.name.as_str());
    let html = page::render(return_to, &providers.collect::<Vec<_>>(), error);
    let mut response = (status, html).into_response();
    let headers = response.headers_mut();
    let html_type = HeaderValue::from_static("text/html; charset=utf-8");
    headers.insert(header::CONTENT_TYPE, html_type);
    if let Ok(policy) = HeaderValue::from_str(&page::content_policy()) {
        headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    no_store(response)
}

fn no_store(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response
}
