"""The Kubernetes API as capox uses it. This room knows nothing of Oxide."""
