//! Tokens, good and bad.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jiff::{SignedDuration, Timestamp};
use minato_auth::{
    Authenticated, Authenticator, BootstrapTokenAuthenticator, BoundObject, Credentials, ServiceAccountAuthenticator,
    ServiceAccountKeys, TokenIssuer, TokenSpec, UnionAuthenticator,
};
use minato_meta::{GroupResource, MemoryReader, format_time};
use minato_pki::PrivateKey;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use serde_json::{Value, json};

const ISSUER: &str = "https://issuer.example";

fn core(resource: &str) -> GroupResource {
    GroupResource::new("", resource)
}

fn keys_of(key: &PrivateKey, older: &[String]) -> Arc<ServiceAccountKeys> {
    let keys = ServiceAccountKeys::new(vec![ISSUER.into()], vec!["api".into()], &key.to_pem(), older).unwrap();
    Arc::new(keys)
}

struct World {
    key: PrivateKey,
    keys: Arc<ServiceAccountKeys>,
    reader: Arc<MemoryReader>,
    authenticator: ServiceAccountAuthenticator,
}

fn world() -> World {
    let key = PrivateKey::generate().unwrap();
    let keys = keys_of(&key, &[]);
    let reader = Arc::new(MemoryReader::new());
    reader.put(
        &core("serviceaccounts"),
        json!({"metadata": {"namespace": "ns", "name": "bob", "uid": "u1"}}),
    );
    reader.put(
        &core("pods"),
        json!({"metadata": {"namespace": "ns", "name": "p", "uid": "p1"}}),
    );
    reader.put(&core("nodes"), json!({"metadata": {"name": "n", "uid": "n1"}}));
    reader.put(
        &core("secrets"),
        json!({"metadata": {"namespace": "ns", "name": "s", "uid": "s1"}}),
    );
    World {
        authenticator: ServiceAccountAuthenticator::new(keys.clone(), reader.clone()),
        key,
        keys,
        reader,
    }
}

fn spec() -> TokenSpec {
    TokenSpec {
        namespace: "ns".into(),
        service_account: "bob".into(),
        service_account_uid: "u1".into(),
        audiences: Vec::new(),
        expiration_seconds: 3600,
        bound: None,
        node: None,
    }
}

fn bound(kind: &str, name: &str, uid: &str) -> TokenSpec {
    TokenSpec {
        bound: Some(BoundObject {
            kind: kind.into(),
            name: name.into(),
            uid: uid.into(),
        }),
        ..spec()
    }
}

async fn authenticate(authenticator: &dyn Authenticator, token: &str) -> Result<Option<Authenticated>, u16> {
    let credentials = Credentials {
        bearer_token: Some(token),
        ..Credentials::default()
    };
    authenticator.authenticate(&credentials).await.map_err(|e| e.code())
}

#[tokio::test]
async fn a_token_of_a_pod_tells_who_and_where() {
    let world = world();
    let spec = TokenSpec {
        node: Some(("n".into(), "n1".into())),
        ..bound("Pod", "p", "p1")
    };
    let issued = world.keys.issue(&spec).await.unwrap();
    assert_eq!(issued.audiences, ["api"]);
    let left = issued.expires.duration_since(Timestamp::now()).as_secs();
    assert!((3595..=3600).contains(&left));
    let found = authenticate(&world.authenticator, &issued.token)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(found.user.name, "system:serviceaccount:ns:bob");
    assert_eq!(found.user.uid, "u1");
    assert_eq!(
        found.user.groups,
        ["system:serviceaccounts", "system:serviceaccounts:ns"]
    );
    assert_eq!(found.audiences, ["api"]);
    let extra = |key: &str| found.user.extra[&format!("authentication.kubernetes.io/{key}")][0].clone();
    assert_eq!(extra("pod-name"), "p");
    assert_eq!(extra("pod-uid"), "p1");
    assert_eq!(extra("node-name"), "n");
    assert_eq!(extra("node-uid"), "n1");
    assert!(extra("credential-id").starts_with("JTI="));
    // The union adds the group of everybody who proved an identity.
    let union = UnionAuthenticator::new(vec![Arc::new(world.authenticator)]);
    let found = authenticate(&union, &issued.token).await.unwrap().unwrap();
    assert!(found.user.in_group("system:authenticated"));
}

