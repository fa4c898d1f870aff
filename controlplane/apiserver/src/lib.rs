//! The Kubernetes API server: filters, endpoints, registry, discovery, OpenAPI.
