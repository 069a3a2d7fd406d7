//! TLS 1.3, with the operator's certificate or one made on first start.
//!
//! Must hold: a non-loopback address is never served in the clear; a private key is never
//! written with a mode wider than 0600. Not here: client certificates.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use falaj_base::{Error, Result, code};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use super::config::{ServerConfig, TlsConfig, TlsMode};
use crate::data_dir::write_private;

/// How connections are taken: in the clear, or through TLS.
#[derive(Clone)]
pub enum Transport {
    Plain,
    Tls {
        acceptor: TlsAcceptor,
        /// The certificate a client must trust, where the server made it itself.
        generated: Option<PathBuf>,
    },
}

impl std::fmt::Debug for Transport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.is_tls() { "Tls" } else { "Plain" })
    }
}

impl Transport {
    /// Decides from the address and the configuration, and loads or makes the certificate.
    pub fn prepare(server: &ServerConfig, tls: &TlsConfig, data_dir: &Path) -> Result<Self> {
        let wide = !server.listen.ip().is_loopback();
        if Self::is_encrypted(server, tls) {
            Self::encrypted(server, tls, data_dir)
        } else if wide {
            Err(refuse_wide(server.listen))
        } else {
            Ok(Self::Plain)
        }
    }

    /// Whether this configuration encrypts: beyond loopback always, unless it is switched off,
    /// which is then refused.
    #[must_use]
    pub fn is_encrypted(server: &ServerConfig, tls: &TlsConfig) -> bool {
        let wide = !server.listen.ip().is_loopback();
        let named = tls.cert_file.is_some() || tls.key_file.is_some();
        match tls.mode {
            TlsMode::Off => false,
            TlsMode::Auto => wide || named,
            TlsMode::On => true,
        }
    }

    #[must_use]
    pub fn is_tls(&self) -> bool {
        matches!(self, Self::Tls { .. })
    }

    #[must_use]
    pub fn scheme(&self) -> &'static str {
        if self.is_tls() { "https" } else { "http" }
    }

    fn encrypted(server: &ServerConfig, tls: &TlsConfig, data_dir: &Path) -> Result<Self> {
        let (cert, key, generated) = match (&tls.cert_file, &tls.key_file) {
            (Some(cert), Some(key)) => (cert.clone(), key.clone(), None),
            (None, None) => {
                let (cert, key) = own_certificate(server, tls, data_dir)?;
                (cert.clone(), key, Some(cert))
            }
            _ => {
                let message = "`tls.cert_file` and `tls.key_file` are set together or not at all";
                return Err(Error::new(&code::INVALID_CONFIG, message).at("tls"));
            }
        };
        Ok(Self::Tls { acceptor: acceptor(&cert, &key)?, generated })
    }
}

fn refuse_wide(listen: SocketAddr) -> Error {
    let message = format!(
        "`server.listen` is {listen}, which others can reach; allowed: a loopback address, or \
         `tls.mode` other than off"
    );
    Error::new(&code::INVALID_CONFIG, message).at("server.listen")
}

