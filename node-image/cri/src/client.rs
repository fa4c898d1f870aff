//! The calls.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use k8s_cri::v1::image_service_client::ImageServiceClient;
use k8s_cri::v1::runtime_service_client::RuntimeServiceClient;
use k8s_cri::v1::{self, ContainerFilter, PodSandboxFilter};
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Request, Response, Status};

use crate::CriError;
use crate::error::ignore_not_found;

/// Deadline of calls that change something; as upstream's runtime request timeout.
const LONG: Duration = Duration::from_secs(120);
/// Deadline of calls that only look.
const SHORT: Duration = Duration::from_secs(30);
/// Pulling an image has no deadline upstream; this one only ends what hangs.
const PULL: Duration = Duration::from_secs(3600);
/// Largest message: an exec's output may have 16 MiB on each stream.
const LARGEST: usize = 40 * 1024 * 1024;

/// A client of one runtime. Cheap to clone; connects when first used, and again after the runtime restarted.
#[derive(Clone)]
pub struct Cri {
    runtime: RuntimeServiceClient<Channel>,
    images: ImageServiceClient<Channel>,
    socket: PathBuf,
}

/// A channel to a unix socket that connects when used.
pub(crate) fn channel(socket: &Path) -> Channel {
    let socket = socket.to_owned();
    let connector = tower::service_fn(move |_: Uri| {
        let socket = socket.clone();
        async move { UnixStream::connect(socket).await.map(TokioIo::new) }
    });
    // The authority is not used: the connector above always takes the socket.
    Endpoint::from_static("http://localhost").connect_with_connector_lazy(connector)
}

fn request<T>(message: T, deadline: Duration) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(deadline);
    request
}

