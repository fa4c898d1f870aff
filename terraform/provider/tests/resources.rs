//! Resources against a real management API; the test plays its controllers.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use minato_api::fleet::Cluster;
use minato_api::k8s::core::v1::Secret;
use minato_api::kube::api::{Patch, PatchParams, PostParams};
use minato_api::kube::config::{KubeConfigOptions, Kubeconfig};
use minato_api::kube::runtime::wait::await_condition;
use minato_api::kube::{Api, Client, Config};
use minato_control_plane::{ControlPlane, Management, Role};
use minato_terraform_protocol::wire::provider as wire;
use minato_terraform_protocol::wire::provider::provider_client::ProviderClient;
use minato_terraform_protocol::{Object, Value};
use serde_json::json;
use tonic::transport::Channel;

use support::{Process, command, dynamic, null, object, told};

const CLUSTER: &str = "minato_cluster";

/// A management plane without controllers, and a provider that is configured for it.
struct World {
    _directory: tempfile::TempDir,
    plane: ControlPlane,
    process: Process,
    client: Client,
}

impl World {
    async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let management = Management {
            resources: minato_fleet::resources().unwrap(),
            admission: vec![std::sync::Arc::new(minato_fleet::DeletionProtection)],
        };
        let plane = ControlPlane::start(minato_control_plane::Config {
            role: Role::Management(management),
            ..minato_control_plane::Config::new("fleet", directory.path().join("fleet"))
        })
        .await
        .unwrap();
        let kubeconfig = Kubeconfig::read_from(plane.kubeconfig()).unwrap();
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
        let client = Client::try_from(config.unwrap()).unwrap();
        let process = Process::start(command()).await;
        let this = Self {
            _directory: directory,
            plane,
            process,
            client,
        };
        let path = this.plane.kubeconfig().display().to_string();
        let config = Object::from([("kubeconfig", path.into())]);
        let verdict = this.configure(&config).await;
        assert_eq!(verdict, []);
        this
    }

    fn provider(&self) -> ProviderClient<Channel> {
        self.process.provider()
    }

    async fn configure(&self, config: &Object) -> Vec<(String, String)> {
        let request = wire::Configuration {
            terraform_version: "1.11.4".to_owned(),
            config: dynamic(config),
        };
        let answer = self.provider().configure_provider(request).await.unwrap();
        told(&answer.into_inner().diagnostics)
    }

    fn clusters(&self) -> Api<Cluster> {
        Api::namespaced(self.client.clone(), "default")
    }

    async fn plan(&self, prior: Option<&Object>, proposed: Option<&Object>, config: &Object) -> wire::Plan {
        let request = wire::Proposal {
            type_name: CLUSTER.to_owned(),
            prior: prior.map_or_else(null, dynamic),
            proposed: proposed.map_or_else(null, dynamic),
            config: dynamic(config),
            private: Vec::new(),
        };
        self.provider()
            .plan_resource_change(request)
            .await
            .unwrap()
            .into_inner()
    }

    async fn apply(&self, prior: Option<&Object>, planned: Option<&Object>, config: &Object) -> wire::Applied {
        let request = wire::PlannedChange {
            type_name: CLUSTER.to_owned(),
            prior: prior.map_or_else(null, dynamic),
            planned: planned.map_or_else(null, dynamic),
            config: dynamic(config),
            private: Vec::new(),
        };
        self.provider()
            .apply_resource_change(request)
            .await
            .unwrap()
            .into_inner()
    }

    async fn read(&self, state: &Object) -> Option<Object> {
        let request = wire::Current {
            type_name: CLUSTER.to_owned(),
            state: dynamic(state),
            private: Vec::new(),
        };
        let answer = self.provider().read_resource(request).await.unwrap().into_inner();
        assert_eq!(told(&answer.diagnostics), []);
        object(answer.state)
    }

    /// What controllers do: waits until the cluster has this generation, and says what has become of it.
    async fn settle(&self, name: &str, generation: i64, ready: bool) {
        let reached =
            |cluster: Option<&Cluster>| cluster.is_some_and(|cluster| cluster.metadata.generation >= Some(generation));
        await_condition(self.clusters(), name, reached).await.unwrap();
        let (status, message) = if ready { ("True", "") } else { ("False", "no room") };
        let status = json!({"status": {
            "phase": if ready { "Ready" } else { "Provisioning" },
            "version": "v1.36.0",
            "endpoint": {"host": "127.0.0.1", "port": 6443, "nodeHost": "10.0.0.1", "nodePort": 6443},
            "kubeconfigSecret": "c-kubeconfig",
            "conditions": [{
                "type": "Ready", "status": status, "reason": "Why", "message": message,
                "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": generation,
            }],
            "observedGeneration": generation,
        }});
        let patched = self
            .clusters()
            .patch_status(name, &PatchParams::default(), &Patch::Merge(&status))
            .await;
        patched.unwrap();
    }

    async fn make_kubeconfig(&self) {
        let secret: Secret = serde_json::from_value(json!({
            "metadata": {"name": "c-kubeconfig"},
            "stringData": {"kubeconfig": json!({
                "clusters": [{"name": "c", "cluster": {
                    "server": "https://127.0.0.1:6443", "certificate-authority-data": "Y2E=",
                }}],
                "users": [{"name": "u", "user": {"client-certificate-data": "Y2VydA==", "client-key-data": "a2V5"}}],
            }).to_string()},
        }))
        .unwrap();
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), "default");
        secrets.create(&PostParams::default(), &secret).await.unwrap();
    }
}

