//! Carries plans out.

use minato_api::k8s::discovery::v1::EndpointSlice;
use minato_api::kube::api::PostParams;
use minato_runtime::ObjectKey;

use super::Slices;
use super::plan::Plan;
use crate::error::{Error, Result, is_namespace_terminating, is_not_found};
use crate::ops;

impl Slices {
    pub(super) async fn apply(&self, key: &ObjectKey, plan: Plan) -> Result<()> {
        let api = &ops::namespaced::<EndpointSlice>(self.cx.client(), &key.namespace);
        // New ones first: an endpoint that moves is rather told twice than not at all.
        ops::all(plan.create.iter().map(|slice| async move {
            match api.create(&PostParams::default(), slice).await {
                Ok(_) => Ok(()),
                Err(error) if is_namespace_terminating(&error) => Ok(()),
                Err(error) => Err(Error::from(error)),
            }
        }))
        .await?;
        ops::all(plan.update.iter().map(|slice| async move {
            match api
                .replace(ops::name(&slice.metadata), &PostParams::default(), slice)
                .await
            {
                Ok(_) => Ok(()),
                Err(error) if is_not_found(&error) => Ok(()),
                Err(error) => Err(Error::from(error)),
            }
        }))
        .await?;
        ops::all(plan.delete.iter().map(|slice| ops::delete(api, &slice.metadata))).await?;
        Ok(())
    }
}
