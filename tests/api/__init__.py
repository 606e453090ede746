"""Tests against a real API server without nodes: the resource, the charts, the rights, the operator."""
