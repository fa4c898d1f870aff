//! Signed compact tokens (JWS, RFC 7515) with ES256 and RS256 (RFC 7518), and public keys as JWK (RFC 7517).
//!
//! The algorithm is a property of the key, never of the token: a token that names another one does not verify.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use ring::digest::{SHA256, digest};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, RSA_PKCS1_2048_8192_SHA256,
    RSA_PKCS1_SHA256, RsaKeyPair, UnparsedPublicKey,
};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{PrivateKeyDer, SubjectPublicKeyInfoDer};
use serde::Deserialize;
use serde_json::{Value, json};
use x509_parser::prelude::FromDer;
use x509_parser::public_key::PublicKey as ParsedKey;
use x509_parser::x509::SubjectPublicKeyInfo;

/// Longest token that is looked at, in bytes. Node tokens with long names stay far below.
const LONGEST: usize = 16 * 1024;

/// Why a key cannot be used. Says nothing of the key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("service-account key: {0}")]
pub struct KeyError(&'static str);

/// Why a token is refused; for logs, not for the client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TokenError {
    #[error("the token is not a signed compact token")]
    Form,
    #[error("the token names another algorithm than its key has")]
    Algorithm,
    #[error("no key verifies the token's signature")]
    Signature,
}

enum Signer {
    Ecdsa(Box<EcdsaKeyPair>),
    Rsa(Box<RsaKeyPair>),
}

/// A private key that signs tokens.
pub(crate) struct SigningKey {
    signer: Signer,
    public: VerifyingKey,
    random: SystemRandom,
}

impl SigningKey {
    /// A key of its PEM form: ECDSA P-256 or RSA of at least 2048 bits, in PKCS#8.
    pub(crate) fn from_pem(text: &str) -> Result<Self, KeyError> {
        let key = PrivateKeyDer::from_pem_slice(text.as_bytes()).map_err(|_| KeyError("not a PEM private key"))?;
        let random = SystemRandom::new();
        let der = key.secret_der();
        if let Ok(pair) = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der, &random) {
            use ring::signature::KeyPair;
            let public = VerifyingKey::ecdsa(pair.public_key().as_ref().to_vec(), None);
            return Ok(Self {
                signer: Signer::Ecdsa(Box::new(pair)),
                public,
                random,
            });
        }
        let pair = RsaKeyPair::from_pkcs8(der)
            .or_else(|_| RsaKeyPair::from_der(der))
            .map_err(|_| KeyError("neither ECDSA P-256 nor RSA of 2048 bits and more"))?;
        let public = {
            use ring::signature::KeyPair;
            VerifyingKey::rsa(pair.public_key().as_ref().to_vec(), None)?
        };
        Ok(Self {
            signer: Signer::Rsa(Box::new(pair)),
            public,
            random,
        })
    }

    /// The public half.
    pub(crate) fn public(&self) -> &VerifyingKey {
        &self.public
    }

    /// A signed token with these claims.
    pub(crate) fn sign(&self, claims: &Value) -> Result<String, KeyError> {
        let header = json!({"alg": self.public.algorithm(), "kid": self.public.id});
        let mut token = BASE64.encode(header.to_string());
        token.push('.');
        token.push_str(&BASE64.encode(claims.to_string()));
        let failed = |_| KeyError("signing failed");
        let signature = match &self.signer {
            Signer::Ecdsa(pair) => pair
                .sign(&self.random, token.as_bytes())
                .map_err(failed)?
                .as_ref()
                .to_vec(),
            Signer::Rsa(pair) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &self.random, token.as_bytes(), &mut signature)
                    .map_err(failed)?;
                signature
            }
        };
        token.push('.');
        token.push_str(&BASE64.encode(signature));
        Ok(token)
    }
}

#[derive(Clone)]
enum Kind {
    Ecdsa,
    Rsa { modulus: Vec<u8>, exponent: Vec<u8> },
}

/// A public key that tokens are verified with.
#[derive(Clone)]
pub(crate) struct VerifyingKey {
    kind: Kind,
    /// As ring takes it: a point, or a PKCS#1 key.
    bytes: Vec<u8>,
    /// `kid`: SHA-256 of the `SubjectPublicKeyInfo`, as upstream makes it.
    pub(crate) id: String,
}

impl VerifyingKey {
    /// A key of its PEM form (`PUBLIC KEY`).
    pub(crate) fn from_pem(text: &str) -> Result<Self, KeyError> {
        let info =
            SubjectPublicKeyInfoDer::from_pem_slice(text.as_bytes()).map_err(|_| KeyError("not a PEM public key"))?;
        let (_, parsed) = SubjectPublicKeyInfo::from_der(&info).map_err(|_| KeyError("malformed public key"))?;
        let bytes = parsed.subject_public_key.data.to_vec();
        match parsed.parsed() {
            Ok(ParsedKey::EC(point)) if point.key_size() == 256 && bytes.len() == 65 => {
                Ok(Self::ecdsa(bytes, Some(&info)))
            }
            Ok(ParsedKey::RSA(key)) if key.key_size() >= 2048 => Self::rsa(bytes, Some(&info)),
            _ => Err(KeyError("neither ECDSA P-256 nor RSA of 2048 bits and more")),
        }
    }

