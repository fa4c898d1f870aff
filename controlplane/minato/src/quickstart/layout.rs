//! What is where below the quick start's directory.

use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::mock_cloud;

/// The directory of one quick start.
pub(crate) struct Layout {
    pub(crate) root: PathBuf,
}

impl Layout {
    /// The layout of a directory, which is made.
    pub(crate) fn new(directory: &Path) -> anyhow::Result<Self> {
        std::fs::create_dir_all(directory).with_context(|| format!("making {}", directory.display()))?;
        let root = std::fs::canonicalize(directory)?;
        let layout = Self { root };
        // Tenants' users pass through on their way to the cloud's socket, and see nothing.
        for path in [layout.root.clone(), layout.cloud().root] {
            std::fs::create_dir_all(&path).with_context(|| format!("making {}", path.display()))?;
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o711))?;
        }
        Ok(layout)
    }

    pub(crate) fn cloud(&self) -> mock_cloud::Layout {
        mock_cloud::Layout {
            root: self.root.join("cloud"),
        }
    }
    pub(crate) fn manager(&self) -> PathBuf {
        self.root.join("manager")
    }
    pub(crate) fn fleet(&self) -> PathBuf {
        self.root.join("fleet")
    }
    /// The tenant admin's kubeconfig.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.root.join("kubeconfig")
    }
    /// The management API's kubeconfig.
    pub(crate) fn fleet_kubeconfig(&self) -> PathBuf {
        self.root.join("fleet.kubeconfig")
    }
    /// Where Terraform finds the provider that was built with this program.
    pub(crate) fn terraform(&self) -> PathBuf {
        self.root.join("terraform.rc")
    }
    pub(crate) fn record(&self, process: &str) -> PathBuf {
        self.root.join(format!("{process}.json"))
    }
    pub(crate) fn log(&self, process: &str) -> PathBuf {
        self.root.join(format!("{process}.log"))
    }
    pub(crate) fn cgroup(&self) -> String {
        format!("{}-tenants", self.cloud().prefix())
    }

    pub(crate) fn cloud_arguments(&self) -> Vec<String> {
        vec![
            "mock-cloud".to_owned(),
            format!("--directory={}", self.cloud().root.display()),
        ]
    }

    pub(crate) fn manager_arguments(&self) -> anyhow::Result<Vec<String>> {
        let cloud = self.cloud();
        let port = self.manager_port()?;
        Ok(vec![
            "manager".to_owned(),
            format!("--directory={}", self.manager().display()),
            format!("--listen=127.0.0.1:{port}"),
            format!("--tenants={}", self.fleet().display()),
            format!("--cloud-socket={}", cloud.socket().display()),
            "--tenant-cloud-socket=../../../cloud/api.sock".to_owned(),
            format!("--cloud-token-file={}", cloud.token().display()),
            format!("--cgroup={}", self.cgroup()),
        ])
    }

    /// The management API keeps its port, so that kubeconfigs stay good.
    fn manager_port(&self) -> anyhow::Result<u16> {
        let path = self.root.join("manager.port");
        if let Ok(text) = std::fs::read_to_string(&path)
            && let Ok(port) = text.trim().parse()
        {
            return Ok(port);
        }
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("looking for a free port")?;
        let port = listener.local_addr()?.port();
        std::fs::write(&path, format!("{port}\n")).with_context(|| format!("writing {}", path.display()))?;
        Ok(port)
    }
}
