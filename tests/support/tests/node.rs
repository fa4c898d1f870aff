//! The test node itself.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::path::Path;

use minato_test_support::{NodeConfig, TestNode, images};

#[tokio::test]
async fn a_node_starts_with_images_and_leaves_nothing() {
    let config = NodeConfig {
        name: format!("ms{}", std::process::id()),
        cache: env!("CARGO_TARGET_TMPDIR").into(),
    };
    let node = TestNode::start(&config).unwrap();
    let output = node
        .command("ctr")
        .args(["-n", "k8s.io", "images", "ls", "-q"])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains(images::BUSYBOX) && text.contains(images::PAUSE), "{text}");
    let directory = node.directory().to_owned();
    let listener = node.listen("127.0.0.1:4000".parse().unwrap()).unwrap();
    let (accepted, connected) = tokio::join!(listener.accept(), async {
        node.connect("127.0.0.1:4000".parse().unwrap()).unwrap()
    });
    accepted.unwrap();
    drop(connected);
    drop(node);
    assert!(!directory.exists());
    assert!(!Path::new("/run/netns").join(&config.name).exists());
    assert!(
        !Path::new("/sys/fs/cgroup/memory")
            .join(format!("minato-test-{}", config.name))
            .exists()
    );
}
