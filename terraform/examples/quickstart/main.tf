# A cluster with two worker nodes. Next to a running `minato up --bare`:
#
#   export TF_CLI_CONFIG_FILE=$PWD/.minato/terraform.rc MINATO_KUBECONFIG=$PWD/.minato/fleet.kubeconfig
#   terraform -chdir=terraform/examples/quickstart apply

terraform {
  required_version = ">= 1.0"
  required_providers {
    minato = {
      source = "minato.dev/minato/minato"
    }
  }
}

# The management API's kubeconfig is named by MINATO_KUBECONFIG.
provider "minato" {}

resource "minato_cluster" "this" {
  name    = var.name
  version = var.kubernetes_version
  labels  = var.labels
}

resource "minato_node_pool" "workers" {
  cluster  = minato_cluster.this.name
  name     = "workers"
  replicas = var.nodes
  labels = {
    "example.com/pool" = "workers"
  }
}

data "minato_kubeconfig" "this" {
  # By the id, which is known once the cluster is there: the name would be looked up too early.
  cluster = minato_cluster.this.id
}
