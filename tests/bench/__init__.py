"""Speed, calls and memory, as ratios within one run; `make bench` runs these, `make test` does not."""