/// What Terraform proposes for a configuration: what it sets, and what is computed from before.
fn proposed(prior: &Object, config: &Object) -> Object {
    let mut proposed = prior.clone();
    for (name, value) in &config.0 {
        proposed.set(name, value.clone());
    }
    proposed
}

fn config(name: &str, label: &str) -> Object {
    let labels = Value::from(Object::from([("team", label.into())]));
    let timeouts = Value::from(Object::from([("create", "20s".into()), ("update", "20s".into())]));
    Object::from([("name", name.into()), ("labels", labels), ("timeouts", timeouts)])
}

#[tokio::test]
async fn a_cluster_is_made_changed_and_deleted() {
    let world = World::start().await;
    world.make_kubeconfig().await;
    let first = config("c", "a");
    let plan = world.plan(None, Some(&first), &first).await;
    assert_eq!(told(&plan.diagnostics), []);
    let planned = object(plan.planned).unwrap();
    for name in ["id", "uid", "version", "endpoint", "ca_certificate", "ready"] {
        assert!(planned.get(name).is_unknown(), "{name}");
    }
    assert_eq!(planned.get("deletion_protection"), &false.into());
    // A plan makes nothing.
    assert!(world.clusters().get_opt("c").await.unwrap().is_none());

    let (applied, ()) = tokio::join!(world.apply(None, Some(&planned), &first), world.settle("c", 1, true));
    assert_eq!(told(&applied.diagnostics), []);
    let made = object(applied.state).unwrap();
    let facts = [
        ("id", "default/c".into()),
        ("version", "1.36".into()),
        ("running_version", "v1.36.0".into()),
        ("endpoint", "https://127.0.0.1:6443".into()),
        ("ca_certificate", "ca".into()),
        ("cloud", "mock".into()),
        ("phase", "Ready".into()),
        ("ready", true.into()),
    ];
    for (name, value) in &facts {
        assert_eq!(made.get(name), value, "{name}");
    }
    let cluster = world.clusters().get("c").await.unwrap();
    assert_eq!(made.str("uid"), cluster.metadata.uid.as_deref());
    assert_eq!(world.read(&made).await.as_ref(), Some(&made));

    // In place, with what is computed kept.
    let second = config("c", "b");
    let plan = world.plan(Some(&made), Some(&proposed(&made, &second)), &second).await;
    assert_eq!((told(&plan.diagnostics), plan.requires_replace), (vec![], vec![]));
    let planned = object(plan.planned).unwrap();
    for (name, value) in &facts {
        assert_eq!(planned.get(name), value, "{name}");
    }
    let generation = cluster.metadata.generation.unwrap();
    let applying = world.apply(Some(&made), Some(&planned), &second);
    let (applied, ()) = tokio::join!(applying, world.settle("c", generation, true));
    assert_eq!(told(&applied.diagnostics), []);
    let changed = object(applied.state).unwrap();
    let cluster = world.clusters().get("c").await.unwrap();
    assert_eq!(cluster.metadata.labels.unwrap()["team"], "b");
    assert_eq!(changed.str("uid"), cluster.metadata.uid.as_deref());

    let applied = world.apply(Some(&changed), None, &Object::default()).await;
    assert_eq!(told(&applied.diagnostics), []);
    assert_eq!(object(applied.state), None);
    assert_eq!(world.read(&changed).await, None);
    // What is gone already is deleted without complaint.
    let applied = world.apply(Some(&changed), None, &Object::default()).await;
    assert_eq!(told(&applied.diagnostics), []);
}

