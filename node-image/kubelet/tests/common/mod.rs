//! A control plane in this process, and a node with a real containerd on which the real kubelet runs.
#![allow(dead_code, reason = "not every test uses all of it")]

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::Duration;

use minato_api::k8s::core::v1::{Node, Pod};
use minato_api::kube::api::{DeleteParams, PostParams};
use minato_api::kube::config::{KubeConfigOptions, Kubeconfig};
use minato_api::kube::{Api, Client, Config};
use minato_control_plane::ControlPlane;
use minato_pki::{Credential, kubeconfig_with};
use minato_test_support::{NodeConfig, TestNode, images, until};
use serde_json::{Value, json};

pub(crate) const NODE: &str = "n1";
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// Everything; dropped in this order.
pub(crate) struct Cluster {
    pub(crate) kubelet: Option<Child>,
    pub(crate) node: TestNode,
    pub(crate) plane: ControlPlane,
    pub(crate) client: Client,
    directory: tempfile::TempDir,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.directory.path().join("kubelet.log")).unwrap_or_default();
            eprintln!("kubelet:\n{log}");
        }
        self.kill_kubelet();
    }
}

impl Cluster {
    pub(crate) async fn start(name: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut config = minato_control_plane::Config::new("c1", directory.path().join("plane"));
        config.listen = "127.0.0.1:0".parse().unwrap();
        let plane = ControlPlane::start(config).await.unwrap();
        let kubeconfig = Kubeconfig::read_from(plane.kubeconfig()).unwrap();
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
            .await
            .unwrap();
        let client = Client::try_from(config).unwrap();
        let node = tokio::task::spawn_blocking({
            let config = NodeConfig {
                name: format!("{name}{}", std::process::id() % 100_000),
                cache: env!("CARGO_TARGET_TMPDIR").into(),
            };
            move || TestNode::start(&config).unwrap()
        })
        .await
        .unwrap();
        node.forward(SERVER.parse().unwrap(), plane.address()).unwrap();
        let mut cluster = Self {
            kubelet: None,
            node,
            plane,
            client,
            directory,
        };
        cluster.write_files().await;
        cluster.start_kubelet();
        cluster.wait_ready().await;
        cluster
    }

    pub(crate) fn files(&self) -> PathBuf {
        self.node.directory().to_owned()
    }

    pub(crate) fn plane_directory(&self) -> PathBuf {
        self.directory.path().join("plane")
    }

