//! JWTs of an issuer whose keys are on loopback.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _};
use serde_json::{Value, json};
use server::JwtSettings;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;

use crate::support::*;

const ISSUER: &str = "https://issuer.example";
const AUDIENCE: &str = "https://brains.example";

/// An issuer's key pair.
pub(crate) enum Key {
    P256(EcdsaKeyPair, &'static str),
    Ed25519(Ed25519KeyPair, &'static str),
}

fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

impl Key {
    pub(crate) fn p256(id: &'static str) -> Self {
        let random = SystemRandom::new();
        let key = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, key.as_ref(), &random).unwrap();
        Self::P256(key, id)
    }

    pub(crate) fn ed25519(id: &'static str) -> Self {
        let key = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        Self::Ed25519(Ed25519KeyPair::from_pkcs8(key.as_ref()).unwrap(), id)
    }

    pub(crate) fn public(&self) -> Value {
        match self {
            Self::P256(key, id) => {
                let point = key.public_key().as_ref();
                let (x, y) = (encode(&point[1..33]), encode(&point[33..]));
                json!({ "kty": "EC", "crv": "P-256", "kid": id, "use": "sig", "alg": "ES256", "x": x, "y": y })
            }
            Self::Ed25519(key, id) => {
                json!({ "kty": "OKP", "crv": "Ed25519", "kid": id, "x": encode(key.public_key()) })
            }
        }
    }

    fn header(&self) -> Value {
        match self {
            Self::P256(_, id) => json!({ "alg": "ES256", "kid": id }),
            Self::Ed25519(_, id) => json!({ "alg": "EdDSA", "kid": id }),
        }
    }

    pub(crate) fn token(&self, claims: &Value) -> String {
        self.token_with(&self.header(), claims)
    }

    pub(crate) fn token_with(&self, header: &Value, claims: &Value) -> String {
        let message = format!("{}.{}", encode(header.to_string()), encode(claims.to_string()));
        let signature = match self {
            Self::P256(key, _) => {
                key.sign(&SystemRandom::new(), message.as_bytes()).unwrap().as_ref().to_vec()
            }
            Self::Ed25519(key, _) => key.sign(message.as_bytes()).as_ref().to_vec(),
        };
        format!("{message}.{}", encode(signature))
    }
}

/// Serves key sets, which can change.
pub(crate) struct Issuer {
    pub(crate) settings: JwtSettings,
    keys: Arc<Mutex<Value>>,
    fetches: Arc<AtomicUsize>,
}

impl Issuer {
    pub(crate) async fn start(keys: &[&Key], refetch_interval: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let jwks_url = format!("http://{}/keys", listener.local_addr().unwrap());
        let (issuer, audience) = (ISSUER.to_owned(), AUDIENCE.to_owned());
        let settings = JwtSettings { issuer, audience, jwks_url, refetch_interval };
        let this = Self { settings, keys: Arc::default(), fetches: Arc::default() };
        this.publish(keys);
        let (keys, fetches) = (Arc::clone(&this.keys), Arc::clone(&this.fetches));
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                fetches.fetch_add(1, Ordering::SeqCst);
                let body = keys.lock().unwrap().to_string();
                let head =
                    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
                let _ = read_head(&mut stream).await;
                let _ = stream.write_all([head, body].concat().as_bytes()).await;
            }
        });
        this
    }

    pub(crate) fn publish(&self, keys: &[&Key]) {
        let mut keys: Vec<_> = keys.iter().map(|key| key.public()).collect();
        // A kind of the future must not make the others useless.
        keys.push(json!({ "kty": "AKP", "kid": "later", "pub": "AA" }));
        *self.keys.lock().unwrap() = json!({ "keys": keys });
    }
}

async fn read_head(stream: &mut tokio::net::TcpStream) -> std::io::Result<()> {
    use tokio::io::AsyncReadExt as _;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") && head.len() < 10_000 {
        head.push(stream.read_u8().await?);
    }
    Ok(())
}

