"""Actors (long-running processes that hold slots in memory), the driver's actor registry, and the actor engine.

Driver and actors exchange data (JSON and Arrow over Arrow Flight), never code. The processes are started from outside
this package (:mod:`spatialstream.spark.actor_launcher`).
"""
