"""The provider with whole fleets: made, at rest, deleted; beside the rack's floor and Cluster API's in-memory provider.

`make bench` runs it (`python -m tests.bench.fleet`). `limits` says what has to be reached and is held to by unit tests;
everything else measures. Counts are exact on any machine; times are compared only within one run.
"""
