"""The Kubernetes operator of spatialstream."""