#[tokio::test]
async fn tokens_die_with_what_they_are_bound_to() {
    let deleted = |seconds: i64| format_time(Timestamp::now() + SignedDuration::from_secs(seconds));
    for (kind, name, uid, resource, namespace) in [
        ("Pod", "p", "p1", "pods", Some("ns")),
        ("Secret", "s", "s1", "secrets", Some("ns")),
        ("Node", "n", "n1", "nodes", None),
    ] {
        let world = world();
        let token = world.keys.issue(&bound(kind, name, uid)).await.unwrap().token;
        let good = async || matches!(authenticate(&world.authenticator, &token).await, Ok(Some(_)));
        assert!(good().await, "{kind}");
        let with = |metadata: Value| {
            let mut object = json!({"metadata": {"name": name}});
            if let Some(namespace) = namespace {
                object["metadata"]["namespace"] = json!(namespace);
            }
            for (key, value) in metadata.as_object().unwrap() {
                object["metadata"][key] = value.clone();
            }
            world.reader.put(&core(resource), object);
        };
        // Being deleted is not yet deleted; long past its time is.
        with(json!({"uid": uid, "deletionTimestamp": deleted(30)}));
        assert!(good().await, "{kind}");
        with(json!({"uid": uid, "deletionTimestamp": deleted(-30)}));
        assert!(good().await, "{kind}");
        with(json!({"uid": uid, "deletionTimestamp": deleted(-90)}));
        assert!(!good().await, "{kind}");
        // Another one of the same name.
        with(json!({"uid": "other"}));
        assert!(!good().await, "{kind}");
        with(json!({"uid": uid}));
        assert!(good().await, "{kind}");
        world.reader.remove(&core(resource), namespace, name);
        assert!(!good().await, "{kind}");
    }
    let world = world();
    let token = world.keys.issue(&spec()).await.unwrap().token;
    assert!(authenticate(&world.authenticator, &token).await.unwrap().is_some());
    world.reader.remove(&core("serviceaccounts"), Some("ns"), "bob");
    assert_eq!(authenticate(&world.authenticator, &token).await.err(), Some(401));
    world.reader.put(
        &core("serviceaccounts"),
        json!({"metadata": {"namespace": "ns", "name": "bob", "uid": "u2"}}),
    );
    assert_eq!(authenticate(&world.authenticator, &token).await.err(), Some(401));
}

fn segment(value: &Value) -> String {
    URL_SAFE_NO_PAD.encode(value.to_string())
}

/// A token of any header and claims, signed by `key`.
fn forge(key: &PrivateKey, header: &Value, claims: &Value) -> String {
    let message = format!("{}.{}", segment(header), segment(claims));
    let random = SystemRandom::new();
    let block = pem::parse(key.to_pem()).unwrap();
    let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, block.contents(), &random).unwrap();
    let signature = pair.sign(&random, message.as_bytes()).unwrap();
    format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
}

fn claims() -> Value {
    let now = Timestamp::now().as_second();
    json!({
        "iss": ISSUER, "sub": "system:serviceaccount:ns:bob", "aud": ["api"], "exp": now + 600, "nbf": now, "iat": now,
        "kubernetes.io": {"namespace": "ns", "serviceaccount": {"name": "bob", "uid": "u1"}},
    })
}

