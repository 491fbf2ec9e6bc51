"""The ports of clusters in a VPC's firewall, for whoever keeps its rules by hand."""
