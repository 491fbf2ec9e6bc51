"""What judges and shows a bench; what measures is shown right by `make bench` alone."""
