//! A control plane in this process, and the real kubectl.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "each test binary uses its own part; a test fails by panicking"
)]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use minato_control_plane::{Config, ControlPlane};
use minato_test_support::Kubectl;

pub(crate) async fn start(directory: &Path) -> ControlPlane {
    ControlPlane::start(Config::new("c1", directory.join("c1")))
        .await
        .unwrap()
}

/// kubectl as the admin of a control plane.
pub(crate) fn kubectl_of(plane: &ControlPlane) -> Kubectl {
    Kubectl::new(plane.kubeconfig(), &plane.kubeconfig().with_file_name("kubectl-cache"))
}

/// Runs kubectl; returns whether it succeeded, and what it printed.
pub(crate) async fn kubectl(kubeconfig: &Path, input: &str, arguments: &[&str]) -> (bool, String) {
    let kubectl = Kubectl::new(kubeconfig, &kubeconfig.with_file_name("kubectl-cache"));
    kubectl.said(input, arguments).await
}

/// A kubeconfig of the same server with another credential, or none.
pub(crate) fn kubeconfig_of(plane: &ControlPlane, directory: &Path, user: &serde_json::Value) -> PathBuf {
    let text = std::fs::read_to_string(plane.kubeconfig()).unwrap();
    let mut config: serde_json::Value = serde_json::from_str(&text).unwrap();
    config["users"][0]["user"] = user.clone();
    let path = tempfile::NamedTempFile::new_in(directory)
        .unwrap()
        .into_temp_path()
        .keep()
        .unwrap();
    std::fs::write(&path, config.to_string()).unwrap();
    path
}

pub(crate) async fn until_ok(kubeconfig: &Path, arguments: &[&str]) -> String {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let (success, text) = kubectl(kubeconfig, "", arguments).await;
        if success {
            return text;
        }
        assert!(Instant::now() < deadline, "kubectl {arguments:?}: {text}");
    }
}

/// Creates a pod in the namespace `default` as a member of `system:masters`; returns the code and what was said.
pub(crate) async fn create_pod(
    server: &std::sync::Arc<minato_apiserver::ApiServer>,
    pod: &serde_json::Value,
) -> (u16, String) {
    use http_body_util::{BodyExt, Full};
    use tower::ServiceExt;
    let user = minato_auth::UserInfo {
        name: "admin".to_owned(),
        groups: vec!["system:masters".to_owned(), "system:authenticated".to_owned()],
        ..minato_auth::UserInfo::default()
    };
    let request = http::Request::post("/api/v1/namespaces/default/pods")
        .header("content-type", "application/json")
        .body(Full::new(bytes::Bytes::from(pod.to_string())))
        .unwrap();
    let response = server.service_as(user).oneshot(request).await.unwrap();
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (code, String::from_utf8_lossy(&body).into_owned())
}
