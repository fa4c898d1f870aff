output "endpoint" {
  description = "URL of the cluster's API."
  value       = minato_cluster.this.endpoint
}

output "nodes" {
  description = "Names of the worker nodes."
  value       = minato_node_pool.workers.nodes
}

output "kubeconfig" {
  description = "The cluster's kubeconfig: terraform output -raw kubeconfig > kubeconfig"
  value       = data.minato_kubeconfig.this.raw
  sensitive   = true
}