#[tokio::test]
async fn bad_tokens_are_refused() {
    let world = world();
    let key = &world.key;
    let kid = world.keys.key_set()["keys"][0]["kid"].clone();
    let header = json!({"alg": "ES256", "kid": kid});
    let now = Timestamp::now().as_second();
    let with = |path: &str, value: Value| {
        let mut claims = claims();
        *claims.pointer_mut(path).unwrap() = value;
        forge(key, &header, &claims)
    };
    let without = |field: &str| {
        let mut claims = claims();
        claims.as_object_mut().unwrap().remove(field);
        forge(key, &header, &claims)
    };
    let good = forge(key, &header, &claims());
    let accepted = |r: Result<Option<Authenticated>, u16>| matches!(r, Ok(Some(_)));
    assert!(accepted(authenticate(&world.authenticator, &good).await));
    assert!(accepted(
        authenticate(&world.authenticator, &forge(key, &json!({"alg": "ES256"}), &claims())).await
    ));
    assert!(accepted(
        authenticate(&world.authenticator, &with("/aud", json!("api"))).await
    ));
    assert!(accepted(
        authenticate(&world.authenticator, &with("/nbf", json!(now + 50))).await
    ));

    let parts: Vec<&str> = good.split('.').collect();
    let other = PrivateKey::generate().unwrap();
    let mut tampered = claims();
    tampered["kubernetes.io"]["serviceaccount"]["name"] = json!("root");
    let mut flipped = parts[2].to_owned().into_bytes();
    flipped[10] = if flipped[10] == b'A' { b'B' } else { b'A' };
    let flipped = String::from_utf8(flipped).unwrap();
    // HMAC with the public key as its secret: the classic confusion.
    let hmac = {
        let message = format!("{}.{}", segment(&json!({"alg": "HS256", "kid": kid})), parts[1]);
        let secret = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, key.public_key_pem().as_bytes());
        format!(
            "{message}.{}",
            URL_SAFE_NO_PAD.encode(ring::hmac::sign(&secret, message.as_bytes()))
        )
    };
    let table = [
        (
            "alg none",
            format!("{}.{}.", segment(&json!({"alg": "none", "kid": kid})), parts[1]),
        ),
        (
            "alg none, signed",
            forge(key, &json!({"alg": "none", "kid": kid}), &claims()),
        ),
        ("no alg", forge(key, &json!({"kid": kid}), &claims())),
        (
            "alg of another key",
            forge(key, &json!({"alg": "RS256", "kid": kid}), &claims()),
        ),
        ("hmac", hmac),
        (
            "unknown critical extension",
            forge(key, &json!({"alg": "ES256", "kid": kid, "crit": ["x"]}), &claims()),
        ),
        ("another key", forge(&other, &header, &claims())),
        (
            "another key's id",
            forge(key, &json!({"alg": "ES256", "kid": "x"}), &claims()),
        ),
        ("no signature", format!("{}.{}.", parts[0], parts[1])),
        (
            "tampered claims",
            format!("{}.{}.{}", parts[0], segment(&tampered), parts[2]),
        ),
        ("tampered signature", format!("{}.{}.{flipped}", parts[0], parts[1])),
        ("padded signature", format!("{good}=")),
        ("expired", with("/exp", json!(now - 1))),
        ("not yet", with("/nbf", json!(now + 3600))),
        ("no expiry", without("exp")),
        ("expiry of another type", with("/exp", json!("never"))),
        ("another audience", with("/aud", json!(["vault"]))),
        ("no audience", without("aud")),
        (
            "subject and account differ",
            with("/sub", json!("system:serviceaccount:ns:root")),
        ),
        ("no private claims", without("kubernetes.io")),
        ("another uid", with("/kubernetes.io/serviceaccount/uid", json!("u2"))),
        (
            "another account",
            with("/kubernetes.io/serviceaccount/name", json!("alice")),
        ),
    ];
    for (why, token) in table {
        assert_eq!(
            authenticate(&world.authenticator, &token).await.err(),
            Some(401),
            "{why}"
        );
    }
    // Not ours at all: perhaps the next authenticator knows.
    let foreign = [
        with("/iss", json!("https://other.example")),
        without("iss"),
        String::new(),
        "a.b.c".to_owned(),
        "a.b".to_owned(),
        format!("{good}.x"),
        "é".repeat(100),
        "x".repeat(1 << 20),
        format!("{}.{}.x", segment(&json!([])), segment(&json!([]))),
    ];
    for token in foreign {
        assert!(
            matches!(authenticate(&world.authenticator, &token).await, Ok(None)),
            "{:.40}",
            token
        );
    }
}