    async fn write_files(&self) {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
            "metadata": {"name": "bootstrap-token-abcdef", "namespace": "kube-system"},
            "stringData": {
                "token-id": "abcdef", "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true",
            },
        });
        self.create::<minato_api::k8s::core::v1::Secret>("kube-system", secret)
            .await;
        let text = std::fs::read_to_string(self.plane.kubeconfig()).unwrap();
        let admin: Value = serde_json::from_str(&text).unwrap();
        let authority = admin["clusters"][0]["cluster"]["certificate-authority-data"]
            .as_str()
            .unwrap();
        let authority = String::from_utf8(base64(authority)).unwrap();
        let server = format!("https://{SERVER}");
        let token = Credential::Token("abcdef.0123456789abcdef");
        let bootstrap = kubeconfig_with("c1", &server, &authority, "bootstrap", token);
        std::fs::write(self.files().join("bootstrap.conf"), bootstrap).unwrap();
        std::fs::write(self.files().join("ca.crt"), &authority).unwrap();
        let config = json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
            "clusterDNS": ["10.96.0.10"], "clusterDomain": "cluster.local",
            "containerLogMaxSize": "20Ki", "containerLogMonitorInterval": "1s",
            "staticPodPath": self.files().join("manifests"),
            "containerRuntimeEndpoint": format!("unix://{}", TestNode::SOCKET),
            "authentication": {"x509": {"clientCAFile": self.files().join("ca.crt")}},
        });
        std::fs::create_dir(self.files().join("manifests")).unwrap();
        std::fs::write(self.files().join("kubelet.json"), config.to_string()).unwrap();
    }

    pub(crate) fn start_kubelet(&mut self) {
        let log = std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(self.directory.path().join("kubelet.log"))
            .unwrap();
        let at = |name: &str| self.files().join(name).display().to_string();
        let mut command = self.node.command(env!("CARGO_BIN_EXE_kubelet"));
        command
            .arg("--tunnel")
            .args([
                "--config",
                &at("kubelet.json"),
                "--bootstrap-kubeconfig",
                &at("bootstrap.conf"),
            ])
            .args([
                "--hostname-override",
                NODE,
                "--node-ip",
                TestNode::ADDRESS,
                "--node-labels",
                "disk=ssd",
            ])
            .env("MINATO_LOG", "info,kube=warn,minato_kubelet=debug")
            .stderr(log)
            .stdout(Stdio::null())
            .process_group(0);
        self.kubelet = Some(command.spawn().unwrap());
    }

    /// As the kernel's KILL would.
    pub(crate) fn kill_kubelet(&mut self) {
        if let Some(mut child) = self.kubelet.take() {
            // The child is the process that entered the node's namespaces; the kubelet is below it.
            let pid = child.id();
            let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
            for inner in children.split_whitespace().filter_map(|pid| pid.parse::<i32>().ok()) {
                let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(inner), nix::sys::signal::Signal::SIGKILL);
            }
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    pub(crate) async fn wait_ready(&self) {
        let nodes: Api<Node> = Api::all(self.client.clone());
        until("the node is ready", LIMIT, async || {
            let node = nodes.get_opt(NODE).await.unwrap()?;
            let ready = node.status?.conditions?.into_iter().find(|c| c.type_ == "Ready")?;
            (ready.status == "True").then_some(())
        })
        .await;
    }

    /// The real kubectl's output.
    pub(crate) async fn kubectl(&self, arguments: &[&str]) -> (bool, String) {
        let mut command = tokio::process::Command::new("kubectl");
        command
            .arg("--kubeconfig")
            .arg(self.plane.kubeconfig())
            .arg("--cache-dir")
            .arg(self.directory.path().join("kubectl-cache"))
            .args(arguments)
            .stdin(Stdio::null());
        let output = tokio::time::timeout(LIMIT, command.output())
            .await
            .expect("kubectl ends")
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        (output.status.success(), text)
    }

    pub(crate) async fn create<K>(&self, namespace: &str, object: Value) -> K
    where
        K: minato_api::kube::Resource<DynamicType = (), Scope = minato_api::k8s_openapi::NamespaceResourceScope>
            + serde::Serialize
            + serde::de::DeserializeOwned
            + Clone
            + std::fmt::Debug,
    {
        let api: Api<K> = Api::namespaced(self.client.clone(), namespace);
        let object: K = serde_json::from_value(object).unwrap();
        api.create(&PostParams::default(), &object).await.unwrap()
    }

    /// A pod bound to the node; waits for the namespace's account first.
    pub(crate) async fn pod(&self, name: &str, mut spec: Value) -> Pod {
        let accounts: Api<minato_api::k8s::core::v1::ServiceAccount> = Api::namespaced(self.client.clone(), "default");
        until("the default account", LIMIT, async || {
            accounts.get_opt("default").await.unwrap()
        })
        .await;
        spec["nodeName"] = json!(NODE);
        spec["serviceAccountName"] = json!("default");
        for container in spec["containers"].as_array_mut().into_iter().flatten() {
            container
                .as_object_mut()
                .unwrap()
                .entry("image")
                .or_insert(json!(images::BUSYBOX));
        }
        for container in spec["initContainers"].as_array_mut().into_iter().flatten() {
            container
                .as_object_mut()
                .unwrap()
                .entry("image")
                .or_insert(json!(images::BUSYBOX));
        }
        self.create(
            "default",
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}),
        )
        .await
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), "default")
    }

    pub(crate) async fn get(&self, name: &str) -> Value {
        serde_json::to_value(self.pods().get_opt(name).await.unwrap()).unwrap()
    }

    /// Waits until the pod fits; gives it.
    pub(crate) async fn until_pod(&self, name: &str, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        let found = tokio::time::timeout(LIMIT, async {
            loop {
                last = self.get(name).await;
                if fits(&last) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        })
        .await;
        if found.is_err() {
            let events = self.events(name).await;
            panic!("{name} is not {what}: {:#}\n{events:#?}", last["status"]);
        }
        last
    }

    pub(crate) async fn until_phase(&self, name: &str, phase: &str) -> Value {
        self.until_pod(name, phase, |pod| pod["status"]["phase"] == phase).await
    }

    pub(crate) async fn events(&self, name: &str) -> Vec<String> {
        let api: Api<minato_api::k8s::core::v1::Event> = Api::namespaced(self.client.clone(), "default");
        let events = api.list(&minato_api::kube::api::ListParams::default()).await.unwrap();
        let of_pod = events
            .items
            .into_iter()
            .filter(|e| e.involved_object.name.as_deref() == Some(name));
        of_pod
            .map(|e| format!("{} {}", e.reason.unwrap_or_default(), e.message.unwrap_or_default()))
            .collect()
    }

    pub(crate) async fn delete(&self, name: &str, grace: Option<u32>) {
        let parameters = DeleteParams {
            grace_period_seconds: grace,
            ..DeleteParams::default()
        };
        self.pods().delete(name, &parameters).await.unwrap();
    }

    pub(crate) async fn until_gone(&self, name: &str) {
        until("the pod is gone", LIMIT, async || {
            self.pods().get_opt(name).await.unwrap().is_none().then_some(())
        })
        .await;
    }

    /// The log of a container's attempt, with the runtime's prefix taken off.
    pub(crate) fn log(&self, pod: &Pod, container: &str, attempt: u32) -> String {
        let (name, uid) = (
            pod.metadata.name.as_deref().unwrap(),
            pod.metadata.uid.as_deref().unwrap(),
        );
        let path = format!("root/var/log/pods/default_{name}_{uid}/{container}/{attempt}.log");
        let text = std::fs::read_to_string(self.files().join(path)).unwrap_or_default();
        text.lines()
            .map(|line| line.splitn(4, ' ').nth(3).unwrap_or_default().to_owned() + "\n")
            .collect()
    }

    pub(crate) async fn stop(mut self) {
        self.kill_kubelet();
    }
}

