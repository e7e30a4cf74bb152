//! Checks JWTs (RFC 7519) against an issuer's published keys (RFC 7517).
//!
//! Keys are fetched when a token names one that is not known, at most once in an interval, and again when they are
//! old, so that a key that the issuer withdrew is not trusted for long. A request whose key is known waits for no fetch.
//! A token that names no key tells only by its signature that keys have changed: if that is wrong, they are fetched, too.

mod ring_provider;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};
use reqwest::Url;
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::sync::{Mutex, RwLock};

use crate::Error;
use crate::parts::Claims;
use crate::settings::JwtSettings;

/// What is accepted: signatures with a public key only, so that no key can be taken for a shared secret.
const ALGORITHMS: [Algorithm; 3] = [Algorithm::RS256, Algorithm::ES256, Algorithm::EdDSA];
/// How far the clocks may differ, in seconds.
const LEEWAY_SECONDS: u64 = 30;
/// When keys are fetched again although they are all known.
const KEYS_FRESH_FOR: Duration = Duration::from_secs(3600);
/// How long keys are used when no newer ones can be fetched.
const KEYS_USED_FOR: Duration = Duration::from_secs(24 * 3600);
/// The wait after a failed fetch.
const FAILED_FETCH_INTERVAL: Duration = Duration::from_secs(5);
const FETCH_DEADLINE: Duration = Duration::from_secs(5);
const KEYS_BYTES_MAX: usize = 1 << 20;
const KEYS_MAX: usize = 100;

/// Why a JWT is not accepted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum JwtError {
    /// It is not valid.
    Invalid,
    /// It was valid once.
    Expired,
    /// The issuer's keys cannot be fetched.
    NoKeys,
}

#[derive(Clone)]
pub(crate) struct JwtVerifier {
    shared: Arc<Shared>,
}

struct Shared {
    settings: JwtSettings,
    client: reqwest::Client,
    keys: RwLock<Keys>,
    /// Held by the one request that fetches; says when the next may.
    next_fetch: Mutex<Option<Instant>>,
}

#[derive(Default)]
struct Keys {
    keys: Vec<Jwk>,
    fetched: Option<Instant>,
}