#[tokio::test]
async fn old_keys_verify_after_a_rotation_and_discovery_lists_both() {
    let world = world();
    let token = world.keys.issue(&spec()).await.unwrap().token;
    assert!(authenticate(&world.authenticator, &token).await.unwrap().is_some());
    let next = PrivateKey::generate().unwrap();
    let rotated = keys_of(&next, &[world.key.public_key_pem()]);
    world.authenticator.replace_keys(rotated.clone());
    assert!(authenticate(&world.authenticator, &token).await.unwrap().is_some());
    let newer = rotated.issue(&spec()).await.unwrap().token;
    assert!(authenticate(&world.authenticator, &newer).await.unwrap().is_some());
    let set = rotated.key_set();
    assert_eq!(set["keys"].as_array().unwrap().len(), 2);
    for key in set["keys"].as_array().unwrap() {
        assert_eq!(
            (&key["kty"], &key["crv"], &key["alg"], &key["use"]),
            (&json!("EC"), &json!("P-256"), &json!("ES256"), &json!("sig"))
        );
        assert_eq!(URL_SAFE_NO_PAD.decode(key["x"].as_str().unwrap()).unwrap().len(), 32);
    }
    let document = rotated.discovery_document(None);
    assert_eq!(document["issuer"], ISSUER);
    assert_eq!(document["jwks_uri"], "https://issuer.example/openid/v1/jwks");
    assert_eq!(document["id_token_signing_alg_values_supported"], json!(["ES256"]));
    // Forgotten for good, and not remembered from before.
    world.authenticator.replace_keys(keys_of(&next, &[]));
    assert_eq!(authenticate(&world.authenticator, &token).await.err(), Some(401));
}

/// A key that `openssl genpkey -algorithm RSA` made for this test alone, and its public half.
const RSA_KEY: &str = include_str!("rsa-test.key");
const RSA_PUBLIC_KEY: &str = include_str!("rsa-test.pub");

#[tokio::test]
async fn rsa_keys_serve_too() {
    let world = world();
    let keys = ServiceAccountKeys::new(
        vec![ISSUER.into()],
        vec!["api".into()],
        RSA_KEY,
        &[RSA_PUBLIC_KEY.to_owned()],
    );
    let keys = Arc::new(keys.unwrap());
    let set = keys.key_set();
    assert_eq!(set["keys"].as_array().unwrap().len(), 1, "both halves are the same key");
    assert_eq!(set["keys"][0]["kty"], "RSA");
    assert_eq!(set["keys"][0]["e"], "AQAB");
    assert_eq!(
        URL_SAFE_NO_PAD
            .decode(set["keys"][0]["n"].as_str().unwrap())
            .unwrap()
            .len(),
        256
    );
    let token = keys.issue(&spec()).await.unwrap().token;
    world.authenticator.replace_keys(keys);
    assert!(authenticate(&world.authenticator, &token).await.unwrap().is_some());
    assert!(ServiceAccountKeys::new(Vec::new(), Vec::new(), "no key", &[]).is_err());
    assert!(ServiceAccountKeys::new(Vec::new(), Vec::new(), RSA_KEY, &["no key".into()]).is_err());
}

