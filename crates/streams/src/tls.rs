//! TLS towards a stream's servers.

use std::sync::Arc;

use falaj_base::{Error, Result};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use crate::config::StreamConfig;

/// How servers are checked: against the file that is named, or the system's certificates.
pub(crate) fn client(config: &StreamConfig) -> Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    match &config.ca {
        Some(path) => {
            let unreadable = || {
                let allowed = "a readable file of certificates (PEM)";
                Error::invalid("ca", path.display(), allowed)
            };
            let text = std::fs::read(path).map_err(|error| unreadable().caused_by(error))?;
            for one in CertificateDer::pem_slice_iter(&text) {
                let one = one.map_err(|error| unreadable().caused_by(error))?;
                roots.add(one).map_err(|error| unreadable().caused_by(error))?;
            }
            if roots.is_empty() {
                return Err(unreadable());
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(Error::internal)?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}
