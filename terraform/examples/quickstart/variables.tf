variable "name" {
  description = "Name of the cluster."
  type        = string
  default     = "example"
}

variable "kubernetes_version" {
  description = "Kubernetes minor version."
  type        = string
  default     = "1.36"
}

variable "labels" {
  description = "Labels of the cluster in the management API."
  type        = map(string)
  default     = {}
}

variable "nodes" {
  description = "Number of worker nodes."
  type        = number
  default     = 2
}