fn acceptor(cert: &Path, key: &Path) -> Result<TlsAcceptor> {
    let chain = CertificateDer::pem_file_iter(cert)
        .and_then(Iterator::collect::<std::result::Result<Vec<_>, _>>)
        .map_err(|cause| unusable("tls.cert_file", cert, cause))?;
    let key_der =
        PrivateKeyDer::from_pem_file(key).map_err(|cause| unusable("tls.key_file", key, cause))?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(Error::internal)?
        .with_no_client_auth()
        .with_single_cert(chain, key_der)
        .map_err(|cause| unusable("tls.cert_file", cert, cause))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn unusable(
    field: &str,
    path: &Path,
    cause: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> Error {
    let message = format!("`{field}` ({}) cannot be used", path.display());
    Error::new(&code::INVALID_CONFIG, message).at(field).caused_by(cause)
}

/// The certificate of `data_dir/tls`, made if it is not there yet.
fn own_certificate(
    server: &ServerConfig,
    tls: &TlsConfig,
    data_dir: &Path,
) -> Result<(PathBuf, PathBuf)> {
    let dir = data_dir.join("tls");
    let (cert, key) = (dir.join("cert.pem"), dir.join("key.pem"));
    // The certificate is renamed into place last: where it stands, its key stands too.
    if !cert.exists() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir).map_err(Error::internal)?;
        let signing_key = rcgen::KeyPair::generate().map_err(Error::internal)?;
        let mut params =
            rcgen::CertificateParams::new(certificate_names(server, tls)).map_err(|cause| {
                Error::new(&code::INVALID_CONFIG, "`tls.names` holds something that is no name")
                    .at("tls.names")
                    .caused_by(cause)
            })?;
        params.distinguished_name.push(rcgen::DnType::CommonName, "falaj");
        let signed = params.self_signed(&signing_key).map_err(Error::internal)?;
        write_private(&key, signing_key.serialize_pem().as_bytes())?;
        write_private(&cert, signed.pem().as_bytes())?;
        tracing::info!(path = %cert.display(), "made a self-signed certificate");
    }
    Ok((cert, key))
}

/// Everything a client may call this server by.
fn certificate_names(server: &ServerConfig, tls: &TlsConfig) -> Vec<String> {
    let mut names = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
    if !server.listen.ip().is_unspecified() {
        names.push(server.listen.ip().to_string());
    }
    names.extend(host_name());
    names.extend(server.allowed_hosts.iter().chain(&tls.names).cloned());
    names.sort();
    names.dedup();
    names
}

/// The machine's own name, where the kernel tells one that fits into a certificate.
fn host_name() -> Option<String> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    let name = name.trim().to_ascii_lowercase();
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'.';
    let usable = !name.is_empty() && name.bytes().all(plain) && name.parse::<IpAddr>().is_err();
    usable.then_some(name)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn listening_on(address: &str) -> ServerConfig {
        ServerConfig { listen: address.parse().unwrap(), ..ServerConfig::default() }
    }

    #[test]
    fn a_wide_address_is_never_served_in_the_clear() {
        let dir = tempfile::tempdir().unwrap();
        let off = TlsConfig { mode: TlsMode::Off, ..TlsConfig::default() };
        for (address, tls, encrypted) in [
            ("127.0.0.1:0", TlsConfig::default(), Some(false)),
            ("[::1]:0", TlsConfig::default(), Some(false)),
            ("127.0.0.1:0", off.clone(), Some(false)),
            ("127.0.0.1:0", TlsConfig { mode: TlsMode::On, ..TlsConfig::default() }, Some(true)),
            ("0.0.0.0:0", TlsConfig::default(), Some(true)),
            ("[::]:0", TlsConfig::default(), Some(true)),
            ("0.0.0.0:0", off.clone(), None),
            ("10.1.2.3:0", off, None),
        ] {
            let transport = Transport::prepare(&listening_on(address), &tls, dir.path());
            assert_eq!(transport.ok().map(|t| t.is_tls()), encrypted, "{address} {:?}", tls.mode);
        }
    }

    #[test]
    fn the_made_key_is_private_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        let server = listening_on("0.0.0.0:0");
        let prepare = || Transport::prepare(&server, &TlsConfig::default(), dir.path()).unwrap();
        prepare();
        let key = dir.path().join("tls/key.pem");
        let first = fs::read(&key).unwrap();
        assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
        prepare();
        assert_eq!(fs::read(&key).unwrap(), first);
    }

    #[test]
    fn half_a_certificate_is_refused() {
        let tls = TlsConfig { cert_file: Some("cert.pem".into()), ..TlsConfig::default() };
        let error = Transport::prepare(&listening_on("127.0.0.1:0"), &tls, Path::new("/nowhere"));
        assert_eq!(error.unwrap_err().code().id, "invalid-config");
    }
}