impl JwtVerifier {
    pub(crate) fn new(settings: JwtSettings) -> Result<Self, Error> {
        let url = Url::parse(&settings.jwks_url).map_err(|_| Error::JwksUrl)?;
        let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
        let is_local = host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
        if url.scheme() != "https" && !(url.scheme() == "http" && is_local) {
            return Err(Error::JwksUrl);
        }
        ring_provider::install();
        let builder = reqwest::Client::builder()
            .user_agent(concat!("nugget/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .timeout(FETCH_DEADLINE);
        let builder = if is_local { builder.no_proxy() } else { builder };
        let client = builder.build().map_err(Error::Client)?;
        let shared = Shared { settings, client, keys: RwLock::default(), next_fetch: Mutex::default() };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// The claims of a valid token.
    pub(crate) async fn verify(&self, token: &str) -> Result<Claims, JwtError> {
        let header = decode_header(token).map_err(|_| JwtError::Invalid)?;
        // A critical extension must be understood (RFC 7515, section 4.1.11), and none is.
        if !ALGORITHMS.contains(&header.alg) || header.crit.is_some() {
            return Err(JwtError::Invalid);
        }
        let key = self.key(header.kid.as_deref(), header.alg, Instant::now()).await?;
        let mut validation = Validation::new(header.alg);
        validation.leeway = LEEWAY_SECONDS;
        validation.validate_nbf = true;
        validation.set_issuer(&[&self.shared.settings.issuer]);
        validation.set_audience(&[&self.shared.settings.audience]);
        validation.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
        use jsonwebtoken::errors::ErrorKind;
        let decode = |key| decode::<Map<String, Value>>(token, &key, &validation);
        let mut decoded = decode(key);
        let is_forged = |error: &jsonwebtoken::errors::Error| *error.kind() == ErrorKind::InvalidSignature;
        if header.kid.is_none() && decoded.as_ref().is_err_and(is_forged) {
            self.shared.fetch_if_due().await;
            decoded = decode(self.key(None, header.alg, Instant::now()).await?);
        }
        let token = decoded.map_err(|error| {
            if matches!(error.kind(), ErrorKind::ExpiredSignature) {
                JwtError::Expired
            } else {
                JwtError::Invalid
            }
        })?;
        self.claims(token.claims).ok_or(JwtError::Invalid)
    }

    fn claims(&self, all: Map<String, Value>) -> Option<Claims> {
        let subject = all.get("sub")?.as_str().filter(|subject| !subject.is_empty())?.to_owned();
        let expires = Timestamp::from_second(all.get("exp")?.as_f64()? as i64).ok()?;
        Some(Claims { issuer: self.shared.settings.issuer.clone(), subject, expires, all })
    }

    /// The key that a token names, fetched if it is not known.
    async fn key(
        &self,
        id: Option<&str>,
        algorithm: Algorithm,
        now: Instant,
    ) -> Result<DecodingKey, JwtError> {
        let (known, is_fresh, is_usable) = {
            let keys = self.shared.keys.read().await;
            let is_younger = |age| keys.is_younger(age, now);
            (keys.find(id, algorithm), is_younger(KEYS_FRESH_FOR), is_younger(KEYS_USED_FOR))
        };
        if let Some(key) = known.filter(|_| is_usable) {
            if !is_fresh {
                let shared = Arc::clone(&self.shared);
                tokio::spawn(async move { shared.fetch_if_due().await });
            }
            return Ok(key);
        }
        self.shared.fetch_if_due().await;
        let keys = self.shared.keys.read().await;
        if !keys.is_younger(KEYS_USED_FOR, now) {
            return Err(JwtError::NoKeys);
        }
        keys.find(id, algorithm).ok_or(JwtError::Invalid)
    }
}

impl Shared {
    async fn fetch_if_due(&self) {
        let mut next_fetch = self.next_fetch.lock().await;
        if next_fetch.is_some_and(|next| Instant::now() < next) {
            return;
        }
        let wait = match self.fetch().await {
            Ok(keys) => {
                *self.keys.write().await = Keys { keys, fetched: Some(Instant::now()) };
                self.settings.refetch_interval
            }
            Err(error) => {
                tracing::warn!(error, "the issuer's keys cannot be fetched");
                FAILED_FETCH_INTERVAL.min(self.settings.refetch_interval)
            }
        };
        *next_fetch = Some(Instant::now() + wait);
    }

    async fn fetch(&self) -> Result<Vec<Jwk>, String> {
        #[derive(Deserialize)]
        struct KeySet {
            keys: Vec<Value>,
        }
        let response =
            self.client.get(&self.settings.jwks_url).send().await.map_err(|error| error.to_string())?;
        let mut response = response.error_for_status().map_err(|error| error.to_string())?;
        let mut body = Vec::new();
        while let Some(part) = response.chunk().await.map_err(|error| error.to_string())? {
            body.extend_from_slice(&part);
            if body.len() > KEYS_BYTES_MAX {
                return Err("the key set is longer than 1 MiB".to_owned());
            }
        }
        let set: KeySet = serde_json::from_slice(&body).map_err(|error| error.to_string())?;
        // A key of an unknown kind does not make the others useless.
        Ok(set.keys.into_iter().take(KEYS_MAX).filter_map(|key| serde_json::from_value(key).ok()).collect())
    }
}

impl Keys {
    fn is_younger(&self, age: Duration, now: Instant) -> bool {
        self.fetched.is_some_and(|fetched| now.saturating_duration_since(fetched) < age)
    }

    /// The key with this id that is for this algorithm; without an id, the only one for it.
    fn find(&self, id: Option<&str>, algorithm: Algorithm) -> Option<DecodingKey> {
        let mut keys = self.keys.iter().filter(|key| is_for(key, algorithm));
        let key = match id {
            Some(id) => keys.find(|key| key.common.key_id.as_deref() == Some(id))?,
            None => keys.next().filter(|_| keys.next().is_none())?,
        };
        DecodingKey::from_jwk(key).ok()
    }
}

fn is_for(key: &Jwk, algorithm: Algorithm) -> bool {
    let is_signature = key.common.public_key_use.as_ref().is_none_or(|use_| *use_ == PublicKeyUse::Signature);
    let is_named = key.common.key_algorithm.is_none_or(|named| named.to_string() == format!("{algorithm:?}"));
    let is_kind = match (&key.algorithm, algorithm) {
        (AlgorithmParameters::RSA(_), Algorithm::RS256) => true,
        (AlgorithmParameters::EllipticCurve(key), Algorithm::ES256) => key.curve == EllipticCurve::P256,
        (AlgorithmParameters::OctetKeyPair(key), Algorithm::EdDSA) => key.curve == EllipticCurve::Ed25519,
        _ => false,
    };
    is_signature && is_named && is_kind
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_request_whose_key_is_known_does_not_wait_for_a_silent_issuer() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let verifier = JwtVerifier::new(JwtSettings {
            issuer: "https://issuer.example".to_owned(),
            audience: "nugget".to_owned(),
            jwks_url: format!("http://{}/keys", silent.local_addr().unwrap()),
            refetch_interval: Duration::from_secs(60),
        })
        .unwrap();
        // The public key of RFC 8037, appendix A.2.
        let key =
            r#"{"kty":"OKP","crv":"Ed25519","kid":"a","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}"#;
        let fetched = Instant::now();
        *verifier.shared.keys.write().await =
            Keys { keys: vec![serde_json::from_str(key).unwrap()], fetched: Some(fetched) };
        tokio::select! {
            biased;
            key = verifier.key(Some("a"), Algorithm::EdDSA, fetched + 2 * KEYS_FRESH_FOR) => assert!(key.is_ok()),
            () = std::future::ready(()) => panic!("the request waits"),
        }
        // Newer keys are asked for meanwhile.
        silent.accept().await.unwrap();
    }
}
