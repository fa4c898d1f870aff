//! Label keys, annotation keys, finalizers and names that other programs rely on, each written once.

/// Tells the ReplicaSets of a Deployment, and their pods, apart.
pub(crate) const POD_TEMPLATE_HASH: &str = "pod-template-hash";
/// Names the ControllerRevision that a StatefulSet's pod was made from; of a DaemonSet's pod it is the hash.
pub(crate) const CONTROLLER_REVISION_HASH: &str = "controller-revision-hash";
/// How many templates a DaemonSet has had.
pub(crate) const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";
/// The same, of the template that a pod was made from.
pub(crate) const POD_TEMPLATE_GENERATION: &str = "pod-template-generation";
/// Hash of the state that a StatefulSet's ControllerRevision holds.
pub(crate) const STATE_HASH: &str = "controller.kubernetes.io/hash";
/// Name of a StatefulSet's pod, as a label for Services.
pub(crate) const STATEFULSET_POD_NAME: &str = "statefulset.kubernetes.io/pod-name";
/// Ordinal of a StatefulSet's pod.
pub(crate) const POD_INDEX: &str = "apps.kubernetes.io/pod-index";
/// Sequence of a Deployment's rollouts.
pub(crate) const REVISION: &str = "deployment.kubernetes.io/revision";
/// Earlier revisions of a ReplicaSet that was rolled back to.
pub(crate) const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";
/// Replicas of the Deployment when it last scaled this ReplicaSet.
pub(crate) const DESIRED_REPLICAS: &str = "deployment.kubernetes.io/desired-replicas";
/// The same with the surge.
pub(crate) const MAX_REPLICAS: &str = "deployment.kubernetes.io/max-replicas";
/// Generation that a DaemonSet or Deployment rollback writes; never copied.
pub(crate) const ROLLBACK: &str = "deprecated.deployment.rollback.to";
/// `kubectl apply`'s memory; never copied.
pub(crate) const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// What deleting a pod costs, relative to its siblings.
pub(crate) const POD_DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// Service of an EndpointSlice.
pub(crate) const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// Who keeps an EndpointSlice.
pub(crate) const SLICE_MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
/// Our EndpointSlices, under upstream's name so that a cluster can change hands.
pub(crate) const SLICE_CONTROLLER: &str = "endpointslice-controller.k8s.io";
/// Endpoints that we keep.
pub(crate) const ENDPOINTS_MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
/// Value of [`ENDPOINTS_MANAGED_BY`].
pub(crate) const ENDPOINTS_CONTROLLER: &str = "endpoint-controller";
/// When the change happened that an EndpointSlice reflects.
pub(crate) const TRIGGER_TIME: &str = "endpoints.kubernetes.io/last-change-trigger-time";
/// Marks endpoints of headless Services.
pub(crate) const HEADLESS: &str = "service.kubernetes.io/headless";
/// More than a thousand endpoints were cut off.
pub(crate) const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";

/// Zone of a node.
pub(crate) const ZONE: &str = "topology.kubernetes.io/zone";

/// Orphans dependents before an owner goes.
pub(crate) const ORPHAN: &str = "orphan";
/// Keeps an owner until its blocking dependents are gone.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";
/// Keeps a Job's pods until they are counted.
pub(crate) const JOB_TRACKING: &str = "batch.kubernetes.io/job-tracking";

/// Completion index of an indexed Job's pod.
pub(crate) const JOB_INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// How often its index failed before, on the pod of a Job that limits that.
pub(crate) const JOB_INDEX_FAILURES: &str = "batch.kubernetes.io/job-index-failure-count";
/// The same for failures that a policy leaves out of account.
pub(crate) const JOB_INDEX_IGNORED: &str = "batch.kubernetes.io/job-index-ignored-failure-count";
/// Scheduled time of a CronJob's Job.
pub(crate) const CRONJOB_TIMESTAMP: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";
