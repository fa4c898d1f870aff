//! What the authorities issue, judged by a TLS library and an X.509 parser that are not ours.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use minato_pki::{
    AltName, Authority, CertificateRequest, ClusterPki, Issued, PkiError, PrivateKey, Refusal, Serving, Signer, Usage,
    new_request,
};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};
use x509_parser::prelude::{FromDer, X509Certificate};

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn roots(authority: &Authority) -> Arc<RootCertStore> {
    let mut store = RootCertStore::empty();
    for certificate in authority.trusted() {
        store.add(certificate.clone()).unwrap();
    }
    Arc::new(store)
}

/// One handshake in memory; the server's view of the client's certificate, or the first error of either side.
fn handshake(
    server_ca: &Authority,
    serving: &Issued,
    client_ca: &Authority,
    client: &Issued,
    name: &str,
) -> Result<Vec<u8>, rustls::Error> {
    let verifier = WebPkiClientVerifier::builder_with_provider(roots(client_ca), provider())
        .build()
        .unwrap();
    let (chain, key) = serving.to_tls().unwrap();
    let server_config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)
        .unwrap();
    let (chain, key) = client.to_tls().unwrap();
    let client_config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots(server_ca))
        .with_client_auth_cert(chain, key)
        .unwrap();
    let mut server = ServerConnection::new(Arc::new(server_config)).unwrap();
    let mut client = ClientConnection::new(Arc::new(client_config), name.to_owned().try_into().unwrap()).unwrap();
    for _ in 0..10 {
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).unwrap();
        server.read_tls(&mut bytes.as_slice()).unwrap();
        server.process_new_packets()?;
        let mut bytes = Vec::new();
        server.write_tls(&mut bytes).unwrap();
        client.read_tls(&mut bytes.as_slice()).unwrap();
        client.process_new_packets()?;
    }
    client.writer().write_all(b"hello").unwrap();
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).unwrap();
    server.read_tls(&mut bytes.as_slice()).unwrap();
    server.process_new_packets()?;
    let mut text = [0; 5];
    server.reader().read_exact(&mut text).unwrap();
    assert_eq!(&text, b"hello");
    Ok(server.peer_certificates().unwrap()[0].to_vec())
}

fn subject(der: &[u8]) -> (String, Vec<String>) {
    let (_, certificate) = X509Certificate::from_der(der).unwrap();
    let subject = certificate.subject();
    (
        subject.iter_common_name().next().unwrap().as_str().unwrap().to_owned(),
        subject
            .iter_organization()
            .map(|o| o.as_str().unwrap().to_owned())
            .collect(),
    )
}