/// Valid claims for brain `alpha`, changed.
pub(crate) fn claims(change: impl FnOnce(&mut Value)) -> Value {
    let now = Timestamp::now().as_second();
    let mut claims = json!({
        "iss": ISSUER, "aud": [AUDIENCE, "other"], "sub": "ci", "exp": now + 600, "nbf": now - 5, "brain": "alpha",
    });
    change(&mut claims);
    claims
}

async fn server_of(issuer: &Issuer) -> TestServer {
    server_of_settings(issuer, settings()).await
}

pub(crate) async fn server_of_settings(issuer: &Issuer, mut settings: server::Settings) -> TestServer {
    settings.jwt = Some(issuer.settings.clone());
    TestServer::with(settings).await
}

async fn code(server: &TestServer, token: &str) -> String {
    let response = server.send(&question("alpha", token, "x")).await;
    if response.status == 200 { "ok".to_owned() } else { response.problem() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_valid_jwt_is_accepted_and_no_other() {
    let (p256, ed25519, stranger) = (Key::p256("a"), Key::ed25519("b"), Key::p256("a"));
    let issuer = Issuer::start(&[&p256, &ed25519], Duration::from_secs(60)).await;
    let server = server_of(&issuer).await;
    for key in [&p256, &ed25519] {
        assert_eq!(code(&server, &key.token(&claims(|_| {}))).await, "ok");
        assert_eq!(code(&server, &key.token(&claims(|claims| claims["aud"] = AUDIENCE.into()))).await, "ok");
    }
    // Opaque tokens still work.
    assert_eq!(code(&server, ALPHA).await, "ok");
    let now = Timestamp::now().as_second();
    // The issuer's clock may differ.
    assert_eq!(code(&server, &p256.token(&claims(|claims| claims["exp"] = (now - 5).into()))).await, "ok");
    type Change = Box<dyn FnOnce(&mut Value)>;
    let set = |name: &'static str, value: Value| -> Change { Box::new(move |claims| claims[name] = value) };
    let remove = |name: &'static str| -> Change {
        Box::new(move |claims| drop(claims.as_object_mut().unwrap().remove(name)))
    };
    for (change, expected) in [
        (set("iss", "https://evil.example".into()), "invalid_token"),
        (set("aud", "other".into()), "invalid_token"),
        (set("exp", (now - 60).into()), "expired_token"),
        (set("exp", "tomorrow".into()), "invalid_token"),
        (set("exp", json!(-1)), "invalid_token"),
        (set("nbf", (now + 300).into()), "invalid_token"),
        (set("sub", "".into()), "invalid_token"),
        (set("sub", json!(["ci"])), "invalid_token"),
        (remove("iss"), "invalid_token"),
        (remove("aud"), "invalid_token"),
        (remove("exp"), "invalid_token"),
        (remove("sub"), "invalid_token"),
        (remove("brain"), "invalid_token"),
        (set("brain", "beta".into()), "unknown_brain"),
    ] {
        let claims = claims(change);
        assert_eq!(code(&server, &p256.token(&claims)).await, expected, "{claims}");
    }
    let claims = claims(|_| {});
    let valid = p256.token(&claims);
    let unsigned = format!("{}.{}.", encode(r#"{"alg":"none","kid":"a"}"#), encode(claims.to_string()));
    for (what, token) in [
        ("another key", stranger.token(&claims)),
        ("alg none", unsigned),
        ("hmac", p256.token_with(&json!({ "alg": "HS256", "kid": "a" }), &claims)),
        ("another family's key", p256.token_with(&json!({ "alg": "ES256", "kid": "b" }), &claims)),
        ("another algorithm", p256.token_with(&json!({ "alg": "ES384", "kid": "a" }), &claims)),
        ("rsa with a key of a curve", p256.token_with(&json!({ "alg": "RS256", "kid": "a" }), &claims)),
        (
            "a critical extension",
            p256.token_with(&json!({ "alg": "ES256", "kid": "a", "crit": ["b64"] }), &claims),
        ),
        ("an unknown key", p256.token_with(&json!({ "alg": "ES256", "kid": "z" }), &claims)),
        (
            "its own key",
            p256.token_with(&json!({ "alg": "ES256", "jwk": stranger.public() }), &claims).replace('.', ".."),
        ),
        ("no signature", valid.rsplit_once('.').unwrap().0.to_owned() + "."),
        ("cut", valid[..valid.len() - 4].to_owned()),
        ("claims that are no JSON", format!("{}.{}.AA", valid.split('.').next().unwrap(), encode("x"))),
        ("garbage", "a.b.c".to_owned()),
    ] {
        assert_eq!(code(&server, &token).await, "invalid_token", "{what}");
    }
    // Only the first token, and none of an unknown key within the minute.
    assert_eq!(issuer.fetches.load(Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_without_a_key_id_uses_the_only_key_of_its_kind() {
    let (p256, ed25519) = (Key::p256("a"), Key::ed25519("b"));
    let issuer = Issuer::start(&[&p256, &ed25519], Duration::from_secs(60)).await;
    let server = server_of(&issuer).await;
    let token = ed25519.token_with(&json!({ "alg": "EdDSA" }), &claims(|_| {}));
    assert_eq!(code(&server, &token).await, "ok");
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_that_rotate_are_followed() {
    let (old, new) = (Key::p256("2026-10"), Key::ed25519("2026-11"));
    // Every unknown key may be fetched for.
    let issuer = Issuer::start(&[&old], Duration::ZERO).await;
    let server = server_of(&issuer).await;
    let (old_token, new_token) = (old.token(&claims(|_| {})), new.token(&claims(|_| {})));
    assert_eq!(code(&server, &old_token).await, "ok");
    assert_eq!(code(&server, &new_token).await, "invalid_token");
    issuer.publish(&[&old, &new]);
    assert_eq!(code(&server, &new_token).await, "ok");
    assert_eq!(code(&server, &old_token).await, "ok");
    issuer.publish(&[&new]);
    // What makes the server fetch is another unknown key: then the old one is gone.
    let unknown = old.token_with(&json!({ "alg": "ES256", "kid": "z" }), &claims(|_| {}));
    assert_eq!(code(&server, &unknown).await, "invalid_token");
    assert_eq!(code(&server, &old_token).await, "invalid_token");
    assert_eq!(code(&server, &new_token).await, "ok");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_without_an_id_that_rotates_is_followed_at_the_first_request() {
    let (old, new) = (Key::ed25519("a"), Key::ed25519("b"));
    let issuer = Issuer::start(&[&old], Duration::ZERO).await;
    let server = server_of(&issuer).await;
    let token = |key: &Key| key.token_with(&json!({ "alg": "EdDSA" }), &claims(|_| {}));
    assert_eq!(code(&server, &token(&old)).await, "ok");
    issuer.publish(&[&new]);
    assert_eq!(code(&server, &token(&new)).await, "ok");
    assert_eq!(code(&server, &token(&old)).await, "invalid_token");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_issuer_that_is_away_is_no_refusal() {
    let key = Key::p256("a");
    let mut issuer = Issuer::start(&[&key], Duration::from_secs(60)).await;
    // Not on 127.0.0.1, where other tests take ports at the same time.
    let free = std::net::TcpListener::bind("127.0.89.1:0").unwrap().local_addr().unwrap();
    issuer.settings.jwks_url = format!("http://{free}/keys");
    let server = server_of(&issuer).await;
    assert_eq!(code(&server, &key.token(&claims(|_| {}))).await, "no_issuer_keys");
    assert_eq!(code(&server, ALPHA).await, "ok");
}

#[tokio::test]
async fn the_keys_come_over_tls_or_from_this_machine() {
    for url in ["http://issuer.example/keys", "file:///etc/passwd", "keys"] {
        let mut settings = settings();
        let jwks_url = url.to_owned();
        let (issuer, audience, refetch_interval) = (ISSUER.into(), AUDIENCE.into(), Duration::from_secs(60));
        settings.jwt = Some(JwtSettings { issuer, audience, jwks_url, refetch_interval });
        assert!(matches!(server::bind(settings).await, Err(server::Error::JwksUrl)), "{url}");
    }
}
