use std::sync::Arc;

use jiff::Timestamp;
use minato_api::k8s::core::v1::{Pod, ResourceQuota};
use minato_meta::GroupResource;
use minato_rules::quota;
use serde_json::json;

use super::plan::{sources, sum, times, with_status};

#[test]
fn sums_what_the_quota_is_about_and_writes_only_differences() {
    let pod = |cpu: &str, deadline: Option<i64>| -> Arc<Pod> {
        Arc::new(
            serde_json::from_value(
                json!({"metadata": {}, "spec": {"activeDeadlineSeconds": deadline, "containers": [
                {"name": "c", "resources": {"requests": {"cpu": cpu}}}]}}),
            )
            .unwrap(),
        )
    };
    let tree = json!({"metadata": {"name": "q"}, "spec": {"hard": {"requests.cpu": "4", "pods": "5"}, "scopes": ["NotTerminating"]}});
    let pods = [pod("1", None), pod("500m", None), pod("2", Some(60))];
    let total = sum(&tree, &GroupResource::new("", "pods"), &pods, Timestamp::UNIX_EPOCH).unwrap();
    assert_eq!(
        (total["requests.cpu"].to_string(), total["pods"].to_string()),
        ("1500m".to_owned(), "2".to_owned())
    );

    let hard = quota::hard(&tree);
    assert_eq!(sources(&hard).len(), 1);
    let used = hard.keys().map(|name| (name.clone(), total[name])).collect();
    let current: ResourceQuota = serde_json::from_value(tree).unwrap();
    let mut changed = with_status(&current, &hard, &used).unwrap();
    assert_eq!(with_status(&changed, &hard, &used), None);
    // The same amount written otherwise is the same.
    let written = changed.status.as_mut().unwrap().used.as_mut().unwrap();
    written.get_mut("requests.cpu").unwrap().0 = "1.5".to_owned();
    assert_eq!(with_status(&changed, &hard, &used), None);
}

#[test]
fn counts_are_amounts() {
    let secrets = GroupResource::new("", "secrets");
    let three = times(quota::usage(&secrets, &json!(null), Timestamp::UNIX_EPOCH), 3);
    let texts: Vec<_> = three.iter().map(|(name, amount)| format!("{name}={amount}")).collect();
    assert_eq!(texts, ["count/secrets=3", "secrets=3"]);
}
