"""`make demo`: a real control plane and a simulated rack on this computer, and a cluster that comes to be on them."""
