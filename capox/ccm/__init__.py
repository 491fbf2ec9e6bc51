"""The cloud controller manager of a workload cluster: Nodes, their lives, and Services of type LoadBalancer."""
