"""Tests of the operator's shell that need no server."""
