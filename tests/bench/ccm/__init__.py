"""The cloud controller manager with a hundred Nodes: what it costs at rest, and how soon a Service is elsewhere.

`python -m tests.bench.ccm` measures it as it is shipped, and ends with an error when a limit is missed.
"""
