//! Private keys.

use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair};

use crate::{PkiError, der};

/// An ECDSA P-256 key.
pub struct PrivateKey {
    pair: EcdsaKeyPair,
    pkcs8: Vec<u8>,
    random: SystemRandom,
}

/// Says nothing of the key.
impl std::fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PrivateKey")
    }
}

impl PrivateKey {
    /// A new key.
    ///
    /// # Errors
    /// [`PkiError::Random`].
    pub fn generate() -> Result<Self, PkiError> {
        let random = SystemRandom::new();
        let document =
            EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random).map_err(|_| PkiError::Random)?;
        Self::from_pkcs8(document.as_ref())
    }

    /// A key of its PKCS#8 DER form.
    ///
    /// # Errors
    /// [`PkiError::Key`] for other kinds of keys.
    pub fn from_pkcs8(pkcs8: &[u8]) -> Result<Self, PkiError> {
        let random = SystemRandom::new();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, pkcs8, &random)
            .map_err(|_| PkiError::Key("not an ECDSA P-256 key in PKCS#8"))?;
        Ok(Self {
            pair,
            pkcs8: pkcs8.to_vec(),
            random,
        })
    }

    /// A key of its PEM form (`PRIVATE KEY`).
    ///
    /// # Errors
    /// [`PkiError::Key`] for other kinds of keys and text that is no PEM.
    pub fn from_pem(text: &str) -> Result<Self, PkiError> {
        let block = pem::parse(text).map_err(|_| PkiError::Key("not PEM"))?;
        if block.tag() != "PRIVATE KEY" {
            return Err(PkiError::Key("the PEM block is not a PRIVATE KEY"));
        }
        Self::from_pkcs8(block.contents())
    }

    /// The PEM form, PKCS#8.
    pub fn to_pem(&self) -> String {
        encode_pem("PRIVATE KEY", &self.pkcs8)
    }

    /// The public key, as `SubjectPublicKeyInfo` DER.
    pub fn public_key(&self) -> Vec<u8> {
        let algorithm = der::sequence(&[der::oid(EC_PUBLIC_KEY), der::oid(P256)]);
        der::sequence(&[algorithm, der::bits(self.pair.public_key().as_ref())])
    }

    /// The public key, PEM (`PUBLIC KEY`).
    pub fn public_key_pem(&self) -> String {
        encode_pem("PUBLIC KEY", &self.public_key())
    }

    /// Signature of a message (ECDSA with SHA-256), DER.
    pub(crate) fn sign(&self, message: &[u8]) -> Result<Vec<u8>, PkiError> {
        let signature = self.pair.sign(&self.random, message).map_err(|_| PkiError::Random)?;
        Ok(signature.as_ref().to_vec())
    }
}

const EC_PUBLIC_KEY: &[u64] = &[1, 2, 840, 10045, 2, 1];
const P256: &[u64] = &[1, 2, 840, 10045, 3, 1, 7];

pub(crate) fn encode_pem(tag: &str, content: &[u8]) -> String {
    let config = pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF);
    pem::encode_config(&pem::Pem::new(tag, content), config)
}
