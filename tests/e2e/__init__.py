"""The whole platform on a real Kubernetes: both charts, the operator, streams, and everything that can go wrong."""
