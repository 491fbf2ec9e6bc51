"""Developer tooling: what builds, tests and demonstrates capox. Nothing here is installed with the package."""
