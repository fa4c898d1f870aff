//! The provider's process: Terraform starts it.

use std::process::ExitCode;
use std::sync::Arc;

/// Terraform shows what it wants of it; libraries speak up only when something is wrong.
const LOGS: &str = "warn,terraform_provider_minato=debug,minato_terraform_protocol=debug";

#[tokio::main]
async fn main() -> ExitCode {
    minato_terraform_protocol::init_log(LOGS);
    let provider = Arc::new(terraform_provider_minato::Minato::new());
    match minato_terraform_protocol::serve(provider).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{:#}", anyhow::Error::from(error));
            ExitCode::FAILURE
        }
    }
}