#[tokio::test]
async fn what_is_not_ready_is_told_with_its_reasons_and_not_forgotten() {
    let world = World::start().await;
    let mut slow = config("c", "a");
    slow.set("timeouts", Value::from(Object::from([("create", "1s".into())])));
    let planned = object(world.plan(None, Some(&slow), &slow).await.planned).unwrap();
    let (applied, ()) = tokio::join!(world.apply(None, Some(&planned), &slow), world.settle("c", 1, false));
    let said = told(&applied.diagnostics);
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].1.contains("condition Ready is False: Why: no room"), "{said:?}");
    let state = object(applied.state).unwrap();
    assert_eq!(
        (state.str("id"), state.get("ready")),
        (Some("default/c"), &false.into())
    );
    assert!(Value::from(state).is_wholly_known());
    // Another one of this name is not taken for it.
    let applied = world.apply(None, Some(&planned), &slow).await;
    let said = told(&applied.diagnostics);
    assert!(said[0].0 == "name" && said[0].1.contains("import it"), "{said:?}");
}

#[tokio::test]
async fn what_the_api_would_refuse_is_told_while_planning() {
    let world = World::start().await;
    let mut bad = config("c", "a");
    bad.set("version", "1.12");
    bad.set("service_cidr", "10.244.0.0/24");
    let said = told(&world.plan(None, Some(&bad), &bad).await.diagnostics);
    let places: Vec<&str> = said.iter().map(|(place, _)| place.as_str()).collect();
    assert_eq!(places, ["version", "service_cidr"], "{said:?}");

    let mut state = config("c", "a");
    state.set("deletion_protection", true);
    let said = told(&world.plan(Some(&state), None, &Object::default()).await.diagnostics);
    assert_eq!(said[0].0, "deletion_protection");
    // A new name is another cluster.
    let renamed = config("d", "a");
    let plan = world
        .plan(Some(&state), Some(&proposed(&state, &renamed)), &renamed)
        .await;
    let steps = plan.requires_replace.iter().map(|path| path.steps.len());
    assert_eq!(steps.collect::<Vec<_>>(), [1]);
}

#[tokio::test]
async fn the_interrupted_end_at_once() {
    let world = World::start().await;
    let config = config("c", "a");
    let planned = object(world.plan(None, Some(&config), &config).await.planned).unwrap();
    let stop = async {
        world.settle("c", 1, false).await;
        world.provider().stop_provider(wire::Nothing {}).await.unwrap();
    };
    let (applied, ()) = tokio::join!(world.apply(None, Some(&planned), &config), stop);
    let said = told(&applied.diagnostics);
    assert!(said[0].1.contains("interrupted"), "{said:?}");
    assert!(applied.state.is_some());
}

