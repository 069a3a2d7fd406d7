//! The sign-in page: one form, no script, nothing from elsewhere.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::pepper::sha256;

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;margin:0;display:grid;\
place-items:center;min-height:100vh;background:#f4f1ea;color:#222}\
main{width:20rem;padding:2rem;background:#fff;border-radius:.5rem}\
h1{font-size:1.25rem;margin:0 0 1rem}label{display:block;margin:.75rem 0}\
input{display:block;width:100%;box-sizing:border-box;padding:.5rem;font:inherit;\
border:1px solid #888;border-radius:.25rem}\
button,a.provider{display:block;width:100%;box-sizing:border-box;margin-top:1rem;padding:.6rem;\
font:inherit;text-align:center;text-decoration:none;border:0;border-radius:.25rem;\
background:#1b6b5c;color:#fff}p.error{color:#a3231f}";

/// What the browser may load for this page: its own style, and nothing else.
pub(super) fn content_policy() -> String {
    let style = STANDARD.encode(sha256(STYLE.as_bytes()));
    format!(
        "default-src 'none'; style-src 'sha256-{style}'; form-action 'self'; \
         frame-ancestors 'none'; base-uri 'none'"
    )
}

pub(super) fn render(return_to: &str, providers: &[&str], error: Option<&str>) -> String {
    let error = error.map_or_else(String::new, |error| {
        format!("<p class=\"error\" role=\"alert\">{}</p>", escape(error))
    });
    let return_value = escape(return_to);
    let link = |name: &&str| {
        let query = form_urlencoded::Serializer::new(String::new())
            .append_pair("provider", name)
            .append_pair("return_to", return_to)
            .finish();
        let (query, name) = (escape(&query), escape(name));
        format!("<a class=\"provider\" href=\"/auth/oidc/start?{query}\">Sign in with {name}</a>")
    };
    let providers: String = providers.iter().map(link).collect();
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>Sign in to Falaj</title>\
         <style>{STYLE}</style></head><body><main><h1>Sign in to Falaj</h1>{error}\
         <form method=\"post\" action=\"/auth/login\">\
         <label>User <input name=\"user\" autocomplete=\"username\" required autofocus></label>\
         <label>Password <input name=\"password\" type=\"password\" \
         autocomplete=\"current-password\" required></label>\
         <input type=\"hidden\" name=\"return_to\" value=\"{return_value}\">\
         <button>Sign in</button></form>{providers}</main></body></html>"
    )
}

/// Makes text safe inside an element and inside a quoted attribute.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_a_caller_sends_becomes_markup() {
        let hostile = "/\"><script>alert('x')</script>";
        let page = render(hostile, &["corp"], Some(hostile));
        assert!(!page.contains("<script") && !page.contains("alert('"));
        assert!(page.contains("return_to=%2F%22%3E%3Cscript"));
    }

    #[test]
    fn the_page_needs_nothing_from_elsewhere() {
        let page = render("/", &[], None);
        assert!(!page.contains("http") && !page.contains("src="));
        assert!(content_policy().starts_with("default-src 'none'; style-src 'sha256-"));
    }
}