#[test]
fn a_tls_library_accepts_both_ends_and_all_groups_arrive() {
    let pki = ClusterPki::generate("c1").unwrap();
    let names = Serving {
        names: vec!["api.c1.example".into(), "*.wild.example".into()],
        addresses: vec!["127.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()],
    };
    let serving = pki.issue_serving("kube-apiserver", &names).unwrap();
    let client = pki.issue_client("jane", &["dev", "ops", "system:masters"]).unwrap();
    for name in ["api.c1.example", "a.wild.example", "127.0.0.1", "fd00::1"] {
        let leaf = handshake(pki.cluster(), &serving, pki.cluster(), &client, name).unwrap();
        let (user, groups) = subject(&leaf);
        assert_eq!(user, "jane");
        assert_eq!(groups, ["dev", "ops", "system:masters"]);
    }
    assert!(handshake(pki.cluster(), &serving, pki.cluster(), &client, "other.example").is_err());
}

#[test]
fn certificates_are_worthless_elsewhere_and_the_wrong_way_round() {
    let (ours, theirs) = (ClusterPki::generate("c1").unwrap(), ClusterPki::generate("c1").unwrap());
    let names = Serving {
        names: vec!["localhost".into()],
        addresses: Vec::new(),
    };
    let serving = ours.issue_serving("s", &names).unwrap();
    let client = ours.issue_client("u", &[]).unwrap();
    let ca = ours.cluster();
    assert!(handshake(ca, &serving, ca, &client, "localhost").is_ok());
    let foreign = theirs.issue_client("u", &["system:masters"]).unwrap();
    assert!(handshake(ca, &serving, ca, &foreign, "localhost").is_err());
    // A serving certificate is no client certificate, and a client certificate does not serve.
    assert!(handshake(ca, &serving, ca, &serving, "localhost").is_err());
    assert!(handshake(ca, &client, ca, &client, "localhost").is_err());
    // Nor does another authority of the same cluster count.
    let proxy = ours
        .front_proxy()
        .issue_client("u", &[], Duration::from_secs(60))
        .unwrap();
    assert!(handshake(ca, &serving, ca, &proxy, "localhost").is_err());
}

#[test]
fn nothing_outlives_the_authority() {
    let pki = ClusterPki::generate("c1").unwrap();
    let century = Duration::from_secs(100 * 365 * 24 * 3600);
    let client = pki.issue_client_for("u", &[], century).unwrap();
    assert_eq!(client.expires, pki.cluster().expires());
    let short = pki.issue_client_for("u", &[], Duration::from_secs(90)).unwrap();
    let now = jiff::Timestamp::now();
    let left = short.expires.duration_since(now).as_secs();
    assert!((85..=90).contains(&left), "{left}");
    let renew = short.renew_at(now).duration_since(now).as_secs();
    assert!((56..=60).contains(&renew), "{renew}");
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn files_are_private_and_survive_a_reload() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pki");
    let first = ClusterPki::load_or_create(&path, "c1").unwrap();
    let again = ClusterPki::load_or_create(&path, "c1").unwrap();
    assert_eq!(first.ca_certificate(), again.ca_certificate());
    assert_eq!(first.front_proxy().certificate(), again.front_proxy().certificate());
    assert_eq!(first.etcd().certificate(), again.etcd().certificate());
    assert_eq!(first.service_account_key(), again.service_account_key());
    assert_eq!(mode(&path), 0o700);
    for file in [
        "ca.key",
        "ca.crt",
        "sa.key",
        "sa.pub",
        "front-proxy-ca.key",
        "etcd/ca.key",
    ] {
        assert_eq!(mode(&path.join(file)), 0o600, "{file}");
    }
    // What the first load issued, the second one trusts.
    let names = Serving {
        names: vec!["localhost".into()],
        addresses: Vec::new(),
    };
    let serving = again.issue_serving("s", &names).unwrap();
    let client = first.issue_client("u", &[]).unwrap();
    handshake(first.cluster(), &serving, again.cluster(), &client, "localhost").unwrap();
}

#[test]
fn a_cut_short_making_is_finished_and_a_misfit_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let first = ClusterPki::load_or_create(path, "c1").unwrap();
    std::fs::remove_file(path.join("ca.crt")).unwrap();
    let second = ClusterPki::load_or_create(path, "c1").unwrap();
    assert_eq!(first.cluster().key_pem(), second.cluster().key_pem());
    // A key of another authority.
    std::fs::copy(path.join("front-proxy-ca.key"), path.join("ca.key")).unwrap();
    let error = ClusterPki::load_or_create(path, "c1").err().unwrap();
    assert!(matches!(error, PkiError::Mismatch { .. }), "{error}");
    std::fs::remove_file(path.join("ca.key")).unwrap();
    let error = ClusterPki::load_or_create(path, "c1").err().unwrap();
    assert!(matches!(error, PkiError::Mismatch { .. }), "{error}");
    assert!(
        !path.join("ca.key").exists(),
        "a lost key must not be replaced behind the operator's back"
    );
}

#[test]
fn many_starters_agree_on_one_set_of_keys() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let all: Vec<String> = std::thread::scope(|scope| {
        let starters: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    ClusterPki::load_or_create(path, "c1")
                        .unwrap()
                        .ca_certificate()
                        .to_owned()
                })
            })
            .collect();
        starters.into_iter().map(|s| s.join().unwrap()).collect()
    });
    assert!(all.iter().all(|c| *c == all[0]));
}

#[test]
fn a_retired_signing_key_still_verifies() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let before = ClusterPki::load_or_create(path, "c1").unwrap();
    ClusterPki::rotate_service_account_key(path).unwrap();
    let after = ClusterPki::load_or_create(path, "c1").unwrap();
    assert_ne!(before.service_account_key(), after.service_account_key());
    assert_eq!(after.service_account_public_keys().len(), 2);
    assert_eq!(
        after.service_account_public_keys()[1],
        before.service_account_public_keys()[0]
    );
    let signing = PrivateKey::from_pem(after.service_account_key()).unwrap();
    assert_eq!(after.service_account_public_keys()[0], signing.public_key_pem());
}

fn parsed(organizations: &[&str], common_name: &str, names: &[AltName]) -> CertificateRequest {
    let key = PrivateKey::generate().unwrap();
    CertificateRequest::parse(&new_request(&key, common_name, organizations, names).unwrap()).unwrap()
}