/// The kubelet's server, as the admin's client certificate sees it.
pub(crate) struct KubeletClient {
    tls: tokio_rustls::TlsConnector,
}

type Tls = tokio_rustls::client::TlsStream<tokio::net::TcpStream>;

impl Cluster {
    /// With the admin's certificate, or none.
    pub(crate) fn kubelet_client(&self, with_certificate: bool) -> KubeletClient {
        use rustls_pki_types::pem::PemObject;
        use rustls_pki_types::{CertificateDer, PrivateKeyDer};
        let text = std::fs::read_to_string(self.plane.kubeconfig()).unwrap();
        let admin: Value = serde_json::from_str(&text).unwrap();
        let field = |name: &str| base64(admin["users"][0]["user"][name].as_str().unwrap());
        let mut roots = rustls::RootCertStore::empty();
        let authority = std::fs::read(self.files().join("ca.crt")).unwrap();
        roots.add(CertificateDer::from_pem_slice(&authority).unwrap()).unwrap();
        let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let config = if with_certificate {
            let chain = vec![CertificateDer::from_pem_slice(&field("client-certificate-data")).unwrap()];
            let key = PrivateKeyDer::from_pem_slice(&field("client-key-data")).unwrap();
            builder.with_client_auth_cert(chain, key).unwrap()
        } else {
            builder.with_no_client_auth()
        };
        let tls = std::sync::Arc::new(config).into();
        KubeletClient { tls }
    }

    async fn dial(&self, client: &KubeletClient) -> std::io::Result<Tls> {
        let address = std::net::SocketAddr::new(TestNode::ADDRESS.parse().unwrap(), 10250);
        let stream = self.node.connect(address).map_err(std::io::Error::other)?;
        let name = rustls_pki_types::ServerName::try_from(TestNode::ADDRESS).unwrap();
        client.tls.connect(name, stream).await
    }

    /// A connection to the kubelet, whose certificate the cluster's authority signed.
    pub(crate) async fn connect(&self, client: &KubeletClient) -> Tls {
        until("the kubelet serves with a signed certificate", LIMIT, async || {
            self.dial(client).await.ok()
        })
        .await
    }

    pub(crate) async fn request(
        &self,
        client: &KubeletClient,
        method: &str,
        path: &str,
    ) -> (u16, hyper::body::Incoming) {
        let stream = self.connect(client).await;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(hyper_util::rt::TokioIo::new(stream))
            .await
            .unwrap();
        tokio::spawn(connection);
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("host", "kubelet")
            .body(http_body_util::Empty::<bytes::Bytes>::new())
            .unwrap();
        let response = sender.send_request(request).await.unwrap();
        (response.status().as_u16(), response.into_body())
    }

    /// The whole answer.
    pub(crate) async fn fetch(&self, client: &KubeletClient, method: &str, path: &str) -> (u16, String) {
        use http_body_util::BodyExt;
        let (status, body) = self.request(client, method, path).await;
        let bytes = body.collect().await.unwrap().to_bytes();
        (status, String::from_utf8_lossy(&bytes).into_owned())
    }
}

const SERVER: &str = "127.0.0.1:6443";

fn base64(text: &str) -> Vec<u8> {
    use ::base64::Engine;
    ::base64::engine::general_purpose::STANDARD.decode(text).unwrap()
}
