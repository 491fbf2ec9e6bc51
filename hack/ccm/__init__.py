"""What is made of config/ccm: the package data that the provider installs from, and the Helm chart."""