#[test]
fn a_request_becomes_a_certificate_of_its_key() {
    let pki = ClusterPki::generate("c1").unwrap();
    let key = PrivateKey::generate().unwrap();
    let text = new_request(
        &key,
        "system:node:n1",
        &["system:nodes"],
        &[AltName::Dns("n1".into()), AltName::Ip("10.0.0.1".parse().unwrap())],
    )
    .unwrap();
    let request = CertificateRequest::parse(&text).unwrap();
    assert_eq!(request.common_name(), "system:node:n1");
    assert_eq!(request.organizations().collect::<Vec<_>>(), ["system:nodes"]);
    assert_eq!(request.dns_names().collect::<Vec<_>>(), ["n1"]);
    let usages = ["digital signature", "server auth"].map(|u| u.parse::<Usage>().unwrap());
    Signer::KubeletServing.check(&request, &usages).unwrap();
    let certificate = pki
        .cluster()
        .sign_request(&request, &usages, Duration::from_secs(3600))
        .unwrap();
    let serving = Issued {
        certificate,
        key: key.to_pem(),
        expires: pki.cluster().expires(),
    };
    let client = pki.issue_client("u", &[]).unwrap();
    handshake(pki.cluster(), &serving, pki.cluster(), &client, "n1").unwrap();
    handshake(pki.cluster(), &serving, pki.cluster(), &client, "10.0.0.1").unwrap();
}

#[test]
fn signers_refuse_what_is_not_theirs() {
    let usages = |texts: &[&str]| texts.iter().map(|u| u.parse().unwrap()).collect::<Vec<Usage>>();
    let client = usages(&["digital signature", "client auth"]);
    let serving = usages(&["digital signature", "key encipherment", "server auth"]);
    let node = parsed(&["system:nodes"], "system:node:n1", &[]);
    let dns = [AltName::Dns("n1".into())];
    let uri = [AltName::Dns("n1".into()), AltName::Uri("spiffe://x".into())];
    let named = parsed(&["system:nodes"], "system:node:n1", &dns);
    assert_eq!(Signer::KubeletClient.check(&node, &client), Ok(()));
    assert_eq!(Signer::KubeletServing.check(&named, &serving), Ok(()));
    let refused = |result: Result<(), Refusal>| assert!(result.is_err());
    refused(Signer::KubeletClient.check(&named, &client));
    refused(Signer::KubeletClient.check(&node, &serving));
    refused(Signer::KubeletClient.check(&node, &usages(&["client auth"])));
    refused(Signer::KubeletClient.check(&node, &usages(&["digital signature", "client auth", "server auth"])));
    for (organizations, name) in [
        (&["system:nodes", "system:masters"][..], "system:node:n1"),
        (&["system:masters"], "system:node:n1"),
        (&[], "system:node:n1"),
        (&["system:nodes"], "n1"),
        (&["system:nodes"], "system:node:"),
    ] {
        refused(Signer::KubeletClient.check(&parsed(organizations, name, &[]), &client));
        refused(Signer::KubeletServing.check(&parsed(organizations, name, &dns), &serving));
    }
    refused(Signer::KubeletServing.check(&node, &serving));
    refused(Signer::KubeletServing.check(&parsed(&["system:nodes"], "system:node:n1", &uri), &serving));
    refused(Signer::ApiServerClient.check(&node, &serving));
    assert_eq!(Signer::ApiServerClient.check(&node, &usages(&["client auth"])), Ok(()));
    assert!("kubernetes.io/legacy-unknown".parse::<Signer>().is_err());
    assert!("fly".parse::<Usage>().is_err());
}

#[test]
fn hostile_requests_are_refused_without_a_panic() {
    let key = PrivateKey::generate().unwrap();
    let good = new_request(&key, "u", &["g"], &[AltName::Dns("n".into())]).unwrap();
    let block = pem::parse(&good).unwrap();
    let again = |tag: &str, der: &[u8]| pem::encode(&pem::Pem::new(tag, der));
    let der = block.contents();
    assert!(CertificateRequest::parse(&again("CERTIFICATE REQUEST", der)).is_ok());
    assert!(CertificateRequest::parse(&again("CERTIFICATE", der)).is_err());
    assert!(CertificateRequest::parse("").is_err());
    assert!(CertificateRequest::parse(&"A".repeat(100_000)).is_err());
    assert!(CertificateRequest::parse(&again("CERTIFICATE REQUEST", &[der, b"x"].concat())).is_err());
    // Any changed or missing byte breaks the form or the signature, or (the count of unused bits) means nothing.
    let original = CertificateRequest::parse(&good).unwrap();
    for at in 0..der.len() {
        let mut changed = der.to_vec();
        changed[at] ^= 1;
        if let Ok(request) = CertificateRequest::parse(&again("CERTIFICATE REQUEST", &changed)) {
            assert_eq!(request, original, "byte {at}");
        }
        assert!(CertificateRequest::parse(&again("CERTIFICATE REQUEST", &der[..at])).is_err());
    }
    let odd = new_request(&key, "u", &[], &[AltName::Dns("\n".into())]);
    assert!(matches!(odd, Err(PkiError::Name(_))));
    assert!(new_request(&key, "u", &[], &[AltName::Dns("é".into())]).is_err());
}
