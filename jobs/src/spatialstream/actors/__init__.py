"""Processes that stay, and hold the slots: actors, the driver's actor registry, and the engine that has them work.

What goes between driver and actors is data (JSON and Arrow, by Arrow Flight), never code. Who starts the processes is
told from outside (:mod:`spatialstream.spark.actor_launcher`).
"""
