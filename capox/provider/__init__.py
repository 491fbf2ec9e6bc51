"""The management cluster's controllers: Cluster API's objects on one side, the rack on the other."""
