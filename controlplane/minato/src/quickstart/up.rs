//! `minato up`.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use minato_api::fleet::{Cluster, ClusterSpec, KUBECONFIG_KEY, NodePool, NodePoolSpec};
use minato_api::k8s::core::v1::Secret;
use minato_api::kube::api::PostParams;
use minato_api::kube::config::{KubeConfigOptions, Kubeconfig};
use minato_api::kube::runtime::wait::await_condition;
use minato_api::kube::{self, Api, Client};
use minato_api::meta_v1::ObjectMeta;
use minato_fleet::{Detached, Launch};
use minato_provider_mock::local;

use super::progress::Step;
use super::{CLUSTER, Layout, NAMESPACE, Options, POOL};

const MANAGER_TIMEOUT: Duration = Duration::from_secs(30);
const CLUSTER_TIMEOUT: Duration = Duration::from_secs(60);
const NODES_TIMEOUT: Duration = Duration::from_secs(180);
/// Programs of the worker nodes, built with this one.
const NODE_PROGRAMS: &[&str] = &["minato-bootstrap", "kubelet", "kube-proxy", "minato-dns"];

/// Terraform's provider, which may be built with this program.
const TERRAFORM_PROVIDER: &str = "terraform-provider-minato";

/// Starts what is not running, makes the cluster if it is not there, and waits for its nodes.
pub(crate) async fn up(options: &Options) -> anyhow::Result<()> {
    check_machine()?;
    let layout = Layout::new(&options.directory)?;
    images(&layout)?;
    let client = start(&layout).await?;
    terraform(&layout)?;
    if options.bare {
        return bare(&layout);
    }
    cluster(&layout, &client).await?;
    nodes(&layout, &client, options.nodes).await?;
    println!(
        "\nThe cluster {CLUSTER} is ready.\n\n  export KUBECONFIG={}\n",
        layout.kubeconfig().display()
    );
    println!("Next:");
    println!("  kubectl get nodes -o wide");
    println!(
        "  kubectl create deployment web --image={} -- httpd -f -p 80 -h /etc",
        minato_images::BUSYBOX
    );
    println!("  kubectl expose deployment web --port=80 --type=LoadBalancer");
    Ok(())
}

/// Says what to do with a management plane without clusters.
fn bare(layout: &Layout) -> anyhow::Result<()> {
    let kubeconfig = layout.fleet_kubeconfig();
    println!(
        "\nThe management plane is ready.\n\n  export KUBECONFIG={}\n",
        kubeconfig.display()
    );
    println!("Next, by kubectl:");
    println!("  kubectl explain cluster.spec");
    println!("  kubectl get clusters,nodepools");
    if !layout.terraform().exists() {
        println!("For Terraform, build its provider: cargo build --bin {TERRAFORM_PROVIDER}, and run this again.");
        return Ok(());
    }
    println!("Or by Terraform:");
    println!("  export TF_CLI_CONFIG_FILE={}", layout.terraform().display());
    println!("  export MINATO_KUBECONFIG={}", kubeconfig.display());
    println!("  terraform -chdir=terraform/examples/quickstart apply");
    Ok(())
}

/// Has Terraform take the provider that is built with this program, if it is, and look for none in a registry.
/// Source: <https://developer.hashicorp.com/terraform/cli/config/config-file#development-overrides-for-provider-developers>.
fn terraform(layout: &Layout) -> anyhow::Result<()> {
    let here = std::env::current_exe()?;
    let directory = here.parent().context("this program is in no directory")?;
    if !directory.join(TERRAFORM_PROVIDER).exists() {
        return Ok(());
    }
    let directory = serde_json::to_string(directory)?;
    let text = format!(
        "provider_installation {{\n  dev_overrides {{\n    \"minato.dev/minato/minato\" = {directory}\n  }}\n  direct {{}}\n}}\n"
    );
    std::fs::write(layout.terraform(), text).context("writing Terraform's configuration")
}

/// Says what this machine lacks before anything is touched.
fn check_machine() -> anyhow::Result<()> {
    local::check_host()?;
    let here = std::env::current_exe()?;
    let missing: Vec<&str> = NODE_PROGRAMS
        .iter()
        .copied()
        .filter(|name| !here.with_file_name(name).exists())
        .collect();
    if !missing.is_empty() {
        bail!(
            "the node programs {} are not built: run `make up`, which builds them",
            missing.join(", ")
        );
    }
    Ok(())
}

/// The images that nodes load at boot: no registry is needed.
fn images(layout: &Layout) -> anyhow::Result<()> {
    let directory = layout.cloud().images();
    std::fs::create_dir_all(&directory)?;
    let write = |name: &str, make: &dyn Fn() -> anyhow::Result<Vec<u8>>| -> anyhow::Result<()> {
        let path = directory.join(name);
        if !path.exists() {
            let temporary = path.with_extension("tmp");
            std::fs::write(&temporary, make()?)?;
            std::fs::rename(&temporary, &path)?;
        }
        Ok(())
    };
    let step = Step::begin("container images");
    let cache = directory.join("build");
    write("pause.tar", &|| minato_images::pause(minato_images::PAUSE, &cache))?;
    write("busybox.tar", &|| minato_images::busybox(minato_images::BUSYBOX))?;
    step.done();
    Ok(())
}

