"""Runs the suites of tests for ``make`` and ``.ci/run``, records what became of each test, and reruns what failed."""
