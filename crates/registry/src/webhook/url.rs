//! Which addresses a webhook may have. Pure.

use falaj_base::Result;
use falaj_mlflow::error::refused;
use reqwest::Url;

use super::config::WebhooksConfig;
use crate::access::shown;
use crate::egress::Refusal;
use crate::tag::check_text;

/// The longest URL, in characters.
const MAX_URL: usize = 2048;

/// Reads the URL of a webhook, if the configuration lets webhooks go there.
pub(super) fn check_url(config: &WebhooksConfig, text: &str) -> Result<Url> {
    check_text("url", text, MAX_URL)?;
    let refuse = |text: String| refused(text).at("url");
    if text.trim().is_empty() {
        return Err(refuse(format!("Webhook URL cannot be empty or just whitespace: '{text}'")));
    }
    let url = Url::parse(text)
        .map_err(|error| refuse(format!("Invalid webhook URL '{}': {error}", shown(text))))?;
    let (scheme, host) = (url.scheme(), url.host_str().unwrap_or_default());
    let why = match config.egress().check(&url) {
        Ok(()) => return Ok(url),
        Err(Refusal::Scheme) => {
            let scheme: String = scheme.chars().take(32).collect();
            format!("Invalid webhook URL scheme: '{scheme}'. Allowed schemes are: https.")
        }
        Err(Refusal::Credentials) => {
            "Webhook URL must not carry a user name or password".to_owned()
        }
        Err(Refusal::Host) => format!(
            "Webhooks may not go to {scheme}://{}: the server's setting \
             registry.webhooks.allowed_hosts does not list it",
            shown(host)
        ),
        Err(Refusal::Private) => format!("Webhook URL must not name a private address: {host}"),
    };
    Err(refuse(why))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(hosts: &[&str], private: bool) -> WebhooksConfig {
        WebhooksConfig {
            allowed_hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
            allow_private_addresses: private,
            ..WebhooksConfig::default()
        }
    }

    #[test]
    fn only_listed_hosts() {
        let listed =
            config(&["hooks.example.com", "*.corp.example", "http://plain.example"], false);
        for url in [
            "https://hooks.example.com/x",
            "https://HOOKS.example.com:8443/x?y=1",
            "https://a.b.corp.example/",
            "http://plain.example:1/",
        ] {
            assert!(check_url(&listed, url).is_ok(), "{url}");
        }
        for (url, why) in [
            ("https://example.com/", "allowed_hosts"),
            ("https://hooks.example.com.evil.test/", "allowed_hosts"),
            ("https://evilcorp.example/", "allowed_hosts"),
            ("https://corp.example/", "allowed_hosts"),
            ("http://hooks.example.com/", "allowed_hosts"),
            ("https://plain.example/", "allowed_hosts"),
            ("https://u:p@hooks.example.com/", "user name"),
            ("ftp://hooks.example.com/", "Invalid webhook URL scheme"),
            ("http://[invalid", "Invalid webhook URL"),
            ("  ", "cannot be empty"),
            ("hooks.example.com", "Invalid webhook URL"),
        ] {
            let error = check_url(&listed, url).unwrap_err();
            assert!(error.message().contains(why), "{url}: {}", error.message());
        }
        assert!(check_url(&config(&[], true), "https://example.com/").is_err());
    }

    #[test]
    fn private_addresses() {
        for url in [
            "https://127.0.0.1/",
            "https://[::1]/",
            "https://169.254.169.254/x",
            "https://0x7f.1/",
            "https://2130706433/",
            "https://[::ffff:10.0.0.1]/",
        ] {
            assert!(check_url(&config(&["*"], false), url).is_err(), "{url}");
            assert!(check_url(&config(&["*"], true), url).is_ok(), "{url}");
        }
        assert!(check_url(&config(&["http://[::1]"], true), "http://[::1]:80/").is_ok());
        assert!(check_url(&config(&["*"], false), "https://1.1.1.1/").is_ok());
    }
}