/// Starts the supervisor unless it runs, and waits for the management API.
async fn start(layout: &Layout) -> anyhow::Result<Client> {
    let step = Step::begin("management plane");
    let record = layout.record("supervisor");
    let log = layout.log("supervisor");
    if Detached::find(&record).is_none() {
        let launch = Launch {
            program: &std::env::current_exe()?,
            arguments: vec!["supervise".to_owned(), format!("--directory={}", layout.root.display())],
            directory: &layout.root,
            log: &log,
            record: &record,
        };
        Detached::start(&launch)?;
    }
    let ready = async {
        loop {
            match ready_client(&layout.manager().join("kubeconfig")).await {
                Ok(client) => return client,
                // Another process: nothing tells when it is ready.
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    };
    let Ok(client) = tokio::time::timeout(MANAGER_TIMEOUT, ready).await else {
        bail!(
            "the management plane is not ready after {MANAGER_TIMEOUT:?}; see {}, {} and {}",
            log.display(),
            layout.log("manager").display(),
            layout.log("mock-cloud").display()
        );
    };
    std::fs::copy(layout.manager().join("kubeconfig"), layout.fleet_kubeconfig())?;
    step.done();
    Ok(client)
}

async fn ready_client(kubeconfig: &Path) -> anyhow::Result<Client> {
    let config = Kubeconfig::read_from(kubeconfig)?;
    let config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
    let client = Client::try_from(config)?;
    client.apiserver_version().await?;
    Ok(client)
}

/// A client of the management API of a quick start that runs.
pub(super) async fn fleet_client(layout: &Layout) -> anyhow::Result<Client> {
    ready_client(&layout.fleet_kubeconfig()).await
}

fn metadata(name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some(NAMESPACE.to_owned()),
        ..ObjectMeta::default()
    }
}

async fn create<K>(api: &Api<K>, object: &K) -> anyhow::Result<()>
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::Serialize + serde::de::DeserializeOwned,
{
    match api.create(&PostParams::default(), object).await {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        other => other.map(drop).map_err(Into::into),
    }
}

/// Makes the cluster, waits until its control plane is ready, and writes its kubeconfig.
async fn cluster(layout: &Layout, client: &Client) -> anyhow::Result<()> {
    let step = Step::begin(format!("control plane of cluster {CLUSTER}"));
    let clusters: Api<Cluster> = Api::namespaced(client.clone(), NAMESPACE);
    create(&clusters, &Cluster::new(metadata(CLUSTER), ClusterSpec::default())).await?;
    let ready = |cluster: Option<&Cluster>| {
        cluster
            .and_then(|c| c.status.as_ref())
            .is_some_and(|status| status.phase == "Ready")
    };
    let waited = tokio::time::timeout(CLUSTER_TIMEOUT, await_condition(clusters.clone(), CLUSTER, ready)).await;
    let Ok(cluster) = waited else {
        let why = clusters
            .get(CLUSTER)
            .await
            .ok()
            .and_then(|c| c.status)
            .unwrap_or_default();
        let why = why
            .conditions
            .iter()
            .map(|c| c.message.clone())
            .next()
            .unwrap_or_default();
        bail!(
            "the control plane is not ready after {CLUSTER_TIMEOUT:?}: {why}; see the logs in {}",
            layout.fleet().join("hosting").display()
        );
    };
    let secret = cluster?
        .and_then(|c| c.status)
        .map(|status| status.kubeconfig_secret)
        .unwrap_or_default();
    let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
    let secret = secrets.get(&secret).await.context("reading the cluster's kubeconfig")?;
    let text = secret
        .data
        .as_ref()
        .and_then(|data| data.get(KUBECONFIG_KEY))
        .context("the kubeconfig Secret is empty")?;
    minato_pki::write_private(&layout.kubeconfig(), std::str::from_utf8(&text.0)?)?;
    step.done();
    Ok(())
}

async fn nodes(layout: &Layout, client: &Client, count: u16) -> anyhow::Result<()> {
    let step = Step::begin(format!("{count} worker nodes"));
    let pools: Api<NodePool> = Api::namespaced(client.clone(), NAMESPACE);
    let spec = NodePoolSpec {
        cluster_name: CLUSTER.to_owned(),
        replicas: i32::from(count),
        ..NodePoolSpec::default()
    };
    create(&pools, &NodePool::new(metadata(POOL), spec)).await?;
    let ready = |pool: Option<&NodePool>| {
        let Some(pool) = pool else { return false };
        let Some(status) = &pool.status else { return false };
        step.say(&format!(
            "{} machines, {} nodes ready",
            status.replicas, status.ready_replicas
        ));
        status.ready_replicas >= pool.spec.replicas
    };
    let waited = tokio::time::timeout(NODES_TIMEOUT, await_condition(pools.clone(), POOL, ready)).await;
    if waited.is_err() {
        let pool = pools
            .get(POOL)
            .await
            .ok()
            .and_then(|pool| pool.status)
            .unwrap_or_default();
        let why = pool
            .conditions
            .iter()
            .map(|c| c.message.clone())
            .next()
            .unwrap_or_default();
        bail!(
            "the nodes are not ready after {NODES_TIMEOUT:?}: {why}; see {}/*/*.log",
            layout.cloud().root.join("instances").display()
        );
    }
    waited??;
    step.done();
    Ok(())
}
