"""capox: a Cluster API infrastructure provider and a cloud controller manager for Oxide racks."""