    fn ecdsa(point: Vec<u8>, info: Option<&[u8]>) -> Self {
        // SEQUENCE { SEQUENCE { ecPublicKey, prime256v1 }, BIT STRING of 66 bytes }
        const HEAD: [u8; 26] = [
            0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48,
            0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
        ];
        let own = [&HEAD[..], &point].concat();
        Self {
            kind: Kind::Ecdsa,
            id: key_id(info.unwrap_or(&own)),
            bytes: point,
        }
    }

    fn rsa(pkcs1: Vec<u8>, info: Option<&[u8]>) -> Result<Self, KeyError> {
        let malformed = |_| KeyError("malformed RSA key");
        let (_, key) = x509_parser::public_key::RSAPublicKey::from_der(&pkcs1).map_err(malformed)?;
        let trim = |bytes: &[u8]| bytes.iter().copied().skip_while(|b| *b == 0).collect::<Vec<u8>>();
        let (modulus, exponent) = (trim(key.modulus), trim(key.exponent));
        let own = rsa_info(&pkcs1);
        Ok(Self {
            kind: Kind::Rsa { modulus, exponent },
            id: key_id(info.unwrap_or(&own)),
            bytes: pkcs1,
        })
    }

    fn algorithm(&self) -> &'static str {
        match self.kind {
            Kind::Ecdsa => "ES256",
            Kind::Rsa { .. } => "RS256",
        }
    }

    fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        let algorithm: &dyn ring::signature::VerificationAlgorithm = match self.kind {
            Kind::Ecdsa => &ECDSA_P256_SHA256_FIXED,
            Kind::Rsa { .. } => &RSA_PKCS1_2048_8192_SHA256,
        };
        UnparsedPublicKey::new(algorithm, &self.bytes)
            .verify(message, signature)
            .is_ok()
    }

    /// The key as relying parties read it.
    pub(crate) fn jwk(&self) -> Value {
        match &self.kind {
            Kind::Ecdsa => json!({
                "use": "sig", "kty": "EC", "kid": self.id, "crv": "P-256", "alg": "ES256",
                // After the byte that says that the point is not compressed.
                "x": BASE64.encode(&self.bytes[1..33]), "y": BASE64.encode(&self.bytes[33..65]),
            }),
            Kind::Rsa { modulus, exponent } => json!({
                "use": "sig", "kty": "RSA", "kid": self.id, "alg": "RS256",
                "n": BASE64.encode(modulus), "e": BASE64.encode(exponent),
            }),
        }
    }
}

fn key_id(info: &[u8]) -> String {
    BASE64.encode(digest(&SHA256, info))
}

/// `SubjectPublicKeyInfo` of a PKCS#1 key.
fn rsa_info(pkcs1: &[u8]) -> Vec<u8> {
    const ALGORITHM: [u8; 15] = [
        0x30, 0x0d, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01, 0x05, 0x00,
    ];
    let element = |tag: u8, content: &[u8]| {
        // Keys of 2048 bits and more are longer than 255 bytes, and none reaches 64 KiB.
        let length = (content.len() as u16).to_be_bytes();
        [&[tag, 0x82], &length[..], content].concat()
    };
    let bits = element(0x03, &[&[0], pkcs1].concat());
    element(0x30, &[&ALGORITHM[..], &bits].concat())
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    #[serde(default)]
    kid: String,
    /// Extensions that must be understood: we understand none.
    #[serde(default)]
    crit: Vec<String>,
}

/// The claims of a token, whether or not its signature holds: to see whose it is.
pub(crate) fn unverified_claims(token: &str) -> Result<Value, TokenError> {
    if token.len() > LONGEST {
        return Err(TokenError::Form);
    }
    let mut parts = token.split('.');
    let (Some(_), Some(claims), Some(_), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
        return Err(TokenError::Form);
    };
    let claims = BASE64.decode(claims).map_err(|_| TokenError::Form)?;
    let claims: Value = serde_json::from_slice(&claims).map_err(|_| TokenError::Form)?;
    claims.is_object().then_some(claims).ok_or(TokenError::Form)
}

/// Verifies the signature with the key that the token names, or with any when it names none.
pub(crate) fn verify(token: &str, keys: &[VerifyingKey]) -> Result<(), TokenError> {
    let (message, signature) = token.rsplit_once('.').ok_or(TokenError::Form)?;
    let header = message.split('.').next().unwrap_or_default();
    let header = BASE64.decode(header).map_err(|_| TokenError::Form)?;
    let header: Header = serde_json::from_slice(&header).map_err(|_| TokenError::Form)?;
    if !header.crit.is_empty() {
        return Err(TokenError::Form);
    }
    let signature = BASE64.decode(signature).map_err(|_| TokenError::Form)?;
    let mut named = false;
    for key in keys.iter().filter(|k| header.kid.is_empty() || k.id == header.kid) {
        if key.algorithm() != header.alg {
            named = true;
            continue;
        }
        if key.verifies(message.as_bytes(), &signature) {
            return Ok(());
        }
    }
    Err(if named {
        TokenError::Algorithm
    } else {
        TokenError::Signature
    })
}
