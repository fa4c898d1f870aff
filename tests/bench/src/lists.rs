//! Lists of 5,000 ConfigMaps, in each form.

use std::time::Instant;

use crate::report::{Report, milliseconds, quantile};
use crate::server::Server;
use crate::writes::{self, COLLECTION};

const REPEATS: usize = 30;

/// Every form of the same list.
pub(crate) async fn measure(report: &mut Report) -> anyhow::Result<()> {
    let server = Server::start().await?;
    let client = server.client().await?;
    writes::create(&client, "l", 5_000).await?;
    for (name, accept, query) in [
        ("list5000_json_ms_p50", "application/json", ""),
        ("list5000_json_cached_ms_p50", "application/json", "?resourceVersion=0"),
        ("list5000_protobuf_ms_p50", "application/vnd.kubernetes.protobuf", ""),
        (
            "list5000_table_ms_p50",
            "application/json;as=Table;v=v1;g=meta.k8s.io",
            "",
        ),
        (
            "list5000_metadata_ms_p50",
            "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
            "",
        ),
        ("list5000_first_page_ms_p50", "application/json", "?limit=500"),
    ] {
        let path = format!("{COLLECTION}{query}");
        let mut samples = Vec::new();
        for _ in 0..REPEATS {
            let sent = Instant::now();
            client.get_as(&path, accept).await?;
            samples.push(milliseconds(sent.elapsed()));
        }
        report.add(name, quantile(&samples, 0.5));
    }
    report.add("list5000_pss_mib", server.pss()?);
    Ok(())
}
