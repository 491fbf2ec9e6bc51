"""What capox relies on of the Kubernetes API: the same tests for the simulated store and for a real apiserver."""

import pytest

# The stories are in a module that is not itself a test, so that both sides can take them.
pytest.register_assert_rewrite("tests.contract.kube.stories")
