"""Oxide's own Rust SDK against the rack: a client that nobody here wrote, whose strict types judge every answer.

`python -m tests.contract.sdk` builds two small programs with cargo, runs them against a real `capox rack` process, and
ends with a line `N passed, M failed`.
"""
