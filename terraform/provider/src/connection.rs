//! The management API, as the provider's configuration names it.

use std::path::PathBuf;
use std::sync::Arc;

use minato_api::kube::config::{KubeConfigOptions, Kubeconfig};
use minato_api::kube::{Client, Config};
use minato_terraform_protocol::{Diagnostic, Diagnostics, Object, Path};
use parking_lot::RwLock;
use tokio_util::sync::CancellationToken;

/// Names the kubeconfig when the configuration does not.
const VARIABLE: &str = "MINATO_KUBECONFIG";
const NAMESPACE: &str = "default";

/// The connection of one provider, once it is configured.
#[derive(Default)]
pub(crate) struct Connection {
    session: RwLock<Option<Arc<Session>>>,
    stop: CancellationToken,
}

/// What calls need.
pub(crate) struct Session {
    pub(crate) client: Client,
    /// Of resources that do not name one.
    pub(crate) namespace: String,
    /// Cancelled when the user wants no more.
    pub(crate) stop: CancellationToken,
}

impl Connection {
    pub(crate) async fn configure(&self, config: &Object) -> Diagnostics {
        if ["kubeconfig", "context"]
            .iter()
            .any(|name| config.get(name).is_unknown())
        {
            // Known when it is applied; until then, whatever needs the API says so.
            return Diagnostics::default();
        }
        match self.session(config).await {
            Ok(session) => {
                *self.session.write() = Some(Arc::new(session));
                Diagnostics::default()
            }
            Err(diagnostic) => diagnostic.into(),
        }
    }

    async fn session(&self, config: &Object) -> Result<Session, Diagnostic> {
        let path = kubeconfig(config, |name| std::env::var(name).ok())?;
        let unusable = |error: &dyn std::fmt::Display| {
            let text = format!("{}: {error}", path.display());
            Diagnostic::error("Unusable kubeconfig", text).at(Path::attribute("kubeconfig"))
        };
        let file = Kubeconfig::read_from(&path).map_err(|error| unusable(&error))?;
        let options = KubeConfigOptions {
            context: config.str("context").map(str::to_owned),
            ..KubeConfigOptions::default()
        };
        let loaded = Config::from_custom_kubeconfig(file, &options).await;
        let client = Client::try_from(loaded.map_err(|error| unusable(&error))?).map_err(|error| unusable(&error))?;
        Ok(Session {
            client,
            namespace: config.str("namespace").unwrap_or(NAMESPACE).to_owned(),
            stop: self.stop.clone(),
        })
    }

    /// The session, or what to do to have one.
    pub(crate) fn get(&self) -> Result<Arc<Session>, Diagnostic> {
        self.known().ok_or_else(|| {
            let text = "The provider's kubeconfig is not known yet: it comes from something that is not there.";
            Diagnostic::error("No connection to the management API", text)
        })
    }

    /// The session, if there is one yet.
    pub(crate) fn known(&self) -> Option<Arc<Session>> {
        self.session.read().clone()
    }

    pub(crate) fn stop(&self) {
        self.stop.cancel();
    }
}

/// The kubeconfig's path.
fn kubeconfig(config: &Object, variable: impl Fn(&str) -> Option<String>) -> Result<PathBuf, Diagnostic> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    let Some(path) = config.str("kubeconfig").map(str::to_owned).or_else(|| set(VARIABLE)) else {
        let text = format!(
            "Set kubeconfig in the provider's block, or the environment variable {VARIABLE}, to the path of the \
             management API's kubeconfig; `minato up` writes it to .minato/fleet.kubeconfig."
        );
        return Err(Diagnostic::error("No kubeconfig", text).at(Path::attribute("kubeconfig")));
    };
    Ok(match path.strip_prefix("~/") {
        Some(rest) => PathBuf::from(set("HOME").unwrap_or_default()).join(rest),
        None => PathBuf::from(path),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kubeconfig_is_named_by_the_configuration_or_else_the_environment() {
        let environment = |name: &str| match name {
            VARIABLE => Some("/env".to_owned()),
            "HOME" => Some("/home/me".to_owned()),
            _ => None,
        };
        let named = |path: &str| kubeconfig(&Object::from([("kubeconfig", path.into())]), environment);
        assert_eq!(named("/a").unwrap(), PathBuf::from("/a"));
        assert_eq!(named("~/a").unwrap(), PathBuf::from("/home/me/a"));
        assert_eq!(
            kubeconfig(&Object::default(), environment).unwrap(),
            PathBuf::from("/env")
        );
        let none = kubeconfig(&Object::default(), |_| None).unwrap_err();
        assert_eq!(none.path, Path::attribute("kubeconfig"));
    }
}
