//! Requests with a time limit, without redirects, and with errors that can be shown: no address, no header is in them.

use crate::sink::Trouble;
use std::path::PathBuf;
use std::time::Duration;
use ureq::tls::{Certificate, ClientCert, PrivateKey, RootCerts, TlsConfig};
use ureq::{Agent, Error};

/// An answer longer than this is none that a tracker gives.
const MOST_ANSWER_BYTES: u64 = 4 << 20;
const CONNECT: Duration = Duration::from_secs(5);
/// A server that asks for more patience than this is tried again earlier.
const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// How the other side's certificate is checked.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Tls {
    /// Not at all.
    pub(crate) insecure: bool,
    /// Certificates of one's own authority, as PEM.
    pub(crate) authority: Option<Vec<u8>>,
    /// What this side shows: certificates and their key, as PEM.
    pub(crate) own: Option<Vec<u8>>,
}

pub(crate) struct Http {
    agent: Agent,
    pub(crate) timeout: Duration,
}

pub(crate) struct Request<'a> {
    pub(crate) url: &'a str,
    pub(crate) headers: &'a [(String, String)],
    /// JSON; without one it is a GET.
    pub(crate) body: Option<Vec<u8>>,
}

impl Http {
    pub(crate) fn new(tls: &Tls) -> Result<Http, String> {
        let config = TlsConfig::builder().disable_verification(tls.insecure);
        let config = match &tls.authority {
            Some(pem) => config.root_certs(RootCerts::from(certificates(pem)?)),
            None => config.root_certs(of_system().map_or(RootCerts::WebPki, RootCerts::from)),
        };
        let config = config.client_cert(tls.own.as_deref().map(certificate_with_key).transpose()?);
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            // A token sent to one host is not for the next.
            .max_redirects(0)
            .timeout_connect(Some(CONNECT))
            .user_agent(concat!("plimsoll/", env!("CARGO_PKG_VERSION")))
            .tls_config(config.build())
            .build();
        Ok(Http { agent: Agent::new_with_config(agent), timeout: Duration::from_secs(15) })
    }

    /// The answer's text, where the other side was content.
    pub(crate) fn send(&self, request: &Request<'_>) -> Result<String, Trouble> {
        let (status, after, text) = self.exchange(request).map_err(|error| of_error(&error))?;
        match status {
            200..300 => Ok(text),
            429 | 500.. | 408 | 425 => Err(Trouble::Later { cause: answered(status, &text), after }),
            _ => Err(Trouble::Never { cause: answered(status, &text) }),
        }
    }

    fn exchange(&self, request: &Request<'_>) -> Result<(u16, Option<Duration>, String), Error> {
        let limit = Some(self.timeout);
        let mut answer = match &request.body {
            Some(body) => {
                let mut builder = self.agent.post(request.url).config().timeout_global(limit).build();
                for (name, value) in request.headers {
                    builder = builder.header(name, value);
                }
                builder.header("content-type", "application/json").send(&body[..])?
            }
            None => {
                let mut builder = self.agent.get(request.url).config().timeout_global(limit).build();
                for (name, value) in request.headers {
                    builder = builder.header(name, value);
                }
                builder.call()?
            }
        };
        let after = answer.headers().get("retry-after").and_then(|value| value.to_str().ok()?.parse::<f64>().ok());
        let after =
            after.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).map(|wait| wait.min(LONGEST_WAIT));
        let text = answer.body_mut().with_config().limit(MOST_ANSWER_BYTES).lossy_utf8(true).read_to_string()?;
        Ok((answer.status().as_u16(), after, text))
    }
}

/// Where systems keep the authorities they trust, those of a company's own among them.
const BUNDLES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// The system's authorities; without any, as in a bare container, those that browsers trust are built in.
fn of_system() -> Option<Vec<Certificate<'static>>> {
    let named = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
    let usual = BUNDLES.iter().map(PathBuf::from);
    named.into_iter().chain(usual).find_map(|path| certificates(&std::fs::read(path).ok()?).ok())
}

fn certificates(pem: &[u8]) -> Result<Vec<Certificate<'static>>, String> {
    let items = ureq::tls::parse_pem(pem);
    let found: Vec<Certificate<'static>> = items
        .filter_map(|item| match item {
            Ok(ureq::tls::PemItem::Certificate(certificate)) => Some(certificate),
            _ => None,
        })
        .collect();
    if found.is_empty() { Err("holds no certificate".into()) } else { Ok(found) }
}

fn certificate_with_key(pem: &[u8]) -> Result<ClientCert, String> {
    let key = PrivateKey::from_pem(pem)
        .map_err(|_| "MLFLOW_TRACKING_CLIENT_CERT_PATH holds no key: it is one file with both")?;
    Ok(ClientCert::new_with_certs(&certificates(pem)?, key))
}

/// The library's own words may hold the address, and that may hold a token.
fn of_error(error: &Error) -> Trouble {
    let later = |cause: &str| Trouble::Later { cause: cause.into(), after: None };
    let never = |cause: &str| Trouble::Never { cause: cause.into() };
    match error {
        Error::Timeout(_) => later("no answer in time"),
        Error::HostNotFound => later("the host is not known"),
        Error::ConnectionFailed => later("no connection"),
        // The system's resolver fails with words of its own and no kind.
        Error::Io(cause) if cause.to_string().contains("failed to lookup address") => later("the host is not known"),
        // What TLS refuses comes as an error of the connection, too.
        Error::Io(cause) if cause.to_string().to_lowercase().contains("certificate") => {
            later("its certificate is not accepted")
        }
        Error::Io(cause) => later(&format!("no connection: {}", cause.kind())),
        Error::Tls(_) | Error::Rustls(_) => later("its certificate is not accepted"),
        Error::BadUri(_) | Error::Http(_) => never("the address is not one"),
        _ => later("the exchange broke off"),
    }
}

/// `answered 403: permission denied`, the first words of it.
fn answered(status: u16, text: &str) -> String {
    let words: String = text.chars().filter(|c| !c.is_control()).take(160).collect();
    if words.trim().is_empty() { format!("answered {status}") } else { format!("answered {status}: {}", words.trim()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_nobody_knows_is_said_to_be_one() {
        let http = Http::new(&Tls::default()).unwrap();
        let asked = http.send(&Request { url: "http://nowhere.invalid/", headers: &[], body: None });
        let Err(Trouble::Later { cause, .. }) = asked else { panic!("an answer from nowhere") };
        assert_eq!(cause, "the host is not known");
    }
}