/// Runs a call with its deadline kept on this side too, for a runtime that hangs.
async fn call<T>(
    name: &'static str,
    deadline: Duration,
    answer: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<T, CriError> {
    match tokio::time::timeout(deadline + Duration::from_secs(1), answer).await {
        Ok(Ok(response)) => Ok(response.into_inner()),
        Ok(Err(status)) => Err(CriError::new(name, &status)),
        Err(_) => Err(CriError::new(
            name,
            &Status::deadline_exceeded("the runtime did not answer in time"),
        )),
    }
}

impl Cri {
    /// A client of the runtime that listens at `socket`. Does not connect yet. Must be called within a tokio runtime.
    pub fn new(socket: &Path) -> Self {
        let channel = channel(socket);
        Self {
            runtime: RuntimeServiceClient::new(channel.clone()).max_decoding_message_size(LARGEST),
            images: ImageServiceClient::new(channel).max_decoding_message_size(LARGEST),
            socket: socket.to_owned(),
        }
    }

    /// Where the runtime listens.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Name and version of the runtime.
    ///
    /// # Errors
    /// As all calls here: [`CriError`].
    pub async fn version(&self) -> Result<v1::VersionResponse, CriError> {
        let message = v1::VersionRequest::default();
        call("Version", SHORT, self.runtime.clone().version(request(message, SHORT))).await
    }

    /// Conditions of the runtime: `RuntimeReady`, `NetworkReady`.
    ///
    /// # Errors
    /// [`CriError`].
    pub async fn status(&self) -> Result<v1::RuntimeStatus, CriError> {
        let message = v1::StatusRequest { verbose: false };
        let answer = call("Status", SHORT, self.runtime.clone().status(request(message, SHORT))).await?;
        answer.status.ok_or(CriError::empty("Status"))
    }

    /// Makes and starts a sandbox; its id.
    ///
    /// # Errors
    /// [`CriError`].
    pub async fn run_pod_sandbox(&self, config: v1::PodSandboxConfig, handler: &str) -> Result<String, CriError> {
        let message = v1::RunPodSandboxRequest {
            config: Some(config),
            runtime_handler: handler.to_owned(),
        };
        let mut client = self.runtime.clone();
        let answer = call("RunPodSandbox", LONG, client.run_pod_sandbox(request(message, LONG)));
        Ok(answer.await?.pod_sandbox_id)
    }

    /// Stops a sandbox and its network; fine if it is gone.
    ///
    /// # Errors
    /// [`CriError`].
    pub async fn stop_pod_sandbox(&self, id: &str) -> Result<(), CriError> {
        let message = v1::StopPodSandboxRequest {
            pod_sandbox_id: id.to_owned(),
        };
        let mut client = self.runtime.clone();
        let answer = call("StopPodSandbox", LONG, client.stop_pod_sandbox(request(message, LONG))).await;
        ignore_not_found(answer.map(drop))
    }

    /// Removes a sandbox and its containers; fine if it is gone.
    ///
    /// # Errors
    /// [`CriError`].
    pub async fn remove_pod_sandbox(&self, id: &str) -> Result<(), CriError> {
        let message = v1::RemovePodSandboxRequest {
            pod_sandbox_id: id.to_owned(),
        };
        let mut client = self.runtime.clone();
        let answer = call(
            "RemovePodSandbox",
            LONG,
            client.remove_pod_sandbox(request(message, LONG)),
        )
        .await;
        ignore_not_found(answer.map(drop))
    }

    /// A sandbox in detail.
    ///
    /// # Errors
    /// [`CriError`].
    pub async fn pod_sandbox_status(&self, id: &str) -> Result<v1::PodSandboxStatus, CriError> {
        let message = v1::PodSandboxStatusRequest {
            pod_sandbox_id: id.to_owned(),
            verbose: false,
        };
        let mut client = self.runtime.clone();
        let answer = call(
            "PodSandboxStatus",
            SHORT,
            client.pod_sandbox_status(request(message, SHORT)),
        );
        answer.await?.status.ok_or(CriError::empty("PodSandboxStatus"))
    }

    /// Sandboxes with all of these labels; all sandboxes for none.
    ///
    /// # Errors
    /// [`CriError`].
    pub async fn list_pod_sandboxes(&self, labels: HashMap<String, String>) -> Result<Vec<v1::PodSandbox>, CriError> {
        let filter = PodSandboxFilter {
            label_selector: labels,
            ..PodSandboxFilter::default()
        };
        let message = v1::ListPodSandboxRequest { filter: Some(filter) };
        let mut client = self.runtime.clone();
        let answer = call(
            "ListPodSandbox",
            SHORT,
            client.list_pod_sandbox(request(message, SHORT)),
        );
        Ok(answer.await?.items)
    }

    /// Makes a container in a sandbox; its id.
    ///
    /// # Errors
    /// [`CriError`].
    pub async fn create_container(
        &self,
        sandbox: &str,
        config: v1::ContainerConfig,
        sandbox_config: v1::PodSandboxConfig,
    ) -> Result<String, CriError> {
        let message = v1::CreateContainerRequest {
            pod_sandbox_id: sandbox.to_owned(),
            config: Some(config),
            sandbox_config: Some(sandbox_config),
        };
        let mut client = self.runtime.clone();
        let answer = call("CreateContainer", LONG, client.create_container(request(message, LONG)));
        Ok(answer.await?.container_id)
    }

    /// Starts a container that was made.
    ///
    /// # Errors
    /// [`CriError`].
    pub async fn start_container(&self, id: &str) -> Result<(), CriError> {
        let message = v1::StartContainerRequest {
            container_id: id.to_owned(),
        };
        let mut client = self.runtime.clone();
        let answer = call("StartContainer", LONG, client.start_container(request(message, LONG)));
        answer.await.map(drop)
    }

    /// Stops a container: its stop signal, then SIGKILL after `grace`. Fine if it is gone.
    ///
    /// # Errors
    /// [`CriError`].
    pub async fn stop_container(&self, id: &str, grace: Duration) -> Result<(), CriError> {
        let seconds = i64::try_from(grace.as_secs()).unwrap_or(i64::MAX);
        let message = v1::StopContainerRequest {
            container_id: id.to_owned(),
            timeout: seconds,
        };
        let deadline = grace.saturating_add(LONG);
        let mut client = self.runtime.clone();
        let answer = call(
            "StopContainer",
            deadline,
            client.stop_container(request(message, deadline)),
        )
        .await;
        ignore_not_found(answer.map(drop))
    }

    /// Removes a container; fine if it is gone.
    ///
    /// # Errors
    /// [`CriError`].
    pub async fn remove_container(&self, id: &str) -> Result<(), CriError> {
        let message = v1::RemoveContainerRequest {
            container_id: id.to_owned(),
        };
        let mut client = self.runtime.clone();
        let answer = call("RemoveContainer", LONG, client.remove_container(request(message, LONG))).await;
        ignore_not_found(answer.map(drop))
    }

    /// Containers with all of these labels; all containers for none.
    ///
    /// # Errors
    /// [`CriError`].
    pub async fn list_containers(&self, labels: HashMap<String, String>) -> Result<Vec<v1::Container>, CriError> {
        let filter = ContainerFilter {
            label_selector: labels,
            ..ContainerFilter::default()
        };
        let message = v1::ListContainersRequest { filter: Some(filter) };
        let mut client = self.runtime.clone();
        let answer = call("ListContainers", SHORT, client.list_containers(request(message, SHORT)));
        Ok(answer.await?.containers)
    }

    /// A container in detail.
    ///
    /// # Errors
    /// [`CriError`].
    pub async fn container_status(&self, id: &str) -> Result<v1::ContainerStatus, CriError> {
        let message = v1::ContainerStatusRequest {
            container_id: id.to_owned(),
            verbose: false,
        };
        let mut client = self.runtime.clone();
        let answer = call(
            "ContainerStatus",
            SHORT,
            client.container_status(request(message, SHORT)),
        );
        answer.await?.status.ok_or(CriError::empty("ContainerStatus"))
    }

    /// Tells the runtime that a container's log file was moved away.
    ///
    /// # Errors
    /// [`CriError`].
    pub async fn reopen_container_log(&self, id: &str) -> Result<(), CriError> {
        let message = v1::ReopenContainerLogRequest {
            container_id: id.to_owned(),
        };
        let mut client = self.runtime.clone();
        let answer = call(
            "ReopenContainerLog",
            SHORT,
            client.reopen_container_log(request(message, SHORT)),
        );
        answer.await.map(drop)
    }

    /// Runs a command in a container and waits for it.
    ///
    /// # Errors
    /// [`CriError`], among it [`CriError::is_timeout`].
    pub async fn exec_sync(
        &self,
        id: &str,
        command: Vec<String>,
        timeout: Duration,
    ) -> Result<v1::ExecSyncResponse, CriError> {
        let seconds = i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX).max(1);
        let message = v1::ExecSyncRequest {
            container_id: id.to_owned(),
            cmd: command,
            timeout: seconds,
        };
        // The runtime ends the command itself; this deadline is for a runtime that does not.
        let deadline = timeout.saturating_add(Duration::from_secs(5));
        let mut client = self.runtime.clone();
        call("ExecSync", deadline, client.exec_sync(request(message, deadline))).await
    }

    /// URL at which the runtime streams a command's input and output.
    ///
    /// # Errors
    /// [`CriError`].
    pub async fn exec(&self, message: v1::ExecRequest) -> Result<String, CriError> {
        let mut client = self.runtime.clone();
        let answer = call("Exec", SHORT, client.exec(request(message, SHORT)));
        Ok(answer.await?.url)
    }

    /// URL at which the runtime streams a container's own input and output.
    ///
    /// # Errors
    /// [`CriError`].
    pub async fn attach(&self, message: v1::AttachRequest) -> Result<String, CriError> {
        let mut client = self.runtime.clone();
        let answer = call("Attach", SHORT, client.attach(request(message, SHORT)));
        Ok(answer.await?.url)
    }

    /// URL at which the runtime forwards to ports of a sandbox.
    ///
    /// # Errors
    /// [`CriError`].
    pub async fn port_forward(&self, message: v1::PortForwardRequest) -> Result<String, CriError> {
        let mut client = self.runtime.clone();
        let answer = call("PortForward", SHORT, client.port_forward(request(message, SHORT)));
        Ok(answer.await?.url)
    }

    /// What containers use.
    ///
    /// # Errors
    /// [`CriError`].
    pub async fn list_container_stats(&self) -> Result<Vec<v1::ContainerStats>, CriError> {
        let message = v1::ListContainerStatsRequest { filter: None };
        let mut client = self.runtime.clone();
        let answer = call(
            "ListContainerStats",
            SHORT,
            client.list_container_stats(request(message, SHORT)),
        );
        Ok(answer.await?.stats)
    }

    /// All images.
    ///
    /// # Errors
    /// [`CriError`].
    pub async fn list_images(&self) -> Result<Vec<v1::Image>, CriError> {
        let message = v1::ListImagesRequest { filter: None };
        let mut client = self.images.clone();
        let answer = call("ListImages", SHORT, client.list_images(request(message, SHORT)));
        Ok(answer.await?.images)
    }

    /// The image of that name or id, if it is there.
    ///
    /// # Errors
    /// [`CriError`].
    pub async fn image_status(&self, image: &str) -> Result<Option<v1::Image>, CriError> {
        let message = v1::ImageStatusRequest {
            image: Some(spec(image)),
            verbose: false,
        };
        let mut client = self.images.clone();
        let answer = call("ImageStatus", SHORT, client.image_status(request(message, SHORT)));
        Ok(answer.await?.image)
    }

    /// Pulls an image; its reference (an id).
    ///
    /// # Errors
    /// [`CriError`].
    pub async fn pull_image(
        &self,
        image: &str,
        auth: Option<v1::AuthConfig>,
        sandbox_config: v1::PodSandboxConfig,
    ) -> Result<String, CriError> {
        let message = v1::PullImageRequest {
            image: Some(spec(image)),
            auth,
            sandbox_config: Some(sandbox_config),
        };
        let mut client = self.images.clone();
        let answer = call("PullImage", PULL, client.pull_image(request(message, PULL)));
        Ok(answer.await?.image_ref)
    }

    /// Removes an image; fine if it is gone.
    ///
    /// # Errors
    /// [`CriError`].
    pub async fn remove_image(&self, image: &str) -> Result<(), CriError> {
        let message = v1::RemoveImageRequest {
            image: Some(spec(image)),
        };
        let mut client = self.images.clone();
        let answer = call("RemoveImage", LONG, client.remove_image(request(message, LONG))).await;
        ignore_not_found(answer.map(drop))
    }
}

fn spec(image: &str) -> v1::ImageSpec {
    v1::ImageSpec {
        image: image.to_owned(),
        user_specified_image: image.to_owned(),
        ..v1::ImageSpec::default()
    }
}
