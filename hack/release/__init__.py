"""What a release publishes and clusterctl reads: `python -m hack.release --version v0.1.0`.

`assemble` puts it together from config/, `rules` says what clusterctl and Kubernetes ask of it; what breaks a rule is
not released.
"""
