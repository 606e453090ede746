"""Runs the test suites for ``make`` and ``.ci/run``, records the outcome of each test, and reruns failed tests."""
