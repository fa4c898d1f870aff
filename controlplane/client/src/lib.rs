//! Building kube clients over sockets or in process, and kubeconfig files.