fn bootstrap_secret(changes: &[(&str, Option<&str>)]) -> Value {
    let mut data = json!({});
    let base = [
        ("token-id", Some("abcdef")),
        ("token-secret", Some("0123456789abcdef")),
        ("usage-bootstrap-authentication", Some("true")),
        (
            "auth-extra-groups",
            Some("system:bootstrappers:pool-1,system:bootstrappers:a:b"),
        ),
    ];
    for (key, value) in base.iter().chain(changes) {
        match value {
            Some(value) => data[key] = json!(STANDARD.encode(value)),
            None => {
                data.as_object_mut().unwrap().remove(*key);
            }
        }
    }
    json!({
        "metadata": {"namespace": "kube-system", "name": "bootstrap-token-abcdef"},
        "type": "bootstrap.kubernetes.io/token",
        "data": data,
    })
}

#[tokio::test]
async fn bootstrap_tokens() {
    let reader = Arc::new(MemoryReader::new());
    let authenticator = BootstrapTokenAuthenticator::new(reader.clone());
    let token = "abcdef.0123456789abcdef";
    assert!(matches!(authenticate(&authenticator, token).await, Ok(None)));
    reader.put(&core("secrets"), bootstrap_secret(&[]));
    let found = authenticate(&authenticator, token).await.unwrap().unwrap();
    assert_eq!(found.user.name, "system:bootstrap:abcdef");
    assert_eq!(
        found.user.groups,
        [
            "system:bootstrappers",
            "system:bootstrappers:pool-1",
            "system:bootstrappers:a:b"
        ]
    );
    let in_an_hour = format_time(Timestamp::now() + SignedDuration::from_hours(1));
    let just_now = format_time(Timestamp::now() - SignedDuration::from_secs(1));
    reader.put(
        &core("secrets"),
        bootstrap_secret(&[("expiration", Some(&in_an_hour)), ("auth-extra-groups", None)]),
    );
    let found = authenticate(&authenticator, token).await.unwrap().unwrap();
    assert_eq!(found.user.groups, ["system:bootstrappers"]);

    let refused: [&[(&str, Option<&str>)]; 13] = [
        &[("token-secret", Some("0123456789abcdee"))],
        &[("token-secret", Some(""))],
        &[("token-secret", None)],
        &[("token-id", Some("abcdeg"))],
        &[("token-id", None)],
        &[("expiration", Some(&just_now))],
        &[("expiration", Some("soon"))],
        &[("usage-bootstrap-authentication", Some("false"))],
        &[("usage-bootstrap-authentication", None)],
        &[("auth-extra-groups", Some("system:masters"))],
        &[("auth-extra-groups", Some("system:bootstrappers:"))],
        &[(
            "auth-extra-groups",
            Some("system:bootstrappers:ok,system:bootstrappers:Bad"),
        )],
        &[("auth-extra-groups", Some("system:bootstrappers:x "))],
    ];
    for changes in refused {
        reader.put(&core("secrets"), bootstrap_secret(changes));
        assert_eq!(
            authenticate(&authenticator, token).await.err(),
            Some(401),
            "{changes:?}"
        );
    }
    let mut opaque = bootstrap_secret(&[]);
    opaque["type"] = json!("Opaque");
    let mut deleting = bootstrap_secret(&[]);
    deleting["metadata"]["deletionTimestamp"] = json!(just_now);
    let mut garbage = bootstrap_secret(&[]);
    garbage["data"]["token-secret"] = json!("%%%");
    for object in [opaque, deleting, garbage] {
        reader.put(&core("secrets"), object);
        assert_eq!(authenticate(&authenticator, token).await.err(), Some(401));
    }
    reader.put(&core("secrets"), bootstrap_secret(&[]));
    for other in [
        "abcdef.0123456789abcde",
        "abcdef.0123456789abcdefg",
        "ABCDEF.0123456789abcdef",
        "abcdef-0123456789abcdef",
        "abcdef.0123456789abcde.",
        "../../.0123456789abcdef",
        "",
    ] {
        assert!(matches!(authenticate(&authenticator, other).await, Ok(None)), "{other}");
    }
    assert_eq!(
        authenticate(&authenticator, "abcdef.fedcba9876543210").await.err(),
        Some(401)
    );
}