#[tokio::test]
async fn states_configurations_and_imports_are_checked() {
    let world = World::start().await;
    let validate = |config: Object| {
        let request = wire::Config {
            type_name: CLUSTER.to_owned(),
            config: dynamic(&config),
        };
        let mut provider = world.provider();
        async move {
            told(
                &provider
                    .validate_resource_config(request)
                    .await
                    .unwrap()
                    .into_inner()
                    .diagnostics,
            )
        }
    };
    assert_eq!(validate(Object::from([("name", Value::Unknown)])).await, []);
    let said = validate(Object::from([("name", "A".into()), ("pod_cidr", "x".into())])).await;
    let places: Vec<&str> = said.iter().map(|(place, _)| place.as_str()).collect();
    assert_eq!(places, ["name", "pod_cidr"]);

    let upgrade = |version: i64, json: &str| {
        let raw = wire::stored_state::Raw {
            json: json.as_bytes().to_vec(),
            flat: std::collections::HashMap::new(),
        };
        let request = wire::StoredState {
            type_name: CLUSTER.to_owned(),
            version,
            raw: Some(raw),
        };
        let mut provider = world.provider();
        async move { provider.upgrade_resource_state(request).await.unwrap().into_inner() }
    };
    let upgraded = upgrade(0, r#"{"name": "c", "forgotten": 1}"#).await;
    assert_eq!(told(&upgraded.diagnostics), []);
    let state = object(upgraded.state).unwrap();
    assert_eq!(
        (state.str("name"), state.0.contains_key("forgotten")),
        (Some("c"), false)
    );
    assert_eq!(upgrade(1, "{}").await.diagnostics.len(), 1);
    assert_eq!(upgrade(0, "{").await.diagnostics.len(), 1);

    for (id, good) in [("c", true), ("ns/c", true), ("a/b/c", false)] {
        let request = wire::Import {
            type_name: CLUSTER.to_owned(),
            id: id.to_owned(),
        };
        let answer = world
            .provider()
            .import_resource_state(request)
            .await
            .unwrap()
            .into_inner();
        assert_eq!(
            (answer.resources.len() == 1, answer.diagnostics.is_empty()),
            (good, good),
            "{id}"
        );
    }
    let said = world.configure(&Object::default()).await;
    assert_eq!(said[0].0, "kubeconfig");
    let said = world
        .configure(&Object::from([("kubeconfig", "/nowhere".into())]))
        .await;
    assert_eq!(said[0].0, "kubeconfig");
}

#[tokio::test]
async fn a_kubeconfig_is_found_by_name_and_kept_or_not() {
    let world = World::start().await;
    let query = |cluster: &str| wire::Query {
        type_name: "minato_kubeconfig".to_owned(),
        config: dynamic(&Object::from([("cluster", cluster.into())])),
    };
    let answer = world
        .provider()
        .read_data_source(query("c"))
        .await
        .unwrap()
        .into_inner();
    let said = told(&answer.diagnostics);
    assert!(
        said[0].0 == "cluster" && said[0].1.contains("does not exist"),
        "{said:?}"
    );

    let cluster = Cluster::new(
        minato_api::meta_v1::ObjectMeta {
            name: Some("c".to_owned()),
            ..Default::default()
        },
        Default::default(),
    );
    world.clusters().create(&PostParams::default(), &cluster).await.unwrap();
    let answer = world
        .provider()
        .read_data_source(query("c"))
        .await
        .unwrap()
        .into_inner();
    assert!(told(&answer.diagnostics)[0].1.contains("no kubeconfig yet"));
    world.settle("c", 1, true).await;
    world.make_kubeconfig().await;
    for id in ["c", "default/c"] {
        let answer = world.provider().read_data_source(query(id)).await.unwrap().into_inner();
        assert_eq!(told(&answer.diagnostics), []);
        let found = object(answer.state).unwrap();
        assert_eq!(found.str("cluster"), Some(id));
        assert_eq!(found.str("id"), Some("default/c"));
        assert_eq!(found.str("host"), Some("https://127.0.0.1:6443"));
        assert_eq!(found.str("client_key"), Some("key"));
    }
    let request = wire::Config {
        type_name: "minato_kubeconfig".to_owned(),
        config: query("c").config,
    };
    let opened = world
        .provider()
        .open_ephemeral_resource(request)
        .await
        .unwrap()
        .into_inner();
    assert_eq!(object(opened.result).unwrap().str("client_certificate"), Some("cert"));
}
