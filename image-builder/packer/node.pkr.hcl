# A node image for a real rack: an instance boots a plain Debian or Ubuntu image, the scripts in ../provision run on it,
# and its disk becomes the image. docs/how-to/build-node-images.md tells how to run this.
packer {
  required_plugins {
    oxide = {
      source  = "github.com/oxidecomputer/oxide"
      version = ">= 0.9.0"
    }
  }
}

variable "project" {
  type        = string
  description = "Project of the temporary instance, and of the image."
}

variable "base_image" {
  type        = string
  description = "Name of the image to begin with: Debian 12 or Ubuntu 22.04, or newer, with cloud-init."
}

variable "base_image_project" {
  type        = string
  default     = ""
  description = "Project of that image; empty: it is the silo's."
}

variable "ssh_username" {
  type        = string
  default     = "debian"
  description = "The user that the image to begin with lets in: debian, ubuntu."
}

variable "kubernetes_version" {
  type        = string
  description = "Such as v1.36.3."

  validation {
    condition     = can(regex("^v[0-9]+\\.[0-9]+\\.[0-9]+$", var.kubernetes_version))
    error_message = "The Kubernetes version is written with its v, such as v1.36.3."
  }
}

variable "kubernetes_packages_url" {
  type        = string
  description = "Debian repository of Kubernetes' own packages for that minor version, as Kubernetes' documentation names it."
}

variable "ip_pool" {
  type        = string
  default     = ""
  description = "Pool of the address by which the instance is reached; empty: the silo's default."
}

variable "vpc" {
  type    = string
  default = "default"
}

variable "subnet" {
  type    = string
  default = "default"
}

locals {
  name    = "node-${replace(var.kubernetes_version, ".", "-")}"
  scripts = "${path.root}/../provision"
}

# OXIDE_HOST and OXIDE_TOKEN in the environment say which rack, and who asks.
data "oxide-image" "base" {
  name    = var.base_image
  project = var.base_image_project
}

source "oxide-instance" "node" {
  project            = var.project
  boot_disk_image_id = data.oxide-image.base.image_id
  # Packages and container images take 4 GB; a disk that is made from the image is at least as large as this.
  boot_disk_size = 10737418240
  cpus           = 2
  memory         = 4294967296
  ip_pool        = var.ip_pool
  vpc            = var.vpc
  subnet         = var.subnet

  artifact_name    = local.name
  artifact_os      = "debian"
  artifact_version = "kubernetes-${var.kubernetes_version}"

  ssh_username = var.ssh_username
}

build {
  sources = ["source.oxide-instance.node"]

  # cloud-init still installs keys and packages when the first login succeeds.
  provisioner "shell" {
    inline = ["cloud-init status --wait || true"]
  }

  # The scripts find their files beside themselves.
  provisioner "file" {
    source      = local.scripts
    destination = "/tmp"
  }

  provisioner "shell" {
    execute_command = "chmod +x {{ .Path }}; sudo {{ .Vars }} {{ .Path }}"
    environment_vars = [
      "KUBERNETES_VERSION=${var.kubernetes_version}",
      "KUBERNETES_PACKAGES_URL=${var.kubernetes_packages_url}",
      "CONTAINER_IMAGES=pull",
    ]
    inline = [
      "set -eu",
      "/tmp/provision/10-packages.sh",
      "/tmp/provision/20-kernel.sh",
      "/tmp/provision/30-kubernetes.sh",
      "/tmp/provision/40-containerd.sh",
      "/tmp/provision/50-cloud-init.sh",
      "/tmp/provision/60-images.sh",
      # The last one writes everything to the disk before it is copied.
      "/tmp/provision/90-seal.sh",
    ]
  }
}
